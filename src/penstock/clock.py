"""Time as an argument.

Wall-clock time is for stamps and ages; monotonic time is for waiting and intervals. Both are
integers of nanoseconds. Invariant: nothing in Penstock asks the system for the time except
`SystemClock`; `net.link`, which reads a coarse clock for monitoring, says why it does.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch, UTC; may jump either way."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since some fixed point; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds of the monotonic clock."""
        return time.monotonic_ns()


class AgeClock:
    """A wall clock that is never set: the wall's time when it was made, and what passed since.

    For waits that are given in wall-clock time and must not end early or late when that is set.
    """

    __slots__ = ("_clock", "_start_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ns = clock.now_ns() - clock.monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch, if the wall clock was right when this one was made."""
        return self._start_ns + self._clock.monotonic_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds of the monotonic clock."""
        return self._clock.monotonic_ns()

    def ahead_ns(self) -> int:
        """Return how far the wall clock is ahead of this one; negative where it is behind."""
        return self._clock.now_ns() - self.now_ns()
