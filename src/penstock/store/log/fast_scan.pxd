# Reading message after message; see fast_scan.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.packing cimport Packer
from penstock.format.record cimport Record
from penstock.store.log.block cimport Block
from penstock.store.log.ledger cimport Ledger
from penstock.subjects cimport SubjectFilter


cdef enum Taken:
    # Nothing more that is wanted, up to where it was asked for.
    TAKEN_NONE = 0
    # The message is in `record`, until the next is asked for.
    TAKEN_WHOLE = 1
    # Message `seq` is encrypted or damaged: `load` will tell.
    TAKEN_UNREAD = 2
    # The message that was asked for is gone.
    TAKEN_GONE = 3


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
    cdef int fill(self, BlockIndex index, const uint8_t* wanted) except -1
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


cdef class Scanner:
    cdef object health
    cdef object durability
    cdef object lock
    cdef Ledger ledger
    cdef SubjectFilter subject_filter
    cdef uint64_t until
    cdef Selections selections
    # Which blocks can hold what is wanted; None for all.
    cdef Span span
    # Where to go on: in this block, or at this sequence where there is none.
    cdef Block block
    # Of a block from which little is wanted: all of that, and the place of the next one.
    cdef Selection selection
    cdef uint32_t place
    # Of other blocks.
    cdef BlockIndex index
    cdef bytes wanted
    cdef uint32_t wanted_subjects
    # The entry behind the last one.
    cdef int64_t ordinal
    # The message at hand.
    cdef uint64_t seq
    cdef Record record
    # Holds the bytes of a message that was compressed.
    cdef Packer packer
    # Bytes of a block that were read at once, and where they lie in it.
    cdef bytes window
    cdef uint64_t window_at
    cdef uint32_t window_number
    cdef uint32_t window_generation

    cdef int begin(self, SubjectFilter subject_filter, uint64_t seq, uint64_t until) except -1
    cdef int end(self) except -1
    cdef Taken next(self) except *
    cdef Taken find(self, uint64_t seq) except *
    cdef Taken _read(self, const Entry* entry, bint is_next) except *
    cdef bint _unpack(self) except -1
    cdef int remove(self, uint64_t seq) except -1
    cdef int tell_removed(self) except -1
    cdef bint _enter(self, uint64_t seq) except -1
    cdef bint _look_into(self, Block block, uint64_t seq) except -1
    cdef int64_t _next_entry(self, Entry* entry) except -2
    cdef const uint8_t* _record_bytes(self, const Entry* entry, bint is_next) except? NULL
    cdef bytes _read_stretch(self, uint64_t offset, size_t size, size_t more)
