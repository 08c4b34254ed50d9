"""How long a message says that it lives: the values of `Nats-TTL` and `Nats-Schedule-TTL`.

    90      seconds
    1m30s   a duration as Go writes it, of at least a second; what is left of a second is cut off
    never   for ever, whatever the stream's maximum age

Pure; any thread. The publish rules read it, and so do schedules and restored streams.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t

from penstock import error_codes
from penstock.errors import ApiError
from penstock.text.times import SECOND_NS, parse_duration

cdef int64_t SECOND = SECOND_NS

cdef enum:
    # Of a number within a duration that is read here: no sum of a few of them is too large.
    PART_DIGITS_MAX = 9
    # Of a duration that is read here.
    PARTS_MAX = 4


cdef int64_t read_ttl(const uint8_t* text, size_t size) except? -3:
    # The seconds of a TTL: 0 for none, FOR_EVER, or TTL_MALFORMED.
    cdef uint64_t seconds = 0
    cdef size_t place
    if not size:
        return 0
    if _is_never(text, size):
        return FOR_EVER
    for place in range(size):
        if not 48 <= text[place] <= 57:
            return _read_duration(text, size)
        # A number above 64 bits loses the upper ones, as the reference server reads it.
        seconds = seconds * 10 + (text[place] - 48)
    # "0" alone is a duration, and too short.
    if seconds > <uint64_t>INT64_MAX or (size == 1 and seconds == 0):
        return TTL_MALFORMED
    return <int64_t>seconds


cdef inline bint _is_never(const uint8_t* text, size_t size) noexcept nogil:
    cdef size_t place
    if size != 5:
        return False
    for place in range(5):
        if text[place] | 0x20 != (<const uint8_t*>b"never")[place]:
            return False
    return True


cdef int64_t _read_duration(const uint8_t* text, size_t size) except? -3:
    # Hours, minutes and seconds in whole numbers are what clients write; Python reads the rest.
    cdef int64_t seconds = 0, part = 0
    cdef size_t place, digits = 0, parts = 0
    for place in range(size):
        if 48 <= text[place] <= 57 and digits < PART_DIGITS_MAX:
            part = part * 10 + (text[place] - 48)
            digits += 1
            continue
        if not digits or parts == PARTS_MAX:
            return _parse_any(text[:size])
        # What follows on an "m" may make milliseconds of it.
        if text[place] == b"m" and (place + 1 == size or 48 <= text[place + 1] <= 57):
            part *= 60
        elif text[place] == b"h":
            part *= 3600
        elif text[place] != b"s":
            return _parse_any(text[:size])
        seconds += part
        part = 0
        digits = 0
        parts += 1
    if digits:
        return _parse_any(text[:size])
    return seconds if 0 < seconds <= INT64_MAX // SECOND else TTL_MALFORMED


cdef int64_t _parse_any(bytes text) except? -3:
    try:
        duration_ns = parse_duration(text.decode("utf-8", "surrogateescape"))
    except ValueError:
        return TTL_MALFORMED
    return duration_ns // SECOND_NS if duration_ns >= SECOND_NS else TTL_MALFORMED


def parse_ttl(bytes text not None):
    """Return the seconds of a TTL: 0 for none, -1 for ever. Raise ApiError."""
    cdef int64_t seconds = read_ttl(text, len(text))
    if seconds == TTL_MALFORMED:
        raise ApiError(error_codes.MESSAGE_TTL_INVALID)
    return seconds
