"""What of a stream expires when, and what never does.

A message comes with a time to live of its own, or is only as old as the stream lets it become, or
was stored to last whatever its age.

Under the store's lock.
"""

from __future__ import annotations

from penstock.format.sequence_set import SequenceSet
from penstock.store.expiry_wheel import ExpiryWheel
from penstock.store.interface import NEVER_NS
from penstock.store.timekeeping import Timekeeper


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
