# What filters want of sealed blocks; see selections.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.block_index cimport BlockIndex, Entry
from penstock.store.block_account cimport Block
from penstock.store.ledger cimport Ledger
from penstock.subjects cimport SubjectFilter


cdef struct Chosen:
    Entry entry
    # Which entry of the block's index it is.
    uint32_t ordinal


cdef class Selection:
    # So much is wanted that the index itself is as good: nothing is kept.
    cdef bint is_dense
    cdef uint32_t count
    cdef Chosen* items
    # The block as it was.
    cdef uint32_t generation
    cdef uint32_t block_count
    cdef uint64_t block_bytes
    cdef uint64_t seed

    cdef bint is_of(self, Block block) noexcept
    cdef int fill(self, BlockIndex index, const uint8_t* marks) except -1
    cdef uint32_t lower_bound(self, uint64_t seq_delta) noexcept
    cdef int64_t next_live(self, uint32_t place, const uint8_t* dead) noexcept


cdef class Span:
    # A block that holds what the filter wants lies from `low` to `high`, or from `known` on.
    cdef uint32_t low
    cdef uint32_t high
    cdef uint32_t known

    cdef bint may_hold(self, uint32_t number) noexcept


cdef class Selections:
    cdef Ledger ledger
    cdef dict selections
    cdef dict spans
    cdef size_t bytes

    cdef Span span(self, SubjectFilter subject_filter)
    cdef Selection find(self, Block block, SubjectFilter subject_filter)
    cdef Selection make(self, Block block, BlockIndex index, SubjectFilter subject_filter)
    cdef int _keep(self, tuple key, Selection selection) except -1
