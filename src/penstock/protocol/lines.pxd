# The operations of the client protocol, found in raw memory; see lines.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum Operation:
    OP_CONNECT
    OP_PUB
    OP_HPUB
    OP_SUB
    OP_UNSUB
    OP_PING
    OP_PONG
    OP_INFO
    OP_PLUS_OK
    OP_MINUS_ERR
    OP_MSG
    OP_HMSG


cdef enum:
    # What `read_line` answers beside the length of the line.
    LINE_SHORT = 0
    LINE_UNKNOWN = -1
    LINE_TOO_LONG = -2
    ARGUMENTS_MAX = 6
    SIZE_BAD = -1
    # The longest size that is read, in digits: below a gigabyte.
    SIZE_DIGITS_MAX = 9


cdef struct Argument:
    const uint8_t* text
    uint32_t size


cdef struct Line:
    Operation operation
    # What stands behind the operation, without the line's end.
    const uint8_t* text
    size_t text_size


cdef inline int64_t parse_size(const Argument* argument) noexcept nogil:
    cdef int64_t value = 0
    cdef uint32_t at
    if argument.size == 0 or argument.size > SIZE_DIGITS_MAX:
        return SIZE_BAD
    for at in range(argument.size):
        if argument.text[at] < 48 or argument.text[at] > 57:
            return SIZE_BAD
        value = value * 10 + (argument.text[at] - 48)
    return value


cdef struct PublishLine:
    # PUB or HPUB as nearly every client writes it. `reply` and `headers_size` may be absent.
    bint with_headers
    Argument subject
    Argument reply
    Argument headers_size
    Argument size
    # The whole line, its end included.
    size_t line_bytes


cdef inline bint read_publish(
    const uint8_t* start, size_t available, PublishLine* line
) noexcept nogil:
    # Return True for a line of a publish that is whole, with one space before each argument and no
    # byte that needs a closer look. Otherwise `read_line` must judge it.
    cdef Argument[4] arguments
    cdef int count = 0
    cdef uint32_t word
    cdef size_t at, begin
    cdef uint8_t byte
    if available < 11:
        return False
    memcpy(&word, start, 4)
    line.with_headers = word != 0x20425550  # "PUB "
    if line.with_headers and (word != 0x42555048 or start[4] != 32):  # "HPUB"
        return False
    at = begin = 5 if line.with_headers else 4
    while at < available:
        byte = start[at]
        if byte > 32:
            at += 1
            continue
        if at == begin or count == 4:
            return False
        arguments[count].text = start + begin
        arguments[count].size = <uint32_t>(at - begin)
        count += 1
        at += 1
        begin = at
        if byte != 32:
            break
    if start[at - 1] != 13 or at >= available or start[at] != 10:
        return False
    line.line_bytes = at + 1
    line.subject = arguments[0]
    line.reply.size = 0
    if count == (4 if line.with_headers else 3):
        line.reply = arguments[1]
    elif count != (3 if line.with_headers else 2):
        return False
    line.size = arguments[count - 1]
    if line.with_headers:
        line.headers_size = arguments[count - 2]
    return True


cdef Py_ssize_t read_line(
    const uint8_t* start, size_t available, size_t line_max, Line* line
) noexcept nogil
cdef int split_arguments(
    const uint8_t* text, size_t size, Argument* arguments, bint at_line_ends
) noexcept nogil
cdef int put_number(uint8_t* out, uint64_t value) noexcept nogil
