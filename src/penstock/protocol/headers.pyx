"""A block of headers as it came: values are looked for and changed in its bytes.

    NATS/1.0\\r\\n
    Nats-Msg-Id: 7\\r\\n
    \\r\\n

A name is found with its own case, at the start of a line and with a colon right behind it; its
value is what follows to the end of the line, without spaces before it. Of a name that is there
twice the first counts. What is malformed is left as it is. These are the reference server's rules:
a block that was taken apart and written again would not be the publisher's any more.

Pure; any thread. Used by streams, consumers and the API.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

cdef extern from "string.h" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef const char* START = b"NATS/1.0\r\n"
cdef const char* OURS = b"\r\nNats-"
cdef const char* MESSAGE_ID = b"\r\nNats-Msg-Id:"
# Where a message was before: for readers, it means nothing to streams.
cdef const char* ORIGIN = b"\r\nNats-Orig-"
cdef const char* BATCH_ID = b"\r\nNats-Batch-Id:"
cdef const char* BATCH_SEQ = b"\r\nNats-Batch-Sequence:"

cdef enum:
    START_SIZE = 10
    OURS_SIZE = 7
    MESSAGE_ID_SIZE = 14
    ORIGIN_SIZE = 12
    BATCH_ID_SIZE = 16
    BATCH_SEQ_SIZE = 22

FIRST_LINE = b"NATS/1.0\r\n"


cdef Kind classify(const uint8_t* headers, size_t size, Value* message_id) noexcept nogil:
    # Every header that means something to a stream begins with "Nats-".
    cdef const uint8_t* end = headers + size
    cdef const uint8_t* place = headers
    cdef Kind kind = ORDINARY
    if size < START_SIZE or memcmp(headers, START, START_SIZE):
        return SPECIAL
    while True:
        place = <const uint8_t*>memmem(place, end - place, OURS, OURS_SIZE)
        if place == NULL:
            return kind
        if _is_named(place, end, ORIGIN, ORIGIN_SIZE):
            place += ORIGIN_SIZE
            continue
        if kind == IDENTIFIED or end - place < MESSAGE_ID_SIZE or memcmp(
            place, MESSAGE_ID, MESSAGE_ID_SIZE
        ):
            return SPECIAL
        kind = IDENTIFIED
        _take_value(place + MESSAGE_ID_SIZE, end, message_id)
        if message_id.size == 0:
            return SPECIAL
        place = message_id.start + message_id.size


cdef bint find_member(
    const uint8_t* headers, size_t size, Value* batch_id, Value* number
) noexcept nogil:
    # Return True if headers mean nothing to a stream but that this is a member of an atomic batch.
    cdef const uint8_t* end = headers + size
    cdef const uint8_t* place = headers
    batch_id.size = number.size = 0
    if size < START_SIZE or memcmp(headers, START, START_SIZE):
        return False
    while True:
        place = <const uint8_t*>memmem(place, end - place, OURS, OURS_SIZE)
        if place == NULL:
            return batch_id.size and number.size
        if _is_named(place, end, ORIGIN, ORIGIN_SIZE):
            place += ORIGIN_SIZE
        elif _is_named(place, end, BATCH_ID, BATCH_ID_SIZE) and not batch_id.size:
            _take_value(place + BATCH_ID_SIZE, end, batch_id)
            place = batch_id.start + batch_id.size
        elif _is_named(place, end, BATCH_SEQ, BATCH_SEQ_SIZE) and not number.size:
            _take_value(place + BATCH_SEQ_SIZE, end, number)
            place = number.start + number.size
        else:
            return False


cdef inline bint _is_named(
    const uint8_t* place, const uint8_t* end, const char* name, size_t size
) noexcept nogil:
    return <size_t>(end - place) >= size and memcmp(place, name, size) == 0


cdef void _take_value(const uint8_t* place, const uint8_t* end, Value* value) noexcept nogil:
    # The caller knows that `place` is not behind `end`.
    cdef const uint8_t* line_end
    while place < end and place[0] == b" ":
        place += 1
    line_end = <const uint8_t*>memmem(place, end - place, b"\r\n", 2)
    value.start = place
    value.size = (end if line_end == NULL else line_end) - place


cdef Py_ssize_t _find(const uint8_t* headers, size_t size, bytes name) except -2:
    # Return where a name stands, or -1.
    cdef const uint8_t* wanted = name
    cdef size_t wanted_size = len(name), offset = 0, index
    cdef const uint8_t* found
    while offset < size:
        found = <const uint8_t*>memmem(headers + offset, size - offset, wanted, wanted_size)
        # Two bytes end the line before it, also where the search goes on.
        if found == NULL or found < headers + offset + 2:
            return -1
        index = found - headers
        if headers[index - 1] != b"\n" or headers[index - 2] != b"\r":
            offset = index + wanted_size
            continue
        if index + wanted_size >= size:
            return -1
        if headers[index + wanted_size] == b":":
            return index
        offset = index + wanted_size
    return -1


def value_of(bytes headers not None, bytes name not None):
    """Return the value of a header, which may be empty; None if it is not there."""
    cdef const uint8_t* data = headers
    cdef size_t size = len(headers)
    cdef Py_ssize_t index = _find(data, size, name)
    cdef Value value
    if index < 0:
        return None
    _take_value(data + index + len(name) + 1, data + size, &value)
    return value.start[:value.size]


def without_status(bytes headers not None):
    """Return headers without the status in the first line; b"" if there is nothing else."""
    cdef Py_ssize_t end = headers.find(b"\r")
    if end <= 8 or not headers.startswith(b"NATS/1.0"):
        return headers
    headers = headers[:8] + headers[end:]
    return b"" if len(headers) == len(FIRST_LINE) + 2 else headers


def without(bytes headers not None, bytes name not None):
    """Return headers without all of one name; b"" if there is no other."""
    cdef const uint8_t* data = headers
    cdef size_t size = len(headers)
    cdef Py_ssize_t index = _find(data, size, name), end
    cdef size_t start = 0
    cdef list left
    if index < 0:
        return headers
    left = []
    while index >= 0:
        end = headers.find(b"\r\n", index)
        if end < 0:
            break
        left.append(headers[start:index])
        start = end + 2
        # The line's end stays: it is what the next name must stand behind.
        index = _find(data + start - 2, size - start + 2, name)
        if index >= 0:
            index += start - 2
    left.append(headers[start:])
    headers = b"".join(left)
    return b"" if start and len(headers) <= len(FIRST_LINE) + 2 else headers


def without_prefix(bytes headers not None, bytes prefix not None):
    """Return headers without those whose names begin with a prefix; b"" if there is no other."""
    cdef Py_ssize_t index = 0, end
    while (index := headers.find(prefix, index)) >= 0:
        if index < 1 or headers[index - 1] != b"\n":
            index += len(prefix)
            continue
        end = headers.find(b"\r\n", index + len(prefix))
        if end < 0:
            return headers
        headers = headers[:index] + headers[end + 2:]
        if len(headers) <= len(FIRST_LINE) + 2:
            return b""
    return headers


def with_added(bytes headers not None, bytes name not None, bytes value not None):
    """Return headers with one more behind the others."""
    cdef bytes before = headers[:-2] if len(headers) > 2 else FIRST_LINE
    return b"%b%b: %b\r\n\r\n" % (before, name, value)


def with_value(bytes headers not None, bytes name not None, bytes value not None):
    """Return headers with another value of one name, or with it behind the others."""
    cdef Py_ssize_t index = _find(headers, len(headers), name)
    cdef Py_ssize_t start, end
    if index < 0:
        return with_added(headers, name, value)
    start = index + len(name) + 1
    if headers[start:start + 1] == b" ":
        start += 1
    end = headers.find(b"\r\n", start)
    if end < 0:
        return headers
    return headers[:start] + value + headers[end:]
