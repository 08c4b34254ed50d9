"""What a stream knows of those who consume it.

Consumers stand above streams: a stream calls what it is given here, and has nobody until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.stream.updates import ConsumerBounds
from penstock.subjects import SubjectFilter


class Taker(Protocol):
    """Another stream that is fed from this one: a mirror, or one with it as a source."""

    def wants(self, subject: bytes) -> bool:
        """Whether messages of a subject are for it."""
        ...

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether it is still to take a message."""
        ...


class Audience(Protocol):
    """The consumers of one stream."""

    @property
    def count(self) -> int:
        """How many there are that clients see."""
        ...

    @property
    def total(self) -> int:
        """How many there are, with those that feed other streams."""
        ...

    @property
    def bounds(self) -> Mapping[str, ConsumerBounds]:
        """What of each the stream's limits for consumers bound, by name."""
        ...

    def wants(self, subject: bytes) -> bool:
        """Whether a message that is about to be stored is of interest to any of them."""
        ...

    def on_done(self, stream_seqs: list[int]) -> None:
        """Somebody is done with messages: remove those that nobody else needs."""
        ...

    def on_purged(self, purged: SubjectFilter | None) -> None:
        """Messages were purged: some or all of what a filter wants, of everything where None."""
        ...

    def on_removed(self, stream_seq: int) -> None:
        """A message was removed by somebody."""
        ...

    def on_config(self) -> None:
        """The stream has another configuration."""
        ...

    def stop(self) -> None:
        """Deliver no more; all that must be remembered is on stable storage when this returns."""
        ...

    def remove(self) -> None:
        """The stream is going to be removed, and they with it."""
        ...


class NoAudience:
    """A stream that nobody consumes."""

    count = total = 0
    bounds: Mapping[str, ConsumerBounds] = {}

    def wants(self, subject: bytes) -> bool:
        """Nobody is there to want it."""
        return False

    def on_done(self, stream_seqs: list[int]) -> None:
        """Nobody is there to remove anything."""

    def on_purged(self, purged: SubjectFilter | None) -> None:
        """Nobody is there to be told."""

    def on_removed(self, stream_seq: int) -> None:
        """Nobody is there to be told."""

    def on_config(self) -> None:
        """Nobody is there to be told."""

    def stop(self) -> None:
        """Nobody is there to be stopped."""

    def remove(self) -> None:
        """Nobody is there to be removed."""
