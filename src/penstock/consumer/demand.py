"""Where the messages of a consumer go next, how many, and how fast.

A consumer serves clients that pull (`pull_delivery`) or pushes to a subject (`push_delivery`): one
of the two for its whole life. Both are a `DeliveryMode`: it says where the next messages go, and is
told what was sent. `pump` asks it.

Thread: the event loop's.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

_SECOND_NS = 1_000_000_000


class Demand(NamedTuple):
    """Where messages are wanted."""

    target: bytes
    """The subject to send to."""

    count_max: int
    """How many messages may be sent before `DeliveryMode.demand` is asked again."""

    bytes_max: int = -1
    """The size that the messages may have together; -1 for any."""

    first_goes: bool = False
    """The first message may be larger than `bytes_max`."""

    targets: list[bytes] | None = None
    """Several subjects, `target` first, that are sent one message each in turn; `count_max` is then
    for all of them together."""

    header: tuple[bytes, bytes] | None = None
    """A header that is added to every message."""


class DeliveryMode(Protocol):
    """How a consumer's messages reach clients."""

    @property
    def is_wanting(self) -> bool:
        """True if a message that comes in may be wanted."""
        ...

    @property
    def waiting_count(self) -> int:
        """How many pull requests wait; 0 for a push consumer."""
        ...

    @property
    def pin(self) -> tuple[str, int]:
        """The id of the pinned client and when it was pinned; ("", 0) if none is."""
        ...

    def demand(self, now_ns: int) -> Demand | None:
        """Return where the next message is wanted; None if nowhere."""
        ...

    def sent(self, count: int, size: int, now_ns: int) -> None:
        """Note that messages were sent as the last demand said."""
        ...

    def too_large(self) -> None:
        """Note that the next message has more bytes than the last demand allows."""
        ...

    def no_subscriber(self) -> None:
        """Note that the target of the last demand has no subscriber any more."""
        ...

    def settle(self, now_ns: int, *, is_at_end: bool) -> bool:
        """Do what is due after a turn, e.g. heartbeats and timeouts; True if a turn should follow.

        `is_at_end`: the turn ended because there are no more messages.
        """
        ...

    def due_ns(self) -> int | None:
        """Return when `settle` must be called at the latest; None if no time is due."""
        ...

    def used_until_ns(self, now_ns: int) -> int:
        """Return when a client was last there; now, if one is there."""
        ...

    def start(self) -> None:
        """Begin to serve clients."""
        ...

    def stop(self, reason: str) -> None:
        """Stop serving. Clients that wait are sent the reason, unless it is empty."""
        ...


class RateLimit:
    """How fast a consumer may send: so many bits a second, with a burst of the largest message.

    A bucket holds the bytes that may go at once. It is full at first and fills at the rate. A
    message goes when the bucket has its size, and takes it out. As in the reference server; but a
    message larger than the bucket, which would wait for ever there, goes when the bucket is full.

    Invariant: within any time no more goes than the burst, what the rate allows, and one message.
    """

    __slots__ = ("_burst", "_filled_ns", "_level", "bits_per_s")

    def __init__(self, bits_per_s: int, burst_bytes: int) -> None:
        self.bits_per_s = bits_per_s
        # In bytes times nanoseconds, so that rounding loses nothing.
        self._burst = self._level = max(burst_bytes, 1) * _SECOND_NS
        self._filled_ns = 0

    @property
    def _bytes_per_s(self) -> int:
        return max(self.bits_per_s // 8, 1)

    def wait_ns(self, size: int, now_ns: int) -> int:
        """Return how long a message of a size must wait; 0 if it may go now."""
        passed_ns = max(now_ns - self._filled_ns, 0)
        self._filled_ns = now_ns
        self._level = min(self._level + passed_ns * self._bytes_per_s, self._burst)
        missing = min(size * _SECOND_NS, self._burst) - self._level
        return -(-missing // self._bytes_per_s) if missing > 0 else 0

    def spend(self, size: int) -> None:
        """Note that a message of a size was sent."""
        self._level -= size * _SECOND_NS


def rate_limit_of(old: RateLimit | None, bits_per_s: int, *, burst_bytes: int) -> RateLimit | None:
    """Return the limit for a rate, None for rate 0. An old limit of the same rate is kept."""
    if not bits_per_s:
        return None
    if old is not None and old.bits_per_s == bits_per_s:
        return old
    return RateLimit(bits_per_s, burst_bytes)
