# Envelopes that are compressed and not encrypted; see packing.pyx.

from libc.stdint cimport uint8_t, uint32_t


cdef class Packer:
    cdef uint8_t* data
    cdef size_t room

    cdef uint8_t* _reserve(self, size_t room) except NULL
    cdef const uint8_t* pack(
        self, const uint8_t* headers, size_t headers_size, const uint8_t* payload,
        size_t payload_size, size_t* packed_size,
    ) except? NULL
    cdef const uint8_t* unpack(
        self, const uint8_t* envelope, size_t envelope_size, uint32_t* headers_size,
        uint32_t* payload_size,
    ) except? NULL
