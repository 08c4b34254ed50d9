"""Appending messages and gaps to a log, in memory: the compiled half of `Log`."""

from collections.abc import Sequence
from typing import Protocol

from penstock.format.envelope import DataKey
from penstock.store.interface import NewMessage, StoreConfig
from penstock.store.log.block import Block
from penstock.store.log.capacity import Capacity
from penstock.store.log.ledger import Ledger
from penstock.store.upkeep.expiry import Expiries

class _Blocks(Protocol):
    active: Block | None
    data_key: DataKey | None

    def room_for(self, record_bytes: int, seq: int) -> Block: ...

class LogWriter:
    """The way into one log; see the module."""

    def __init__(
        self, log: _Blocks, ledger: Ledger, expiries: Expiries, config: StoreConfig
    ) -> None:
        """`log.room_for(bytes, seq)` returns a block with room, and `log.active` the newest."""
    @property
    def capacity(self) -> Capacity:
        """The limits."""
    def configure(self, config: StoreConfig) -> None:
        """Go by another configuration from now on; nothing is removed yet."""
    def append_message(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        *,
        seq: int,
        timestamp_ns: int,
        expires_ns: int = 0,
    ) -> None:
        """Append one message; raise FormatError if it is too large for a record."""
    def append_many(
        self,
        messages: list[NewMessage],
        timestamp_ns: int,
        expires_ns: Sequence[int],
        keep: Sequence[int],
    ) -> None:
        """Append messages with the next sequences, within the limits; sizes are checked.

        Each is (subject, headers, payload). `expires_ns` and `keep` have an item for each message,
        or none.
        """
    def append_skip(self, seq: int, count: int, time_ns: int) -> int:
        """Reserve `count` sequences from `seq` on."""
