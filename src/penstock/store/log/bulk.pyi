"""Messages by the thousand: into blocks as they are, out of them as snapshot records, and back."""

from typing_extensions import Buffer

from penstock.store.interface import RawMessage
from penstock.store.log.block import Block
from penstock.store.log.ledger import Ledger

def append_raw(
    ledger: Ledger, block: Block, messages: list[RawMessage], start: int, *, block_bytes_max: int
) -> int:
    """Append messages[start:] to the active block until it is full; give where it stopped."""
    ...

def export_records(
    ledger: Ledger,
    block: Block,
    ordinal: int,
    *,
    stop: int,
    dead: bytes,
    chain: int,
    bytes_max: int,
) -> tuple[bytes, int, int, int]:
    """Return (records, messages, next ordinal, chain) of a block's entries for a snapshot."""
    ...

def parse_records(data: Buffer, offset: int, chain: int) -> tuple[list[RawMessage], int, int]:
    """Read the whole records from `offset` on: gives (messages, next offset, chain)."""
    ...
