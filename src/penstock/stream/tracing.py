"""What a trace of a message is told by the stream that the message is for.

The seam between a stream and whoever traces: defined here by its user, implemented above.
"""

from __future__ import annotations

from typing import Protocol


class StreamTrace(Protocol):
    """The part of a trace that is about one stream."""

    @property
    def is_only(self) -> bool:
        """Whether nothing is to be stored: the message is judged and left alone."""
        ...

    def begin(self, stream: str) -> None:
        """Note which stream has the message."""
        ...

    def accept(self, subject: bytes, *, is_wanted: bool) -> None:
        """Note that it may be stored, under a subject, or that no consumer wants it."""
        ...

    def refuse(self, reason: str) -> None:
        """Note why it was not stored."""
        ...

    def finish(self) -> None:
        """Note that the stream is done with it."""
        ...
