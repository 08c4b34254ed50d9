"""A message on its way into a stream, and the headers that tell the stream what to do with it.

Everybody in this package may import it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from penstock.stream.config import StorageType
from penstock.stream.headers import value_of
from penstock.stream.tracing import StreamTrace

MESSAGE_ID: Final = b"Nats-Msg-Id"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_SUBJECT_SEQ: Final = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
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


class Message(msgspec.Struct):
    """A message, and what the rules have found out about it."""

    subject: bytes
    headers: bytes
    body: bytes
    is_sourced: bool = False
    """It was taken from another stream, or the stream itself made it: it is stored as it is."""

    message_id: bytes = b""
    increment: Decimal | None = None
    rollup: str = ""
    """`sub`, `all`, or nothing to be rolled up."""

    ttl_s: int = 0
    """Seconds to live; 0 for as long as the stream says, below 0 for ever."""

    trace: StreamTrace | None = None
    """Who wants to know what becomes of it."""

    @property
    def is_only_traced(self) -> bool:
        """Whether it is not to be stored."""
        return self.trace is not None and self.trace.is_only

    def value(self, name: bytes) -> bytes:
        """Give the value of a header; empty where it is not there."""
        return value_of(self.headers, name) or b""


Entry: TypeAlias = Message | tuple[bytes, bytes, bytes]
"""A member of an atomic batch: one that wants no closer look is (subject, headers, body)."""


def as_message(entry: Entry) -> Message:
    """Give a member as one that is looked at."""
    return entry if isinstance(entry, Message) else Message(*entry)


class Place(msgspec.Struct, frozen=True):
    """Where a message belongs that another stream has had before: a mirror keeps both."""

    seq: int
    time_ns: int


def record_size(message: Message, storage: StorageType) -> int:
    """Give what a message counts for in its stream, as the reference server counts."""
    size = len(message.subject) + len(message.headers) + len(message.body)
    if storage is StorageType.MEMORY:
        return size + 16
    return size + 30 + (4 if message.headers else 0)


def wrapped_number(digits: bytes) -> int:
    """Read an unsigned number as the reference server does.

    What is no number is the highest one, and what has more than 64 bits loses the upper ones.
    """
    if not digits.isdigit():
        return 2**64 - 1
    # Ten to the power of 64 is a multiple of two to the power of 64: more digits change nothing.
    return int(digits[-64:]) & 2**64 - 1
