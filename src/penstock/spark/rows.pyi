"""Messages by the batch, from columns: their hash, and the forms in which others take them."""

from typing_extensions import Buffer

def hash_rows(
    sequences: Buffer,
    times: Buffer,
    subjects: tuple[Buffer, Buffer],
    headers: tuple[Buffer, Buffer],
    payloads: tuple[Buffer, Buffer],
) -> int:
    """Give the hash of messages."""
    ...

def hash_each(
    sequences: Buffer,
    times: Buffer,
    subjects: tuple[Buffer, Buffer],
    headers: tuple[Buffer, Buffer],
    payloads: tuple[Buffer, Buffer],
) -> bytes:
    """Give the hash of each message, u64 one after another."""
    ...

def encode_entries(
    sequences: Buffer,
    times: Buffer,
    subjects: tuple[Buffer, Buffer],
    headers: tuple[Buffer, Buffer],
    payloads: tuple[Buffer, Buffer],
) -> bytes:
    """Give messages as the entries of a snapshot; see `format.golang.archive`."""
    ...

def raw_messages(
    sequences: Buffer,
    times: Buffer,
    subjects: tuple[Buffer, Buffer],
    headers: tuple[Buffer, Buffer],
    payloads: tuple[Buffer, Buffer],
) -> list[tuple[int, int, bytes, bytes, bytes, int]]:
    """Give messages as a store takes them that keeps their places, without expiries."""
    ...
