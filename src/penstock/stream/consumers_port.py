"""What a stream knows of its consumers, and of the streams that read from it.

Consumers stand above streams in the layers: a stream calls `ConsumersPort`, which
`consumer.registry` implements, and has `NoConsumers` until then.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.stream.config.requests import ConsumerBounds
from penstock.stream.interest import Interest
from penstock.subjects import SubjectFilter


class FedStream(Protocol):
    """Another stream that reads from this one: a mirror, or a stream with it as a source."""

    def wants(self, subject: bytes) -> bool:
        """Return True if messages of a subject are for the fed stream."""
        ...

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Return True if the fed stream has not stored a message yet."""
        ...


class ConsumersPort(Protocol):
    """The consumers of one stream, as the stream calls them."""

    @property
    def count(self) -> int:
        """The number of consumers that clients see."""
        ...

    @property
    def total(self) -> int:
        """The number of consumers, with those that feed other streams."""
        ...

    @property
    def bounds(self) -> Mapping[str, ConsumerBounds]:
        """The settings that the stream's limits for consumers bound, by name."""
        ...

    @property
    def wanted(self) -> Interest:
        """Which messages are wanted; asked before one is stored."""
        ...

    def on_done(self, stream_seqs: list[int]) -> None:
        """Remove messages that a fed stream is done with, unless others need them."""
        ...

    def on_purged(self, purged: SubjectFilter | None) -> None:
        """Forget messages that were purged: some or all of a filter's, of all messages if None."""
        ...

    def on_removed(self, stream_seq: int) -> None:
        """Forget a message that a client removed."""
        ...

    def on_config(self) -> None:
        """Apply another configuration of the stream."""
        ...

    def on_reopened(self) -> None:
        """Go on with a store that was reopened: it may end earlier, or hold more."""
        ...

    def stop(self) -> None:
        """Deliver no more; all states are on stable storage when this returns."""
        ...

    def remove(self) -> None:
        """Stop all consumers of a stream that is being removed."""
        ...

    def drain(self) -> None:
        """Wait until nothing is written of consumers that were removed. Thread: any other."""
        ...


class NoConsumers:
    """A stream without consumers; every stream begins as one."""

    count = total = 0
    bounds: Mapping[str, ConsumerBounds] = {}
    wanted = Interest()

    def on_done(self, stream_seqs: list[int]) -> None:
        """Do nothing."""

    def on_purged(self, purged: SubjectFilter | None) -> None:
        """Do nothing."""

    def on_removed(self, stream_seq: int) -> None:
        """Do nothing."""

    def on_config(self) -> None:
        """Do nothing."""

    def on_reopened(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def remove(self) -> None:
        """Do nothing."""

    def drain(self) -> None:
        """Do nothing."""
