"""A clock for tests that stands still until the test moves it.

Invariants: the monotonic time never goes back; only a jump separates the two clocks.

Any thread may read it; only the test moves it.
"""

from __future__ import annotations

from penstock.errors import UsageError

START_NS = 1_700_000_000_000_000_000
"""Where the wall clock starts by default: a day in November 2023, so that stamps look real."""


class FakeClock:
    """Both clocks of `penstock.clock.Clock`, moved by hand."""

    def __init__(self, now_ns: int = START_NS, monotonic_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._monotonic_ns = monotonic_ns

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch, as last set."""
        return self._now_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds of the monotonic clock, as last set."""
        return self._monotonic_ns

    def advance_ns(self, by_ns: int) -> None:
        """Let time pass on both clocks."""
        if by_ns < 0:
            raise UsageError(f"time does not pass backwards ({by_ns} ns): use jump_ns")
        self._now_ns += by_ns
        self._monotonic_ns += by_ns

    def advance_us(self, by_us: int) -> None:
        """Let microseconds pass."""
        self.advance_ns(by_us * 1_000)

    def advance_ms(self, by_ms: int) -> None:
        """Let milliseconds pass."""
        self.advance_ns(by_ms * 1_000_000)

    def advance_seconds(self, by_seconds: int) -> None:
        """Let seconds pass."""
        self.advance_ns(by_seconds * 1_000_000_000)

    def jump_ns(self, by_ns: int) -> None:
        """Set the wall clock forward or back, as an administrator does; no time passes."""
        self._now_ns += by_ns

    def jump_to_ns(self, now_ns: int) -> None:
        """Set the wall clock to a moment; no time passes."""
        self._now_ns = now_ns
