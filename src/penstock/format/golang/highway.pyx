"""HighwayHash-64, the checksum of every file that Go's nats-server keeps.

The 32-byte key is not a secret: it is the SHA-256 of a name (the stream, the stream and a block's
number, the stream and a consumer), so that a file moved elsewhere does not check out. On disk the
digest is 8 bytes, little-endian.

Pure. Compiled readers of this package use the struct in highway.pxd; Python code calls
`highway_hash`.
"""

import hashlib

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.errors import UsageError
from penstock.format.wire cimport get_u64

cdef uint64_t[4] FIRST_MUL0 = [
    0xDBE6D5D5FE4CCE2FULL, 0xA4093822299F31D0ULL, 0x13198A2E03707344ULL, 0x243F6A8885A308D3ULL,
]
cdef uint64_t[4] FIRST_MUL1 = [
    0x3BD39E10CB0EF593ULL, 0xC0ACF169B5F18A8CULL, 0xBE5466CF34E90C6CULL, 0x452821E638D01377ULL,
]


cdef inline uint64_t _swap_halves(uint64_t value) noexcept nogil:
    return (value >> 32) | (value << 32)


cdef inline uint64_t _zipper_low(uint64_t low, uint64_t high) noexcept nogil:
    # Bytes 3 12 2 5 14 1 15 0 of the 16-byte lane pair, least significant first.
    return (
        ((low >> 24) & 0xFF)
        | ((high >> 24) & 0xFF00)
        | (low & 0xFF0000)
        | ((low >> 16) & 0xFF000000ULL)
        | ((high >> 16) & 0xFF00000000ULL)
        | ((low & 0xFF00) << 32)
        | ((high >> 8) & 0xFF000000000000ULL)
        | (low << 56)
    )


cdef inline uint64_t _zipper_high(uint64_t low, uint64_t high) noexcept nogil:
    # Bytes 11 4 10 13 9 6 8 7 of the same pair.
    return (
        ((high >> 24) & 0xFF)
        | ((low >> 24) & 0xFF00)
        | (high & 0xFF0000)
        | ((high >> 16) & 0xFF000000ULL)
        | ((high & 0xFF00) << 24)
        | ((low >> 8) & 0xFF0000000000ULL)
        | ((high & 0xFF) << 48)
        | (low & 0xFF00000000000000ULL)
    )


cdef inline void _mix(Highway* s, const uint64_t* lanes) noexcept nogil:
    cdef int i
    for i in range(4):
        s.v1[i] += s.mul0[i] + lanes[i]
        s.mul0[i] ^= (s.v1[i] & 0xFFFFFFFFULL) * (s.v0[i] >> 32)
        s.v0[i] += s.mul1[i]
        s.mul1[i] ^= (s.v0[i] & 0xFFFFFFFFULL) * (s.v1[i] >> 32)
    for i in range(0, 4, 2):
        s.v0[i] += _zipper_low(s.v1[i], s.v1[i + 1])
        s.v0[i + 1] += _zipper_high(s.v1[i], s.v1[i + 1])
    for i in range(0, 4, 2):
        s.v1[i] += _zipper_low(s.v0[i], s.v0[i + 1])
        s.v1[i + 1] += _zipper_high(s.v0[i], s.v0[i + 1])


cdef inline void _mix_packet(Highway* s, const uint8_t* packet) noexcept nogil:
    cdef uint64_t lanes[4]
    memcpy(lanes, packet, 32)
    _mix(s, lanes)


cdef void highway_start(Highway* state, const uint8_t* key) noexcept nogil:
    cdef int i
    cdef uint64_t part
    for i in range(4):
        part = get_u64(key + 8 * i)
        state.mul0[i] = FIRST_MUL0[i]
        state.mul1[i] = FIRST_MUL1[i]
        state.v0[i] = FIRST_MUL0[i] ^ part
        state.v1[i] = FIRST_MUL1[i] ^ _swap_halves(part)
    state.held_size = 0


cdef void highway_absorb(Highway* state, const uint8_t* data, size_t size) noexcept nogil:
    cdef size_t part
    if state.held_size:
        part = min(size, 32 - state.held_size)
        memcpy(state.held + state.held_size, data, part)
        state.held_size += part
        data += part
        size -= part
        if state.held_size < 32:
            return
        _mix_packet(state, state.held)
        state.held_size = 0
    while size >= 32:
        _mix_packet(state, data)
        data += 32
        size -= 32
    if size:
        memcpy(state.held, data, size)
        state.held_size = size


cdef void _absorb_rest(Highway* s) noexcept nogil:
    # The last 1 to 31 bytes: their number is mixed in, and they are laid out so that every length
    # gives another packet.
    cdef size_t size = s.held_size
    cdef size_t whole = size & ~<size_t>3
    cdef size_t odd = size & 3
    cdef uint8_t packet[32]
    cdef uint32_t halves[8]
    cdef int i
    for i in range(4):
        s.v0[i] += (<uint64_t>size << 32) + size
    memcpy(halves, s.v1, 32)
    for i in range(8):
        halves[i] = (halves[i] << size) | (halves[i] >> (32 - size))
    memcpy(s.v1, halves, 32)
    memset(packet, 0, 32)
    memcpy(packet, s.held, whole)
    if size & 16:
        memcpy(packet + 28, s.held + size - 4, 4)
    elif odd:
        packet[16] = s.held[whole]
        packet[17] = s.held[whole + (odd >> 1)]
        packet[18] = s.held[size - 1]
    _mix_packet(s, packet)


cdef uint64_t highway_finish(Highway* state) noexcept nogil:
    cdef uint64_t lanes[4]
    cdef int _round
    if state.held_size:
        _absorb_rest(state)
    for _round in range(4):
        lanes[0] = _swap_halves(state.v0[2])
        lanes[1] = _swap_halves(state.v0[3])
        lanes[2] = _swap_halves(state.v0[0])
        lanes[3] = _swap_halves(state.v0[1])
        _mix(state, lanes)
    return state.v0[0] + state.v1[0] + state.mul0[0] + state.mul1[0]


def highway_hash(const uint8_t[::1] data, bytes key):
    """Return the 8 bytes of the digest as they stand on disk."""
    cdef Highway state
    cdef uint64_t digest
    if len(key) != 32:
        raise UsageError(f"a HighwayHash key has 32 bytes, not {len(key)}")
    highway_start(&state, key)
    if data.shape[0]:
        highway_absorb(&state, &data[0], data.shape[0])
    digest = highway_finish(&state)
    return digest.to_bytes(8, "little")


def named_key(str name):
    """Return the key of the file or block of that name: its SHA-256."""
    return hashlib.sha256(name.encode()).digest()
