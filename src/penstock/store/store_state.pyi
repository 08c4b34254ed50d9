from collections.abc import Iterable
from typing import final

from penstock.format.damage import Damage
from penstock.store.log.ledger import Ledger

@final
class StoreState:
    """A stream in numbers."""

    def __init__(self, ledger: Ledger, durable_seq: int, lost: Iterable[Damage]) -> None: ...
    @property
    def messages(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def first_time_ns(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def last_time_ns(self) -> int: ...
    @property
    def deleted(self) -> int:
        """Sequences between first and last without a message."""

    @property
    def subjects(self) -> int: ...
    @property
    def durable_seq(self) -> int:
        """Everything up to here is on stable storage (in the file, with a sync interval)."""

    @property
    def lost(self) -> tuple[Damage, ...]:
        """Damage that was found and not yet repaired."""
