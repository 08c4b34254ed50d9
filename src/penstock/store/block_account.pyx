"""The account of one block: how much of it is live, and where its index and files are right now.

Per message it keeps nothing beyond one bit for a removed one. What the block's messages are is in
its index, which comes and goes; the counts here stay.

What always holds: `live` is the number of entries that are not dead, and the byte counts are sums
over these.

Under the store's lock; only the ledger and recovery change it.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from penstock.format.block cimport BlockHeader, seed_of
from penstock.format.block_index cimport BlockIndex, Entry
from penstock.format.block_summary cimport BlockSummary


cdef class Block:
    """One block's account."""

    def __init__(self, uint32_t number, uint32_t generation, uint64_t base_seq, uint64_t seed,
                 str path not None):
        self.number = number
        self.generation = generation
        self.base_seq = base_seq
        self.seed = seed
        self.path = path
        self.last_seq = base_seq - 1 if base_seq else 0

    def __dealloc__(self):
        free(self.dead)

    @staticmethod
    def restored(BlockSummary summary not None, BlockHeader header not None, str path not None):
        """Give the account of a block as a checkpoint tells it; the file's header is at hand."""
        cdef Block block = Block.__new__(Block)
        cdef uint32_t dead_bytes = len(summary.dead)
        block.number = summary.number
        block.generation = summary.generation
        block.base_seq = summary.base_seq
        block.seed = seed_of(header.salt, header.number, header.generation)
        block.path = path
        block.count = summary.count
        block.bytes = summary.bytes
        block.last_seq = summary.last_seq
        block.live = summary.live
        block.live_bytes = summary.live_bytes
        block.live_disk_bytes = summary.live_disk_bytes
        block.first_time_ns = summary.first_time_ns
        block.last_time_ns = summary.last_time_ns
        block.expiring = summary.expiring
        if dead_bytes:
            block._room_for_dead(summary.count)
            memcpy(block.dead, PyBytes_AS_STRING(summary.dead), min(dead_bytes, block.dead_room))
            block.dead_count = summary.count - summary.live
        return block

    def cut(self, uint64_t last_seq):
        """Forget the sequences above one, after the file was cut behind it."""
        self.last_seq = last_seq

    def follow(self, BlockIndex index not None):
        """Take length, last sequence and times from an index that knows better."""
        self.count = index.count
        self.bytes = index.block_bytes
        self.last_seq = max(self.last_seq, index.last_seq)
        self.first_time_ns = index.first_time_ns
        self.last_time_ns = index.last_time_ns

    @property
    def dead_bitmap(self):
        """The bitmap of removed entries, b"" where there is none."""
        if self.dead_count == 0:
            return b""
        self._room_for_dead(self.count)
        return self.dead[:(self.count + 7) // 8]

    cdef int _room_for_dead(self, uint32_t entries) except -1:
        cdef uint32_t room = (entries + 7) // 8 + 64
        cdef uint8_t* grown
        if (entries + 7) // 8 <= self.dead_room:
            return 0
        room += room // 4
        grown = <uint8_t*>realloc(self.dead, room)
        if grown == NULL:
            raise MemoryError
        memset(grown + self.dead_room, 0, room - self.dead_room)
        self.dead = grown
        self.dead_room = room
        return 0

    cdef const uint8_t* dead_bits(self) except? NULL:
        # The bitmap with room for every entry, or NULL where nothing is dead.
        if self.dead_count == 0:
            return NULL
        self._room_for_dead(self.count)
        return self.dead

    cdef bint is_dead(self, uint32_t ordinal) noexcept:
        if self.dead_count == 0 or ordinal // 8 >= self.dead_room:
            return False
        return (self.dead[ordinal >> 3] >> (ordinal & 7)) & 1

    cdef int kill(self, uint32_t ordinal, const Entry* entry) except -1:
        self._room_for_dead(self.count)
        self.dead[ordinal >> 3] |= <uint8_t>(1 << (ordinal & 7))
        self.dead_count += 1
        self.live -= 1
        self.live_bytes -= entry.size
        self.live_disk_bytes -= entry.length
        return 0

    cdef int bury(self, uint32_t ordinal) except -1:
        # Cross out an entry that was never counted as live.
        self._room_for_dead(self.count)
        self.dead[ordinal >> 3] |= <uint8_t>(1 << (ordinal & 7))
        self.dead_count += 1
        return 0

    def dead_at(self, uint32_t ordinal):
        """Tell whether an entry was removed."""
        return self.is_dead(ordinal)
