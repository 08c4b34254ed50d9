"""What of a stream expires when: stamps from the wall clock, ages from the monotonic one."""

from penstock.clock import Clock
from penstock.format.sequence_set import SequenceSet
from penstock.store.upkeep.expiry_wheel import ExpiryWheel

LATE_NS: int
SLACK_NS: int

class Timekeeper:
    """The store's view of time; see the module."""

    def __init__(self, clock: Clock) -> None: ...
    def age_now_ns(self) -> int:
        """Return the age clock's time."""
    def stamp(self, seq: int, last_time_ns: int) -> int:
        """Stamp a message with the wall clock, but never before the stream's last one."""
    def note(self, seq: int) -> None:
        """Note a message that comes with its stamp, which is taken for one of our wall clock."""
    def born_ns(self, seq: int, stamp_ns: int) -> int:
        """Return when a message was stored, by the age clock."""
    def due_ns(self, seq: int, expires_ns: int) -> int:
        """Return when a message expires, by the age clock."""
    def on_the_wall(self, age_ns: int) -> int:
        """Return what the wall clock will show at a time of the age clock, if it is not set."""
    def forget_before(self, first_seq: int) -> None:
        """Let go of eras of which no message is left."""
    def forget_all(self) -> None:
        """Begin again: the stream was emptied, and its sequences with it."""

class Expiries:
    """The messages with a time to live; see the module."""

    def __init__(self, times: Timekeeper) -> None: ...
    @property
    def wheel(self) -> ExpiryWheel:
        """What expires when, by the age clock of `times`."""
    @property
    def lasting(self) -> SequenceSet:
        """What is never too old."""
    def remember(self, seq: int, expires_ns: int) -> int:
        """Have a message removed when its time has come."""
    def forget(self, seq: int, expires_ns: int) -> int:
        """A message with a time to live is gone before it."""
    def clear(self) -> None:
        """Nothing is left that could expire."""
