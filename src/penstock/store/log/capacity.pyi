"""What a stream has room for: which newcomer is refused, and which messages give way to it."""

from penstock.store.interface import NewMessage, StoreConfig
from penstock.store.log.ledger import Ledger

class Capacity:
    """The limits of one stream; see the module."""

    is_behind: bool
    """Limits were lowered, and what is beyond them is being removed in slices."""

    def __init__(self, ledger: Ledger, config: StoreConfig) -> None: ...
    def configure(self, config: StoreConfig) -> None:
        """Go by another configuration from now on; nothing is removed yet."""
    def refuse(self, subject: bytes, headers: bytes, payload: bytes, *, keep: int = 0) -> None:
        """Raise LimitReached if a message may not come in.

        A message that leaves only `keep` of its subject makes the room that it needs there.
        """
    def refuse_batch(self, batch: list[NewMessage]) -> None:
        """Raise LimitReached if one of a batch may not come in, before anything of it is stored.

        A batch must fit as a whole: what it would push out itself makes no room for it.
        """
    def make_room(self, keep: int) -> int:
        """Remove what the message that was appended last leaves no room for.

        Only `keep` of its subject stay then, 0 for as many as the configuration says.
        """
    def enforce_totals(self, count_max: int = ...) -> int:
        """Remove the oldest messages until the totals are within their limits; return how many.

        At most `count_max` are removed. A store that refuses new messages keeps its old ones, also
        where the limits were lowered.
        """
    def trim_from(self, seq: int, count: int) -> int:
        """Remove what is too much of each subject, among some messages from a sequence on.

        Return the sequence to continue with, or 0 behind the last. `count` messages are looked at.
        """
    def is_any_above(self) -> bool:
        """Return True if a subject has more messages than it may."""
