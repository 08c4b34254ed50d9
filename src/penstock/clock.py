"""Time as an argument.

Wall-clock time is for stamps and ages; monotonic time is for waiting and intervals. Both are
integers of nanoseconds. Nothing in Penstock asks the system for the time except `SystemClock`.
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
