"""Snappy's blocks: made for envelopes, and read with the one more kind of copy that S2 has.

    block = uvarint plain size, then elements, each led by a tag byte:
            xxxxxx00  literal         ooolll01  copy, 11-bit offset (S2: offset 0 repeats the last)
            llllll10  copy, u16       llllll11  copy, u32 offset

Plain bytes are compressed in fragments of 64 KiB, each by itself: a table has for a hash of four
bytes where they were seen last, and what is found there again becomes a copy. Where nothing is
found for long, ever larger steps are taken.

Invariant: no read passes the input; no write passes the room that the caller's limit gave; whatever
the bytes are, `decode_block` fills exactly the room or returns False. Nothing of what is written is
longer than 64 plain bytes an element, so readers may bound what a block can expand to.

Pure; any thread.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.errors import FormatError
from penstock.format.wire cimport get_u16, get_u32, get_u64, put_uvarint, read_uvarint

cdef extern from *:
    int __builtin_ctzll(unsigned long long value) noexcept nogil

cdef enum:
    FRAGMENT_BYTES = 65536
    TABLE_BITS_MIN = 8
    TABLE_BITS_MAX = 14  # as many as the table in `compress_block` has slots
    # No match begins in the last bytes of a fragment, so that whole words can be read ahead.
    MARGIN = 15
    HASH_FACTOR = 0x1E35A7BD
    COPY_MAX = 64


# Compressing


cdef size_t compressed_room(size_t size) noexcept nogil:
    # Literals take at most a sixth more than they are, and the size ten bytes.
    return 32 + size + size // 6


cdef size_t compress_block(const uint8_t* data, size_t size, uint8_t* out) noexcept nogil:
    # Writes the block of `size` bytes to `out`, which has `compressed_room` for it; returns its
    # length.
    cdef uint16_t[16384] table
    cdef uint8_t* p = out + put_uvarint(out, size)
    cdef size_t fragment
    while size:
        fragment = min(size, <size_t>FRAGMENT_BYTES)
        p = _compress_fragment(data, fragment, p, table)
        data += fragment
        size -= fragment
    return p - out


cdef inline uint32_t _slot(uint32_t word, int shift) noexcept nogil:
    return (word * <uint32_t>HASH_FACTOR) >> shift


cdef uint8_t* _compress_fragment(
    const uint8_t* base, size_t size, uint8_t* out, uint16_t* table
) noexcept nogil:
    cdef const uint8_t* end = base + size
    cdef const uint8_t* limit = end - MARGIN
    cdef const uint8_t* literal = base
    cdef const uint8_t* p = base + 1
    cdef const uint8_t* match
    cdef size_t length
    cdef int bits = TABLE_BITS_MIN
    if size <= MARGIN:
        return _put_literal(out, base, size)
    while bits < TABLE_BITS_MAX and (<size_t>1 << bits) < size:
        bits += 1
    memset(table, 0, (<size_t>1 << bits) * sizeof(uint16_t))
    while True:
        match = _find_match(base, &p, limit, table, 32 - bits)
        if match == NULL:
            break
        out = _put_literal(out, literal, p - literal)
        length = _match_size(match, p, end)
        out = _put_copy(out, p - match, length)
        p += length
        literal = p
        if p >= limit:
            break
        table[_slot(get_u32(p - 1), 32 - bits)] = <uint16_t>(p - 1 - base)
    return _put_literal(out, literal, end - literal)


cdef const uint8_t* _find_match(
    const uint8_t* base, const uint8_t** at, const uint8_t* limit, uint16_t* table, int shift
) noexcept nogil:
    # The place before `at` of the same four bytes as at it, after moving it to the first that has
    # one; NULL for none up to `limit`.
    cdef const uint8_t* p = at[0]
    cdef const uint8_t* match
    cdef uint32_t word, slot, tries = 32
    while p < limit:
        word = get_u32(p)
        slot = _slot(word, shift)
        match = base + table[slot]
        table[slot] = <uint16_t>(p - base)
        if get_u32(match) == word and match < p:
            at[0] = p
            return match
        p += tries >> 5
        tries += 1
    return NULL


cdef inline size_t _match_size(
    const uint8_t* match, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    # How many bytes are the same, four at least.
    cdef const uint8_t* start = p
    cdef uint64_t difference
    p += 4
    match += 4
    while end - p >= 8:
        difference = get_u64(p) ^ get_u64(match)
        if difference:
            return p - start + (__builtin_ctzll(difference) >> 3)
        p += 8
        match += 8
    while p < end and p[0] == match[0]:
        p += 1
        match += 1
    return p - start


cdef uint8_t* _put_literal(uint8_t* out, const uint8_t* data, size_t size) noexcept nogil:
    cdef size_t code = size - 1
    if size == 0:
        return out
    if code < 60:
        out[0] = <uint8_t>(code << 2)
        out += 1
    elif code < 256:
        out[0] = 60 << 2
        out[1] = <uint8_t>code
        out += 2
    else:
        out[0] = 61 << 2
        out[1] = <uint8_t>code
        out[2] = <uint8_t>(code >> 8)
        out += 3
    memcpy(out, data, size)
    return out + size


cdef uint8_t* _put_copy(uint8_t* out, size_t offset, size_t size) noexcept nogil:
    # What is left after a copy of 64 must itself be enough for a copy.
    while size > COPY_MAX + 4:
        out = _put_far_copy(out, offset, COPY_MAX)
        size -= COPY_MAX
    if size > COPY_MAX:
        out = _put_far_copy(out, offset, COPY_MAX - 4)
        size -= COPY_MAX - 4
    if size >= 12 or offset >= 2048:
        return _put_far_copy(out, offset, size)
    out[0] = <uint8_t>(1 | ((size - 4) << 2) | ((offset >> 8) << 5))
    out[1] = <uint8_t>offset
    return out + 2


cdef inline uint8_t* _put_far_copy(uint8_t* out, size_t offset, size_t size) noexcept nogil:
    out[0] = <uint8_t>(2 | ((size - 1) << 2))
    out[1] = <uint8_t>offset
    out[2] = <uint8_t>(offset >> 8)
    return out + 3


# Expanding


cdef inline void _copy_within(uint8_t* to, size_t offset, size_t size) noexcept nogil:
    # A copy may overlap what it writes: a short offset repeats a pattern.
    cdef const uint8_t* source = to - offset
    cdef size_t i
    if offset >= size:
        memcpy(to, source, size)
    elif offset == 1:
        memset(to, source[0], size)
    else:
        for i in range(size):
            to[i] = source[i]


cdef const uint8_t* _repeat_size(
    const uint8_t* p, const uint8_t* end, size_t code, size_t* size
) noexcept nogil:
    # The length of a repeat; gives the place after it, or NULL if the input ends within.
    if code < 5:
        size[0] = code + 4
        return p
    if <size_t>(end - p) < code - 4:
        return NULL
    if code == 5:
        size[0] = <size_t>p[0] + 8
        return p + 1
    if code == 6:
        size[0] = <size_t>get_u16(p) + 260
        return p + 2
    size[0] = (<size_t>p[0] | (<size_t>p[1] << 8) | (<size_t>p[2] << 16)) + 65540
    return p + 3


cdef const uint8_t* _literal_size(
    const uint8_t* p, const uint8_t* end, size_t* size
) noexcept nogil:
    cdef size_t code = p[0] >> 2
    cdef size_t extra, i
    p += 1
    if code < 60:
        size[0] = code + 1
        return p
    extra = code - 59
    if <size_t>(end - p) < extra:
        return NULL
    size[0] = 1
    for i in range(extra):
        size[0] += <size_t>p[i] << (8 * i)
    return p + extra


cdef const uint8_t* _copy_element(
    const uint8_t* p, const uint8_t* end, bint repeats, size_t* offset, size_t* size
) noexcept nogil:
    # One copy of any kind; `offset` holds the last one on entry. NULL if the input ends within.
    cdef uint8_t tag = p[0]
    cdef size_t place
    if tag & 3 == 1:
        if end - p < 2:
            return NULL
        place = (<size_t>(tag & 0xE0) << 3) | p[1]
        if place == 0 and repeats:
            return _repeat_size(p + 2, end, (tag >> 2) & 7, size)
        offset[0] = place
        size[0] = 4 + ((tag >> 2) & 7)
        return p + 2
    size[0] = 1 + (tag >> 2)
    if tag & 3 == 2:
        if end - p < 3:
            return NULL
        offset[0] = get_u16(p + 1)
        return p + 3
    if end - p < 5:
        return NULL
    offset[0] = get_u32(p + 1)
    return p + 5


cdef bint decode_block(
    const uint8_t* p, const uint8_t* end, uint8_t* out, size_t out_size, bint repeats
) noexcept nogil:
    # Expands the elements of a block: fills exactly out_size bytes or gives False. Each length is
    # checked against what is left on both sides before anything moves.
    cdef size_t done = 0
    cdef size_t offset = 0
    cdef size_t size = 0
    while p < end:
        if p[0] & 3 == 0:
            p = _literal_size(p, end, &size)
            if p == NULL or size > <size_t>(end - p) or size > out_size - done:
                return False
            memcpy(out + done, p, size)
            p += size
        else:
            p = _copy_element(p, end, repeats, &offset, &size)
            if p == NULL or offset == 0 or offset > done or size > out_size - done:
                return False
            _copy_within(out + done, offset, size)
        done += size
    return done == out_size


# For Python


def compress(const uint8_t[::1] data not None):
    """Return the block of plain bytes."""
    cdef size_t size = data.shape[0]
    cdef bytes out = PyBytes_FromStringAndSize(NULL, compressed_room(size))
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(out)
    cdef const uint8_t* plain = &data[0] if size else NULL
    cdef size_t length
    with nogil:
        length = compress_block(plain, size, start)
    return out[:length]


def plain_size(const uint8_t[::1] block not None):
    """Return how many plain bytes a block says it has; raise FormatError if it does not say."""
    cdef uint64_t size = 0
    if not block.shape[0] or not read_uvarint(&block[0], &block[0] + block.shape[0], &size):
        raise FormatError("a Snappy block has no size")
    return size


def expand(const uint8_t[::1] block not None):
    """Return the plain bytes of a block; raise FormatError if it is damaged.

    The caller has looked at `plain_size`, which is allocated at once.
    """
    cdef uint64_t size = 0
    cdef const uint8_t* start = &block[0] if block.shape[0] else NULL
    cdef const uint8_t* end = start + block.shape[0]
    cdef int used = read_uvarint(start, end, &size)
    cdef bytes out
    if not used:
        raise FormatError("a Snappy block has no size")
    out = PyBytes_FromStringAndSize(NULL, size)
    if not decode_block(start + used, end, <uint8_t*>PyBytes_AS_STRING(out), size, False):
        raise FormatError("a Snappy block is damaged", offset=used)
    return out
