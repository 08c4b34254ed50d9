# A walk over the records of one block; see block_walker.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.index.block_index cimport BlockIndex
from penstock.format.columns cimport ColumnBuilder
from penstock.format.record cimport Record


cdef class BlockWalker:
    cdef readonly uint32_t block
    cdef readonly uint64_t seed
    cdef readonly uint64_t base_seq
    # The highest sequence that a whole record told of.
    cdef readonly uint64_t last_seq
    # Where the next record is looked for, and where the last whole one ended.
    cdef readonly size_t offset
    cdef readonly size_t whole_bytes
    # Where the last commit that left its first record began; 0 for none.
    cdef readonly size_t commit_start
    cdef readonly list damage
    # The buffer, held for as long as the walk, and its bounds.
    cdef const uint8_t[::1] data
    cdef const uint8_t* start
    cdef size_t end
    # Where the zeros begin that it ends with; 0 until that is asked for.
    cdef size_t used_end
    cdef uint64_t hash_budget

    cdef bint advance(self, Record* record) except -1 nogil
    cdef bint _is_record(self, size_t offset, Record* record) noexcept nogil
    cdef size_t _next_record(self, size_t offset, Record* record) noexcept nogil
    cdef uint32_t _message_bytes(self, const Record* record) noexcept nogil
    cdef object _add_tombstones(self, BlockIndex index, const Record* record)
    cdef object _add_unsealed(self, ColumnBuilder builder, const Record* record, object unseal)
    cdef bint _is_entry(
        self, BlockIndex index, uint32_t ordinal, const Record* record
    ) noexcept nogil
