"""A message on its way into a stream, and the headers that the publish rules read.

`IncomingMessage` is what the rules judge and change. Pure; every module of this package imports it.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

import msgspec

from penstock.errors import UsageError
from penstock.protocol.headers import value_of
from penstock.routing.subject_transform import SubjectTransform
from penstock.stream.config.config import RePublish, SubjectTransformConfig

MESSAGE_ID: Final = b"Nats-Msg-Id"
EXPECTED_LAST_ID: Final = b"Nats-Expected-Last-Msg-Id"
ROLLUP: Final = b"Nats-Rollup"
TTL: Final = b"Nats-TTL"
MARKER_REASON: Final = b"Nats-Marker-Reason"
INCREMENT: Final = b"Nats-Incr"
COUNTER_SOURCES: Final = b"Nats-Counter-Sources"
STREAM_SOURCE: Final = b"Nats-Stream-Source"
REQUEST_INFO: Final = b"Nats-Request-Info"
REQUIRED_API_LEVEL: Final = b"Nats-Required-Api-Level"
BATCH_ID: Final = b"Nats-Batch-Id"
BATCH_SEQ: Final = b"Nats-Batch-Sequence"
BATCH_COMMIT: Final = b"Nats-Batch-Commit"

ROLLUP_SUBJECT: Final = "sub"
ROLLUP_ALL: Final = "all"


class StreamTrace(Protocol):
    """The part of a message's trace that is about one stream."""

    @property
    def is_only(self) -> bool:
        """Whether the message is only judged and not stored."""
        ...

    def begin(self, stream: str) -> None:
        """Note which stream takes the message."""
        ...

    def accept(self, subject: bytes, *, is_wanted: bool) -> None:
        """Note that the message may be stored, under a subject, or that no consumer wants it."""
        ...

    def refuse(self, reason: str) -> None:
        """Note why the message was not stored."""
        ...

    def finish(self) -> None:
        """Note that the stream is done with the message."""
        ...


class IncomingMessage(msgspec.Struct):
    """A message, and what the rules have found out about it."""

    subject: bytes
    headers: bytes
    body: bytes
    is_sourced: bool = False
    """It comes from another stream, or the stream itself made it: several rules do not apply."""

    message_id: bytes = b""
    rollup: str = ""
    """`sub`, `all`, or empty if it rolls up nothing."""

    ttl_s: int = 0
    """Seconds to live; 0 for the stream's limits, below 0 for ever."""

    trace: StreamTrace | None = None
    """The trace to note in what becomes of it."""

    @property
    def is_only_traced(self) -> bool:
        """Whether it is not to be stored."""
        return self.trace is not None and self.trace.is_only

    def value(self, name: bytes) -> bytes:
        """Return the value of a header; empty if it is missing."""
        return value_of(self.headers, name) or b""


Entry: TypeAlias = IncomingMessage | tuple[bytes, bytes, bytes]
"""A member of an atomic batch: (subject, headers, body) if no rule needs to see it."""


def as_message(entry: Entry) -> IncomingMessage:
    """Return a member as a message that rules can see."""
    return entry if isinstance(entry, IncomingMessage) else IncomingMessage(*entry)


class OriginPosition(msgspec.Struct, frozen=True):
    """The sequence and time of a message at its origin: a mirror keeps both."""

    seq: int
    time_ns: int


def transform_of(config: SubjectTransformConfig | RePublish | None) -> SubjectTransform | None:
    """Return the transform of a configuration, or None if it has none."""
    if config is None:
        return None
    try:
        return SubjectTransform(config.src, config.dest)
    except UsageError:
        # An older server may have stored one that is refused today: it matches nothing.
        return None
