"""A consumer: a place in a stream, and what becomes of the messages that it delivers from there.

`pump` delivers all that can be delivered now: first what must be delivered again, then what comes
next in the stream. It is called when messages have become durable, when a client asks for some,
when acknowledgements make room, and by the consumer's one timer. Messages that want nothing special
are sent by compiled code, many at a time; the others one by one.

What always holds: nothing is delivered that is not durable; at most `max_ack_pending` messages are
out unacknowledged; what was delivered and not acknowledged is delivered again, also after a
restart, until it is, or was delivered `max_deliver` times.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.consumer.ack_door import AckDoor
from penstock.consumer.acks import GONE_REASON, About, Acks
from penstock.consumer.config import AckPolicy, ConsumerConfig
from penstock.consumer.counting import PendingCount
from penstock.consumer.delivery import Courier
from penstock.consumer.demand import Outlet, status
from penstock.consumer.describing import describe
from penstock.consumer.folders import ConsumerFolder
from penstock.consumer.info import ConsumerInfo
from penstock.consumer.keeping import Snapshot
from penstock.consumer.pending import Pending
from penstock.consumer.pulling import PullOutlet
from penstock.consumer.pumping import Pump
from penstock.consumer.pushing import PushOutlet
from penstock.consumer.redelivery import Redelivery
from penstock.consumer.starting import Start, checked_reset
from penstock.documents.times import ZERO_TIME, Instant
from penstock.format.consumer_state import ConsumerState
from penstock.routing.hub import Service
from penstock.routing.sublist import Receiver, Subscription
from penstock.stream.config import RetentionPolicy
from penstock.subjects import SubjectFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.consumer.registry import StreamConsumers

ACK_PREFIX = "$JS.ACK."
NEXT_PREFIX = "$JS.API.CONSUMER.MSG.NEXT."
DOOR_SUBSCRIPTIONS = 2
"""Those for acknowledgements, which come first."""

_TIMER_S_MAX = 86_400.0
"""A timer a day at the most: the wall clock may be set meanwhile."""


class Consumer:
    """One consumer; see the module."""

    __slots__ = (
        "__weakref__",
        "_door",
        "_is_pump_due",
        "_is_resting",
        "_pump",
        "_subscriptions",
        "_timer",
        "_timer_ns",
        "acks",
        "again",
        "chosen",
        "config",
        "consumers",
        "counting",
        "courier",
        "created",
        "cursor",
        "folder",
        "host",
        "is_closed",
        "last_acked_ns",
        "last_delivered_ns",
        "name",
        "outlet",
        "pending",
        "start_seq",
        "stream",
        "subjects",
    )

    def __init__(
        self,
        consumers: StreamConsumers,
        name: str,
        config: ConsumerConfig,
        created: Instant,
        folder: ConsumerFolder | None,
    ) -> None:
        """`folder` is None for one that is forgotten with the process."""
        self.consumers = consumers
        self.stream = consumers.stream
        self.host = consumers.host
        self.name = name
        self.config = config
        self.created = created
        self.folder = folder
        self.is_closed = False
        self.subjects = _filter_of(config)
        self.pending = Pending(_waits_of(config))
        self.pending.expects_none = config.ack_policy is AckPolicy.NONE
        self.start_seq = 1
        """Where it began."""

        self.cursor = 1
        """The next sequence of the stream to look at."""

        self.chosen: list[int] = []
        """Single messages to be delivered before what is at the cursor, the first of them last."""

        self.again = Redelivery()
        """Messages to be delivered again, before all others."""

        self.counting = PendingCount(self.stream.store, self.subjects)
        self.last_delivered_ns = 0
        self.last_acked_ns = 0
        prefix = f"{ACK_PREFIX}{self.stream.name}.{name}.".encode()
        self.courier = Courier(self.host.hub, self.stream.sublist, prefix)
        long_prefix = f"{ACK_PREFIX}{consumers.long_name}.{self.stream.name}.{name}.".encode()
        self._door = AckDoor(self.host.hub, self, self.pending, prefix, long_prefix)
        self.acks = Acks(self)
        self.outlet: Outlet = PushOutlet(self) if config.is_push else PullOutlet(self)
        self._pump = Pump(self)
        self._subscriptions: list[Subscription] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._is_pump_due = False
        self._configure()

    def _configure(self) -> None:
        config = self.config
        self._door.is_plain = (
            config.ack_policy is AckPolicy.EXPLICIT
            and self.stream.config.retention is RetentionPolicy.LIMITS
            and not config.sample_percent
        )
        self._pump.configure()
        self._is_resting = self.is_paused(self.host.clock.now_ns())

    # Beginning

    def begin(self, start: Start) -> None:
        """Deliver from a place in the stream on."""
        self.cursor = start.stream_seq
        self.chosen = list(reversed(start.chosen))
        self.start_seq = start.chosen[0] if start.chosen else start.stream_seq
        self.pending.start_at(self.start_seq)

    def resume(self, state: ConsumerState) -> None:
        """Go on where it was; what was pending is due as it would have been."""
        last_seq = self.stream.store.state().last_seq
        # A stream that lost its end gives these sequences out again.
        top = min(state.delivered.stream_seq, last_seq)
        floor = min(state.ack_floor.stream_seq, top)
        entries = [
            (seq, delivery.consumer_seq, delivery.timestamp_ns)
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
        self.cursor = max(top + 1, self.stream.store.state().first_seq)

    def start(self) -> None:
        """Listen to clients, and deliver."""
        name = f"{self.stream.name}.{self.name}.>"
        for sid, start in ((b"1", ACK_PREFIX), (b"2", f"{ACK_PREFIX}{self.consumers.long_name}.")):
            self.subscribe(Subscription(self._door, f"{start}{name}".encode(), sid))
        self.outlet.start()
        self.pump_soon()

    def subscribe(self, subscription: Subscription) -> None:
        """Listen to a subject for as long as the consumer is there."""
        self.stream.sublist.insert(subscription)
        self._subscriptions.append(subscription)

    def subscribe_next(self, callback: Callable[[bytes, bytes | None, bytes, bytes], None]) -> None:
        """Listen to requests for messages."""
        receiver: Receiver = Service(callback)
        subject = f"{NEXT_PREFIX}{self.stream.name}.{self.name}".encode()
        self.subscribe(Subscription(receiver, subject, b"3"))

    def stop(self, reason: str = "") -> None:
        """Deliver no more; whoever waits is told the reason, unless it is empty."""
        if self.is_closed:
            return
        self.is_closed = True
        self.outlet.stop(reason)
        self._unsubscribe(keep=0)
        if self._timer is not None:
            self._timer.cancel()
        self.consumers.hungry.pop(self, None)

    def _unsubscribe(self, *, keep: int) -> None:
        for subscription in self._subscriptions[keep:]:
            self.stream.sublist.remove(subscription)
        del self._subscriptions[keep:]

    def update(self, config: ConsumerConfig) -> None:
        """Go over to another configuration, which was checked."""
        old, self.config = self.config, config
        if config.filters != old.filters:
            self.subjects = _filter_of(config)
            self.counting = PendingCount(self.stream.store, self.subjects)
        if _waits_of(config) != self.pending.waits_ns:
            self.pending.wait(_waits_of(config))
        if config.deliver_subject != old.deliver_subject:
            self.outlet.stop("")
            self._unsubscribe(keep=DOOR_SUBSCRIPTIONS)
            self.outlet = PushOutlet(self)
            self.outlet.start()
        self._configure()
        self.pump_soon()

    # What it is asked

    @property
    def is_at_ack_limit(self) -> bool:
        """Whether as many messages are out unacknowledged as may be."""
        limit = self.config.max_ack_pending
        return 0 < limit <= len(self.pending) and not self.pending.expects_none

    def is_paused(self, now_ns: int) -> bool:
        """Whether it delivers nothing until some later time."""
        until = self.config.pause_until
        return until is not None and now_ns < until.time_ns

    def num_pending(self) -> int:
        """Give how many messages it has still to deliver for the first time."""
        return len(self.chosen) + self.counting.count(self.cursor)

    def deliverable_count(self) -> int:
        """Give how many messages it has still to deliver."""
        return self.num_pending() + len(self.again)

    def pending_since_ns(self, stream_seq: int) -> int:
        """Give how long ago a pending message was delivered."""
        time_ns = self.pending.time_of(stream_seq)
        return 0 if time_ns is None else self.host.clock.now_ns() - time_ns

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether a message of the stream must be kept for it."""
        if self.subjects is not None and not self.subjects.matches(subject):
            return False
        if self.config.ack_policy is not AckPolicy.EXPLICIT:
            return stream_seq > self.pending.floor_stream_seq
        if stream_seq >= self.cursor or stream_seq in self.pending:
            return True
        # Given up after its last delivery: it stays until somebody removes it.
        return stream_seq in self.pending.redelivered

    def info(self, now_ns: int) -> ConsumerInfo:
        """Tell everything, with the configuration as it is kept."""
        return describe(self, now_ns)

    def snapshot(self) -> Snapshot:
        """Give all that must be remembered."""
        pending = self.pending
        return Snapshot(
            (pending.delivered_consumer_seq, pending.delivered_stream_seq),
            (pending.floor_consumer_seq, pending.floor_stream_seq),
            pending.packed(),
            dict(pending.redelivered),
        )

    # What clients do

    def request_next(self, reply: bytes, headers: bytes, body: bytes) -> None:
        """Take a request for messages."""
        if isinstance(self.outlet, PullOutlet):
            if self.consumers.refuses_level(headers):
                self.send_status(reply, status(412, "Required Api Level"))
            else:
                self.outlet.request(reply, body)
        else:
            self.send_status(reply, status(409, "Consumer is push based"))

    def on_ack(self, numbers: tuple[int, int, int], reply: bytes | None, body: bytes) -> None:
        """Take what a client says of a delivery; the compiled half calls this."""
        self.acks.take(About(*numbers), reply, body)

    def on_acks(self, count: int) -> None:
        """Deliveries were acknowledged; the compiled half calls this at the end of a buffer."""
        self.last_acked_ns = self.host.clock.now_ns()
        self.consumers.keeper.mark(self)
        limit = self.config.max_ack_pending
        if 0 < limit <= len(self.pending) + count:
            self.pump()

    def on_done(self, stream_seqs: list[int]) -> None:
        """Messages are done with: forget them, and let the stream forget them."""
        if not stream_seqs:
            return
        self.last_acked_ns = self.host.clock.now_ns()
        self.consumers.on_done(stream_seqs)

    def remember(self, reply: bytes | None = None) -> None:
        """Have the consumer's progress kept; answer `reply` when it is on stable storage."""
        if reply is None:
            self.consumers.keeper.mark(self)
        else:
            self.consumers.keeper.mark(self, lambda: self._confirm_and_send(reply))

    def confirm(self, reply: bytes) -> None:
        """Tell a client that it was heard."""
        self.host.hub.publish(self.stream.sublist, reply, None, b"", b"")

    def _confirm_and_send(self, reply: bytes) -> None:
        self.confirm(reply)
        self.host.hub.flush()

    def put_off(self, stream_seq: int, time_ns: int) -> None:
        """Have the wait for a pending message begin at a time."""
        if self.pending.is_queued(stream_seq):
            self.again.remove(stream_seq)
        if self.pending.put_off(stream_seq, time_ns):
            self.consumers.keeper.mark(self)
            self.plan()

    def deliver_again(self, stream_seqs: list[int]) -> None:
        """Deliver pending messages again, as soon as somebody wants them."""
        self.again.add(seq for seq in stream_seqs if self.pending.queue(seq))
        self.pump()

    def reset(self, seq: int) -> int:
        """Start again at a stream sequence, 0: behind what is acknowledged; give the sequence.

        Raises ApiError.
        """
        stream_seq = checked_reset(
            self.config, self.stream.store, seq, floor_seq=self.pending.floor_stream_seq
        )
        self.again.clear()
        self.chosen.clear()
        self.cursor = stream_seq
        self.pending.start_at(stream_seq)
        self.last_delivered_ns = self.last_acked_ns = 0
        self.counting.forget()
        self.consumers.keeper.mark(self)
        self.pump_soon()
        return stream_seq

    def unpin(self, group: str) -> None:
        """Let another client of a group be served."""
        if isinstance(self.outlet, PullOutlet):
            self.outlet.unpin("admin")

    # What becomes of the stream

    def on_purged(self, first_seq: int) -> None:
        """The stream was purged; it begins at a sequence now."""
        self.counting.forget()
        self.cursor = max(self.cursor, first_seq)
        gone = [seq for seq, _, _ in self.pending.entries() if not self.consumers.has(seq)]
        self.pending.pass_over(gone, self.cursor)
        self.consumers.keeper.mark(self)
        self.pump_soon()

    def on_removed(self, stream_seq: int) -> None:
        """A message was removed from the stream."""
        self.counting.forget()
        if stream_seq in self.pending:
            self.lost(stream_seq, self.pending.redelivered.get(stream_seq, 0) + 1)

    def on_stream_config(self) -> None:
        """The stream has another configuration."""
        self._configure()

    # Delivering

    def pump(self) -> None:
        """Deliver what can be delivered now."""
        if not self.is_closed:
            self._pump.run()
            self._follow()
            self.plan()

    def _follow(self) -> None:
        # Only those who could deliver a message are woken when one comes in.
        if self.outlet.is_wanting and not self.is_at_ack_limit:
            self.consumers.hungry[self] = None
        else:
            self.consumers.hungry.pop(self, None)

    def pump_soon(self) -> None:
        """Deliver what can be delivered, once everything else had its turn."""
        if not self._is_pump_due and not self.is_closed:
            self._is_pump_due = True
            self.host.loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._is_pump_due = False
        self.pump()
        self.host.hub.flush()

    def give_up(self, stream_seq: int, deliveries: int) -> None:
        """Wait no more for a message that was delivered as often as it may be."""
        fields = {"stream_seq": stream_seq, "deliveries": deliveries}
        self.advise("MAX_DELIVERIES", "max_deliver", fields)
        self.pending.give_up(stream_seq)
        self.consumers.keeper.mark(self)

    def lost(self, stream_seq: int, deliveries: int) -> None:
        """Be done with a pending message that is no longer in the stream."""
        consumer_seq = self.pending.consumer_seq_of(stream_seq)
        self.acks.terminate(About(deliveries, stream_seq, consumer_seq), GONE_REASON)

    # Time

    def plan(self) -> None:
        """Set the timer for whatever is due next."""
        due_ns = self._pump.due_ns()
        if due_ns is None:
            return
        now_ns = self.host.clock.now_ns()
        if self._timer is not None:
            if self._timer_ns <= due_ns:
                return
            self._timer.cancel()
        delay_s = min(max((due_ns - now_ns) / 1e9, 0.0005), _TIMER_S_MAX)
        self._timer_ns = due_ns
        self._timer = self.host.loop.call_later(delay_s, self._timed)

    def _timed(self) -> None:
        self._timer = None
        if self.is_closed:
            return
        now_ns = self.host.clock.now_ns()
        if self._is_resting and not self.is_paused(now_ns):
            self._is_resting = False
            self.advise_pause()
        if self._pump.is_forgotten(now_ns):
            self.consumers.delete(self.name)
            self.host.hub.flush()
            return
        self._pump.look_at_deadlines(now_ns)
        self._pump_now()

    # Telling

    def send_status(self, target: bytes, headers: bytes, *, reply: bytes | None = None) -> None:
        """Send a message without a body."""
        self.host.hub.publish(self.stream.sublist, target, reply, headers, b"")

    def send_heartbeat(self, target: bytes, more: bytes = b"") -> None:
        """Tell a client how far the consumer is; `more` are header lines."""
        counts = b"Nats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % (
            self.pending.delivered_consumer_seq,
            self.cursor - 1,
        )
        self.send_status(target, status(100, "Idle Heartbeat", counts + more))

    def advise(
        self, event: str, kind: str, fields: Mapping[str, Any], *, with_account: bool = False
    ) -> None:
        """Tell whoever listens to what becomes of consumers."""
        account = {"account": self.consumers.account_name} if with_account else {}
        self.host.advise(
            self.stream.sublist,
            f"ADVISORY.CONSUMER.{event}.{self.stream.name}.{self.name}",
            f"advisory.v1.{kind}",
            {**account, "stream": self.stream.name, "consumer": self.name, **fields},
        )

    def advise_pause(self) -> None:
        """Tell whoever listens that it rests, or goes on."""
        is_paused = self.is_paused(self.host.clock.now_ns())
        until = self.config.pause_until or ZERO_TIME
        fields = {"paused": is_paused, "pause_until": str(until)}
        self.advise("PAUSE", "consumer_pause", fields)

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        self.host.log(level, f"JetStream consumer '{self.stream.name} > {self.name}': {text}")


def _filter_of(config: ConsumerConfig) -> SubjectFilter | None:
    return SubjectFilter([each.encode() for each in config.filters]) if config.filters else None


def _waits_of(config: ConsumerConfig) -> tuple[int, ...]:
    return config.backoff or (max(config.ack_wait, 1),)
