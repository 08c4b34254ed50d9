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

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, strlen

cdef extern from "string.h" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef const char* START = b"NATS/1.0\r\n"
cdef const char* OURS = b"\r\nNats-"

cdef enum:
    START_SIZE = 10
    OURS_SIZE = 7
    LINE_END_SIZE = 2
    # Where names begin to differ.
    FIRST_LETTER = 5

# Each name, with the colon behind it.
cdef const char* NAMES[NAME_COUNT]
NAMES[MESSAGE_ID] = b"Nats-Msg-Id:"
NAMES[EXPECTED_STREAM] = b"Nats-Expected-Stream:"
NAMES[EXPECTED_LAST_SEQ] = b"Nats-Expected-Last-Sequence:"
NAMES[EXPECTED_SUBJECT_SEQ] = b"Nats-Expected-Last-Subject-Sequence:"
NAMES[EXPECTED_SUBJECT] = b"Nats-Expected-Last-Subject-Sequence-Subject:"
NAMES[EXPECTED_LAST_ID] = b"Nats-Expected-Last-Msg-Id:"
NAMES[ROLLUP] = b"Nats-Rollup:"
NAMES[TTL] = b"Nats-TTL:"
NAMES[INCREMENT] = b"Nats-Incr:"
NAMES[COUNTER_SOURCES] = b"Nats-Counter-Sources:"
NAMES[STREAM_SOURCE] = b"Nats-Stream-Source:"
NAMES[REQUEST_INFO] = b"Nats-Request-Info:"
NAMES[REQUIRED_LEVEL] = b"Nats-Required-Api-Level:"
NAMES[BATCH_ID] = b"Nats-Batch-Id:"
NAMES[BATCH_SEQ] = b"Nats-Batch-Sequence:"
NAMES[BATCH_COMMIT] = b"Nats-Batch-Commit:"
NAMES[SCHEDULE] = b"Nats-Schedule"

cdef size_t NAME_SIZES[NAME_COUNT]

FIRST_LINE = b"NATS/1.0\r\n"


cdef void _measure_names() noexcept:
    cdef int name
    for name in range(NAME_COUNT):
        NAME_SIZES[name] = strlen(NAMES[name])


_measure_names()


cdef bint is_plain_start(const uint8_t* headers, size_t size) noexcept nogil:
    # Whether a block begins with a first line without a status.
    return size >= START_SIZE and memcmp(headers, START, START_SIZE) == 0


cdef void read_stream_headers(
    const uint8_t* headers, size_t size, StreamHeaders* told
) noexcept nogil:
    # Find every header that means something to a stream in one pass: all begin with "Nats-".
    cdef const uint8_t* end = headers + size
    cdef const uint8_t* place = headers
    cdef uint32_t looked_for = 0
    cdef int64_t index
    cdef int name
    told.seen = 0
    while True:
        place = <const uint8_t*>memmem(place, end - place, OURS, OURS_SIZE)
        if place == NULL:
            return
        place += LINE_END_SIZE
        name = _name_at(place, end)
        if name < 0 or looked_for & bit_of(name):
            continue
        looked_for |= bit_of(name)
        index = place - headers
        if name != SCHEDULE and (
            memmem(headers, index, NAMES[name], NAME_SIZES[name] - 1) != NULL
        ):
            # The name is in a text before it: whether it is found then is for `_find` to say.
            index = _find(headers, size, <const uint8_t*>NAMES[name], NAME_SIZES[name] - 1)
        if index >= 0:
            told.seen |= bit_of(name)
            _take_value(headers + index + NAME_SIZES[name], end, &told.values[name])


cdef inline int _name_at(const uint8_t* place, const uint8_t* end) noexcept nogil:
    cdef int name
    for name in range(NAME_COUNT):
        if <size_t>(end - place) >= NAME_SIZES[name] and (
            place[FIRST_LETTER] == <uint8_t>NAMES[name][FIRST_LETTER]
            and memcmp(place, NAMES[name], NAME_SIZES[name]) == 0
        ):
            return name
    return -1


def stream_headers(bytes headers not None):
    """Return the headers that mean something to a stream, by name, as compiled code finds them.

    Those of schedules are left out: only whether there are any counts.
    """
    cdef StreamHeaders told
    cdef int name
    cdef dict found = {}
    read_stream_headers(headers, len(headers), &told)
    for name in range(SCHEDULE):
        if told.seen & bit_of(name):
            found[NAMES[name][:NAME_SIZES[name] - 1]] = bytes_in(&told, name)
    return found


cdef void _take_value(const uint8_t* place, const uint8_t* end, Value* value) noexcept nogil:
    # The caller knows that `place` is not behind `end`.
    cdef const uint8_t* line_end
    while place < end and place[0] == b" ":
        place += 1
    line_end = <const uint8_t*>memmem(place, end - place, b"\r\n", 2)
    value.start = place
    value.size = (end if line_end == NULL else line_end) - place


cdef int64_t _find(
    const uint8_t* headers, size_t size, const uint8_t* wanted, size_t wanted_size
) noexcept nogil:
    # Return where a name stands, or -1.
    cdef size_t offset = 0, index
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
    cdef int64_t index = _find(data, size, name, len(name))
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
    cdef int64_t index = _find(data, size, name, len(name)), end
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
        index = _find(data + start - 2, size - start + 2, name, len(name))
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
    cdef int64_t index = _find(headers, len(headers), name, len(name))
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
