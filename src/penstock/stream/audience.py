"""What a stream knows of those who consume it.

Consumers stand above streams: a stream calls what it is given here, and has nobody until then.
"""

from __future__ import annotations

from typing import Protocol


class Audience(Protocol):
    """The consumers of one stream."""

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def wants(self, subject: bytes) -> bool:
        """Whether a message that is about to be stored is of interest to any of them."""
        ...

    def on_removed(self) -> None:
        """Messages were removed, other than by what consumers did."""
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

    count = 0

    def wants(self, subject: bytes) -> bool:
        """Nobody is there to want it."""
        return False

    def on_removed(self) -> None:
        """Nobody is there to be told."""

    def on_config(self) -> None:
        """Nobody is there to be told."""

    def stop(self) -> None:
        """Nobody is there to be stopped."""

    def remove(self) -> None:
        """Nobody is there to be removed."""
