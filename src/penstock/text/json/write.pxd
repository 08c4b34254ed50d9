# JSON text as Go writes it, into one growing piece of memory; see write.pyx.

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef class Encoded


cdef class Writer:
    # The bytes object that is written into, which nobody else has yet; NULL if there is none.
    cdef PyObject* text
    cdef uint8_t* data
    cdef readonly size_t size
    cdef size_t room

    cdef uint8_t* reserve(self, size_t more) except NULL
    cdef int put(self, const void* text, size_t size) except -1
    cdef int put_byte(self, uint8_t byte) except -1
    cdef int put_unsigned(self, uint64_t number) except -1
    cdef int put_instant(self, int64_t time_ns) except -1
    cdef int put_text(self, const uint8_t* text, size_t size) except -1
    cdef int put_base64(self, const uint8_t* raw, size_t size) except -1
    cdef int put_str(self, object text) except -1
    cdef int put_whole(self, object number) except -1
    cdef int put_when(self, object instant) except -1
    cdef int put_encoded(self, Encoded value) except -1


cdef class Encoded:
    cdef readonly bytes text


cdef class Plan:
    cdef int write(self, Writer out, object value) except -1
    cdef int is_empty(self, object value) except -1
