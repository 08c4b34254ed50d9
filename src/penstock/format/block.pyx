"""One block: its header, its summary in a checkpoint, and its file as a directory shows it.

The header, from which the seed of the records' checksums follows:

    offset  size  field
         0     8  magic "PNSTKBLK"
         8     2  version
        10     1  cipher of the block's data key (0 none)
        11     1  zero
        12     4  block number
        16     8  salt of the stream: the same in all its blocks
        24     4  generation: 0 as first written, one more at each rewrite
        28     4  zero
        32     8  created, Unix ns
        40     8  base sequence: no record of the block is below it
        48     8  checksum of the last record of the block before, 0 for none
        56    60  wrapped data key: 12 bytes nonce, 48 bytes key and tag (zero when not encrypted)
       116     4  zero
       120     8  XXH64 of bytes 0 to 119

Records follow from byte 128. The summary, as a checkpoint holds one for every block:

    offset  size  field
         0     4  block number
         4     4  generation
         8     8  base sequence
        16     8  last sequence
        24     4  entries of its index, removed ones included
        28     4  live messages
        32     8  file bytes
        40     8  live message bytes
        48     8  live disk bytes
        56     8  first time, Unix ns
        64     8  last time, Unix ns
        72     4  messages with a time to live
        76     4  length of the bitmap of removed entries
        80        that bitmap

Little-endian. Compiled, because opening a stream reads a header and a summary for every block.

Pure: nothing here opens a file. Any thread.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cimport cython

from penstock.errors import CorruptStore, UnsupportedVersion
from penstock.format.hashing import xxh64

from penstock.format.hashing cimport xxh64_raw
from penstock.format.wire cimport get_u16, get_u32, get_u64, put_u32, put_u64

MAGIC = b"PNSTKBLK"
VERSION = 1
HEADER_BYTES = 128
WRAPPED_KEY_BYTES = 60

cdef const char* MAGIC_BYTES = b"PNSTKBLK"
cdef enum:
    FORMAT_VERSION = 1
    HEADER_SIZE = 128
    CHECKED_SIZE = 120
    KEY_SIZE = 60
    SUMMARY_SIZE = 80


cdef class BlockHeader:
    """What a block file says of itself; never changed."""

    def __init__(self, uint32_t number, uint64_t salt, uint64_t base_seq, int64_t created_ns,
                 uint32_t generation=0, uint64_t previous_checksum=0, uint8_t cipher=0,
                 bytes wrapped_key not None=bytes(WRAPPED_KEY_BYTES)):
        assert len(wrapped_key) == KEY_SIZE, "a wrapped key has one size"
        self.number = number
        self.salt = salt
        self.base_seq = base_seq
        self.created_ns = created_ns
        self.generation = generation
        self.previous_checksum = previous_checksum
        self.cipher = cipher
        memcpy(self.wrapped, <const uint8_t*>wrapped_key, KEY_SIZE)

    @property
    def wrapped_key(self):
        """The block's data key under the stream's key; zeros where it is not encrypted."""
        return self.wrapped[:KEY_SIZE]

    @property
    def seed(self):
        """The seed of the block's record checksums: other in every block and generation."""
        return seed_of(self.salt, self.number, self.generation)

    def next_generation(self, *, int64_t created_ns, uint8_t cipher, bytes wrapped_key not None):
        """Return the header of a rewrite of this block."""
        return BlockHeader(
            self.number, self.salt, self.base_seq, created_ns, self.generation + 1,
            self.previous_checksum, cipher, wrapped_key,
        )

    def __eq__(self, other):
        if not isinstance(other, BlockHeader):
            return NotImplemented
        return encode_block_header(self) == encode_block_header(other)

    def __repr__(self):
        return f"BlockHeader(number={self.number}, generation={self.generation})"


cdef uint64_t seed_of(uint64_t salt, uint32_t number, uint32_t generation) noexcept:
    cdef uint8_t identity[16]
    put_u64(identity, salt)
    put_u32(identity + 8, number)
    put_u32(identity + 12, generation)
    return xxh64_raw(identity, 16, 0)


def record_seed(uint64_t salt, uint32_t number, uint32_t generation):
    """Derive the checksum seed of a block's records."""
    return seed_of(salt, number, generation)


def encode_block_header(BlockHeader header not None):
    """Return the 128 bytes."""
    cdef uint8_t image[HEADER_SIZE]
    memset(image, 0, HEADER_SIZE)
    memcpy(image, MAGIC_BYTES, 8)
    image[8] = FORMAT_VERSION
    image[10] = header.cipher
    put_u32(image + 12, header.number)
    put_u64(image + 16, header.salt)
    put_u32(image + 24, header.generation)
    put_u64(image + 32, <uint64_t>header.created_ns)
    put_u64(image + 40, header.base_seq)
    put_u64(image + 48, header.previous_checksum)
    memcpy(image + 56, header.wrapped, KEY_SIZE)
    put_u64(image + CHECKED_SIZE, xxh64_raw(image, CHECKED_SIZE, 0))
    return image[:HEADER_SIZE]


cpdef BlockHeader decode_block_header(bytes data, str path):
    """Read a header; raises CorruptStore, or UnsupportedVersion where the file is newer."""
    cdef const uint8_t* image = data
    cdef BlockHeader header
    if len(data) < HEADER_SIZE:
        raise CorruptStore(path, 0, f"block header cut off after {len(data)} bytes")
    if memcmp(image, MAGIC_BYTES, 8):
        raise CorruptStore(path, 0, "not a block file: wrong magic")
    if get_u64(image + CHECKED_SIZE) != xxh64_raw(image, CHECKED_SIZE, 0):
        raise CorruptStore(path, 0, "block header checksum differs")
    if get_u16(image + 8) != FORMAT_VERSION:
        raise UnsupportedVersion(path, get_u16(image + 8), FORMAT_VERSION)
    header = BlockHeader.__new__(BlockHeader)
    header.cipher = image[10]
    header.number = get_u32(image + 12)
    header.salt = get_u64(image + 16)
    header.generation = get_u32(image + 24)
    header.created_ns = <int64_t>get_u64(image + 32)
    header.base_seq = get_u64(image + 40)
    header.previous_checksum = get_u64(image + 48)
    memcpy(header.wrapped, image + 56, KEY_SIZE)
    return header


def correct_block_header(bytes data not None, str path not None):
    """Read a header of which one byte is damaged, or give None where it is more than one.

    Every other value of every byte is tried against the checksum: chance passes it once in 2**49.
    """
    if len(data) < HEADER_SIZE:
        return None
    fields, stored = bytearray(data[:HEADER_BYTES - 8]), data[HEADER_BYTES - 8:HEADER_BYTES]
    checksum = int.from_bytes(stored, "little")
    whole = xxh64(fields).to_bytes(8, "little")
    if sum(found != kept for found, kept in zip(whole, stored, strict=True)) == 1:
        return decode_block_header(bytes(fields) + whole, path)
    for place in range(len(fields)):
        damaged = fields[place]
        for value in range(256):
            fields[place] = value
            if xxh64(fields) == checksum:
                return decode_block_header(bytes(fields) + stored, path)
        fields[place] = damaged
    return None


# It holds no more than bytes: there is no circle for a collector to find, in one for every block.
@cython.no_gc
cdef class BlockSummary:
    """One block in a checkpoint; `dead` is the bitmap of removed entries. Never changed."""

    def __init__(self, uint32_t number, uint32_t generation, uint64_t base_seq, uint64_t last_seq,
                 uint32_t count, uint32_t live, uint64_t bytes, uint64_t live_bytes,
                 uint64_t live_disk_bytes, int64_t first_time_ns, int64_t last_time_ns,
                 uint32_t expiring, dead):
        self.number = number
        self.generation = generation
        self.base_seq = base_seq
        self.last_seq = last_seq
        self.count = count
        self.live = live
        self.bytes = bytes
        self.live_bytes = live_bytes
        self.live_disk_bytes = live_disk_bytes
        self.first_time_ns = first_time_ns
        self.last_time_ns = last_time_ns
        self.expiring = expiring
        self.dead = dead

    def __eq__(self, other):
        if not isinstance(other, BlockSummary):
            return NotImplemented
        return encode_summary(self) == encode_summary(other)

    def __repr__(self):
        return f"BlockSummary(number={self.number}, generation={self.generation})"


def encode_summary(BlockSummary summary not None):
    """Return a summary's bytes, its bitmap included."""
    cdef uint8_t image[SUMMARY_SIZE]
    put_u32(image, summary.number)
    put_u32(image + 4, summary.generation)
    put_u64(image + 8, summary.base_seq)
    put_u64(image + 16, summary.last_seq)
    put_u32(image + 24, summary.count)
    put_u32(image + 28, summary.live)
    put_u64(image + 32, summary.bytes)
    put_u64(image + 40, summary.live_bytes)
    put_u64(image + 48, summary.live_disk_bytes)
    put_u64(image + 56, <uint64_t>summary.first_time_ns)
    put_u64(image + 64, <uint64_t>summary.last_time_ns)
    put_u32(image + 72, summary.expiring)
    put_u32(image + 76, <uint32_t>len(summary.dead))
    return image[:SUMMARY_SIZE] + summary.dead


cdef BlockSummary decode_summary(const uint8_t* image, uint32_t dead_bytes):
    cdef BlockSummary summary = BlockSummary.__new__(BlockSummary)
    summary.number = get_u32(image)
    summary.generation = get_u32(image + 4)
    summary.base_seq = get_u64(image + 8)
    summary.last_seq = get_u64(image + 16)
    summary.count = get_u32(image + 24)
    summary.live = get_u32(image + 28)
    summary.bytes = get_u64(image + 32)
    summary.live_bytes = get_u64(image + 40)
    summary.live_disk_bytes = get_u64(image + 48)
    summary.first_time_ns = <int64_t>get_u64(image + 56)
    summary.last_time_ns = <int64_t>get_u64(image + 64)
    summary.expiring = get_u32(image + 72)
    summary.dead = PyBytes_FromStringAndSize(<const char*>image + SUMMARY_SIZE, dead_bytes)
    return summary


def decode_summaries(bytes data not None, Py_ssize_t at, Py_ssize_t end, uint32_t count,
                     str path not None):
    """Read `count` summaries from data[at:end]; give them and where they end.

    Raises CorruptStore where they do not fit.
    """
    cdef const uint8_t* image = data
    cdef uint32_t dead_bytes
    cdef list summaries = []
    assert 0 <= at <= end <= len(data), "a part of the data"
    for _ in range(count):
        if end - at < SUMMARY_SIZE:
            raise CorruptStore(path, at, "checkpoint cut off")
        dead_bytes = get_u32(image + at + 76)
        if end - at - SUMMARY_SIZE < dead_bytes:
            raise CorruptStore(path, at + SUMMARY_SIZE, "checkpoint cut off")
        summaries.append(decode_summary(image + at, dead_bytes))
        at += SUMMARY_SIZE + dead_bytes
    return summaries, at


# What it holds leads nowhere: there is no circle for a collector to find, in one for every block.
@cython.no_gc
cdef class ScannedBlock:
    """A block file as the directory shows it, or one that is known to be missing."""

    def __init__(self, uint32_t number, str path not None, uint64_t size=0,
                 bytes image not None=b"", str reason not None=""):
        self.number = number
        self.path = path
        self.size = size
        self.image = image
        self.reason = reason
        self.first_seq = 1

    def belongs_to(self, uint64_t salt):
        """Return True if there is a header, and it is that of this block of the stream."""
        cdef BlockHeader header = self.header
        return header is not None and header.salt == salt and header.number == self.number

    def differs_from(self, BlockSummary summary not None, *, bint is_indexed, bint is_last):
        """Return how the block differs from its entry in a checkpoint, "" if it does not.

        Only the last block may have grown since, and may lack its index.
        """
        if self.header is None:
            return f": {self.reason}"
        if self.header.generation != summary.generation:
            return " was rewritten since"
        if self.size < summary.bytes or (self.size > summary.bytes and not is_last):
            return " has another length"
        if not is_indexed and not is_last:
            return " has no index"
        return ""


def scan_starts(str folder not None, dict names not None, list starts not None):
    """Return a folder's blocks by number, from their names and the starts of the files.

    What is wrong with a header is noted in `reason`. Raises UnsupportedVersion.
    """
    cdef dict heads = {}
    cdef ScannedBlock head
    for (number, name), (size, image) in zip(names.items(), starts, strict=True):
        head = ScannedBlock(number, f"{folder}/{name}", size, image)
        try:
            head.header = decode_block_header(head.image, head.path)
        except CorruptStore as error:
            head.reason = error.reason
        heads[number] = head
    return heads
