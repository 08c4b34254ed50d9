"""The mark of a message that was taken from another stream: `Nats-Stream-Source`.

    ORDERS 17 orders.> > orders.eu Qd3kPw0Z
    |      |  |        | |         which stream it was: made again, it is another one
    |      |  |        | the subject there
    |      |  |        what its subject was turned into, per pattern
    |      |  the patterns that selected it
    |      its sequence there
    the origin, with a hash of the way to it where it is not of this account

Streams find their place in an origin by the newest mark after a restart, and counters tell origins
apart by it, so the form is the reference server's to the byte. Pure.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from penstock.documents.times import Instant, timestamp
from penstock.stream.config import StreamSource

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_LENGTH: Final = 8
_EVERYTHING: Final = ">"
# Patterns have neither blanks nor form feeds: both can stand between them.
_BETWEEN: Final = "\f"


def short_hash(text: str) -> str:
    """Give eight letters and digits that stand for a text."""
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_HASH_LENGTH])


def identity_of(created: Instant) -> str:
    """Give what tells a stream from another one of its name, made later."""
    return short_hash(timestamp(created.time_ns))


class SourceName(msgspec.Struct, frozen=True):
    """What tells one source of a stream from its others."""

    place: str
    patterns: str
    destinations: str

    def mark(self, seq: int, subject: bytes, identity: str) -> bytes:
        """Give the mark of a message."""
        start = f"{self.place} {seq} {self.patterns} {self.destinations} ".encode()
        return start + subject + (b" " + identity.encode() if identity else b"")


def name_of(source: StreamSource) -> SourceName:
    """Give a source's name."""
    place = source.name
    if source.external is not None:
        place += ":" + short_hash(source.external.api)
    if source.consumer is not None:
        place += ":C=" + short_hash(source.consumer.name)
    if not source.subject_transforms:
        return SourceName(place, source.filter_subject or _EVERYTHING, _EVERYTHING)
    pairs = source.subject_transforms
    return SourceName(
        place,
        _BETWEEN.join(pair.src or _EVERYTHING for pair in pairs),
        _BETWEEN.join(pair.dest or _EVERYTHING for pair in pairs),
    )


class Mark(msgspec.Struct, frozen=True):
    """A mark that was read: which source, the sequence there, and which stream it was."""

    name: SourceName
    seq: int
    identity: str


def read_mark(value: bytes) -> Mark | None:
    """Read a mark; None for what is none.

    Servers before 2.10 wrote the origin and the sequence alone, or an acknowledgement's subject:
    such a stream has marks of the newer form behind them by now, or starts by its configuration.
    """
    fields = value.decode("utf-8", "replace").split(" ")
    if len(fields) < 4 or not fields[1].isascii() or not fields[1].isdigit():
        return None
    identity = fields[5] if len(fields) >= 6 else ""
    # A sequence has twenty digits at the most.
    return Mark(SourceName(fields[0], fields[2], fields[3]), int(fields[1][:20]), identity)
