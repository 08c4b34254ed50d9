# Appending to a log; see writer.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.format.packing cimport Packer
from penstock.store.log.block cimport Block
from penstock.store.log.capacity cimport Capacity
from penstock.store.log.ledger cimport Ledger
from penstock.store.upkeep.expiry cimport Expiries


cdef class LogWriter:
    cdef object log
    cdef Ledger ledger
    cdef Expiries expiries
    cdef readonly Capacity capacity
    cdef object config
    cdef bytes stream
    cdef Block block
    cdef uint64_t block_bytes_max
    # Compresses messages; None where they are stored as they are, or encrypted.
    cdef Packer packer
    cdef bint encrypts

    cdef Block _block_for(self, size_t room, uint64_t seq)
    cdef int append(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, int64_t expires_ns,
        uint64_t seq, int64_t time_ns,
    ) except -1
    cpdef int append_skip(self, uint64_t seq, uint64_t count, int64_t time_ns) except -1
