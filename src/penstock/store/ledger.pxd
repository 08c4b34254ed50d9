# What the store holds, without its bytes; see ledger.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.block_index cimport BlockIndex, Entry
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport SubjectTable
from penstock.store.active_block cimport ActiveBlock
from penstock.store.block_files cimport BlockFiles


cdef class Block:
    cdef readonly uint32_t number
    cdef readonly uint32_t generation
    cdef readonly uint64_t base_seq
    cdef readonly uint64_t last_seq
    # Entries of the index, live or not, and the file's length.
    cdef readonly uint32_t count
    cdef readonly uint64_t bytes
    cdef readonly uint32_t live
    cdef readonly uint64_t live_bytes
    # Bytes on disk of the live records.
    cdef readonly uint64_t live_disk_bytes
    cdef readonly int64_t first_time_ns
    cdef readonly int64_t last_time_ns
    cdef readonly uint64_t seed
    cdef readonly str path
    # In memory while active, while its index file is not written, or while recently asked for.
    cdef public BlockIndex index
    cdef public bint index_pinned
    cdef public ActiveBlock active
    cdef public BlockFiles files
    cdef public bint touched
    # Opens enveloped records; None where there are none.
    cdef public object unseal
    cdef public object header
    # Messages with a time to live, removed ones included.
    cdef public uint32_t expiring
    # Times that a record was overwritten in place.
    cdef public uint32_t erased
    cdef uint8_t* dead
    cdef uint32_t dead_room
    cdef readonly uint32_t dead_count
    # No entry before it is live.
    cdef uint32_t first_live

    cdef const uint8_t* dead_bits(self) except? NULL
    cdef bint is_dead(self, uint32_t ordinal) noexcept
    cdef int kill(self, uint32_t ordinal, const Entry* entry) except -1
    cdef int _room_for_dead(self, uint32_t entries) except -1


cdef class Ledger:
    cdef readonly list blocks
    cdef readonly SubjectTable table
    cdef readonly uint64_t messages
    cdef readonly uint64_t bytes
    cdef readonly uint64_t first_seq
    cdef readonly int64_t first_time_ns
    cdef public uint64_t last_seq
    cdef public int64_t last_time_ns
    # Sequences that are gone and that no tombstone on disk tells of yet.
    cdef public SequenceSet removed
    # Of the message appended last: its subject's item, and that subject's message before it.
    cdef readonly uint32_t appended_item
    cdef readonly uint64_t previous_seq
    cdef object index_loader
    cdef object files_opener
    cdef dict wanted_cache
    # The cache of indexes has room: a block that is asked for a single entry is loaded whole.
    cdef public bint index_room
    # What a message counts for beside its bytes, and what it counts more if it has headers.
    cdef public uint32_t message_overhead
    cdef public uint32_t headers_overhead
    # Some sealed block has become sparse or empty since this was last taken back.
    cdef public bint reclaimable

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
    cdef uint32_t item_of_entry(self, Block block, const Entry* entry, uint64_t seq) except? 0xFFFFFFFF
    cdef bytes raw_record(self, Block block, const Entry* entry)
    cdef bytes wanted(self, BlockIndex index, object subject_filter)
    cdef object block_range(self, object subject_filter)
    cdef uint64_t last_of(self, uint32_t item, uint64_t up_to) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t first_of(self, uint32_t item) except? 0xFFFFFFFFFFFFFFFF
    cpdef uint32_t message_size(self, bytes subject, bytes headers, bytes payload)
