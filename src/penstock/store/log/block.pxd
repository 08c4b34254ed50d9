# A block of an open store, its files and its messages; see block.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.store.log.active_block cimport ActiveBlock
from penstock.store.system_calls cimport SystemCalls


cdef class BlockFiles:
    cdef readonly str path
    # The system calls of both files.
    cdef SystemCalls calls
    cdef object block_file
    cdef object open_index
    cdef object index_file
    cdef int block_fd
    cdef int index_fd

    cdef bytes read(self, uint64_t offset, size_t size)
    cdef bytes read_at_hand(self, uint64_t offset, size_t size)
    cdef int read_entry(self, uint32_t ordinal, Entry* entry) except -1


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
    # What its index took when a cache admitted it.
    cdef public uint64_t index_bytes
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
    # Its live bytes when disk space was last asked for on its account; 0 for never.
    cdef uint64_t reclaim_asked_at

    cpdef int follow(self, BlockIndex index) except -1
    cdef const uint8_t* dead_bits(self) except? NULL
    cdef bint is_dead(self, uint32_t ordinal) noexcept
    cdef bint is_worth_reclaiming(self, uint64_t header_bytes) noexcept
    cdef int bury(self, uint32_t ordinal) except -1
    cdef int kill(self, uint32_t ordinal, const Entry* entry) except -1
    cdef int _room_for_dead(self, uint32_t entries) except -1


cdef class StoredMessage:
    cdef readonly uint64_t seq
    cdef readonly int64_t timestamp_ns
    cdef readonly int64_t expires_ns
    cdef bytes raw
    cdef uint8_t flags
    cdef uint32_t subject_at
    cdef uint32_t subject_size
    cdef uint32_t headers_at
    cdef uint32_t headers_size
    cdef uint32_t payload_at
    cdef uint32_t payload_size
    cdef object unseal
    cdef tuple opened


cdef StoredMessage open_at_hand(
    bytes raw, uint64_t seq, uint64_t seed, uint64_t offset, object unseal
)
cdef StoredMessage open_record(
    bytes raw, uint64_t seq, uint64_t seed, uint64_t offset, str path, object unseal
)
