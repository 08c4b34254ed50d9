# The client's side of the protocol over one blocking socket; see wire.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.protocol.lines cimport Argument, Line


cdef enum:
    # Bytes that gather before they are sent.
    SEND_AT = 262144


cdef class Wire:
    cdef int fd
    cdef object secured
    cdef uint8_t* out
    cdef size_t out_used
    cdef size_t out_room
    cdef uint8_t* data
    cdef size_t start
    cdef size_t end
    cdef size_t room
    # Operations that were seen while looking for messages.
    cdef readonly uint64_t pongs
    cdef readonly list infos
    cdef readonly list errors

    cdef int _reserve(self, size_t more) except -1
    cdef int put(self, const void* data, size_t size) except -1
    cdef int _send_all(self, const uint8_t* data, size_t size) except -1
    cdef int _check(self, int problem) except -1
    cdef _raise(self, int problem)
    cdef int fill(self) except -1
    cdef Py_ssize_t step(self, Line* line, Argument* arguments, int* count) except -2
    cdef note(self, const Line* line)
    cdef message(self, const Line* line, const Argument* arguments, int count, Py_ssize_t used)
    cpdef send(self)


cdef int64_t number_behind(const Argument* subject, size_t before) noexcept nogil
cdef bint is_text(const Argument* argument, bytes text) noexcept
