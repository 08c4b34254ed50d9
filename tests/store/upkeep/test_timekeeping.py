"""Ages of messages where the clocks are looked at one after the other."""

from __future__ import annotations

from itertools import cycle

from penstock.store.upkeep.expiry import SLACK_NS, Timekeeper
from penstock.testing.clock import FakeClock

MILLISECOND_NS = 1_000_000


class SlowClock(FakeClock):
    """Some time passes before the monotonic clock is read, and not always the same."""

    def __init__(self) -> None:
        super().__init__()
        self._delays_ns = cycle([300, 200, 900, 400, 5 * MILLISECOND_NS, 100])

    def monotonic_ns(self) -> int:
        self.advance_ns(next(self._delays_ns))
        return super().monotonic_ns()


def test_looking_at_two_clocks_makes_no_message_much_younger() -> None:
    clock = SlowClock()
    times = Timekeeper(clock)
    for seq in range(1, 200):
        before_ns = times.age_now_ns()
        stamp_ns = times.stamp(seq, 0)

        assert times.born_ns(seq, stamp_ns) - before_ns < 20 * MILLISECOND_NS
        assert times.due_ns(seq, stamp_ns) - before_ns < 20 * MILLISECOND_NS


def test_stamps_that_stand_still_make_no_message_older() -> None:
    clock = FakeClock()
    times = Timekeeper(clock)
    last_ns = times.stamp(1, 0)
    clock.jump_ns(-10 * SLACK_NS)
    for seq in range(2, 1002):
        clock.advance_ns(MILLISECOND_NS)
        last_ns = times.stamp(seq, last_ns)

        assert 0 <= times.born_ns(seq, last_ns) - times.age_now_ns() <= SLACK_NS
