"""How large commits are and how long they take, counted over all stores of a server.

What always holds: counts only grow; a look at them is whole. Any thread: each store commits in its
own, and monitoring looks from the loop's.
"""

from __future__ import annotations

import threading
from bisect import bisect_left

import msgspec

MESSAGES_BOUNDS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536)
SECONDS_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)
"""From a sync on fast flash to a disk that is ill."""


class Histogram(msgspec.Struct, frozen=True):
    """How often values were at most each bound, and above all of them; and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class CommitStatistics:
    """The counts; see the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages = [0] * (len(MESSAGES_BOUNDS) + 1)
        self._seconds = [0] * (len(SECONDS_BOUNDS) + 1)
        self._messages_total = 0
        self._seconds_total = 0.0

    def note(self, messages: int, seconds: float) -> None:
        """Count a commit."""
        with self._lock:
            self._messages[bisect_left(MESSAGES_BOUNDS, messages)] += 1
            self._seconds[bisect_left(SECONDS_BOUNDS, seconds)] += 1
            self._messages_total += messages
            self._seconds_total += seconds

    def messages(self) -> Histogram:
        """Give how many messages commits had."""
        with self._lock:
            return Histogram(MESSAGES_BOUNDS, tuple(self._messages), self._messages_total)

    def seconds(self) -> Histogram:
        """Give how long commits took."""
        with self._lock:
            return Histogram(SECONDS_BOUNDS, tuple(self._seconds), self._seconds_total)
