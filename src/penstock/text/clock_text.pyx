"""Times as RFC 3339 in UTC, compiled: for what is written once per message or request.

The same text as that of `times.timestamp`, which writes every time of every zone.

Pure; any thread.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef inline uint8_t* _put(uint8_t* out, uint8_t byte) noexcept nogil:
    out[0] = byte
    return out + 1


cdef inline uint8_t* _put_digits(uint8_t* out, uint64_t number, int count) noexcept nogil:
    cdef int place
    for place in range(count - 1, -1, -1):
        out[place] = <uint8_t>(48 + number % 10)
        number //= 10
    return out + count


cdef uint8_t* put_time(uint8_t* out, int64_t time_ns) noexcept nogil:
    # RFC 3339 in UTC, without zeros at the end; TIME_BYTES_MAX at the most, for years up to 2262.
    cdef int64_t seconds = time_ns // 1000000000
    cdef int64_t rest_ns = time_ns - seconds * 1000000000
    if rest_ns < 0:
        rest_ns += 1000000000
        seconds -= 1
    cdef int64_t days = seconds // 86400
    cdef int64_t second = seconds - days * 86400
    if second < 0:
        second += 86400
        days -= 1
    # Counted from a March so that the leap day is last, in eras of 400 years.
    days += 719468
    cdef int64_t era = (days if days >= 0 else days - 146096) // 146097
    cdef int64_t rest = days - era * 146097
    cdef int64_t year = (rest - rest // 1460 + rest // 36524 - rest // 146096) // 365
    rest -= 365 * year + year // 4 - year // 100
    cdef int64_t month = (5 * rest + 2) // 153
    cdef int64_t day = rest - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (1 if month <= 2 else 0)
    out = _put_digits(out, <uint64_t>year, 4)
    out = _put_digits(_put(out, c"-"), <uint64_t>month, 2)
    out = _put_digits(_put(out, c"-"), <uint64_t>day, 2)
    out = _put_digits(_put(out, c"T"), <uint64_t>(second // 3600), 2)
    out = _put_digits(_put(out, c":"), <uint64_t>(second // 60 % 60), 2)
    out = _put_digits(_put(out, c":"), <uint64_t>(second % 60), 2)
    if rest_ns:
        out = _put_digits(_put(out, c"."), <uint64_t>rest_ns, 9)
        while out[-1] == 48:
            out -= 1
    return _put(out, c"Z")


def time_text(int64_t time_ns):
    """Return a time as the headers have it."""
    cdef uint8_t[TIME_BYTES_MAX] text
    cdef uint8_t* end = put_time(text, time_ns)
    return (<const char*>text)[:end - text]
