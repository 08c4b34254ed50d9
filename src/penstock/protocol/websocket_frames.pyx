"""WebSocket frames as bytes: read as they come; the headers and frames that are sent.

Payloads of messages are handed on piece by piece, so that a frame of any size takes no memory; only
a header and the payload of a control frame (at most 125 bytes) wait until they are whole. What
cannot be a frame of a client is a violation, in the reference server's words (RFC 6455, and RFC
7692 for the bit that marks compression).

A reader belongs to one connection, on either side. Pure; any thread, one at a time. Used by
`net.websocket` and `client.websocket`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef enum:
    C_CONTINUATION = 0
    C_TEXT = 1
    C_BINARY = 2
    C_CLOSE = 8
    C_PING = 9
    C_PONG = 10
    # The payload of a control frame: RFC 6455.
    C_CONTROL_BYTES_MAX = 125
    FINAL = 0x80
    COMPRESSED = 0x40
    RESERVED = 0x30
    MASKED = 0x80

CONTINUATION = C_CONTINUATION
TEXT = C_TEXT
BINARY = C_BINARY
CLOSE = C_CLOSE
PING = C_PING
PONG = C_PONG
CONTROL_BYTES_MAX = C_CONTROL_BYTES_MAX
"""A control frame's payload, by the RFC."""


cdef class FrameReader:
    """Reads the frames of one peer; `masked` and `compressing` are what the upgrade agreed on.

    `violation` is "" until something comes that is no frame; nothing more is read then.
    """

    cdef bint _masked
    cdef bint _compressing
    # The beginning of a frame that is not there yet as a whole.
    cdef bytes _begun
    # Of the frame that is being read: what is still to come, and how it is masked.
    cdef uint64_t _left
    cdef uint8_t _mask[4]
    cdef Py_ssize_t _mask_place
    # Of the message that is being read.
    cdef bint _in_message
    cdef bint _is_compressed
    cdef bint _is_final
    # Pieces that were not compressed and follow each other, while `feed` runs.
    cdef uint8_t* _run
    cdef Py_ssize_t _run_bytes
    cdef bint _run_is_final
    cdef readonly str violation

    def __init__(self, *, bint masked, bint compressing):
        self._masked = masked
        self._compressing = compressing
        self._begun = b""
        self.violation = ""

    def __dealloc__(self):
        free(self._run)

    def feed(self, data not None):
        """Read bytes; return [(opcode, payload, compressed, final)].

        Of a message each is a piece, BINARY whatever its frame was, and `final` ends the message.
        Pieces of messages that are not compressed are one where they follow each other. A control
        frame is one item.
        """
        cdef const uint8_t[::1] view
        cdef Py_ssize_t at = 0, size, used, taken
        pieces = []
        if self.violation or not len(data):
            return pieces
        if self._begun:
            data = self._begun + bytes(data)
            self._begun = b""
        view = data
        size = view.shape[0]
        while at < size:
            if self._left == 0:
                used = self._begin(&view[at], size - at, pieces)
                if used == 0:
                    if not self.violation:
                        self._begun = bytes(view[at:])
                    break
                at += used
                continue
            taken = size - at
            if self._left < <uint64_t>taken:
                taken = self._left
            self._left -= taken
            self._add(pieces, &view[at], taken, size - at)
            at += taken
        self._end_run(pieces)
        return pieces

    cdef int _add(
        self, list pieces, const uint8_t* data, Py_ssize_t size, Py_ssize_t available
    ) except -1:
        # Add a piece of a message; one that is not compressed to the run of such pieces, which
        # with what may follow has no more bytes than are available.
        cdef bint final = self._left == 0 and self._is_final
        if self._is_compressed:
            self._end_run(pieces)
            pieces.append((C_BINARY, self._unmasked(data, size), True, final))
            return 0
        if self._run == NULL:
            self._run = <uint8_t*>malloc(max(available, 1))
            if self._run == NULL:
                raise MemoryError
            self._run_bytes = 0
        self._unmask(self._run + self._run_bytes, data, size)
        self._run_bytes += size
        self._run_is_final = final
        return 0

    cdef int _end_run(self, list pieces) except -1:
        if self._run == NULL:
            return 0
        payload = self._run[:self._run_bytes]
        free(self._run)
        self._run = NULL
        pieces.append((C_BINARY, payload, False, self._run_is_final))
        return 0

    cdef Py_ssize_t _begin(self, const uint8_t* data, Py_ssize_t size, list pieces) except -1:
        # Read a header, and a control frame as a whole; return the bytes used, 0 if more must come.
        cdef uint8_t first = data[0], opcode = first & 0x0F
        cdef Py_ssize_t at = 2
        cdef uint64_t length
        cdef int place
        self._check_first(first)
        if self.violation or size < 2:
            return 0
        length = data[1] & 0x7F
        self._check_second(first, opcode, data[1], length)
        if self.violation:
            return 0
        if length >= 126:
            at += 2 if length == 126 else 8
            if size < at:
                return 0
            length = 0
            for place in range(2, at):
                length = length << 8 | data[place]
            if length >> 63:
                self.violation = "invalid 64-bit payload length"
                return 0
        if self._masked:
            at += 4
        if size < at or (opcode >= C_CLOSE and <uint64_t>(size - at) < length):
            return 0
        if self._masked:
            for place in range(4):
                self._mask[place] = data[at - 4 + place]
        self._mask_place = 0
        if opcode >= C_CLOSE:
            self._end_run(pieces)
            pieces.append((opcode, self._unmasked(data + at, length), False, True))
            return at + <Py_ssize_t>length
        self._enter(first, opcode, length)
        if length == 0:
            self._add(pieces, data, 0, size - at)
        return at

    cdef int _enter(self, uint8_t first, uint8_t opcode, uint64_t length) except -1:
        if opcode != C_CONTINUATION:
            self._is_compressed = first & COMPRESSED != 0
        self._is_final = first & FINAL != 0
        self._in_message = not self._is_final
        self._left = length
        return 0

    cdef int _check_first(self, uint8_t first) except -1:
        if first & RESERVED:
            self.violation = "RSV2 and RSV3 must be clear"
        elif first & COMPRESSED and not self._compressing:
            self.violation = "compressed frame received without negotiated permessage-deflate"
        return 0

    cdef int _check_second(
        self, uint8_t first, uint8_t opcode, uint8_t second, uint64_t length
    ) except -1:
        if self._masked and not second & MASKED:
            self.violation = "mask bit missing"
        elif C_CLOSE <= opcode <= C_PONG:
            if length > C_CONTROL_BYTES_MAX:
                self.violation = "control frame length bigger than maximum allowed of 125 bytes"
            elif not first & FINAL:
                self.violation = "control frame does not have final bit set"
            elif first & COMPRESSED:
                self.violation = "control frame must not be compressed"
        elif opcode == C_TEXT or opcode == C_BINARY:
            if self._in_message:
                self.violation = (
                    "new message started before final frame for previous message was received"
                )
        elif opcode != C_CONTINUATION:
            self.violation = f"unknown opcode {opcode}"
        elif not self._in_message or first & COMPRESSED:
            self.violation = "invalid continuation frame"
        return 0

    cdef bytes _unmasked(self, const uint8_t* start, Py_ssize_t size):
        cdef bytes payload
        if size < 2:
            return bytes([start[0] ^ self._mask[self._mask_place]]) if size else b""
        payload = PyBytes_FromStringAndSize(NULL, size)
        self._unmask(<uint8_t*>PyBytes_AS_STRING(payload), start, size)
        return payload

    cdef void _unmask(self, uint8_t* out, const uint8_t* start, Py_ssize_t size) noexcept:
        if not self._masked:
            memcpy(out, start, size)
            return
        _mask_bytes(out, start, size, self._mask, self._mask_place)
        self._mask_place = (self._mask_place + size) & 3


cdef void _mask_bytes(
    uint8_t* out, const uint8_t* start, Py_ssize_t size, const uint8_t* key, Py_ssize_t first
) noexcept nogil:
    # Mask or unmask, eight bytes at a time, beginning with the byte `first` of the key.
    cdef uint8_t mask[8]
    cdef uint64_t word, masks
    cdef Py_ssize_t place
    for place in range(8):
        mask[place] = key[(first + place) & 3]
    memcpy(&masks, mask, 8)
    place = 0
    while place + 8 <= size:
        memcpy(&word, start + place, 8)
        word ^= masks
        memcpy(out + place, &word, 8)
        place += 8
    while place < size:
        out[place] = start[place] ^ mask[place & 7]
        place += 1


def frame_header(int opcode, uint64_t size, *, bint compressed=False, bint final=True):
    """Return the header of a frame that the server sends: never masked."""
    cdef int first = opcode | (FINAL if final else 0) | (COMPRESSED if compressed else 0)
    if size <= C_CONTROL_BYTES_MAX:
        return bytes((first, size))
    if size < 65536:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")


def masked_frame(int opcode, const uint8_t[::1] payload not None, bytes key not None, *,
                 bint compressed=False):
    """Return a whole frame of a client, masked with a key of four bytes."""
    cdef bytes header = frame_header(opcode, payload.shape[0], compressed=compressed)
    cdef Py_ssize_t at = len(header), size = payload.shape[0]
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, at + 4 + size)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(frame)
    cdef const uint8_t* mask = key
    if len(key) != 4:
        raise ValueError("a mask has four bytes")
    memcpy(out, <const char*>header, at)
    out[1] |= MASKED
    memcpy(out + at, mask, 4)
    if size:
        _mask_bytes(out + at + 4, &payload[0], size, mask, 0)
    return frame
