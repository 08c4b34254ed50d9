# Times as text, in raw memory; see clock_text.pyx.

from libc.stdint cimport int64_t, uint8_t


cdef enum:
    # The longest time: years up to 2262, nine digits of a second.
    TIME_BYTES_MAX = 30


cdef uint8_t* put_time(uint8_t* out, int64_t time_ns) noexcept nogil
