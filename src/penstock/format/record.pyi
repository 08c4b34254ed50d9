"""One record of a block file: encode, decode, measure."""

import msgspec
from typing_extensions import Buffer

DELETED: int
SKIP: int
ENVELOPED: int
TOMBSTONE: int
EXPIRES: int
COMMIT_START: int

class DecodedRecord(msgspec.Struct, frozen=True):
    """A record's fields as Python objects; `length` is its size on disk."""

    flags: int
    subject: bytes
    headers: bytes
    payload: bytes
    seq: int
    timestamp_ns: int
    expires_ns: int
    checksum: int
    length: int

def encode(
    subject: bytes,
    headers: bytes,
    payload: bytes,
    *,
    seq: int,
    timestamp_ns: int,
    flags: int = 0,
    expires_ns: int = 0,
    seed: int = 0,
) -> bytes:
    """Encode one record; raises FormatError for what the format cannot hold."""
    ...

def check_sizes(subject_size: int, headers_size: int, payload_size: int) -> None:
    """Raise FormatError where a record could not hold these."""
    ...

def check_message(subject_size: int, headers_size: int, payload_size: int) -> None:
    """Raise FormatError where a message is too large, be it enveloped or not."""
    ...

def measure(data: Buffer, offset: int = 0) -> int:
    """Return the length of the record at `offset` without decoding it."""
    ...

def decode(data: Buffer, offset: int = 0, *, seed: int = 0) -> DecodedRecord:
    """Decode the record at `offset`, verifying its checksum; raises FormatError."""
    ...
