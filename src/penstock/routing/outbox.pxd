# Bytes waiting for one receiver; see outbox.pyx.

from libc.stdint cimport uint8_t, uint64_t


cdef class Outbox:
    cdef uint8_t* data
    cdef size_t start
    cdef size_t end
    cdef size_t room

    # It filled more than a small buffer the last time.
    cdef bint is_busy

    cdef size_t pending(self) noexcept nogil
    cdef uint8_t* reserve(self, size_t more) except NULL
    cdef uint8_t* _move_to_spare(self) except NULL
    cdef int put(self, const void* data, size_t size) except -1
    cdef Py_ssize_t send(self, int fd) noexcept nogil
    cdef void release(self) noexcept nogil
