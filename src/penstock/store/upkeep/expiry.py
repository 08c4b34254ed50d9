"""What of a stream expires when: stamps from the wall clock, ages from the monotonic one.

A message comes with a time to live of its own, or may become as old as the stream lets it, or was
stored to last whatever its age (`Expiries`).

A message is stamped with the wall clock, which people and other machines read, and which may be set
forward or back at any moment. How old a message is must not depend on that. So ages are measured on
a clock of our own, the *age clock* (`Timekeeper`): the wall clock as it was when the store was
opened, and from then on as many nanoseconds as have really passed. For each range of sequences, an
era, it notes how far the wall clock was ahead of the age clock when they were stored; a jump of the
wall clock begins a new era.

Invariant: as long as the store is open no message is taken for older than it is, and for at most
`LATE_NS` younger, whatever the wall clock does. A message that was stored before the store was
opened is judged by the wall clock of that moment.

Thread: under the store's lock.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from penstock.clock import Clock
from penstock.format.sequence_set import SequenceSet
from penstock.store.interface import NEVER_NS
from penstock.store.upkeep.expiry_wheel import ExpiryWheel

LATE_NS = 800_000_000
"""How much the two clocks may part within an era: less than the second that expiry may be late."""

SLACK_NS = 250_000_000
"""How far below what was measured an era is set whose stamps stand still until the wall clock has
caught up with them after a jump back: they need four eras a second and not one a message. Stamps
that go with the wall clock need none: that one measurement is below another by what lies between
the looks at the two clocks must not make messages a quarter of a second younger."""


class _Era(msgspec.Struct, frozen=True):
    """From `first_seq` on: how far stamps and the wall clock were ahead of the age clock."""

    first_seq: int
    stamp_ahead_ns: int
    wall_ahead_ns: int


class Timekeeper:
    """The store's view of time; see the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ns = clock.now_ns() - clock.monotonic_ns()
        self._eras = [_Era(0, 0, 0)]

    def age_now_ns(self) -> int:
        """Return the age clock's time."""
        return self._clock.monotonic_ns() + self._start_ns

    def stamp(self, seq: int, last_time_ns: int) -> int:
        """Stamp a message with the wall clock, but never before the stream's last one."""
        now_ns = self._clock.now_ns()
        stamp_ns = max(now_ns, last_time_ns)
        self._note(seq, stamp_ns, now_ns)
        return stamp_ns

    def note(self, seq: int) -> None:
        """Note a message that comes with its stamp, which is taken for one of our wall clock."""
        now_ns = self._clock.now_ns()
        self._note(seq, now_ns, now_ns)

    def _note(self, seq: int, stamp_ns: int, now_ns: int) -> None:
        age_ns = self.age_now_ns()
        stamp_ahead, wall_ahead = stamp_ns - age_ns, now_ns - age_ns
        era = self._eras[-1]
        if (
            0 <= stamp_ahead - era.stamp_ahead_ns < LATE_NS
            and 0 <= wall_ahead - era.wall_ahead_ns < LATE_NS
        ):
            return
        while len(self._eras) > 1 and self._eras[-1].first_seq >= seq:
            # These sequences were given before, and are given again after a cut.
            self._eras.pop()
        if stamp_ns > now_ns:
            stamp_ahead -= SLACK_NS
        self._eras.append(_Era(seq, stamp_ahead, wall_ahead))

    def _era(self, seq: int) -> _Era:
        eras = self._eras
        if len(eras) == 1:
            return eras[0]
        return eras[max(bisect_right(eras, seq, key=lambda era: era.first_seq) - 1, 0)]

    def born_ns(self, seq: int, stamp_ns: int) -> int:
        """Return when a message was stored, by the age clock."""
        return stamp_ns - self._era(seq).stamp_ahead_ns

    def due_ns(self, seq: int, expires_ns: int) -> int:
        """Return when a message expires, by the age clock."""
        return expires_ns - self._era(seq).wall_ahead_ns

    def on_the_wall(self, age_ns: int) -> int:
        """Return what the wall clock will show at a time of the age clock, if it is not set."""
        return age_ns - self.age_now_ns() + self._clock.now_ns()

    def forget_before(self, first_seq: int) -> None:
        """Let go of eras of which no message is left."""
        while len(self._eras) > 1 and self._eras[1].first_seq <= first_seq:
            self._eras.pop(0)

    def forget_all(self) -> None:
        """Begin again: the stream was emptied, and its sequences with it."""
        newest = self._eras[-1]
        self._eras = [_Era(0, newest.stamp_ahead_ns, newest.wall_ahead_ns)]


class Expiries:
    """The messages with a time to live; see the module."""

    def __init__(self, times: Timekeeper) -> None:
        self._times = times
        self.wheel = ExpiryWheel()
        """What expires when, by the age clock of `times`."""

        self.lasting = SequenceSet()
        """What is never too old."""

    def remember(self, seq: int, expires_ns: int) -> None:
        """Have a message removed when its time has come."""
        if expires_ns == NEVER_NS:
            self.lasting.add(seq)
        else:
            self.wheel.add(seq, self._times.due_ns(seq, expires_ns))

    def forget(self, seq: int, expires_ns: int) -> None:
        """A message with a time to live is gone before it."""
        if expires_ns == NEVER_NS:
            self.lasting.remove(seq)
        else:
            self.wheel.remove(seq, self._times.due_ns(seq, expires_ns))

    def clear(self) -> None:
        """Nothing is left that could expire."""
        self.wheel.clear()
        self.lasting.clear()
