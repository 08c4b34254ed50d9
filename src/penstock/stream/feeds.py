"""A feed: one origin's messages on their way into one stream.

A `Mirror` and a `Source` are feeds: they know where to begin, and what becomes of a message. A
reader brings the messages, from a store of this server or from elsewhere, and asks no more than
what is here.

What always holds: `position` is the last sequence of the origin that was dealt with; it never names
a message that is not in the stream, or was not meant to be.

One thread: the event loop's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.errors import ApiError
from penstock.stream.config import StreamSource
from penstock.stream.headers import without_prefix
from penstock.stream.info import OriginFault, StreamSourceInfo
from penstock.stream.republishing import renamed, transform_of
from penstock.subjects import SubjectFilter

if TYPE_CHECKING:
    from penstock.store.copying import Copier
    from penstock.stream.stream import Stream


_EXPECTATIONS: Final = (b"Nats-Expected-", b"Nats-Batch-")


def without_expectations(headers: bytes) -> bytes:
    """Take out the headers that told the origin what to expect: they are done with."""
    for prefix in _EXPECTATIONS:
        if prefix in headers:
            headers = without_prefix(headers, prefix)
    return headers


class Start(msgspec.Struct, frozen=True):
    """Where to begin in an origin: at a sequence, at a time, or with all that it has."""

    seq: int = 0
    time_ns: int | None = None


class OriginMessage(Protocol):
    """A message as the origin has it."""

    @property
    def seq(self) -> int:
        """Its sequence there."""
        ...

    @property
    def timestamp_ns(self) -> int:
        """When it was stored there."""
        ...

    @property
    def subject(self) -> bytes:
        """Its subject there."""
        ...

    @property
    def headers(self) -> bytes:
        """Its headers, as they are there."""
        ...

    @property
    def payload(self) -> bytes:
        """Its body."""
        ...


class Reader(Protocol):
    """Whoever brings an origin's messages to a feed."""

    def lag(self) -> int:
        """How many messages are still to come."""
        ...

    def active_ns(self) -> int:
        """How long ago the origin was heard of; -1 for never."""
        ...

    def stop(self) -> None:
        """Bring no more."""
        ...


class Feed(ABC):
    """One origin of one stream; see the module."""

    def __init__(self, stream: Stream, origin: StreamSource) -> None:
        self.stream = stream
        self.origin = origin
        self.position = 0
        self.error: ApiError | None = None
        self.reader: Reader | None = None
        self._heard_ns = 0
        pairs = origin.subject_transforms
        patterns = [pair.src for pair in pairs] if pairs else [origin.filter_subject]
        self.patterns: tuple[str, ...] = () if "" in patterns else tuple(patterns)
        """What is wanted of the origin; empty for everything."""

        self.subjects = SubjectFilter([each.encode() for each in self.patterns])
        self._transforms = [transform_of(pair) for pair in pairs]

    def renamed(self, subject: bytes) -> bytes:
        """Give the subject under which a message of the origin is stored."""
        for transform in self._transforms:
            found = renamed(transform, subject)
            if found is not None:
                return found
        return subject

    @abstractmethod
    def meet(self, identity: str) -> None:
        """Learn which stream the origin is, before it is read."""

    @abstractmethod
    def start(self) -> Start:
        """Tell where the origin is to be read from."""

    @abstractmethod
    def begin(self, position: int) -> None:
        """Learn that nothing up to `position` will come."""

    def copy(self, copier: Copier, until: int) -> bool:
        """Take plain messages up to a sequence the quick way; False where there is none to take."""
        if self._transforms or self.stream.publishing.is_careful:
            return False
        last_seq = self.copy_run(copier, until)
        if not last_seq:
            return False
        self.position = last_seq
        self.error = None
        self.stream.on_stored()
        return True

    @abstractmethod
    def copy_run(self, copier: Copier, until: int) -> int:
        """Copy what is plain behind the position; give the last sequence, 0 for none."""

    @abstractmethod
    def take(self, messages: Sequence[OriginMessage]) -> bool:
        """Store messages, in order; False where there is no room, and some are to come again."""

    @abstractmethod
    def rest(self) -> None:
        """Learn that there is nothing more for now."""

    def stop(self) -> None:
        """Take no more."""
        if self.reader is not None:
            self.reader.stop()
            self.reader = None
            self._heard_ns = self.stream.host.clock.now_ns()

    def info(self) -> StreamSourceInfo:
        """Tell how the feed gets on."""
        reader, error, origin = self.reader, self.error, self.origin
        return StreamSourceInfo(
            name=origin.name,
            external=origin.external,
            lag=reader.lag() if reader else 0,
            seq=self.shown_position(),
            active=self._active_ns(),
            error=OriginFault(error.code, error.err_code, error.description) if error else None,
            filter_subject=origin.filter_subject,
            subject_transforms=origin.subject_transforms,
        )

    def shown_position(self) -> int:
        """Give the position as it is told; 0 where it is not."""
        return self.position

    def _active_ns(self) -> int:
        if self.reader is not None:
            return self.reader.active_ns()
        return self.stream.host.clock.now_ns() - self._heard_ns if self._heard_ns else -1
