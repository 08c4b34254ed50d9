# Who wants the messages of a stream; see interest.pyx.

from libc.stdint cimport uint8_t


cdef class Interest:
    # Return True if there is any consumer.
    cdef bint is_any(self) noexcept
    # Return True if a message of a subject is for a consumer, or for a stream that reads from this.
    cdef bint has(self, const uint8_t* subject, size_t size) except -1
