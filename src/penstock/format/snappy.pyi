"""Snappy's blocks: made for envelopes, and read with the one more kind of copy that S2 has."""

def compress(data: bytes | bytearray | memoryview) -> bytes:
    """Return the block of plain bytes."""

def plain_size(block: bytes | bytearray | memoryview) -> int:
    """Return how many plain bytes a block says it has; raise FormatError if it does not say."""

def expand(block: bytes | bytearray | memoryview) -> bytes:
    """Return the plain bytes of a block; raise FormatError if it is damaged.

    The caller has looked at `plain_size`, which is allocated at once.
    """
