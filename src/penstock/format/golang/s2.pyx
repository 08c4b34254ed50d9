"""The S2 stream format: Snappy's framing, Snappy's blocks, and one more kind of copy.

    stream = identifier chunk, then chunks
    chunk  = type u8 | length u24 | body
    body   = masked CRC-32C u32 of the plain bytes | block      (types 00 compressed, 01 plain)

Blocks are read and made by `snappy`.

Invariant: no read passes the input, no write passes the room that the caller's limit gave,
and whatever the bytes are, the answer is the plain bytes or FormatError. Nothing is allocated for a
length before it was found plausible.

Pure. Called for sealed blocks of Go's store.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.errors import FormatError
from penstock.format.snappy cimport decode_block
from penstock.format.wire cimport get_u32, read_uvarint
from penstock.format.snappy import compress
from penstock.limits import S2_CHUNK_BYTES_MAX

cdef uint32_t CRC_TABLES[8][256]
cdef size_t CHUNK_MAX = S2_CHUNK_BYTES_MAX

cdef enum:
    COMPRESSED = 0x00
    PLAIN = 0x01
    FIRST_SKIPPABLE = 0x80
    IDENTIFIER = 0xFF

_S2_IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
_ENCODED_CHUNK_BYTES = 1 << 20


cdef void _fill_crc_tables() noexcept:
    cdef uint32_t value
    cdef int i, table, _bit
    for i in range(256):
        value = i
        for _bit in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        CRC_TABLES[0][i] = value
    for i in range(256):
        for table in range(1, 8):
            value = CRC_TABLES[table - 1][i]
            CRC_TABLES[table][i] = (value >> 8) ^ CRC_TABLES[0][value & 0xFF]


_fill_crc_tables()


cdef uint32_t _masked_crc(const uint8_t* data, size_t size) noexcept nogil:
    # Eight bytes a step; the mask is the format's own, so that checksums of checksums differ.
    cdef uint32_t crc = 0xFFFFFFFF
    cdef uint32_t high
    while size >= 8:
        crc ^= get_u32(data)
        high = get_u32(data + 4)
        crc = (
            CRC_TABLES[7][crc & 0xFF] ^ CRC_TABLES[6][(crc >> 8) & 0xFF]
            ^ CRC_TABLES[5][(crc >> 16) & 0xFF] ^ CRC_TABLES[4][crc >> 24]
            ^ CRC_TABLES[3][high & 0xFF] ^ CRC_TABLES[2][(high >> 8) & 0xFF]
            ^ CRC_TABLES[1][(high >> 16) & 0xFF] ^ CRC_TABLES[0][high >> 24]
        )
        data += 8
        size -= 8
    while size:
        crc = (crc >> 8) ^ CRC_TABLES[0][(crc ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    crc = ~crc
    return ((crc >> 15) | (crc << 17)) + <uint32_t>0xA282EAD8


cdef class _Decoding:
    # The walk over the chunks of one stream. `plain` grows by whole chunks; `holes` collects the
    # (place, size) of chunks that could not be read when damage is to be passed over.
    cdef const uint8_t* data
    cdef size_t size
    cdef size_t at
    cdef size_t limit
    cdef size_t plain_size
    cdef bint repeats
    cdef bint identified
    cdef list parts
    cdef list holes

    def __cinit__(self):
        self.parts = []

    cdef int take_chunk(self) except -1:
        # One chunk at `at`; moves past it.
        cdef const uint8_t* p = self.data + self.at
        cdef size_t body
        if self.size - self.at < 4:
            raise FormatError("an S2 chunk ends early", offset=self.at)
        body = get_u32(p) >> 8
        if body > self.size - self.at - 4:
            raise FormatError("an S2 chunk is longer than the stream", offset=self.at)
        if p[0] == IDENTIFIER:
            self.take_identifier(p + 4, body)
        elif not self.identified:
            raise FormatError("an S2 stream has no identifier", offset=self.at)
        elif p[0] == COMPRESSED or p[0] == PLAIN:
            self.take_data(p, body)
        elif p[0] < FIRST_SKIPPABLE:
            raise FormatError(f"an S2 chunk has the unknown type {p[0]}", offset=self.at)
        self.at += 4 + body
        return 0

    cdef int take_identifier(self, const uint8_t* p, size_t body) except -1:
        name = PyBytes_FromStringAndSize(<const char*>p, min(body, 6))
        if body != 6 or name not in (b"S2sTwO", b"sNaPpY"):
            raise FormatError("the identifier is neither S2's nor Snappy's", offset=self.at)
        self.identified = True
        self.repeats = name == b"S2sTwO"
        return 0

    cdef int take_data(self, const uint8_t* p, size_t body) except -1:
        cdef uint64_t plain
        cdef int used = 0
        if body < 4:
            raise FormatError("an S2 chunk has no checksum", offset=self.at)
        if p[0] == PLAIN:
            plain = body - 4
        else:
            used = read_uvarint(p + 8, p + 4 + body, &plain)
            if used == 0:
                raise FormatError("an S2 block has no size", offset=self.at)
        if plain > CHUNK_MAX:
            raise FormatError("an S2 chunk is larger than the format allows", offset=self.at)
        if plain > self.limit - self.plain_size:
            raise FormatError(f"more than {self.limit} plain bytes", offset=self.at)
        out = PyBytes_FromStringAndSize(NULL, plain)
        if not self.fill(p, body, used, <uint8_t*>PyBytes_AS_STRING(out), plain):
            if self.holes is None:
                raise FormatError("an S2 chunk does not check out", offset=self.at)
            self.holes.append((self.plain_size, plain))
            memset(PyBytes_AS_STRING(out), 0, plain)
        self.parts.append(out)
        self.plain_size += plain
        return 0

    cdef bint fill(
        self, const uint8_t* p, size_t body, int used, uint8_t* out, size_t plain
    ) noexcept nogil:
        if p[0] == PLAIN:
            memcpy(out, p + 8, plain)
        elif not decode_block(p + 8 + used, p + 4 + body, out, plain, self.repeats):
            return False
        return _masked_crc(out, plain) == get_u32(p + 4)


cdef _Decoding _decoding(const uint8_t[::1] data, size_t limit):
    cdef _Decoding decoding = _Decoding()
    decoding.size = data.shape[0]
    decoding.data = &data[0] if decoding.size else NULL
    decoding.limit = limit
    return decoding


def decode_s2_stream(const uint8_t[::1] data, size_t limit):
    """Return the plain bytes of a stream; raises FormatError if damaged or above `limit` bytes."""
    cdef _Decoding decoding = _decoding(data, limit)
    while decoding.at < decoding.size:
        decoding.take_chunk()
    return b"".join(decoding.parts)


def salvage_s2_stream(const uint8_t[::1] data, size_t size):
    """Return exactly `size` plain bytes and the list of (place, length) that could not be read.

    A chunk that fails its checksum becomes zeros of its own length; when the chunks themselves can
    no longer be told apart, all that follows does.
    """
    cdef _Decoding decoding = _decoding(data, size)
    decoding.holes = []
    try:
        while decoding.at < decoding.size:
            decoding.take_chunk()
    except FormatError:
        pass
    missing = size - decoding.plain_size
    if missing:
        decoding.holes.append((decoding.plain_size, missing))
        decoding.parts.append(bytes(missing))
    return b"".join(decoding.parts), decoding.holes


def encode_s2_stream(const uint8_t[::1] data):
    """Return a stream that any S2 reader takes; its blocks are plain Snappy, which is a subset."""
    parts = [_S2_IDENTIFIER]
    for start in range(0, data.shape[0], _ENCODED_CHUNK_BYTES):
        plain = data[start:start + _ENCODED_CHUNK_BYTES]
        parts.append(_encode_chunk(plain))
    return b"".join(parts)


cdef bytes _encode_chunk(const uint8_t[::1] plain):
    crc = _masked_crc(&plain[0], plain.shape[0]).to_bytes(4, "little")
    body = compress(plain)
    kind = COMPRESSED
    if len(body) >= plain.shape[0]:
        body, kind = bytes(plain), PLAIN
    return bytes([kind]) + (len(body) + 4).to_bytes(3, "little") + crc + body
