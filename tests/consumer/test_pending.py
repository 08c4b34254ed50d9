"""What is pending: its order, its deadlines and the ack floor, against a simple model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.consumer.pending import Pending, unpacked

WAITS = (100, 300)


class PendingMachine(RuleBasedStateMachine):
    """Deliveries, acknowledgements and time, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = Pending(WAITS)
        self.model: dict[int, tuple[int, int]] = {}
        """(Consumer sequence, time) by stream sequence."""

        self.queued: set[int] = set()
        self.redelivered: dict[int, int] = {}
        self.floor = (0, 0)
        self.delivered = (0, 0)
        self.now = 1_000

    @initialize(first=st.integers(1, 5))
    def begin(self, first: int) -> None:
        self.pending.start_at(first)
        self.floor = self.delivered = (0, first - 1)

    @rule(gap=st.integers(1, 4), count=st.integers(1, 40))
    def deliver(self, gap: int, count: int) -> None:
        for _ in range(count):
            consumer_seq, stream_seq = self.delivered[0] + 1, self.delivered[1] + gap
            self.pending.deliver(stream_seq, consumer_seq, self.now)
            self.model[stream_seq] = (consumer_seq, self.now)
            self.delivered = (consumer_seq, stream_seq)

    @rule(choice=st.integers(0, 60))
    def ack(self, choice: int) -> None:
        seq = sorted(self.model)[choice % len(self.model)] if self.model else choice
        known = self.model.pop(seq, None)

        assert self.pending.ack(seq) == (known is not None)

        self.queued.discard(seq)
        self.redelivered.pop(seq, None)
        if known is not None:
            self._move_floor(known[0])

    def _move_floor(self, consumer_seq: int) -> None:
        if not self.model:
            self.floor = self.delivered
        elif consumer_seq == self.floor[0] + 1:
            first = min(self.model)
            self.floor = (self.model[first][0] - 1, first - 1)

    @rule(choice=st.integers(0, 60))
    def ack_all(self, choice: int) -> None:
        if not self.model:
            return
        seq = sorted(self.model)[choice % len(self.model)]
        consumer_seq = self.model[seq][0]
        done = [each for each in sorted(self.model) if each <= seq]

        assert self.pending.ack_up_to(seq, consumer_seq) == done

        for each in done:
            del self.model[each]
            self.queued.discard(each)
            self.redelivered.pop(each, None)
        self.floor = (max(self.floor[0], consumer_seq), max(self.floor[1], seq))

    @rule(choice=st.integers(0, 60), delay=st.integers(-50, 400))
    def put_off(self, choice: int, delay: int) -> None:
        if not self.model:
            return
        seq = sorted(self.model)[choice % len(self.model)]

        assert self.pending.put_off(seq, self.now + delay)

        self.model[seq] = (self.model[seq][0], self.now + delay)
        self.queued.discard(seq)

    @rule(choice=st.integers(0, 60))
    def queue(self, choice: int) -> None:
        if not self.model:
            return
        seq = sorted(self.model)[choice % len(self.model)]

        assert self.pending.queue(seq) == (seq not in self.queued)

        self.queued.add(seq)

    @rule()
    def redeliver(self) -> None:
        for seq in sorted(self.queued):
            self.redelivered[seq] = self.redelivered.get(seq, 0) + 1
            self.pending.redelivered[seq] = self.redelivered[seq]
            self.delivered = (self.delivered[0] + 1, self.delivered[1])
            self.pending.deliver(seq, self.delivered[0], self.now)
            self.model[seq] = (self.model[seq][0], self.now)
        self.queued.clear()

    def _due(self, seq: int) -> int:
        wait = WAITS[min(self.redelivered.get(seq, 0), len(WAITS) - 1)]
        return self.model[seq][1] + wait

    @rule(step=st.integers(0, 500))
    def time_passes(self, step: int) -> None:
        self.now += step
        due = [
            seq
            for seq in sorted(self.model)
            if seq not in self.queued and self._due(seq) <= self.now
        ]

        assert self.pending.take_due(self.now) == due

        for seq in due:
            assert self.pending.queue(seq)
            self.queued.add(seq)

    @invariant()
    def agrees(self) -> None:
        entries = [(seq, *self.model[seq]) for seq in sorted(self.model)]
        assert self.pending.entries() == entries
        assert unpacked(self.pending.packed()) == entries
        assert len(self.pending) == len(entries)
        assert (self.pending.floor_consumer_seq, self.pending.floor_stream_seq) == self.floor
        assert self.pending.redelivered == self.redelivered
        waiting = [self._due(seq) for seq in self.model if seq not in self.queued]
        assert self.pending.next_due_ns() == min(waiting, default=None)


PendingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPending = PendingMachine.TestCase


def test_what_was_kept_is_due_as_it_would_have_been() -> None:
    pending = Pending(WAITS)

    pending.restore((7, 9), (2, 3), [(4, 3, 500), (9, 5, 100)], {9: 1})

    assert pending.entries() == [(4, 3, 500), (9, 5, 100)]
    assert pending.next_due_ns() == 400
    assert pending.take_due(600) == [4, 9]


def test_other_waits_count_from_the_same_time() -> None:
    pending = Pending((100,))
    pending.start_at(1)
    pending.deliver(1, 1, 1_000)
    pending.put_off(1, 2_000)

    pending.wait((50,))

    assert pending.next_due_ns() == 2_050


def test_nothing_waits_where_no_acknowledgement_is_expected() -> None:
    pending = Pending(WAITS)
    pending.expects_none = True
    pending.start_at(1)

    pending.deliver(5, 1, 1_000)

    assert len(pending) == 0
    assert (pending.floor_consumer_seq, pending.floor_stream_seq) == (1, 5)
    assert pending.next_due_ns() is None
