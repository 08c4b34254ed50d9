"""The one block that is being written: its index, and the bytes that are on their way to the disk.

A record is encoded straight into the pending buffer and entered in the index; nothing else happens
per message. The committer takes the pending bytes as one `Chunk` (the buffer itself, not a copy),
writes it, and gives it back with `written`. Chunks in flight and a bounded number of written bytes
stay readable in memory, so that readers at the tail need no file.

Invariant: file bytes, chunks and pending bytes follow each other without a gap, and
`bytes` is where the next record goes.

Under the store's lock; a chunk's bytes never change once taken.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.record cimport (
    FLAG_COMMIT_START, FLAG_DELETED, FLAG_ENVELOPED, FLAG_EXPIRES, FLAG_SKIP, FLAG_TOMBSTONE,
    PARSED_WHOLE, Record, checksum_holds, encoded_size, parse, write_record,
)
from penstock.format.wire cimport get_u64, put_uvarint

from penstock import limits
from penstock.format.block import HEADER_BYTES

cdef size_t CACHE_MAX = limits.WRITE_CACHE_BYTES_MAX
cdef size_t PENDING_START = 65536
cdef uint64_t HEADER_SIZE = HEADER_BYTES
cdef size_t CHUNKS_MAX = 64


cdef enum:
    SPARE_MAX = 32  # as long as the two arrays below
    # Smaller buffers are cheap to get, larger ones too dear to keep.
    SPARE_ROOM_MIN = 65536
    SPARE_ROOM_MAX = 8388608
    SPARE_BYTES_MAX = 16777216
    # A buffer may be larger than what is expected to fill it by this factor.
    SPARE_EXCESS_MAX = 16

# Buffers of chunks that are done, for the next ones: fresh memory costs a page fault every 4 KiB.
# Touched only under the interpreter lock.
cdef uint8_t* spare_data[32]
cdef size_t spare_room[32]
cdef int spare_count = 0
cdef size_t spare_bytes = 0


cdef void _give_back(uint8_t* data, size_t room) noexcept:
    global spare_bytes, spare_count
    if (
        spare_count < SPARE_MAX and SPARE_ROOM_MIN <= room <= SPARE_ROOM_MAX
        and spare_bytes + room <= SPARE_BYTES_MAX
    ):
        spare_data[spare_count] = data
        spare_room[spare_count] = room
        spare_bytes += room
        spare_count += 1
    else:
        free(data)


cdef uint8_t* _take_spare(size_t wanted, size_t* room) noexcept:
    # Return the smallest buffer that does, and its room; NULL where there is none.
    global spare_bytes, spare_count
    cdef uint8_t* taken
    cdef int place, found = -1
    for place in range(spare_count):
        if wanted <= spare_room[place] and (
            found < 0 or spare_room[place] < spare_room[found]
        ):
            found = place
    if found < 0 or spare_room[found] > SPARE_EXCESS_MAX * max(wanted, <size_t>SPARE_ROOM_MIN):
        return NULL
    taken = spare_data[found]
    room[0] = spare_room[found]
    spare_count -= 1
    spare_bytes -= room[0]
    spare_data[found] = spare_data[spare_count]
    spare_room[found] = spare_room[spare_count]
    return taken


cdef class Chunk:
    """Bytes of a block on their way to the disk."""

    def __dealloc__(self):
        _give_back(self.data, self.room)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __len__(self):
        return self.size


cdef class ActiveBlock:
    """The block being written; see the module."""

    def __init__(self, BlockIndex index not None, str path not None, uint64_t seed, file=None, *,
                 size_t usual_bytes=0):
        """Go on after what `index` covers; without a file the block starts with its header.

        About `usual_bytes` are expected to be taken at once.
        """
        cdef const uint8_t* header = index.header
        self.index = index
        self.number = index.number
        self.seed = seed
        self.path = path
        self.file = file
        self.recent = []
        self.usual_bytes = usual_bytes
        self.bytes = index.block_bytes
        self.pending_at = self.file_bytes = self.bytes
        if file is None:
            self.pending_at = self.file_bytes = 0
            self._reserve(len(index.header))
            memcpy(self.pending, header, len(index.header))

    def __dealloc__(self):
        free(self.pending)

    cdef int _reserve(self, size_t more) except -1:
        cdef size_t used = <size_t>(self.bytes - self.pending_at)
        cdef size_t wanted = used + more
        cdef size_t room = self.pending_room if self.pending_room else PENDING_START
        cdef uint8_t* grown
        if wanted <= self.pending_room:
            return 0
        if self.pending == NULL:
            # It will be about as much as before: a buffer that grows is copied.
            wanted = max(wanted, min(self.usual_bytes, SPARE_ROOM_MAX))
            self.pending = _take_spare(wanted, &self.pending_room)
            if self.pending != NULL:
                return 0
        while room < wanted:
            room *= 2
        grown = <uint8_t*>realloc(self.pending, room)
        if grown == NULL:
            raise MemoryError
        self.pending = grown
        self.pending_room = room
        return 0

    cdef int append(
        self, uint8_t flags, const uint8_t* subject, size_t subject_size,
        const uint8_t* headers, size_t headers_size, const uint8_t* payload, size_t payload_size,
        int64_t expires_ns, uint64_t seq, int64_t timestamp_ns, uint32_t message_size,
    ) except -1:
        # Sizes are within the format's limits: the store has checked them.
        cdef size_t length
        cdef uint8_t* out
        cdef uint8_t start = 0
        flags &= ~FLAG_COMMIT_START
        if expires_ns:
            flags |= FLAG_EXPIRES
        length = encoded_size(flags, subject_size, headers_size, payload_size)
        # Whatever was appended before is taken by now, so it is another commit that begins here.
        if self.bytes == self.pending_at or (self.pending_at == 0 and self.bytes == HEADER_SIZE):
            start = FLAG_COMMIT_START
        self._reserve(length)
        out = self.pending + (self.bytes - self.pending_at)
        write_record(
            out, flags | start, subject, subject_size, headers, headers_size, payload, payload_size,
            expires_ns, seq, timestamp_ns, self.seed + self.bytes,
        )
        if not flags & (FLAG_DELETED | FLAG_SKIP | FLAG_TOMBSTONE):
            self.index.add(
                seq, timestamp_ns, <uint32_t>self.bytes, <uint32_t>length, subject, subject_size,
                message_size, flags, expires_ns,
            )
        self.bytes += length
        self.index.note(seq, self.bytes, get_u64(out + length - 8))
        return 0

    cpdef int append_skip(self, uint64_t seq, uint64_t count, int64_t timestamp_ns) except -1:
        """Reserve `count` sequences from `seq` on without data."""
        cdef uint8_t[10] payload
        cdef size_t size = put_uvarint(payload, count) if count > 1 else 0
        self.append(FLAG_SKIP, NULL, 0, NULL, 0, payload, size, 0, seq, timestamp_ns, 0)
        self.index.note(seq + count - 1, self.bytes, self.index.last_checksum)
        return 0

    def append_tombstone(self, removed, uint64_t last_seq, int64_t timestamp_ns):
        """Append the removal of these sequences; `last_seq` is the stream's last one."""
        cdef bytes payload = removed.encode()
        cdef const uint8_t* start = payload
        self.append(
            FLAG_TOMBSTONE, NULL, 0, NULL, 0, start, len(payload), 0, last_seq, timestamp_ns, 0
        )
        self.index.tombstones.update(removed)

    def copy_live(self, bytes data not None, uint64_t seed, BlockIndex old not None,
                  bytes dead not None, reseal):
        """Append the live records of another block's bytes; give the ordinals that are damaged.

        `dead` is the bitmap of removed entries; `reseal(seq, time, subject, headers, payload)`
        gives the new payload of an enveloped record.
        """
        cdef const uint8_t* start = data
        cdef const uint8_t* bits = dead
        cdef size_t bitmap_bytes = len(dead)
        cdef Record record
        cdef uint32_t ordinal
        cdef Entry* entry
        cdef bytes payload
        damaged = []
        for ordinal in range(old.count):
            if ordinal // 8 < bitmap_bytes and (bits[ordinal >> 3] >> (ordinal & 7)) & 1:
                continue
            entry = &old.entries[ordinal]
            if (
                <uint64_t>entry.offset + entry.length > <uint64_t>len(data)
                or parse(start + entry.offset, entry.length, &record) != PARSED_WHOLE
                or record.seq != old.base_seq + entry.seq_delta
                or not checksum_holds(start + entry.offset, &record, seed + entry.offset)
            ):
                damaged.append(ordinal)
                continue
            payload = None
            if record.flags & FLAG_ENVELOPED and reseal is not None:
                payload = reseal(
                    record.seq, record.timestamp_ns, record.subject[:record.subject_size],
                    record.headers[:record.headers_size], record.payload[:record.payload_size],
                )
                record.payload = payload
                record.payload_size = <uint32_t>len(payload)
                record.headers_size = 0
            self.append(
                record.flags, record.subject, record.subject_size, record.headers,
                record.headers_size, record.payload, record.payload_size, record.expires_ns,
                record.seq, record.timestamp_ns, entry.size,
            )
        return damaged

    @property
    def pending_bytes(self):
        """Bytes that no chunk has taken yet."""
        return self.bytes - self.pending_at

    @property
    def has_room(self):
        """Whether the file is longer than what the block holds."""
        return self.file_bytes > self.bytes

    def take(self):
        """Hand over what is pending as a Chunk, or None."""
        cdef Chunk chunk
        if self.bytes == self.pending_at:
            return None
        chunk = Chunk.__new__(Chunk)
        chunk.data = self.pending
        chunk.size = <size_t>(self.bytes - self.pending_at)
        chunk.room = self.pending_room
        chunk.start = self.pending_at
        self.pending = NULL
        self.pending_room = 0
        self.pending_at = self.bytes
        self.recent.append(chunk)
        self.recent_bytes += chunk.size
        # A small commit among large ones says little about the next.
        self.usual_bytes = max(chunk.size, self.usual_bytes - self.usual_bytes // 4)
        self.in_flight += 1
        return chunk

    def written(self):
        """Note that the oldest chunk in flight is in the file; old ones are forgotten."""
        cdef Chunk oldest
        self.in_flight -= 1
        while <size_t>len(self.recent) > self.in_flight and (
            self.recent_bytes > CACHE_MAX or <size_t>len(self.recent) - self.in_flight > CHUNKS_MAX
        ):
            oldest = self.recent.pop(0)
            self.recent_bytes -= oldest.size

    def forget_written(self):
        """Drop the written bytes that are kept for readers (an erase must not leave them)."""
        while <size_t>len(self.recent) > self.in_flight:
            self.recent_bytes -= (<Chunk>self.recent.pop(0)).size

    cdef bytes read(self, uint64_t offset, size_t size):
        # The bytes from memory, or None where they must be read from the file.
        cdef Chunk chunk
        if offset >= self.pending_at:
            return PyBytes_FromStringAndSize(
                <char*>self.pending + (offset - self.pending_at), size
            )
        for chunk in reversed(self.recent):
            if offset >= chunk.start:
                # A record never spans two chunks: both begin and end with whole records.
                if offset + size <= chunk.start + chunk.size:
                    return PyBytes_FromStringAndSize(
                        <char*>chunk.data + (offset - chunk.start), size
                    )
                return None
        return None
