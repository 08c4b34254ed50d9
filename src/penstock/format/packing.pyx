"""Envelopes that are compressed and not encrypted, made and opened without a Python object each.

The bytes are those that `envelope` describes. A message is only put into an envelope if that makes
its record shorter: one that does not shrink is stored as it is, without an envelope.

Invariant: what a length field asks for is checked against limits.py before it is allocated. The
bytes that `pack` and `unpack` return lie in the packer, up to the next call.

Pure. A packer belongs to one thread at a time.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from penstock.format.snappy cimport compress_block, compressed_room, decode_block
from penstock.format.wire cimport put_uvarint, read_uvarint, uvarint_size

from penstock.format.envelope import MAGIC, Compression
from penstock.limits import HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX, SNAPPY_EXPANSION_MAX

cdef uint64_t HEADERS_MAX = HEADERS_BYTES_MAX
cdef uint64_t PAYLOAD_MAX = PAYLOAD_BYTES_MAX
cdef uint64_t EXPANSION_MAX = SNAPPY_EXPANSION_MAX
# The magic and the algorithms of an envelope that is compressed and not encrypted.
cdef bytes HEAD = MAGIC + bytes([Compression.SNAPPY])

cdef enum:
    HEAD_SIZE = 5
    # Two lengths beside it.
    HEAD_ROOM = 25
    ROOM_MIN = 65536
    # A buffer that a large message made is not kept for small ones.
    ROOM_KEPT = 1048576


cdef class Packer:
    """Makes and opens envelopes, one at a time; see the module."""

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t* _reserve(self, size_t room) except NULL:
        cdef uint8_t* grown
        if room > self.room or (self.room > ROOM_KEPT and room <= ROOM_KEPT):
            room = max(room, <size_t>ROOM_MIN)
            grown = <uint8_t*>realloc(self.data, room)
            if grown == NULL:
                raise MemoryError
            self.data = grown
            self.room = room
        return self.data

    cdef const uint8_t* pack(
        self, const uint8_t* headers, size_t headers_size, const uint8_t* payload,
        size_t payload_size, size_t* packed_size,
    ) except? NULL:
        # The envelope of a message and its size, or NULL if that is not shorter than the message.
        cdef size_t size = headers_size + payload_size
        cdef size_t room = HEAD_ROOM + compressed_room(size)
        cdef uint8_t* start = self._reserve(room + size)
        cdef uint8_t* p = start
        cdef const uint8_t* plain = payload
        if headers_size and headers + headers_size == payload:
            plain = headers
        elif headers_size:
            memcpy(start + room, headers, headers_size)
            memcpy(start + room + headers_size, payload, payload_size)
            plain = start + room
        memcpy(p, <const char*>HEAD, HEAD_SIZE)
        p += HEAD_SIZE
        p += put_uvarint(p, headers_size)
        p += put_uvarint(p, payload_size)
        p += compress_block(plain, size, p)
        if <size_t>(p - start) >= size:
            return NULL
        packed_size[0] = p - start
        return start

    cdef const uint8_t* unpack(
        self, const uint8_t* envelope, size_t envelope_size, uint32_t* headers_size,
        uint32_t* payload_size,
    ) except? NULL:
        # The headers and payload of an envelope, one behind the other, and their sizes; NULL if it
        # is another kind of envelope or damaged, which `envelope.unseal` has the words for.
        cdef const uint8_t* end = envelope + envelope_size
        cdef const uint8_t* p = envelope + HEAD_SIZE
        cdef uint64_t headers = 0, payload = 0, plain = 0
        cdef uint8_t* out
        if envelope_size < HEAD_SIZE or memcmp(envelope, <const char*>HEAD, HEAD_SIZE) != 0:
            return NULL
        if not (
            _take(&p, end, &headers) and _take(&p, end, &payload)
            and headers <= HEADERS_MAX and payload <= PAYLOAD_MAX
        ):
            return NULL
        if <uint64_t>(end - p) * EXPANSION_MAX < headers + payload or not (
            _take(&p, end, &plain) and plain == headers + payload
        ):
            return NULL
        out = self._reserve(plain + 1)
        if not decode_block(p, end, out, plain, False):
            return NULL
        headers_size[0] = <uint32_t>headers
        payload_size[0] = <uint32_t>payload
        return out


cdef bint _take(const uint8_t** p, const uint8_t* end, uint64_t* value) noexcept:
    # Read a uvarint of the shortest form and go behind it; False if there is none.
    cdef int used = read_uvarint(p[0], end, value)
    if used == 0 or used != uvarint_size(value[0]):
        return False
    p[0] += used
    return True
