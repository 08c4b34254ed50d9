# How long a message says that it lives; see ttl.pyx.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    # What stands for the seconds of a message that lives for ever, and of a text that is malformed.
    FOR_EVER = -1
    TTL_MALFORMED = -2


cdef int64_t read_ttl(const uint8_t* text, size_t size) except? -3
