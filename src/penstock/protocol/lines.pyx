"""The lines of the client protocol: which operation a line is, and where its arguments are.

A line is judged byte by byte as it comes: what cannot become an operation any more is refused at
once, not at the end of the line. Operations are written in any case; arguments are separated by any
run of spaces and tabs; a line ends with a newline, and a carriage return before it is dropped.
Odd lines are read as the reference server reads them: the first byte of the arguments is
never the end of the line, and a carriage return among them costs the line its last byte.

Pure and without allocation; any thread. Used by `net.link` and by the client's wire.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

cdef enum:
    # Longest word of an operation: connect.
    WORD_MAX = 7

# The numbers below a hundred, two digits each.
cdef const char* PAIRS = (
    b"00010203040506070809101112131415161718192021222324252627282930313233343536373839"
    b"40414243444546474849505152535455565758596061626364656667686970717273747576777879"
    b"8081828384858687888990919293949596979899"
)


cdef inline uint8_t lower(uint8_t byte) noexcept nogil:
    return byte | 0x20 if 65 <= byte <= 90 else byte


cdef int find_word(
    const uint8_t* start, size_t available, Operation* operation, const char** word
) noexcept nogil:
    # Return 1 if the first bytes can be only one operation, 0 if more are needed, -1 if none.
    cdef uint8_t second = lower(start[1]) if available > 1 else 0
    word[0] = NULL
    if start[0] == 80 or start[0] == 112:  # p
        if available < 2:
            return 0
        if second == 117:
            operation[0] = OP_PUB
            word[0] = "pub"
        elif second == 105:
            operation[0] = OP_PING
            word[0] = "ping"
        elif second == 111:
            operation[0] = OP_PONG
            word[0] = "pong"
        else:
            return -1
        return 1
    if start[0] == 72 or start[0] == 104:  # h
        if available < 2:
            return 0
        operation[0] = OP_HMSG if second == 109 else OP_HPUB
        word[0] = "hmsg" if second == 109 else "hpub"
        return 1
    if start[0] == 77 or start[0] == 109:  # m
        operation[0] = OP_MSG
        word[0] = "msg"
    elif start[0] == 83 or start[0] == 115:  # s
        operation[0] = OP_SUB
        word[0] = "sub"
    elif start[0] == 85 or start[0] == 117:  # u
        operation[0] = OP_UNSUB
        word[0] = "unsub"
    elif start[0] == 67 or start[0] == 99:  # c
        operation[0] = OP_CONNECT
        word[0] = "connect"
    elif start[0] == 73 or start[0] == 105:  # i
        operation[0] = OP_INFO
        word[0] = "info"
    elif start[0] == 43:
        operation[0] = OP_PLUS_OK
        word[0] = "+ok"
    elif start[0] == 45:
        operation[0] = OP_MINUS_ERR
        word[0] = "-err"
    else:
        return -1
    return 1


cdef Py_ssize_t read_line(
    const uint8_t* start, size_t available, size_t line_max, Line* line
) noexcept nogil:
    # Return the bytes of the line, its end included, or one of LINE_*. At least one byte is there.
    cdef const char* word
    cdef int known = find_word(start, available, &line.operation, &word)
    cdef size_t at = 0, rest
    cdef const uint8_t* newline
    cdef const uint8_t* text
    if known <= 0:
        return known
    while word[at]:
        if at == available:
            return LINE_SHORT
        if lower(start[at]) != <uint8_t>word[at]:
            return LINE_UNKNOWN
        at += 1
    if line.operation == OP_PING or line.operation == OP_PONG or line.operation == OP_PLUS_OK:
        return _skip_line(start, at, available, line_max, line)
    if at == available:
        return LINE_SHORT
    if (
        start[at] != 32 and start[at] != 9
        and line.operation != OP_CONNECT and line.operation != OP_INFO
    ):
        return LINE_UNKNOWN
    while at < available and (start[at] == 32 or start[at] == 9):
        at += 1
    if at == available:
        # Spaces are kept until an argument comes, so they are bounded as the arguments are.
        return LINE_TOO_LONG if at > line_max + WORD_MAX else LINE_SHORT
    text = start + at
    rest = available - at
    newline = <const uint8_t*>memchr(text + 1, 10, rest - 1)
    if newline == NULL:
        if rest > 1 and text[rest - 1] == 13:
            rest -= 1
        return LINE_TOO_LONG if rest > line_max else LINE_SHORT
    line.text = text
    line.text_size = newline - text
    if line.text_size > 1 and (
        newline[-1] == 13 or memchr(text + 1, 13, line.text_size - 1) != NULL
    ):
        line.text_size -= 1
    if line.text_size > line_max:
        return LINE_TOO_LONG
    return newline + 1 - start


cdef Py_ssize_t _skip_line(
    const uint8_t* start, size_t at, size_t available, size_t line_max, Line* line
) noexcept nogil:
    # Read an operation without arguments: what stands behind it is passed over.
    cdef const uint8_t* newline = <const uint8_t*>memchr(start + at, 10, available - at)
    if newline == NULL:
        return LINE_TOO_LONG if available - at > line_max else LINE_SHORT
    line.text = start + at
    line.text_size = 0
    return newline + 1 - start


cdef inline bint _separates(uint8_t byte, bint at_line_ends) noexcept nogil:
    return byte == 32 or byte == 9 or (at_line_ends and (byte == 13 or byte == 10))


cdef int split_arguments(
    const uint8_t* text, size_t size, Argument* arguments, bint at_line_ends
) noexcept nogil:
    # Find up to ARGUMENTS_MAX arguments; return how many, ARGUMENTS_MAX + 1 for more. Stray line
    # ends separate as spaces do if `at_line_ends`, and are part of an argument otherwise.
    cdef int count = 0
    cdef size_t at = 0, begin
    while at < size:
        if _separates(text[at], at_line_ends):
            at += 1
            continue
        begin = at
        while at < size and not _separates(text[at], at_line_ends):
            at += 1
        if count == ARGUMENTS_MAX:
            return ARGUMENTS_MAX + 1
        arguments[count].text = text + begin
        arguments[count].size = <uint32_t>(at - begin)
        count += 1
    return count


cdef int put_number(uint8_t* out, uint64_t value) noexcept nogil:
    # Write decimal digits at `out` (20 at the most); return how many. Two at a time, last first.
    cdef uint64_t rest = value
    cdef int count = 1, at
    while rest >= 10000:
        rest //= 10000
        count += 4
    count += (rest >= 10) + (rest >= 100) + (rest >= 1000)
    at = count
    while value >= 100:
        at -= 2
        memcpy(out + at, PAIRS + 2 * (value % 100), 2)
        value //= 100
    if value >= 10:
        memcpy(out, PAIRS + 2 * value, 2)
    else:
        out[0] = <uint8_t>(48 + value)
    return count
