"""A consumer: a place in a stream, and what becomes of the messages that it delivers from there.

`pump` delivers all that can be delivered now: first what must be delivered again, then what comes
next in the stream. It is called when messages have become durable, when a client asks for some,
when acknowledgements make room, and by the consumer's one timer. Messages that want nothing special
are sent by compiled code, many at a time; the others one by one.

What always holds: nothing is delivered that is not durable; at most `max_ack_pending` messages are
out unacknowledged; what was delivered and not acknowledged is delivered again, also after a
restart, until it is, or was delivered `max_deliver` times. `letters` and `keys` are there only
where the consumer's metadata asks for them.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.consumer.ack_door import KEEP, REMOVE, REMOVE_UNNEEDED, AckDoor
from penstock.consumer.acks import About, Acks
from penstock.consumer.config import AckPolicy, ConsumerConfig
from penstock.consumer.counting import PendingCount
from penstock.consumer.dead_letters import changed_letters, new_letters
from penstock.consumer.delivery import Courier
from penstock.consumer.demand import Outlet, status
from penstock.consumer.describing import describe
from penstock.consumer.folders import ConsumerFolder
from penstock.consumer.info import ConsumerInfo
from penstock.consumer.keeping import Snapshot
from penstock.consumer.key_order import new_keys
from penstock.consumer.pending import Pending
from penstock.consumer.pulling import PullOutlet
from penstock.consumer.pumping import Pump
from penstock.consumer.pushing import PushOutlet
from penstock.consumer.redelivery import Redelivery
from penstock.consumer.starting import Start, checked_reset
from penstock.documents.times import ZERO_TIME, Instant
from penstock.format.consumer_state import ConsumerState
from penstock.limits import CONSUMER_WAIT_NS_MAX
from penstock.stream.config import RetentionPolicy
from penstock.subjects import SubjectFilter

if TYPE_CHECKING:
    from penstock.consumer.registry import StreamConsumers

_DISPOSALS = {
    RetentionPolicy.LIMITS: KEEP,
    RetentionPolicy.WORK_QUEUE: REMOVE,
    RetentionPolicy.INTEREST: REMOVE_UNNEEDED,
}
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
        "_timer",
        "_timer_ns",
        "acks",
        "again",
        "chosen",
        "clock",
        "config",
        "consumers",
        "counting",
        "courier",
        "created",
        "cursor",
        "folder",
        "host",
        "is_closed",
        "keys",
        "last_acked_ns",
        "last_delivered_ns",
        "letters",
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
        self.clock = consumers.clock
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
        self.keys = new_keys(self)
        self.letters = new_letters(self)
        self.last_delivered_ns = 0
        self.last_acked_ns = 0
        encoded = name.encode()
        prefix = b"%b%b." % (consumers.reply_start, encoded)
        self.courier = Courier(self.host.hub, self.stream.sublist, prefix)
        self._door = AckDoor(self.host.hub, self, self.pending, encoded)
        self.acks = Acks(self)
        self.outlet: Outlet = PushOutlet(self) if config.is_push else PullOutlet(self)
        self._pump = Pump(self)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._is_pump_due = False
        self._configure()

    def _configure(self) -> None:
        config, door = self.config, self._door
        door.is_open = config.ack_policy not in (AckPolicy.NONE, AckPolicy.FLOW_CONTROL)
        is_explicit = config.ack_policy is AckPolicy.EXPLICIT
        door.is_plain = is_explicit and not config.sample_percent and self.keys is None
        door.disposal = _DISPOSALS[self.stream.config.retention]
        door.needs_by_floor = not is_explicit
        door.is_filtered = self.subjects is not None or self.keys is not None
        self._pump.configure()
        self._is_resting = self.is_paused(self.clock.now_ns())

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
        # A wall clock that was set back meanwhile must not make it wait for longer.
        back_ns = max(self.stream.store.state().last_time_ns - self.clock.now_ns(), 0)
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
        if self.letters is not None:
            self.letters.recover(
                {seq: each for seq, each in state.letters.items() if seq in self.pending}
            )
        if self.keys is not None:
            self.keys.recover(seq for seq in state.held if seq <= top)
        self.cursor = max(top + 1, self.stream.store.state().first_seq)

    def keep(self, config: ConsumerConfig) -> None:
        """Have a configuration for it on stable storage; raises OSError. Any thread."""
        if self.folder is not None:
            # Its place is part of what it is: after a restart it must not be looked for again.
            self.folder.write(self.name, config, self.created, start_seq=self.start_seq)

    def start(self) -> None:
        """Listen to clients, and deliver."""
        self.consumers.door.add(self._door)
        self.outlet.start()
        if self.letters is not None:
            self.letters.start()
        self.pump_soon()

    def stop(self, reason: str = "") -> None:
        """Deliver no more; whoever waits is told the reason, unless it is empty."""
        if self.is_closed:
            return
        self.is_closed = True
        self.outlet.stop(reason)
        if self.letters is not None:
            self.letters.stop()
        self.consumers.door.remove(self._door)
        if self._timer is not None:
            self._timer.cancel()
        self.consumers.hungry.pop(self, None)
        self.consumers.expecting.pop(self, None)

    def update(self, config: ConsumerConfig) -> None:
        """Go over to another configuration, which was checked."""
        old, self.config = self.config, config
        if config.filters != old.filters:
            self.subjects = _filter_of(config)
            self.counting = PendingCount(self.stream.store, self.subjects)
            if self.keys is not None:
                self.keys.review()
        self.letters = changed_letters(self)
        if _waits_of(config) != self.pending.waits_ns:
            self.pending.wait(_waits_of(config))
        if config.deliver_subject != old.deliver_subject:
            self.outlet.stop("")
            self.outlet = PushOutlet(self)
            self.outlet.start()
            # Whoever listens there has seen nothing of what is out.
            seqs = [seq for seq, _, _ in self.pending.entries()]
            self._pump.expire(
                [seq for seq in seqs if self.letters is None or seq not in self.letters]
            )
        self._configure()
        self.pump_soon()

    # What it is asked

    @property
    def is_at_ack_limit(self) -> bool:
        """Whether as many messages are out unacknowledged as may be."""
        limit = self.config.max_ack_pending
        return 0 < limit <= len(self.pending) and not self.pending.expects_none

    def paused_until_ns(self, now_ns: int) -> int:
        """Tell until when it delivers nothing, where that is still to come; 0 where it is not."""
        until = self.config.pause_until
        if until is None:
            return 0
        # Somebody has said that by the wall clock.
        until_ns = until.time_ns - self.clock.ahead_ns()
        return until_ns if until_ns > now_ns else 0

    def is_paused(self, now_ns: int) -> bool:
        """Whether it delivers nothing until some later time."""
        return self.paused_until_ns(now_ns) > 0

    def num_pending(self) -> int:
        """Give how many messages it has still to deliver for the first time."""
        held = 0 if self.keys is None else len(self.keys)
        return len(self.chosen) + held + self.counting.count(self.cursor)

    def deliverable_count(self) -> int:
        """Give how many messages it has still to deliver."""
        # One that was acknowledged while it waited does not count.
        return self.num_pending() + self.again.keep(self.pending.is_queued)

    @property
    def has_deliverable(self) -> bool:
        """Whether any message may be delivered now."""
        if self.again.keep(self.pending.is_queued):
            return True
        return not self.is_at_ack_limit and self.num_pending() > 0

    def pending_since_ns(self, stream_seq: int) -> int:
        """Give how long ago a pending message was delivered."""
        time_ns = self.pending.time_of(stream_seq)
        return 0 if time_ns is None else self.clock.now_ns() - time_ns

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether a message of the stream must be kept for it."""
        if self.subjects is not None and not self.subjects.matches(subject):
            return False
        if self.config.ack_policy is not AckPolicy.EXPLICIT:
            return stream_seq > self.pending.floor_stream_seq
        if stream_seq >= self.cursor or stream_seq in self.pending:
            return True
        if self.keys is not None and stream_seq in self.keys:
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
            ahead_ns=self.clock.ahead_ns(),
            held=frozenset() if self.keys is None else self.keys.held,
            letters={} if self.letters is None else self.letters.copy(),
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
        self.last_acked_ns = self.clock.now_ns()
        self.consumers.keeper.mark(self)
        limit = self.config.max_ack_pending
        if 0 < limit <= len(self.pending) + count:
            self.pump()

    def on_done(self, stream_seqs: list[int]) -> None:
        """Messages are done with: forget them, and let the stream forget them."""
        if not stream_seqs:
            return
        self.last_acked_ns = self.clock.now_ns()
        self.consumers.on_done(stream_seqs)
        if self.keys is not None and self.keys.free(stream_seqs):
            self.pump_soon()

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
        if self.letters is not None and stream_seq in self.letters:
            return
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
        if self.letters is not None:
            self.letters.forget()
        if self.keys is not None:
            self.keys.forget()
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
        if len(self.pending):
            self.consumers.expecting.setdefault(self, self.consumers.gone_count)

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
        if self.letters is not None:
            self.letters.owe(stream_seq, deliveries)
            return
        self.pending.give_up(stream_seq)
        if self.keys is not None and self.keys.free((stream_seq,)):
            self.pump_soon()
        self.consumers.keeper.mark(self)

    # Time

    def plan(self) -> None:
        """Set the timer for whatever is due next."""
        due_ns = self._pump.due_ns()
        if due_ns is None:
            return
        now_ns = self.clock.now_ns()
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
        now_ns = self.clock.now_ns()
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
        is_paused = self.is_paused(self.clock.now_ns())
        until = self.config.pause_until or ZERO_TIME
        fields = {"paused": is_paused, "pause_until": str(until)}
        self.advise("PAUSE", "consumer_pause", fields)

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        self.host.log(level, f"JetStream consumer '{self.stream.name} > {self.name}': {text}")


def _filter_of(config: ConsumerConfig) -> SubjectFilter | None:
    return SubjectFilter([each.encode() for each in config.filters]) if config.filters else None


def _waits_of(config: ConsumerConfig) -> tuple[int, ...]:
    # Without a wait, which is so with flow control, nothing is delivered again.
    waits_ns = config.backoff or (config.ack_wait or CONSUMER_WAIT_NS_MAX,)
    return tuple(min(each, CONSUMER_WAIT_NS_MAX) for each in waits_ns)
