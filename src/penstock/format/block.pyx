"""The header of a block file, and the seed of its records' checksums.

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

Little-endian. Records follow from byte 128. Pure; any thread.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

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
        """Give the header of a rewrite of this block."""
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
    """Give the 128 bytes."""
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
