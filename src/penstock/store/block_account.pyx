"""The account of one block: how much of it is live, and where its index and files are right now.

Per message it keeps nothing beyond one bit for a removed one. What the block's messages are is in
its index, which comes and goes; the counts here stay.

What always holds: `live` is the number of entries that are not dead, and the byte counts are sums
over these.

Under the store's lock; only the ledger and recovery change it.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from penstock.format.block_index cimport BlockIndex, Entry


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

    def restore(self, *, uint32_t count, uint64_t bytes, uint64_t last_seq, uint32_t live,
                uint64_t live_bytes, uint64_t live_disk_bytes, int64_t first_time_ns,
                int64_t last_time_ns, dead):
        """Take over what a checkpoint says of the block; `dead` is its bitmap or b""."""
        cdef const uint8_t[::1] bits = dead
        cdef uint32_t place
        self.count = count
        self.bytes = bytes
        self.last_seq = last_seq
        self.live = live
        self.live_bytes = live_bytes
        self.live_disk_bytes = live_disk_bytes
        self.first_time_ns = first_time_ns
        self.last_time_ns = last_time_ns
        if bits.shape[0]:
            self._room_for_dead(bits.shape[0] * 8)
            for place in range(<uint32_t>bits.shape[0]):
                self.dead[place] = bits[place]
            self.dead_count = count - live

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
