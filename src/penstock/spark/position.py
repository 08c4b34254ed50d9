"""Positions of streaming queries in streams, and how much a trigger reads.

    {"v": 1, "streams": {"ORDERS": {"created": "5eed…", "next": 1001}}}

`next` is the first sequence that was not read yet. `created` tells a stream from a later one of the
same name. Spark compares positions as texts, so their keys always have the same order.

Spark gives a source one kind of limit for a trigger, and our options have several together:
`Admission` holds them, and Spark's limit only says whether they apply. Used in the driver alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from penstock.clock import Clock, SystemClock
from penstock.errors import FormatError, PenstockError
from penstock.spark.options import Following, Rules

VERSION = 1


class DataLoss(PenstockError):
    """Messages that a query had not read yet are gone, or the stream is another one."""


class Position(msgspec.Struct, frozen=True):
    """Where a query is in one stream."""

    created: str
    next: int


def encode(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Return positions as Spark stores them in a checkpoint."""
    streams = {
        name: {"created": positions[name].created, "next": positions[name].next}
        for name in sorted(positions)
    }
    return {"streams": streams, "v": VERSION}


def decode(given: Mapping[str, Any]) -> dict[str, Position]:
    """Return the positions of a checkpoint; raise FormatError."""
    if given.get("v") != VERSION:
        raise FormatError(f"no positions of version {VERSION}: {given!r}")
    try:
        return msgspec.convert(given.get("streams"), dict[str, Position])
    except msgspec.ValidationError as error:
        raise FormatError(f"no positions: {given!r}: {error}") from None


class StreamState(msgspec.Struct, frozen=True):
    """A stream as it is now: which one, its first sequence, and the one behind its last."""

    created: str
    first_seq: int
    end: int


def check_stream(stream: str, at: Position, now: StreamState, rules: Rules) -> int:
    """Return the sequence from which a query goes on; raise DataLoss if it must not."""
    first_seq = now.first_seq
    # A stream without a block has no identity yet. A stream that was restored from an older
    # copy has the same identity, and ends before the query's position.
    if at.created not in ("", now.created) or at.next > now.end:
        if rules.allow_recreated_stream:
            return first_seq
        raise DataLoss(
            f"stream {stream} was made anew since the query read it: start the query afresh, "
            "with another checkpoint, or with allowRecreatedStream=true from its beginning"
        )
    if at.next < first_seq and rules.fail_on_data_loss:
        raise DataLoss(
            f"stream {stream}: the query had come to sequence {at.next}, and the first that is "
            f"left is {first_seq}: retention or a purge overtook it. With failOnDataLoss=false "
            "it goes on there"
        )
    return max(at.next, first_seq)


_NS = 1_000_000_000


def default_limit(following: Following) -> ReadLimit:
    """Return the limit that Spark is given; without one it would request all messages at the
    end."""
    if following.max_offsets_per_trigger:
        return ReadMaxRows(following.max_offsets_per_trigger)
    if following.max_bytes_per_trigger:
        return ReadMaxBytes(following.max_bytes_per_trigger)
    if following.min_offsets_per_trigger:
        return ReadMinRows(following.min_offsets_per_trigger)
    return ReadAllAvailable()


class Admission:
    """The limits of one query, and how long it has waited for enough messages."""

    def __init__(self, following: Following, clock: Clock | None = None) -> None:
        self._following = following
        self._clock = clock or SystemClock()
        self._waits_since_ns: int | None = None

    def waits(self, rows: int) -> bool:
        """Return True if a trigger with so many messages to read waits for more."""
        if rows >= self._following.min_offsets_per_trigger:
            self._waits_since_ns = None
            return False
        now_ns = self._clock.monotonic_ns()
        if self._waits_since_ns is None:
            self._waits_since_ns = now_ns
        if now_ns - self._waits_since_ns >= self._following.max_trigger_delay * _NS:
            self._waits_since_ns = None
            return False
        return True

    def rows_max(self, message_bytes: float) -> int | None:
        """Return how many messages of that size a trigger reads at most; None for any number."""
        rows = self._following.max_offsets_per_trigger or None
        size = self._following.max_bytes_per_trigger
        if size is None:
            return rows
        by_size = max(int(size / max(message_bytes, 1)), 1)
        return by_size if rows is None else min(rows, by_size)
