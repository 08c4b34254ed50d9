# The quick way out for message after message; see outtake.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.block_index cimport BlockIndex, Entry
from penstock.format.record cimport Record
from penstock.store.block_account cimport Block
from penstock.store.ledger cimport Ledger
from penstock.store.selections cimport Selection, Selections, Span
from penstock.subjects cimport SubjectFilter


cdef enum Taken:
    # Nothing more that is wanted, up to where it was asked for.
    TAKEN_NONE = 0
    # The message is in `record`, until the next is asked for.
    TAKEN_WHOLE = 1
    # Message `seq` is an envelope or is damaged: `load` will tell.
    TAKEN_UNREAD = 2


cdef class Outtake:
    cdef object engine
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
    # Bytes of a block that were read at once, and where they lie in it.
    cdef bytes window
    cdef uint64_t window_at
    cdef uint32_t window_number
    cdef uint32_t window_generation

    cdef int begin(self, SubjectFilter subject_filter, uint64_t seq, uint64_t until) except -1
    cdef int end(self) except -1
    cdef Taken next(self) except *
    cdef int remove(self, uint64_t seq) except -1
    cdef int tell_removed(self) except -1
    cdef bint _enter(self, uint64_t seq) except -1
    cdef bint _look_into(self, Block block, uint64_t seq) except -1
    cdef int64_t _next_entry(self, Entry* entry) except -2
    cdef const uint8_t* _record_bytes(self, const Entry* entry, bint is_next) except? NULL
    cdef bytes _read_stretch(self, uint64_t offset, size_t size, size_t more)
