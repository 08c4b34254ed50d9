"""The S2 stream format: Snappy's framing, Snappy's blocks, and one more kind of copy."""

from typing_extensions import Buffer

def decode_s2_stream(data: Buffer, limit: int) -> bytes:
    """Return the plain bytes of a stream; raises FormatError if damaged or above `limit` bytes."""
    ...

def salvage_s2_stream(data: Buffer, size: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Return exactly `size` plain bytes and the list of (place, length) that could not be read."""
    ...

def encode_s2_stream(data: Buffer) -> bytes:
    """Return a stream that any S2 reader takes; its blocks are plain Snappy, which is a subset."""
    ...
