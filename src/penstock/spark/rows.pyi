"""Messages in batches, from columns: their hash, and their forms for snapshots and stores."""

from typing_extensions import Buffer

def hash_rows(
    sequences: Buffer,
    times: Buffer,
    subjects: tuple[Buffer, Buffer],
    headers: tuple[Buffer, Buffer],
    payloads: tuple[Buffer, Buffer],
) -> int:
    """Return the hash of messages."""
    ...

def hash_each(
    sequences: Buffer,
    times: Buffer,
    subjects: tuple[Buffer, Buffer],
    headers: tuple[Buffer, Buffer],
    payloads: tuple[Buffer, Buffer],
) -> bytes:
    """Return the hash of each message, as consecutive u64."""
    ...

def encode_entries(
    sequences: Buffer,
    times: Buffer,
    subjects: tuple[Buffer, Buffer],
    headers: tuple[Buffer, Buffer],
    payloads: tuple[Buffer, Buffer],
) -> bytes:
    """Return messages as the entries of a snapshot; see `format.golang.archive`."""
    ...

def raw_messages(
    sequences: Buffer,
    times: Buffer,
    subjects: tuple[Buffer, Buffer],
    headers: tuple[Buffer, Buffer],
    payloads: tuple[Buffer, Buffer],
) -> list[tuple[int, int, bytes, bytes, bytes, int]]:
    """Return messages as a store takes them with their sequences, without expiries."""
    ...
