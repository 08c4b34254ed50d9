"""How much a trigger of a streaming query reads: at most, and at least.

Spark gives a source one kind of limit, and ours have several together: they are kept here, and what
Spark hands over only says whether they count. Used in the driver alone.
"""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from penstock.clock import Clock, SystemClock
from penstock.spark.reading_options import Following

_NS = 1_000_000_000


def default_limit(following: Following) -> ReadLimit:
    """Give the limit that Spark is told of; without one it would ask for all at the end."""
    if following.max_offsets_per_trigger:
        return ReadMaxRows(following.max_offsets_per_trigger)
    if following.max_bytes_per_trigger:
        return ReadMaxBytes(following.max_bytes_per_trigger)
    if following.min_offsets_per_trigger:
        return ReadMinRows(following.min_offsets_per_trigger)
    return ReadAllAvailable()


class Admission:
    """The limits of one query, and how long it has waited for enough to read."""

    def __init__(self, following: Following, clock: Clock | None = None) -> None:
        self._following = following
        self._clock = clock or SystemClock()
        self._waits_since_ns: int | None = None

    def waits(self, rows: int) -> bool:
        """Tell whether a trigger with so many messages to read is put off."""
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
        """Give how many messages of that size a trigger reads at most; None for any number."""
        rows = self._following.max_offsets_per_trigger or None
        size = self._following.max_bytes_per_trigger
        if size is None:
            return rows
        by_size = max(int(size / max(message_bytes, 1)), 1)
        return by_size if rows is None else min(rows, by_size)
