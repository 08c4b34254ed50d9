"""A feed: one origin's messages on their way into one stream.

`Mirror` and `Source` are feeds: they know where to begin, and how a message is stored. A reader
brings the messages: `StoreReader` from a stream of this server, `RemoteReader` from elsewhere.

Invariant: `position` is the last sequence of the origin that was handled. Every message up to it is
in the stream, or was not meant to be.

Thread: the event loop's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import randrange
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.errors import ApiError
from penstock.protocol.headers import without_prefix
from penstock.stream.config.config import StreamSource
from penstock.stream.info import OriginFault, StreamSourceInfo
from penstock.stream.publish.message import transform_of
from penstock.subjects import SubjectFilter

if TYPE_CHECKING:
    from penstock.store.log.fast_copy import Copier
    from penstock.stream.stream import Stream


_EXPECTATIONS: Final = (b"Nats-Expected-", b"Nats-Batch-")


def without_expectations(headers: bytes) -> bytes:
    """Remove the headers that were for the origin: what it was to expect, and its batches."""
    for prefix in _EXPECTATIONS:
        if prefix in headers:
            headers = without_prefix(headers, prefix)
    return headers


class Start(msgspec.Struct, frozen=True):
    """Where to begin in an origin: at a sequence, at a time, or with the first message."""

    seq: int = 0
    time_ns: int | None = None


class OriginMessage(Protocol):
    """A message as the origin has it."""

    @property
    def seq(self) -> int:
        """Its sequence at the origin."""
        ...

    @property
    def timestamp_ns(self) -> int:
        """When it was stored at the origin."""
        ...

    @property
    def subject(self) -> bytes:
        """Its subject at the origin."""
        ...

    @property
    def headers(self) -> bytes:
        """Its headers at the origin."""
        ...

    @property
    def payload(self) -> bytes:
        """Its body."""
        ...


class Reader(Protocol):
    """Brings an origin's messages to a feed."""

    def lag(self) -> int:
        """Return how many messages are still to come."""
        ...

    def active_ns(self) -> int:
        """Return how many nanoseconds ago the origin was heard from; -1 for never."""
        ...

    def stop(self) -> None:
        """Bring no more messages."""
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
        """The patterns of the wanted messages; empty for all."""

        self.subjects = SubjectFilter([each.encode() for each in self.patterns])
        self._transforms = [transform_of(pair) for pair in pairs]

    def renamed(self, subject: bytes) -> bytes:
        """Return the subject under which a message of the origin is stored."""
        for transform in self._transforms:
            found = None if transform is None else transform.find(subject, randrange)
            if found is not None:
                return found
        return subject

    @abstractmethod
    def meet(self, identity: str) -> None:
        """Note which stream the origin is, before it is read."""

    @abstractmethod
    def start(self) -> Start:
        """Return where to begin reading the origin."""

    @abstractmethod
    def begin(self, position: int) -> None:
        """Note that no message up to `position` will come."""

    def copy(self, copier: Copier, until: int) -> bool:
        """Copy plain messages up to a sequence by compiled code; return False if it copied none."""
        if self._transforms or self.stream.publishing.judges_all:
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
        """Copy plain messages behind the position; return the last sequence, 0 for none."""

    @abstractmethod
    def take(self, messages: Sequence[OriginMessage]) -> bool:
        """Store messages in order; return False if some must come again, for lack of room."""

    @abstractmethod
    def rest(self) -> None:
        """Note that there are no more messages for now."""

    def stop(self) -> None:
        """Take no more messages."""
        if self.reader is not None:
            self.reader.stop()
            self.reader = None
            self._heard_ns = self.stream.host.clock.now_ns()

    def info(self) -> StreamSourceInfo:
        """Return the state of the feed, as the API shows it."""
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
        """Return the position as the API shows it; 0 if it is not shown."""
        return self.position

    def _active_ns(self) -> int:
        if self.reader is not None:
            return self.reader.active_ns()
        return self.stream.host.clock.now_ns() - self._heard_ns if self._heard_ns else -1
