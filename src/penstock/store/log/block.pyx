"""A block of an open store: its counts, its open files, and the messages read from it.

`Block` is what the ledger knows of one block: how much of it is live, and where its index and files
are right now. Per message it keeps one bit, set for a removed one. What the block's messages are is
in its index, which is loaded when it is needed; the counts stay. `BlockFiles` are the two open
files of a sealed block. A `StoredMessage` keeps a record's bytes and cuts subject, headers and
payload out of them when they are asked for.

Invariant: `live` is the number of entries that are not dead, and the byte counts are sums over
these. Every record is verified when it is read: checksum, position and sequence.

Thread: under the store's lock; only the ledger and recovery change a `Block`. Small reads keep the
interpreter lock: releasing it costs more than the copy from the page cache that they usually are.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from penstock.format.block cimport BlockHeader, BlockSummary, seed_of
from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.record cimport (
    FLAG_DELETED, FLAG_ENVELOPED, FLAG_SKIP, FLAG_TOMBSTONE, PARSED_WHOLE, Record, checksum_holds,
    parse,
)

from penstock.errors import CorruptStore
from penstock.format.index.block_index import FIXED_BYTES

cdef uint64_t ENTRIES_AT = FIXED_BYTES
cdef size_t SMALL_READ = 65536


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
        """Return a block as a checkpoint describes it; the caller has read the file's header."""
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

    cpdef int follow(self, BlockIndex index) except -1:
        """Take length, last sequence and times from an index that knows better."""
        self.count = index.count
        self.bytes = index.block_bytes
        self.last_seq = max(self.last_seq, index.last_seq)
        self.first_time_ns = index.first_time_ns
        self.last_time_ns = index.last_time_ns
        return 0

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

    cdef bint is_worth_reclaiming(self, uint64_t header_bytes) noexcept:
        # Whether a message that was just removed has made the block sparse or empty. One that could
        # not be made shorter is asked for again when it is half of what it was.
        cdef uint64_t before = self.bytes - header_bytes
        if self.reclaim_asked_at:
            before = self.reclaim_asked_at
        if self.live and self.live_disk_bytes * 2 >= before:
            return False
        self.reclaim_asked_at = max(self.live_disk_bytes, 1)
        return True

    cdef int bury(self, uint32_t ordinal) except -1:
        # Cross out an entry that was never counted as live.
        self._room_for_dead(self.count)
        self.dead[ordinal >> 3] |= <uint8_t>(1 << (ordinal & 7))
        self.dead_count += 1
        return 0

    def dead_at(self, uint32_t ordinal):
        """Return True if an entry was removed."""
        return self.is_dead(ordinal)


cdef class BlockFiles:
    """The open files of one block.

    `open_index` gives the index file, or None where it is missing; it is asked when first needed,
    for a read at a known offset needs no index.
    """

    def __init__(self, str path not None, block_file, open_index):
        self.path = path
        self.block_file = block_file
        self.open_index = open_index
        self.calls = block_file.calls
        self.block_fd = block_file.call_fd()
        self.index_fd = -1

    cdef bytes read_at_hand(self, uint64_t offset, size_t size):
        # `size` bytes of the block where one small read gives them all, else None.
        cdef bytes data
        cdef ssize_t got
        if size > SMALL_READ:
            return None
        data = PyBytes_FromStringAndSize(NULL, size)
        got = self.calls.table.pread(self.block_fd, PyBytes_AS_STRING(data), size, offset)
        return data if got == <ssize_t>size else None

    cdef bytes read(self, uint64_t offset, size_t size):
        # `size` bytes of the block; raises CorruptStore where the file ends before.
        cdef bytes data
        cdef ssize_t got
        if self.block_fd >= 0 and size <= SMALL_READ:
            data = PyBytes_FromStringAndSize(NULL, size)
            got = self.calls.table.pread(self.block_fd, PyBytes_AS_STRING(data), size, offset)
            if <size_t>got == size:
                return data
            if got < 0 and errno != EINTR:
                raise OSError(errno, os.strerror(errno), self.path)
        data = self.block_file.read_at(offset, size)
        if <size_t>len(data) != size:
            raise CorruptStore(self.path, offset, "the block file ends before this record does")
        return data

    cdef int read_entry(self, uint32_t ordinal, Entry* entry) except -1:
        # One entry of the index file; 0 where it could not be had, 1 where it was.
        cdef bytes data
        cdef uint64_t offset = ENTRIES_AT + <uint64_t>ordinal * sizeof(Entry)
        if self.open_index is not None:
            self.index_file = self.open_index()
            self.index_fd = -1 if self.index_file is None else self.index_file.call_fd()
            self.open_index = None
        if self.index_fd >= 0:
            if self.calls.table.pread(self.index_fd, entry, sizeof(Entry), offset) == sizeof(Entry):
                return 1
        if self.index_file is None:
            return 0
        data = self.index_file.read_at(offset, sizeof(Entry))
        if len(data) != sizeof(Entry):
            return 0
        entry[0] = (<Entry*>PyBytes_AS_STRING(data))[0]
        return 1

    def read_bytes(self, uint64_t offset, size_t size):
        """Read `size` bytes of the block; raises CorruptStore where it ends before."""
        return self.read(offset, size)

    def close(self):
        """Close both files."""
        self.block_fd = self.index_fd = -1
        self.open_index = None
        self.block_file.close()
        if self.index_file is not None:
            self.index_file.close()


cdef class StoredMessage:
    """One message of the store."""

    @property
    def subject(self):
        """The subject it was stored under."""
        return self.raw[self.subject_at:self.subject_at + self.subject_size]

    @property
    def headers(self):
        """The header block as it came, or b""."""
        if self.flags & FLAG_ENVELOPED:
            return self._open()[0]
        return self.raw[self.headers_at:self.headers_at + self.headers_size]

    @property
    def payload(self):
        """The payload."""
        if self.flags & FLAG_ENVELOPED:
            return self._open()[1]
        return self.raw[self.payload_at:self.payload_at + self.payload_size]

    def _open(self):
        if self.opened is None:
            self.opened = self.unseal(
                self.seq, self.timestamp_ns, self.subject,
                self.raw[self.headers_at:self.headers_at + self.headers_size],
                self.raw[self.payload_at:self.payload_at + self.payload_size],
            )
        return self.opened

    def __repr__(self):
        return f"StoredMessage(seq={self.seq}, subject={self.subject!r})"


cdef StoredMessage open_at_hand(
    bytes raw, uint64_t seq, uint64_t seed, uint64_t offset, object unseal
):
    # The message where `raw` is exactly its record, whole; None otherwise.
    cdef Record record
    cdef const uint8_t* start = raw
    cdef StoredMessage message
    if (
        parse(start, len(raw), &record) != PARSED_WHOLE
        or <Py_ssize_t>record.length != len(raw)
        or record.seq != seq
        or record.flags & (FLAG_DELETED | FLAG_SKIP | FLAG_TOMBSTONE)
        or not checksum_holds(start, &record, seed + offset)
    ):
        return None
    message = StoredMessage.__new__(StoredMessage)
    message.seq = seq
    message.timestamp_ns = record.timestamp_ns
    message.expires_ns = record.expires_ns
    message.raw = raw
    message.flags = record.flags
    message.subject_at = <uint32_t>(record.subject - start)
    message.subject_size = record.subject_size
    message.headers_at = <uint32_t>(record.headers - start)
    message.headers_size = record.headers_size
    message.payload_at = <uint32_t>(record.payload - start)
    message.payload_size = record.payload_size
    message.unseal = unseal
    return message


cdef StoredMessage open_record(
    bytes raw, uint64_t seq, uint64_t seed, uint64_t offset, str path, object unseal
):
    # `raw` is exactly one record, which must be message `seq`; raises CorruptStore otherwise.
    cdef Record record
    cdef const uint8_t* start = raw
    cdef StoredMessage message = open_at_hand(raw, seq, seed, offset, unseal)
    if message is not None:
        return message
    if parse(start, len(raw), &record) != PARSED_WHOLE or <Py_ssize_t>record.length != len(raw):
        raise CorruptStore(path, offset, "no whole record here", seq=seq)
    if not checksum_holds(start, &record, seed + offset):
        raise CorruptStore(path, offset, "record checksum differs", seq=seq)
    raise CorruptStore(path, offset, f"another record is here ({record.seq})", seq=seq)
