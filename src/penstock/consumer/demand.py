"""Where a consumer's messages are wanted.

A consumer serves clients that pull, or pushes to a subject: one of the two for as long as it is
there. Both say where the next messages go and how many may go there, and are told what went.

One thread: the event loop's.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Demand(NamedTuple):
    """Where messages are wanted."""

    target: bytes
    """The subject that they are sent to."""

    count_max: int
    """How many may be sent there, before it is asked for again."""

    bytes_max: int = -1
    """What they may have together; -1 for any."""

    first_goes: bool = False
    """A first message may have more bytes than that."""

    targets: list[bytes] | None = None
    """Several subjects, `target` first, that are sent one message each in turn; `count_max` is then
    for all of them together."""

    header: tuple[bytes, bytes] | None = None
    """One that every message gets beside its own."""


class Outlet(Protocol):
    """Where a consumer's messages go."""

    @property
    def is_wanting(self) -> bool:
        """Whether a message that comes in may be wanted."""
        ...

    def demand(self, now_ns: int) -> Demand | None:
        """Tell where the next message is wanted; None where it is not."""
        ...

    def sent(self, count: int, size: int, now_ns: int) -> None:
        """So many messages were sent to where they were last wanted."""
        ...

    def too_large(self) -> None:
        """The next message has more bytes than are wanted."""
        ...

    def nobody(self) -> None:
        """Nobody was there to take the next message."""
        ...

    def settle(self, now_ns: int, *, is_at_end: bool) -> None:
        """Nothing more can be sent now; `is_at_end` where that is for want of messages."""
        ...

    def due_ns(self) -> int | None:
        """Tell when `settle` must be called, if nothing happens before; None for never."""
        ...

    def used_until_ns(self, now_ns: int) -> int:
        """Tell when somebody was there last for whom the consumer is kept; now, if one is."""
        ...

    def start(self) -> None:
        """Listen to what concerns it."""
        ...

    def stop(self, reason: str) -> None:
        """Send no more; whoever waits is told the reason, unless it is empty."""
        ...


def status(code: int, text: str, more: bytes = b"") -> bytes:
    """Give the headers of a message that is a status; `more` are lines with their ends."""
    return b"NATS/1.0 %d %b\r\n%b\r\n" % (code, text.encode("utf-8", "replace"), more)
