"""A consumer: a position in a stream, and what becomes of the messages that it delivers from there.

`Consumer` is the owner of its parts. They decide, it acts: it sets the timer, saves the state,
lets the stream remove what is done with, and publishes advisories.

    progress        what the consumer remembers; answers questions, does nothing
    pump            which message goes next, and sends it           -> Turn
    acks            what clients say of deliveries                  -> AckOutcome
    delivery        pull requests or the deliver subject            -> Wake, Demand
    letters, keys   extensions, there only if the metadata asks for them

`pump` delivers all that can be delivered now. It is called when messages have become durable, when
a client asks for some, when acknowledgements make room, and by the consumer's one timer.

Invariants: nothing is delivered that is not durable. At most `max_ack_pending` messages are out
unacknowledged. What was delivered and not acknowledged is delivered again, also after a restart,
until it is acknowledged or was delivered `max_deliver` times.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.consumer.ack_receiver import KEEP, REMOVE, REMOVE_UNNEEDED, AckReceiver
from penstock.consumer.acks import AckedDelivery, AckOutcome, Acks
from penstock.consumer.config.config import AckPolicy, ConsumerConfig
from penstock.consumer.delivery import MessageSender
from penstock.consumer.demand import DeliveryMode
from penstock.consumer.extensions.dead_letters import DeadLetters
from penstock.consumer.extensions.options import dead_letter_subject
from penstock.consumer.folder import ConsumerFolder
from penstock.consumer.info import Notices
from penstock.consumer.progress import Expired, Progress
from penstock.consumer.pull_delivery import PullDelivery, Wake
from penstock.consumer.pump import Pump, Turn
from penstock.consumer.push_delivery import PushDelivery
from penstock.consumer.state_writer import Snapshot
from penstock.format.state.consumer import ConsumerState
from penstock.limits import TIMER_S_MAX
from penstock.protocol.headers import value_of
from penstock.stream.changes import Change
from penstock.stream.config.config import API_LEVEL, RetentionPolicy
from penstock.subjects import SubjectFilter
from penstock.text.times import Instant

if TYPE_CHECKING:
    from penstock.consumer.registry import StreamConsumers

_DISPOSALS = {
    RetentionPolicy.LIMITS: KEEP,
    RetentionPolicy.WORK_QUEUE: REMOVE,
    RetentionPolicy.INTEREST: REMOVE_UNNEEDED,
}


class Consumer:
    """One consumer; see the module."""

    __slots__ = (
        "__weakref__",
        "_ack_receiver",
        "_acks",
        "_consumers",
        "_is_pump_due",
        "_is_pumping",
        "_is_resting",
        "_pump",
        "_sender",
        "_timer",
        "_timer_ns",
        "_untold",
        "created",
        "delivery",
        "folder",
        "is_closed",
        "letters",
        "name",
        "notices",
        "progress",
        "stream",
    )

    def __init__(
        self,
        consumers: StreamConsumers,
        name: str,
        config: ConsumerConfig,
        created: Instant,
        folder: ConsumerFolder | None,
    ) -> None:
        """`folder` is None for a consumer that is forgotten with the process."""
        stream = consumers.stream
        self._consumers = consumers
        self.stream = stream
        self.name = name
        self.created = created
        self.folder = folder
        self.is_closed = False
        self.progress = Progress(stream.store, consumers.clock, config)
        self.notices = Notices(stream, name, consumers.account_name)
        encoded = name.encode()
        prefix = b"%b%b." % (consumers.reply_start, encoded)
        self._sender = MessageSender(stream.host.hub, stream.sublist, prefix)
        self._ack_receiver = AckReceiver(stream.host.hub, self, self.progress.pending, encoded)
        self._acks = Acks(self.progress, self.notices)
        self.letters = self._new_letters()
        self.delivery: DeliveryMode = self._new_delivery()
        self._pump = Pump(stream, consumers.scanner, self.progress, self._sender)
        self._is_pumping = False
        self._untold = 0
        """Changes of the configuration that no client has been told of yet."""

        self._is_pump_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self.configure()

    @property
    def config(self) -> ConsumerConfig:
        """The configuration, with its defaults."""
        return self.progress.config

    def _new_delivery(self) -> DeliveryMode:
        if not self.config.is_push:
            new_id = self._consumers.unique_id
            return PullDelivery(self.progress, self.notices, self._sender, new_id)
        return PushDelivery(
            self.progress,
            self.notices,
            self._consumers.push_target(self.name),
            wake=self.pump_soon,
            confirmed=lambda headers: self._apply(self._acks.confirmed(headers)),
        )

    def _new_letters(self) -> DeadLetters | None:
        subject = dead_letter_subject(self.config)
        if not subject:
            return None
        return DeadLetters(
            self.name,
            self.progress,
            self.notices,
            self._sender,
            self._consumers,
            subject=subject,
            save=lambda then: self._consumers.state_writer.mark(self, then),
            settle=self._settle,
        )

    def configure(self) -> None:
        """Apply the configurations of the consumer and of the stream."""
        config, receiver = self.config, self._ack_receiver
        receiver.is_open = config.ack_policy not in (AckPolicy.NONE, AckPolicy.FLOW_CONTROL)
        receiver.is_plain = (
            config.ack_policy is AckPolicy.EXPLICIT
            and not config.sample_percent
            and self.progress.keys is None
        )
        receiver.disposal = _DISPOSALS[self.stream.config.retention]
        self._acks.letters = self.letters
        self._pump.configure()
        self._is_resting = self.progress.is_paused(self.progress.clock.now_ns())

    # Coming and going

    def resume(self, state: ConsumerState) -> None:
        """Go on from a saved state."""
        self.progress.resume(state)
        if self.letters is not None:
            pending = self.progress.pending
            self.letters.recover(
                {seq: each for seq, each in state.letters.items() if seq in pending}
            )

    def document(self, config: ConsumerConfig) -> bytes:
        """Return the content of the document that has a configuration. Thread: any."""
        assert self.folder is not None, "others are forgotten with the process"
        # With where the consumer began: after a restart that must not be looked for again.
        start_seq = self.progress.start_seq
        return self.folder.document(self.name, config, self.created, start_seq=start_seq)

    def start(self) -> None:
        """Take acknowledgements and requests, and deliver."""
        self._consumers.ack_receiver.add(self._ack_receiver)
        self.delivery.start()
        if self.letters is not None:
            self.letters.start()
        self.pump_soon()

    def stop(self, reason: str = "") -> None:
        """Deliver no more; clients that wait are sent the reason, unless it is empty."""
        if self.is_closed:
            return
        self.is_closed = True
        self.delivery.stop(reason)
        if self.letters is not None:
            self.letters.stop()
        self._consumers.ack_receiver.remove(self._ack_receiver)
        if self._timer is not None:
            self._timer.cancel()
        self._consumers.hungry.pop(self, None)
        self._consumers.expecting.pop(self, None)

    def update(self, config: ConsumerConfig, told: Change | None = None) -> None:
        """Change to another configuration, which was checked.

        Nothing is delivered until the client that asked for it is `told`, so that it hears of a
        pause's end before it receives what waited for that.
        """
        old = self.config
        self.progress.configure(config)
        self._change_letters()
        if config.deliver_subject != old.deliver_subject:
            self.delivery.stop("")
            self.delivery = self._new_delivery()
            self.delivery.start()
            # Subscribers of the new subject have seen nothing of what is out.
            seqs = [seq for seq, _, _ in self.progress.pending.entries()]
            self._expire([seq for seq in seqs if self.letters is None or seq not in self.letters])
        self.configure()
        if told is None:
            self.pump_soon()
        else:
            self._untold += 1
            told.then(self._go_on)

    def _go_on(self, error: OSError | None) -> None:
        self._untold -= 1
        self.pump_soon()

    def _change_letters(self) -> None:
        """Have dead letters as the metadata asks: what is owed goes to the new subject, if any."""
        old = self.letters
        if old is not None and old.subject == dead_letter_subject(self.config):
            return
        self.letters = self._new_letters()
        if old is not None:
            old.stop()
            if self.letters is None:
                old.drop()
            else:
                self.letters.recover(old.copy())
        if self.letters is not None:
            self.letters.start()

    def snapshot(self) -> Snapshot:
        """Return all that must be remembered, as it is now."""
        pending, keys = self.progress.pending, self.progress.keys
        return Snapshot(
            (pending.delivered_consumer_seq, pending.delivered_stream_seq),
            (pending.floor_consumer_seq, pending.floor_stream_seq),
            pending.packed(),
            dict(pending.redelivered),
            ahead_ns=self.progress.clock.ahead_ns(),
            held=frozenset() if keys is None else keys.held,
            letters={} if self.letters is None else self.letters.copy(),
        )

    # What clients do

    def request_next(self, reply: bytes, headers: bytes, body: bytes) -> None:
        """Take a pull request; `ack_receiver` calls this."""
        delivery = self.delivery
        if not isinstance(delivery, PullDelivery):
            self.notices.send_status(reply, 409, "Consumer is push based")
        elif headers and _refuses_level(headers):
            self.notices.send_status(reply, 412, "Required Api Level")
        else:
            wake = delivery.request(reply, body)
            if wake is Wake.NOW:
                self.pump()
            elif wake is Wake.SOON:
                self.pump_soon()

    def on_ack(self, numbers: tuple[int, int, int], reply: bytes | None, body: bytes) -> None:
        """Take an acknowledgement that is not plain; `ack_receiver` calls this."""
        self._apply(self._acks.take(AckedDelivery(*numbers), reply, body))

    def on_acks(self, count: int) -> None:
        """Note that `count` deliveries were acknowledged; `ack_receiver` calls this per buffer."""
        self.progress.last_acked_ns = self.progress.clock.now_ns()
        self._consumers.state_writer.mark(self)
        limit = self.progress.config.max_ack_pending
        if 0 < limit <= len(self.progress.pending) + count:
            self.pump()

    def reset(self, seq: int) -> int:
        """Start again at a stream sequence, 0: behind the ack floor; return the sequence.

        Raise ApiError if the configuration does not allow the sequence.
        """
        stream_seq = self.progress.reset(seq)
        if self.letters is not None:
            self.letters.forget()
        self._consumers.state_writer.mark(self)
        self.pump_soon()
        return stream_seq

    def unpin(self) -> None:
        """Take the pin from its client, so that another of the group is served."""
        if isinstance(self.delivery, PullDelivery):
            self.delivery.unpin("admin")
            self.pump_soon()

    # What becomes of the stream's messages

    def on_purged(self, purged: SubjectFilter | None) -> None:
        """Forget messages that were purged: some or all of a filter's, of all messages if None."""
        self.progress.forget_purged(purged)
        self._consumers.state_writer.mark(self)
        self.pump_soon()

    def on_removed(self, stream_seq: int) -> None:
        """Forget a message that was removed; if it is pending, it is lost."""
        self.progress.forget_removed(stream_seq)
        if stream_seq in self.progress.pending:
            self._apply(self._acks.lose(stream_seq))

    def on_limited(self, first_seq: int, *, everywhere: bool) -> None:
        """Lose pending messages that limits removed: those before `first_seq`, or everywhere."""
        for seq in self.progress.limited(first_seq, everywhere=everywhere):
            self._apply(self._acks.lose(seq))

    # Acting on decisions

    def _apply(self, outcome: AckOutcome) -> None:
        if outcome.done:
            self._on_done(outcome.done)
        elif outcome.late_seq:
            self._consumers.retention.on_late(self.progress.position, outcome.late_seq)
        if outcome.is_changed:
            self._remember(outcome.reply)
        if outcome.wakes:
            self.pump()
        elif outcome.is_put_off:
            self._plan()
        if outcome.terminated is not None:
            self.notices.advise("MSG_TERMINATED", "terminated", outcome.terminated)
        if outcome.request is not None:
            reply, body = outcome.request
            self.request_next(reply, b"", body)

    def _on_done(self, stream_seqs: list[int]) -> None:
        self.progress.last_acked_ns = self.progress.clock.now_ns()
        self._consumers.on_done(stream_seqs)
        keys = self.progress.keys
        if keys is not None and keys.free(stream_seqs):
            self.pump_soon()

    def _remember(self, reply: bytes | None = None) -> None:
        """Save the progress; confirm to `reply` when it is on stable storage."""
        if reply is None:
            self._consumers.state_writer.mark(self)
        else:
            self._consumers.state_writer.mark(self, lambda: self._confirm(reply))

    def _confirm(self, reply: bytes) -> None:
        self.notices.confirm(reply)
        self.stream.host.hub.flush()

    def _expire(self, stream_seqs: list[int]) -> None:
        for expired in self.progress.expire(stream_seqs):
            self._end(expired)

    def _end(self, expired: Expired) -> None:
        """Wait no more for a message that is lost, or was delivered as often as allowed."""
        seq, deliveries, is_lost = expired
        if is_lost:
            self._apply(self._acks.lose(seq))
            return
        fields = {"stream_seq": seq, "deliveries": deliveries}
        self.notices.advise("MAX_DELIVERIES", "max_deliver", fields)
        progress = self.progress
        if self.letters is not None:
            self.letters.owe(seq, deliveries)
        else:
            progress.pending.give_up(seq)
            if progress.keys is not None and progress.keys.free((seq,)):
                self.pump_soon()
            self._consumers.state_writer.mark(self)
        # Kept also for a message that is given up: it stays in the stream until it is removed.
        progress.pending.redelivered[seq] = deliveries

    def _settle(self, stream_seq: int) -> None:
        """Be done with a message whose dead letter has arrived."""
        was_at_limit = self.progress.is_at_ack_limit
        if self.progress.pending.ack(stream_seq):
            self._on_done([stream_seq])
            self._remember()
        if was_at_limit:
            self.pump_soon()

    # Delivering

    def pump(self) -> None:
        """Deliver what can be delivered now."""
        if self.is_closed or self._untold:
            return
        if self._is_pumping:
            # This is a consequence of what is just being sent.
            self.pump_soon()
        else:
            self._is_pumping = True
            try:
                turn = self._take_turns()
            finally:
                self._is_pumping = False
            now_ns = self.progress.clock.now_ns()
            if self.delivery.settle(now_ns, is_at_end=turn.is_at_end) or turn.has_more:
                self.pump_soon()
        self._follow()
        self._plan()

    def _take_turns(self) -> Turn:
        while True:
            turn = self._pump.turn(self.delivery)
            if turn.has_sent:
                self._consumers.state_writer.mark(self)
            if turn.done:
                self._consumers.on_done(turn.done)
            if turn.expired is None:
                return turn
            self._end(turn.expired)

    def _follow(self) -> None:
        # Only consumers that could deliver a message are woken when one comes in.
        if self.delivery.is_wanting and not self.progress.is_at_ack_limit:
            self._consumers.hungry[self] = None
        else:
            self._consumers.hungry.pop(self, None)
        if len(self.progress.pending):
            self._consumers.expecting.setdefault(self, self._consumers.gone_count)

    def pump_soon(self) -> None:
        """Deliver what can be delivered, once everything else had its turn."""
        if not self._is_pump_due and not self.is_closed:
            self._is_pump_due = True
            self.stream.host.loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._is_pump_due = False
        self.pump()
        self.stream.host.hub.flush()

    # Time

    def _plan(self) -> None:
        """Set the timer for what is due next."""
        due_ns = self._pump.due_ns(self.delivery)
        if due_ns is None:
            return
        if self._timer is not None:
            if self._timer_ns <= due_ns:
                return
            self._timer.cancel()
        now_ns = self.progress.clock.now_ns()
        delay_s = min(max((due_ns - now_ns) / 1e9, 0.0005), TIMER_S_MAX)
        self._timer_ns = due_ns
        self._timer = self.stream.host.loop.call_later(delay_s, self._timed)

    def _timed(self) -> None:
        self._timer = None
        if self.is_closed:
            return
        now_ns = self.progress.clock.now_ns()
        if self._is_resting and not self.progress.is_paused(now_ns):
            self._is_resting = False
            self.notices.advise_pause(self.progress)
        if self._pump.is_unused(self.delivery, now_ns):
            self._consumers.delete(self.name)
            self.stream.host.hub.flush()
            return
        self._expire(self.progress.pending.take_due(now_ns))
        self._pump_now()


def _refuses_level(headers: bytes) -> bool:
    """Return True if a request needs a later server."""
    level = value_of(headers, b"Nats-Required-Api-Level")
    if not level:
        return False
    return not (level.isdigit() and int(level[:9]) <= API_LEVEL)
