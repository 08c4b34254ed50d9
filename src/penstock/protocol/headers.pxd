# Values in a block of headers; see headers.pyx.

from libc.stdint cimport uint8_t


cdef enum Kind:
    # No header that means something to a stream.
    ORDINARY
    # Of those only a message id.
    IDENTIFIED
    # Anything else: it needs a closer look.
    SPECIAL


cdef struct Value:
    const uint8_t* start
    size_t size


cdef Kind classify(const uint8_t* headers, size_t size, Value* message_id) noexcept nogil
cdef bint find_member(
    const uint8_t* headers, size_t size, Value* batch_id, Value* number
) noexcept nogil
