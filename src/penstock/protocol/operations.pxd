# The operations of the client protocol, found in raw memory; see operations.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

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


cdef struct Argument:
    const uint8_t* text
    uint32_t size


cdef struct Line:
    Operation operation
    # What stands behind the operation, without the line's end.
    const uint8_t* text
    size_t text_size


cdef Py_ssize_t read_line(
    const uint8_t* start, size_t available, size_t line_max, Line* line
) noexcept nogil
cdef int split_arguments(
    const uint8_t* text, size_t size, Argument* arguments, bint at_line_ends
) noexcept nogil
cdef int64_t parse_size(const Argument* argument) noexcept nogil
cdef int put_number(uint8_t* out, uint64_t value) noexcept nogil
