# Growing columns of messages; see columns.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef struct Bytes:
    uint8_t* data
    size_t used
    size_t room


cdef class ColumnBuilder:
    cdef readonly Py_ssize_t count
    cdef bint keep_headers
    cdef bint keep_payloads
    cdef Bytes sequences
    cdef Bytes timestamps
    cdef Bytes offsets
    cdef Bytes subject_offsets
    cdef Bytes subjects
    cdef Bytes header_offsets
    cdef Bytes headers
    cdef Bytes payload_offsets
    cdef Bytes payloads

    cdef int add(
        self, uint64_t seq, int64_t timestamp_ns, uint64_t offset,
        const uint8_t* subject, size_t subject_size,
        const uint8_t* headers, size_t headers_size,
        const uint8_t* payload, size_t payload_size,
    ) except -1 nogil
    cpdef size_t data_bytes(self) noexcept
