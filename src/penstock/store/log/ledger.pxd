# What the store holds, without its bytes; see ledger.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport SubjectTable
from penstock.store.log.block cimport Block
from penstock.store.upkeep.expiry cimport Expiries


cdef class Ledger:
    cdef readonly list blocks
    cdef readonly SubjectTable table
    cdef readonly uint64_t messages
    cdef readonly uint64_t bytes
    cdef readonly uint64_t first_seq
    cdef readonly int64_t first_time_ns
    cdef readonly uint64_t last_seq
    cdef readonly int64_t last_time_ns
    # Sequences that are gone and that no tombstone on disk tells of yet.
    cdef readonly SequenceSet removed
    # Of the message appended last: its subject's item, and that subject's message before it.
    cdef readonly uint32_t appended_item
    cdef readonly uint64_t previous_seq
    cdef object index_loader
    cdef object files_opener
    cdef object entry_counter
    cdef dict wanted_cache
    # The cache of indexes has room: a block that is asked for a single entry is loaded whole.
    cdef bint index_room
    # What a message counts for beside its bytes, and what it counts more if it has headers.
    cdef uint32_t message_overhead
    cdef uint32_t headers_overhead
    # Some sealed block has become sparse or empty since this was last taken back.
    cdef bint reclaimable
    # What has a time to live, or None.
    cdef Expiries expiries

    cpdef int end_at(self, uint64_t last_seq, int64_t last_time_ns) except -1
    cdef SequenceSet take_removed(self)
    cdef bint take_reclaimable(self) noexcept
    cdef Py_ssize_t block_at(self, uint64_t seq) noexcept
    cdef BlockIndex index_of(self, Block block)
    cdef int64_t find_entry(self, Block block, uint64_t seq, Entry* entry) except -2
    cdef int put(
        self, Block block, uint8_t flags, const uint8_t* subject, size_t subject_size,
        const uint8_t* headers, size_t headers_size, const uint8_t* payload, size_t payload_size,
        int64_t expires_ns, uint64_t seq, int64_t timestamp_ns, uint32_t message_size,
    ) except -1
    cdef int kill(self, Block block, uint32_t ordinal, const Entry* entry, uint32_t item) except -1
    cdef int advance_first(self) except -1
    cdef uint32_t item_of(self, BlockIndex index, uint32_t local) except? 0xFFFFFFFF
    cdef uint32_t item_of_entry(
        self, Block block, const Entry* entry, uint64_t seq
    ) except? 0xFFFFFFFF
    cdef bytes raw_record(self, Block block, const Entry* entry)
    cdef bytes wanted(self, BlockIndex index, object subject_filter)
    cdef uint64_t last_of(self, uint32_t item, uint64_t up_to) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t first_of(self, uint32_t item) except? 0xFFFFFFFFFFFFFFFF
    cdef bint _is_of(self, BlockIndex index, int64_t ordinal, uint32_t item) noexcept
    cdef uint32_t oldest_size(self, uint32_t item) except? 0xFFFFFFFF
    cpdef uint32_t remove(self, uint64_t seq) except? 0xFFFFFFFF
    cdef uint64_t remove_oldest(self, uint64_t count, uint64_t size) except? 0xFFFFFFFFFFFFFFFF
    cpdef uint32_t trim_subject(self, uint32_t item, uint32_t keep) except? 0xFFFFFFFF
    cdef bint _remove_known(self, uint32_t item, uint64_t seq) except -1
    cdef uint32_t counted_size(
        self, size_t subject_size, size_t headers_size, size_t payload_size
    ) noexcept
    cpdef uint32_t message_size(self, bytes subject, bytes headers, bytes payload)
