"""The expiry wheel against a plain set, under clocks that jump, and counted rather than timed."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import UsageError
from penstock.store.upkeep.expiry_wheel import ExpiryWheel
from tests.models.expiry import ExpirySet

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
YEAR = 365 * DAY
NOW = 1_760_000_000 * SECOND
ALL = 10**9
TURN_SLOTS = 4096


class WheelAgainstSet(RuleBasedStateMachine):
    """Any order of adds, removes, expiries and clock jumps, with wheels small enough to turn."""

    @initialize(
        shape=st.sampled_from([(SECOND, TURN_SLOTS), (SECOND, 7), (10, 4), (1, 1), (HOUR, 16)])
    )
    def start(self, shape: tuple[int, int]) -> None:
        self.tick_ns, self.slots = shape
        self.wheel = ExpiryWheel(self.tick_ns, self.slots)
        self.model = ExpirySet()
        self.now_ns = NOW
        self.next_seq = 1

    def hold(self, expires_ns: int) -> None:
        self.wheel.add(self.next_seq, expires_ns)
        self.model.add(self.next_seq, expires_ns)
        self.next_seq += 1

    @rule(ttl_ns=st.sampled_from([-DAY, 0, SECOND, HOUR, 4096 * SECOND, DAY, YEAR]))
    def add(self, ttl_ns: int) -> None:
        self.hold(self.now_ns + ttl_ns)

    @rule(ticks=st.lists(st.integers(-3, 12), min_size=1, max_size=6), part_ns=st.integers(0, 3))
    def add_nearby(self, ticks: list[int], part_ns: int) -> None:
        # A few ticks away: with four or seven slots that is a few turns.
        for count in ticks:
            self.hold(self.now_ns + count * self.tick_ns + part_ns)

    @rule(count=st.integers(1, 1500), step_ns=st.sampled_from([0, 1, -1, 7 * SECOND, -SECOND]))
    def add_many(self, count: int, step_ns: int) -> None:
        for number in range(count):
            self.hold(self.now_ns + HOUR + number * step_ns)

    @precondition(lambda self: self.model.pairs)
    @rule(data=st.data())
    def add_a_pair_again(self, data: st.DataObject) -> None:
        expires_ns, seq = data.draw(st.sampled_from(sorted(self.model.pairs)))
        self.wheel.add(seq, expires_ns)

    @precondition(lambda self: self.model.pairs)
    @rule(data=st.data(), off_ns=st.sampled_from([0, 0, 0, 1, -1]), count=st.integers(1, 50))
    def remove(self, data: st.DataObject, off_ns: int, count: int) -> None:
        pairs = sorted(self.model.pairs)
        first = data.draw(st.integers(0, len(pairs) - 1))
        for expires_ns, seq in pairs[first : first + count]:
            held = self.model.remove(seq, expires_ns + off_ns)
            assert self.wheel.remove(seq, expires_ns + off_ns) == held

    @rule(ticks=st.integers(-4, 12), part_ns=st.integers(0, 3))
    def move_the_clock_by_ticks(self, ticks: int, part_ns: int) -> None:
        self.now_ns += ticks * self.tick_ns + part_ns

    @rule(step_ns=st.sampled_from([HOUR, -HOUR, DAY, -DAY, YEAR]))
    def move_the_clock(self, step_ns: int) -> None:
        self.now_ns += step_ns

    @rule(now_ns=st.sampled_from([0, -1, NOW]))
    def set_the_clock(self, now_ns: int) -> None:
        self.now_ns = now_ns

    @precondition(lambda self: self.model.pairs)
    @rule(data=st.data(), off_ns=st.integers(-1, 1), limit=st.sampled_from([1, 3, 700, ALL]))
    def expire_about_when_one_is_due(self, data: st.DataObject, off_ns: int, limit: int) -> None:
        expires_ns, _ = data.draw(st.sampled_from(sorted(self.model.pairs)))
        self.now_ns = expires_ns + off_ns
        self.expire(limit)

    @rule(limit=st.sampled_from([1, 3, 700, ALL]))
    def expire(self, limit: int) -> None:
        due = self.model.due(self.now_ns)
        times = {seq: expires_ns for expires_ns, seq in due}

        expired = self.wheel.expire(self.now_ns, limit)

        assert len(expired) == min(limit, len(due))
        pairs = [(times[seq], seq) for seq in expired]
        assert pairs == sorted(set(pairs))
        within_a_turn = due and self.now_ns - due[0][0] < (self.slots - 1) * self.tick_ns
        if within_a_turn:
            assert pairs == due[:limit]
        self.model.pairs.difference_update(pairs)

    @rule()
    def ask_when_the_next_is_due(self) -> None:
        assert self.wheel.next_due_ns() == self.model.next_due_ns()

    # Otherwise most runs would be short ones.
    @precondition(lambda self: self.next_seq % 5 == 0)
    @rule()
    def clear(self) -> None:
        self.wheel.clear()
        self.model.pairs.clear()

    @invariant()
    def length_agrees(self) -> None:
        if hasattr(self, "wheel"):
            assert len(self.wheel) == len(self.model.pairs)


TestWheelAgainstSet = WheelAgainstSet.TestCase
TestWheelAgainstSet.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def filled(expiries: dict[int, int], *, slots: int = TURN_SLOTS) -> ExpiryWheel:
    """Build a wheel of one-second ticks from sequences and their times."""
    wheel = ExpiryWheel(slots=slots)
    for seq, expires_ns in expiries.items():
        wheel.add(seq, expires_ns)
    return wheel


def test_an_entry_expires_at_its_nanosecond_and_not_before() -> None:
    wheel = filled({1: NOW + 5 * SECOND + 500, 2: NOW + 5 * SECOND + 501})

    assert wheel.expire(NOW + 5 * SECOND + 499, ALL) == []
    assert wheel.expire(NOW + 5 * SECOND + 500, ALL) == [1]
    assert wheel.expire(NOW + 5 * SECOND + 501, ALL) == [2]


def test_entries_of_one_nanosecond_expire_together_by_sequence() -> None:
    wheel = filled({3: NOW, 1: NOW, 2: NOW, 4: NOW + 1})

    assert wheel.expire(NOW, ALL) == [1, 2, 3]


def test_an_entry_many_turns_away_waits_in_its_slot() -> None:
    wheel = filled({1: NOW + YEAR, 2: NOW + YEAR % (TURN_SLOTS * SECOND)})

    for turn in range(0, YEAR // SECOND, TURN_SLOTS * 50):
        assert 1 not in wheel.expire(NOW + turn * SECOND, ALL)

    assert wheel.expire(NOW + YEAR, ALL) == [1]


def test_an_entry_that_is_added_too_late_expires_at_once() -> None:
    wheel = filled({1: NOW})
    wheel.expire(NOW + HOUR, ALL)

    wheel.add(2, NOW - DAY)

    assert wheel.next_due_ns() == NOW - DAY
    assert wheel.expire(NOW + HOUR, ALL) == [2]


def test_a_clock_set_back_expires_nothing_early_and_loses_nothing() -> None:
    wheel = filled({1: NOW + SECOND, 2: NOW + HOUR})
    assert wheel.expire(NOW + SECOND, ALL) == [1]

    assert wheel.expire(0, ALL) == []
    wheel.add(3, 30 * SECOND)

    assert wheel.expire(29 * SECOND, ALL) == []
    assert wheel.expire(30 * SECOND, ALL) == [3]
    assert wheel.expire(NOW + HOUR, ALL) == [2]


def test_a_limit_leaves_the_rest_for_the_next_call() -> None:
    wheel = filled({seq: NOW + seq // 3 for seq in range(1, 2001)})

    calls = [wheel.expire(NOW + 1000, 300) for _ in range(8)]

    assert [len(call) for call in calls] == [300] * 6 + [200, 0]
    assert [seq for call in calls for seq in call] == list(range(1, 2001))


def test_what_a_limit_left_is_still_known_to_be_due() -> None:
    wheel = filled({1: NOW, 2: NOW + 5 * SECOND, 3: NOW + 10 * SECOND})

    assert wheel.expire(NOW + 10 * SECOND, 1) == [1]

    assert wheel.next_due_ns() == NOW + 5 * SECOND
    assert wheel.expire(NOW + 6 * SECOND, ALL) == [2]


def test_what_a_limit_left_after_a_jump_is_found_when_the_clock_is_set_back() -> None:
    # Four slots: 1 and 2 share one, so the sweep takes 2 before it comes to 3.
    wheel = filled({1: NOW, 2: NOW + 4 * SECOND, 3: NOW + SECOND}, slots=4)

    assert wheel.expire(NOW + HOUR, 2) == [1, 2]

    assert wheel.expire(NOW + 2 * SECOND, ALL) == [3]


def test_a_removed_entry_is_no_longer_the_next() -> None:
    wheel = filled({1: NOW, 2: NOW + HOUR})

    assert wheel.remove(1, NOW)

    assert wheel.next_due_ns() == NOW + HOUR
    assert wheel.expire(NOW + SECOND, ALL) == []
    assert wheel.remove(2, NOW + HOUR)
    assert wheel.next_due_ns() is None
    assert len(wheel) == 0


def test_a_jump_of_a_year_looks_at_each_slot_a_fixed_number_of_times() -> None:
    random_times = random.Random(1)
    wheel = filled({seq: NOW + random_times.randrange(YEAR) for seq in range(5000)})
    before = wheel.visited

    expired = wheel.expire(NOW + YEAR, ALL)

    assert sorted(expired) == list(range(5000))
    assert wheel.visited - before <= 5000 + 2 * TURN_SLOTS


def test_sequences_and_times_reach_to_the_ends_of_their_range() -> None:
    low_ns, high_ns, seq_max = -(2**63), 2**63 - 1, 2**64 - 1
    wheel = filled({seq_max: high_ns, 0: low_ns})

    assert wheel.next_due_ns() == low_ns
    assert wheel.expire(high_ns - 1, ALL) == [0]
    assert wheel.next_due_ns() == high_ns
    assert wheel.expire(high_ns, ALL) == [seq_max]
    assert wheel.next_due_ns() is None


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
def test_a_crowded_slot_keeps_its_order_whatever_the_order_of_adds(order: str) -> None:
    seqs = list(range(20_000))
    if order == "descending":
        seqs.reverse()
    elif order == "shuffled":
        random.Random(2).shuffle(seqs)
    # All in one slot: times within one second.
    wheel = filled({seq: NOW + 10 * seq for seq in seqs})

    removed = set(random.Random(3).sample(seqs, 15_000))
    assert all(wheel.remove(seq, NOW + 10 * seq) for seq in removed)
    assert not any(wheel.remove(seq, NOW + 10 * seq) for seq in removed)

    assert wheel.expire(NOW + SECOND, ALL) == [seq for seq in range(20_000) if seq not in removed]


def test_memory_is_given_back_when_entries_go() -> None:
    used_once = filled({1: NOW})
    used_once.expire(NOW, ALL)
    wheel = filled({seq: NOW + seq for seq in range(100_000)})
    full_bytes = wheel.memory_bytes

    for seq in range(100_000):
        if seq % 100:
            wheel.remove(seq, NOW + seq)
    sparse_bytes = wheel.memory_bytes
    wheel.expire(NOW + SECOND, ALL)

    assert sparse_bytes < full_bytes // 5
    assert wheel.memory_bytes == used_once.memory_bytes
    wheel.clear()
    assert wheel.memory_bytes == ExpiryWheel().memory_bytes == 0


def test_ten_of_a_million_expire_for_the_price_of_ten() -> None:
    random_times = random.Random(4)
    wheel = ExpiryWheel()
    for seq in range(1_000_000):
        wheel.add(seq, NOW + HOUR + random_times.randrange(DAY))
    for seq in range(10):
        wheel.add(1_000_000 + seq, NOW + HOUR // 2 + seq * SECOND)
    alone = filled({seq: NOW + HOUR // 2 + seq * SECOND for seq in range(10)})
    wheel_before, alone_before = wheel.visited, alone.visited

    expired = wheel.expire(NOW + HOUR // 2 + 10 * SECOND, ALL)
    alone.expire(NOW + HOUR // 2 + 10 * SECOND, ALL)

    assert len(expired) == 10
    assert wheel.visited - wheel_before <= alone.visited - alone_before + 2
    assert wheel.visited - wheel_before <= 4 * 10
    assert wheel.memory_bytes <= 24 * len(wheel)


def test_asking_again_costs_one_look_when_nothing_is_due() -> None:
    wheel = filled({seq: NOW + DAY + seq * SECOND for seq in range(1000)})
    wheel.next_due_ns()
    before = wheel.visited

    assert wheel.next_due_ns() == NOW + DAY
    assert wheel.expire(NOW + HOUR, ALL) == []

    assert wheel.visited - before == 1


@pytest.mark.parametrize(("tick_ns", "slots"), [(0, 1), (1, 0), (-1, 4), (2**62, 3)])
def test_a_wheel_that_cannot_turn_is_refused(tick_ns: int, slots: int) -> None:
    with pytest.raises(UsageError):
        ExpiryWheel(tick_ns, slots)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(UsageError):
        filled({1: NOW}).expire(NOW, limit)
