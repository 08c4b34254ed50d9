"""How far a consumer is: where it began, what it has delivered, and what is still to deliver.

`Progress` holds all that a consumer remembers and answers questions about it. It sends nothing,
writes nothing and sets no timer: the owner (`consumer`) does that, and hands the progress to the
parts that decide (`pump`, `acks`, `pull_delivery`, `push_delivery`).

Invariants:

- `num_pending` is what counting the store anew would return.
- A message waits to be delivered again only while it is pending.
- After a restart a consumer goes on behind what was delivered; what was pending is due as before.

Thread: the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock import error_codes
from penstock.clock import AgeClock
from penstock.consumer.config.config import AckPolicy, ConsumerConfig, DeliverPolicy
from penstock.consumer.extensions.key_order import KeyOrder
from penstock.consumer.extensions.options import key_token
from penstock.consumer.needs import PendingCount, Position
from penstock.consumer.pending import Pending
from penstock.errors import ApiError
from penstock.format.state.consumer import ConsumerState
from penstock.limits import CONSUMER_WAIT_NS_MAX
from penstock.store.filestore import FileStore
from penstock.store.store_state import StoreState
from penstock.subjects import SubjectFilter, is_subset


class Start(NamedTuple):
    """The first sequence to look at, and single messages to deliver before it."""

    stream_seq: int
    chosen: tuple[int, ...] = ()


class Expired(NamedTuple):
    """A pending message that is not delivered again."""

    stream_seq: int
    deliveries: int
    is_lost: bool
    """The stream has dropped the message; otherwise it was delivered as often as allowed."""


class RedeliveryQueue:
    """The stream sequences to deliver again, in order. An empty queue costs next to nothing."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[int] | None = None

    def __len__(self) -> int:
        return 0 if self._queue is None else len(self._queue)

    @property
    def first(self) -> int:
        """The sequence to deliver next; the queue must not be empty."""
        assert self._queue is not None, "nothing waits"
        return self._queue[0]

    def add(self, stream_seqs: Iterable[int]) -> None:
        """Append sequences."""
        if self._queue is None:
            self._queue = deque()
        self._queue.extend(stream_seqs)

    def drop_first(self) -> None:
        """Remove the first sequence."""
        if self._queue is not None:
            self._queue.popleft()
            if not self._queue:
                self._queue = None

    def remove(self, stream_seq: int) -> None:
        """Remove a sequence, if it is in the queue."""
        if self._queue is not None and stream_seq in self._queue:
            self._queue.remove(stream_seq)

    def keep(self, is_wanted: Callable[[int], bool]) -> int:
        """Remove the sequences that are not wanted any more; return how many are left."""
        if self._queue is not None:
            self._queue = deque(filter(is_wanted, self._queue)) or None
        return len(self)

    def clear(self) -> None:
        """Remove all sequences."""
        self._queue = None


class Progress:
    """How far one consumer is; see the module."""

    __slots__ = (
        "again",
        "clock",
        "config",
        "counting",
        "keys",
        "last_acked_ns",
        "last_delivered_ns",
        "pending",
        "position",
        "start_seq",
        "store",
    )

    def __init__(self, store: FileStore, clock: AgeClock, config: ConsumerConfig) -> None:
        """`clock` is for all waits: setting the wall clock does not end them."""
        self.store = store
        self.clock = clock
        self.config = config
        self.pending = Pending(_waits_of(config))
        self.pending.expects_none = config.ack_policy is AckPolicy.NONE
        self.position = Position(self.pending)
        self.position.subjects = _filter_of(config)
        self.position.by_floor = config.ack_policy is not AckPolicy.EXPLICIT
        self.start_seq = 1
        """The stream sequence that the consumer began with."""

        self.again = RedeliveryQueue()
        """Messages to deliver again, before all others."""

        self.counting = PendingCount(store, self.subjects)
        self.keys: KeyOrder | None = None
        if token := key_token(config):
            self.keys = self.position.held = KeyOrder(self, token)
        self.last_delivered_ns = 0
        self.last_acked_ns = 0

    @property
    def subjects(self) -> SubjectFilter | None:
        """The filter; None if the consumer delivers all messages."""
        return self.position.subjects

    # Beginning

    def begin(self, start: Start) -> None:
        """Deliver from a start on."""
        self.position.cursor = start.stream_seq
        self.position.chosen = list(reversed(start.chosen))
        self.start_seq = start.chosen[0] if start.chosen else start.stream_seq
        self.pending.start_at(self.start_seq)

    def resume(self, state: ConsumerState) -> None:
        """Go on from a saved state."""
        stored = self.store.state()
        # A stream that lost its end assigns these sequences again.
        top = min(state.delivered.stream_seq, stored.last_seq)
        floor = min(state.ack_floor.stream_seq, top)
        # A wall clock that was set back meanwhile must not lengthen the waits.
        back_ns = max(stored.last_time_ns - self.clock.now_ns(), 0)
        entries = [
            (seq, delivery.consumer_seq, delivery.timestamp_ns - back_ns)
            for seq, delivery in sorted(state.pending.items())
            if seq <= top
        ]
        redelivered = {seq: count for seq, count in state.redelivered.items() if seq <= top}
        self.pending.restore(
            (state.delivered.consumer_seq, top),
            (state.ack_floor.consumer_seq, floor),
            entries,
            redelivered,
        )
        if self.keys is not None:
            self.keys.recover(seq for seq in state.held if seq <= top)
        self.position.cursor = max(top + 1, stored.first_seq)

    def reset(self, seq: int) -> int:
        """Start again at a stream sequence, 0: behind the ack floor; return the sequence.

        Raise ApiError if the configuration does not allow the sequence.
        """
        stream_seq = checked_reset(
            self.config, self.store, seq, floor_seq=self.pending.floor_stream_seq
        )
        self.again.clear()
        self.position.chosen.clear()
        if self.keys is not None:
            self.keys.forget()
        self.position.cursor = stream_seq
        self.pending.start_at(stream_seq)
        self.last_delivered_ns = self.last_acked_ns = 0
        self.counting.forget()
        return stream_seq

    def configure(self, config: ConsumerConfig) -> None:
        """Change to another configuration, which was checked."""
        old, self.config = self.config, config
        if config.filters != old.filters:
            self.position.subjects = _filter_of(config)
            self.counting = PendingCount(self.store, self.subjects)
            if self.keys is not None:
                self.keys.review()
        if _waits_of(config) != self.pending.waits_ns:
            self.pending.wait(_waits_of(config))

    # What is asked of it

    @property
    def is_at_ack_limit(self) -> bool:
        """True if as many messages are out unacknowledged as allowed."""
        limit = self.config.max_ack_pending
        return 0 < limit <= len(self.pending) and not self.pending.expects_none

    def paused_until_ns(self, now_ns: int) -> int:
        """Return when the pause ends; 0 if the consumer is not paused."""
        until = self.config.pause_until
        if until is None:
            return 0
        # The end of a pause is a time of the wall clock.
        until_ns = until.time_ns - self.clock.ahead_ns()
        return until_ns if until_ns > now_ns else 0

    def is_paused(self, now_ns: int) -> bool:
        """Return True if the consumer delivers nothing until a later time."""
        return self.paused_until_ns(now_ns) > 0

    def num_pending(self) -> int:
        """Return how many messages are still to be delivered for the first time."""
        held = 0 if self.keys is None else len(self.keys)
        return len(self.position.chosen) + held + self.counting.count(self.position.cursor)

    def deliverable_count(self) -> int:
        """Return how many messages are still to be delivered, again or for the first time."""
        # A message that was acknowledged while it waited does not count.
        return self.num_pending() + self.again.keep(self.pending.is_queued)

    @property
    def has_deliverable(self) -> bool:
        """True if any message may be delivered now."""
        if self.again.keep(self.pending.is_queued):
            return True
        return not self.is_at_ack_limit and self.num_pending() > 0

    def deliveries_of(self, stream_seq: int) -> int:
        """Return how often a pending message was delivered."""
        count: int = self.pending.redelivered.get(stream_seq, 0)
        return count + 1

    # What becomes of messages

    def put_off(self, stream_seq: int, time_ns: int) -> bool:
        """Have the wait for a pending message begin at a time; False if it is not pending."""
        if self.pending.is_queued(stream_seq):
            self.again.remove(stream_seq)
        return self.pending.put_off(stream_seq, time_ns)

    def deliver_again(self, stream_seqs: Iterable[int]) -> None:
        """Queue pending messages to be delivered again."""
        self.again.add(seq for seq in stream_seqs if self.pending.queue(seq))

    def expire(self, stream_seqs: Iterable[int]) -> list[Expired]:
        """Queue pending messages to be delivered again; return those that are not, in order."""
        limit = self.config.max_deliver
        first_seq = self.store.state().first_seq
        expired: list[Expired] = []
        due: list[int] = []
        for seq in stream_seqs:
            deliveries = self.deliveries_of(seq)
            if seq < first_seq:
                expired.append(Expired(seq, deliveries, is_lost=True))
            elif 0 < limit <= deliveries:
                expired.append(Expired(seq, deliveries, is_lost=False))
            else:
                due.append(seq)
        self.deliver_again(due)
        return expired

    def forget_purged(self, purged: SubjectFilter | None) -> None:
        """Forget messages that were purged: some or all of a filter's, of all messages if None."""
        self.counting.forget()
        state = self.store.state()
        first_seq = state.first_seq
        subjects = self.subjects
        if purged is not None and subjects is not None and _covers(purged, subjects):
            # Every message of the consumer was meant, so it need not look at the rest.
            first_seq = self.store.filtered_state(purged).first_seq or state.last_seq + 1
        position = self.position
        position.cursor = max(position.cursor, first_seq)
        position.chosen = [
            seq for seq in position.chosen if seq >= first_seq and self.store.has(seq)
        ]
        gone = [seq for seq, _, _ in self.pending.entries() if not self.store.has(seq)]
        self.pending.pass_over(gone, position.cursor)
        if self.keys is not None:
            self.keys.review()

    def forget_removed(self, stream_seq: int) -> None:
        """Forget a message that was removed and is not pending; `lost` is for pending ones."""
        self.counting.forget()
        if self.keys is not None:
            self.keys.let_go(stream_seq)
        self.position.drop_chosen(stream_seq)

    def limited(self, first_seq: int, *, everywhere: bool) -> list[int]:
        """Return pending messages that limits have removed: before `first_seq`, or everywhere."""
        first = self.pending.first()
        if first is None or not (everywhere or first[0] < first_seq):
            return []
        return [
            seq
            for seq, _, _ in self.pending.entries()
            if seq < first_seq or (everywhere and not self.store.has(seq))
        ]


def _filter_of(config: ConsumerConfig) -> SubjectFilter | None:
    return SubjectFilter([each.encode() for each in config.filters]) if config.filters else None


def _waits_of(config: ConsumerConfig) -> tuple[int, ...]:
    # Without a wait, as with flow control, nothing is delivered again.
    waits_ns = config.backoff or (config.ack_wait or CONSUMER_WAIT_NS_MAX,)
    return tuple(min(each, CONSUMER_WAIT_NS_MAX) for each in waits_ns)


def _covers(outer: SubjectFilter, inner: SubjectFilter) -> bool:
    return all(any(is_subset(one, each) for each in outer.patterns) for one in inner.patterns)


# Where a consumer begins


def find_start(
    config: ConsumerConfig,
    store: FileStore,
    subjects: SubjectFilter | None,
    *,
    per_subject_max: int,
) -> Start:
    """Return where a new consumer begins; `per_subject_max` is the stream's limit."""
    state = store.state()
    if config.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT and per_subject_max != 1:
        chosen = tuple(store.multi_last(subjects or SubjectFilter([])))
        # As the reference server shows it: if nothing is chosen, the last message is skipped too.
        if chosen:
            return Start(state.last_seq + 1, chosen)
        return Start(max(state.last_seq, state.first_seq, 1))
    first = _first(config, store, state, subjects)
    if config.opt_start_seq:
        return Start(max(first, state.first_seq))
    return Start(min(max(first, state.first_seq), state.last_seq + 1))


def checked_reset(config: ConsumerConfig, store: FileStore, seq: int, *, floor_seq: int) -> int:
    """Return where a consumer may start again; `seq` 0 stands for behind its ack floor.

    Raise ApiError if the deliver policy does not allow it.
    """
    if seq == 0:
        return floor_seq + 1
    match config.deliver_policy:
        case DeliverPolicy.ALL:
            return seq
        case DeliverPolicy.BY_START_SEQUENCE if seq >= config.opt_start_seq:
            return seq
        case DeliverPolicy.BY_START_SEQUENCE:
            reason = "below start seq"
        case DeliverPolicy.BY_START_TIME if config.opt_start_time is not None:
            if seq >= store.seq_from_time(config.opt_start_time.time_ns):
                return seq
            reason = "below start time"
        case _:
            reason = "not allowed"
    raise ApiError(error_codes.CONSUMER_INVALID_RESET, err=reason)


def _first(
    config: ConsumerConfig, store: FileStore, state: StoreState, subjects: SubjectFilter | None
) -> int:
    match config.deliver_policy:
        case DeliverPolicy.BY_START_SEQUENCE:
            return config.opt_start_seq
        case DeliverPolicy.BY_START_TIME if config.opt_start_time is not None:
            return store.seq_from_time(config.opt_start_time.time_ns)
        case DeliverPolicy.NEW:
            return state.last_seq + 1
        case DeliverPolicy.LAST if subjects is None:
            # Also if that message was removed, as with the reference server.
            return state.last_seq
        case DeliverPolicy.LAST:
            return store.filtered_state(subjects).last_seq
        case _:
            return state.first_seq
