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

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from penstock.format.sequence_set cimport SequenceSet
from penstock.store.upkeep.expiry_wheel cimport ExpiryWheel

from penstock.store.interface import NEVER_NS as _NEVER_NS

# How much the two clocks may part within an era: less than the second that expiry may be late.
LATE_NS = 800_000_000

# How far below what was measured an era is set whose stamps stand still until the wall clock has
# caught up with them after a jump back: they need four eras a second and not one a message. Stamps
# that go with the wall clock need none: that one measurement is below another by what lies between
# the looks at the two clocks must not make messages a quarter of a second younger.
SLACK_NS = 250_000_000

cdef int64_t LATE = LATE_NS
cdef int64_t SLACK = SLACK_NS
cdef int64_t NEVER = _NEVER_NS


cdef inline int64_t _less(int64_t time_ns, int64_t ahead_ns) noexcept:
    # The difference, at the end of the type where it would go beyond: clients may name any time.
    if ahead_ns < 0 and time_ns > INT64_MAX + ahead_ns:
        return INT64_MAX
    if ahead_ns > 0 and time_ns < INT64_MIN + ahead_ns:
        return INT64_MIN
    return time_ns - ahead_ns


cdef class Timekeeper:
    """The store's view of time; see the module."""

    def __init__(self, clock not None):
        self.clock = clock
        self.start_ns = clock.now_ns() - clock.monotonic_ns()
        self._begin_era(Era(0, 0, 0))

    def __dealloc__(self):
        free(self.eras)

    cpdef int64_t age_now_ns(self) except? -1:
        """Return the age clock's time."""
        return <int64_t>self.clock.monotonic_ns() + self.start_ns

    def stamp(self, uint64_t seq, int64_t last_time_ns):
        """Stamp a message with the wall clock, but never before the stream's last one."""
        cdef int64_t now_ns = self.clock.now_ns()
        cdef int64_t stamp_ns = max(now_ns, last_time_ns)
        self._note(seq, stamp_ns, now_ns)
        return stamp_ns

    def note(self, uint64_t seq):
        """Note a message that comes with its stamp, which is taken for one of our wall clock."""
        cdef int64_t now_ns = self.clock.now_ns()
        self._note(seq, now_ns, now_ns)

    cdef int _note(self, uint64_t seq, int64_t stamp_ns, int64_t now_ns) except -1:
        cdef int64_t age_ns = self.age_now_ns()
        cdef int64_t stamp_ahead_ns = stamp_ns - age_ns, wall_ahead_ns = now_ns - age_ns
        cdef Era* era = &self.eras[self.count - 1]
        if (
            0 <= stamp_ahead_ns - era.stamp_ahead_ns < LATE
            and 0 <= wall_ahead_ns - era.wall_ahead_ns < LATE
        ):
            return 0
        while self.count > 1 and self.eras[self.count - 1].first_seq >= seq:
            # These sequences were given before, and are given again after a cut.
            self.count -= 1
        if stamp_ns > now_ns:
            stamp_ahead_ns -= SLACK
        return self._begin_era(Era(seq, stamp_ahead_ns, wall_ahead_ns))

    cdef int _begin_era(self, Era era) except -1:
        cdef size_t room = self.room * 2 if self.room else 4
        cdef Era* grown
        if self.count == self.room:
            grown = <Era*>realloc(self.eras, room * sizeof(Era))
            if grown == NULL:
                raise MemoryError
            self.eras = grown
            self.room = room
        self.eras[self.count] = era
        self.count += 1
        return 0

    cdef const Era* _era(self, uint64_t seq) noexcept:
        # The last era that does not begin behind a sequence, else the first.
        cdef size_t low = 0, high = self.count, middle
        while high - low > 1:
            middle = low + (high - low) // 2
            if self.eras[middle].first_seq <= seq:
                low = middle
            else:
                high = middle
        return &self.eras[low]

    cpdef int64_t born_ns(self, uint64_t seq, int64_t stamp_ns) noexcept:
        """Return when a message was stored, by the age clock."""
        return _less(stamp_ns, self._era(seq).stamp_ahead_ns)

    cpdef int64_t due_ns(self, uint64_t seq, int64_t expires_ns) noexcept:
        """Return when a message expires, by the age clock."""
        return _less(expires_ns, self._era(seq).wall_ahead_ns)

    def on_the_wall(self, int64_t age_ns):
        """Return what the wall clock will show at a time of the age clock, if it is not set."""
        # In Python's integers: what is far away must not come round to the past.
        return <object>age_ns - self.age_now_ns() + self.clock.now_ns()

    def forget_before(self, uint64_t first_seq):
        """Let go of eras of which no message is left."""
        cdef size_t gone = 0
        while gone + 1 < self.count and self.eras[gone + 1].first_seq <= first_seq:
            gone += 1
        self.count -= gone
        memmove(self.eras, self.eras + gone, self.count * sizeof(Era))

    def forget_all(self):
        """Begin again: the stream was emptied, and its sequences with it."""
        self.eras[0] = self.eras[self.count - 1]
        self.eras[0].first_seq = 0
        self.count = 1


cdef class Expiries:
    """The messages with a time to live; see the module."""

    def __init__(self, Timekeeper times not None):
        self.times = times
        self.wheel = ExpiryWheel()
        self.lasting = SequenceSet()

    cpdef int remember(self, uint64_t seq, int64_t expires_ns) except -1:
        """Have a message removed when its time has come."""
        if expires_ns == NEVER:
            self.lasting.put_range(seq, seq)
        else:
            self.wheel.add(seq, self.times.due_ns(seq, expires_ns))
        return 0

    cpdef int forget(self, uint64_t seq, int64_t expires_ns) except -1:
        """A message with a time to live is gone before it."""
        if expires_ns == NEVER:
            self.lasting.drop_range(seq, seq)
        else:
            self.wheel.remove(seq, self.times.due_ns(seq, expires_ns))
        return 0

    def clear(self):
        """Nothing is left that could expire."""
        self.wheel.clear()
        self.lasting.clear()
