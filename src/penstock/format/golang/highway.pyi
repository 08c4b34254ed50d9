"""HighwayHash-64, the checksum of every file that Go's nats-server keeps."""

from typing_extensions import Buffer

def highway_hash(data: Buffer, key: bytes) -> bytes:
    """Return the 8 bytes of the digest as they stand on disk."""
    ...

def named_key(name: str) -> bytes:
    """Return the key of the file or block of that name: its SHA-256."""
    ...
