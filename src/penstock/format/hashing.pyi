"""XXH64, the checksum of every file of the store."""

from typing_extensions import Buffer

def xxh64(data: Buffer, seed: int = 0) -> int:
    """Hash a contiguous buffer."""
    ...
