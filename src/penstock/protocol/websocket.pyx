"""WebSocket frames as bytes: headers read and written, payloads unmasked (RFC 6455).

Lengths are checked against a limit before anything is kept; what cannot be a frame of a client is
refused with the close code that says why. Pure; any thread.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t

from penstock.errors import FormatError

CONTINUATION = 0
TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10

CONTROL_BYTES_MAX = 125
"""A control frame's payload, by the RFC."""


def read_frame(const uint8_t[::1] data not None, Py_ssize_t offset, *, uint64_t payload_max,
               bint masked):
    """Read the frame at `offset`: (opcode, final, compressed, payload, bytes used), or None.

    None means that more bytes must come. Raises FormatError, whose `offset` is the close code.
    """
    cdef Py_ssize_t available = data.shape[0] - offset
    cdef uint8_t first, second, opcode
    cdef uint64_t size
    cdef Py_ssize_t at = 2
    cdef int place
    if available < 2:
        return None
    first = data[offset]
    second = data[offset + 1]
    opcode = first & 0x0F
    if first & 0x30:
        raise FormatError("reserved bits are set", offset=1002)
    if not (opcode <= BINARY or CLOSE <= opcode <= PONG):
        raise FormatError(f"unknown opcode {opcode}", offset=1002)
    if bool(second & 0x80) != masked:
        raise FormatError("mask bit missing" if masked else "mask bit set", offset=1002)
    size = second & 0x7F
    if opcode >= CLOSE and (size > 125 or not first & 0x80 or first & 0x40):
        raise FormatError("a control frame that is long, in parts or compressed", offset=1002)
    if size == 126 or size == 127:
        at += 2 if size == 126 else 8
        if available < at:
            return None
        size = 0
        for place in range(2, at):
            size = size << 8 | data[offset + place]
    if size > payload_max:
        raise FormatError(f"a frame of {size} bytes (at most {payload_max})", offset=1009)
    if masked:
        at += 4
    if <uint64_t>available < at + size:
        return None
    payload = _payload(&data[offset + at - 4] if masked else NULL, &data[offset] + at, size)
    return opcode, bool(first & 0x80), bool(first & 0x40), payload, at + <Py_ssize_t>size


cdef bytes _payload(const uint8_t* mask, const uint8_t* start, uint64_t size):
    cdef bytes payload
    cdef uint8_t* out
    cdef uint64_t place
    if mask == NULL:
        return PyBytes_FromStringAndSize(<const char*>start, size)
    # Made without its bytes: the object of a single byte is shared by everybody otherwise.
    payload = PyBytes_FromStringAndSize(NULL, size)
    out = <uint8_t*>PyBytes_AS_STRING(payload)
    for place in range(size):
        out[place] = start[place] ^ mask[place & 3]
    return payload


def frame_header(int opcode, uint64_t size, *, bint compressed=False, bint final=True):
    """Give the header of a frame that the server sends: never masked."""
    cdef int first = opcode | (0x80 if final else 0) | (0x40 if compressed else 0)
    if size <= 125:
        return bytes((first, size))
    if size < 65536:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")
