"""Which message goes next, and how it is sent.

A turn sends up to some number of messages to where they are wanted. Messages to deliver again go
first, then those that were chosen when the consumer was created, then the one at the cursor. A run
of compiled code sends messages that need nothing special. The others are sent one by one: with an
added header, at the pace at which they were stored, within a rate, or if the stream removes each
message once it is delivered.

`turn` returns a `Turn`: what the owner (`consumer`) has to do. A turn is cut short when a message
must be given up or is lost, so that the owner tells of it before anything else is sent.

Thread: the event loop's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.consumer.config.config import ReplayPolicy
from penstock.consumer.delivery import (
    RUN_BEHIND,
    RUN_BYTES,
    RUN_END,
    RUN_NOBODY,
    RUN_UNREAD,
    MessageSender,
)
from penstock.consumer.demand import DeliveryMode, Demand, RateLimit, rate_limit_of
from penstock.consumer.progress import Expired, Progress
from penstock.errors import CorruptStore, RecordNotFound
from penstock.limits import DELIVERY_TURN_MESSAGES
from penstock.protocol.headers import with_added, with_value
from penstock.store.log.block import StoredMessage
from penstock.stream.config.config import RetentionPolicy

if TYPE_CHECKING:
    from penstock.consumer.extensions.key_order import KeyOrder
    from penstock.store.log.fast_scan import Scanner
    from penstock.stream.stream import Stream
    from penstock.subjects import SubjectFilter

SIZE_HEADER = b"Nats-Msg-Size"
_BEHIND_NS = 5_000_000
"""How long a receiver that is far behind is left alone."""

_REPLAY_NS_MIN = 1_000_000
"""Messages that were stored closer to each other than this are delivered at once."""


class Turn(msgspec.Struct):
    """What a turn came to."""

    has_sent: bool = False
    """The progress is to be saved."""

    has_more: bool = False
    """Another turn should follow soon."""

    is_at_end: bool = False
    """Nothing is left to send, as far as messages are concerned."""

    done: list[int] = []
    """Messages that were delivered and need no acknowledgement."""

    expired: Expired | None = None
    """A message that is not delivered again; the turn is to be continued after it is dealt with."""


class Pump:
    """The turns of one consumer; see the module."""

    __slots__ = (
        "_delivery",
        "_is_special",
        "_not_before_ns",
        "_progress",
        "_rate_limit",
        "_replay_up_to",
        "_replayed_ns",
        "_scanner",
        "_sender",
        "_size",
        "_stream",
        "_turn",
    )

    def __init__(
        self, stream: Stream, scanner: Scanner, progress: Progress, sender: MessageSender
    ) -> None:
        self._stream = stream
        self._scanner = scanner
        self._progress = progress
        self._sender = sender
        self._delivery: DeliveryMode
        """Of the turn that runs."""

        self._turn = Turn()
        self._is_special = False
        self._replay_up_to = 0
        """Up to this sequence messages are delivered at the pace at which they were stored."""

        self._replayed_ns: tuple[int, int] | None = None
        """When the last of them was stored, and when it was sent."""

        self._not_before_ns = 0
        """When delivery may go on, if something holds it up; 0 if nothing does."""

        self._rate_limit: RateLimit | None = None
        self._size = 0
        """The size of the message that was sent last."""

    def configure(self) -> None:
        """Apply the configurations of the consumer and of the stream."""
        progress, stream = self._progress, self._stream
        config = progress.config
        if config.replay_policy is ReplayPolicy.ORIGINAL and not self._replay_up_to:
            self._replay_up_to = progress.store.state().last_seq
        size_max = stream.config.max_msg_size
        self._rate_limit = rate_limit_of(
            self._rate_limit,
            config.rate_limit_bps,
            burst_bytes=size_max if size_max > 0 else stream.host.payload_bytes_max,
        )
        awaits_each = stream.config.retention is not RetentionPolicy.LIMITS
        self._is_special = bool(config.rate_limit_bps) or (
            awaits_each and progress.pending.expects_none
        )

    # A turn

    def turn(self, delivery: DeliveryMode) -> Turn:
        """Send what can be sent now, up to a turn's worth of messages."""
        self._delivery = delivery
        turn = self._turn = Turn()
        turn.is_at_end = self._send_turn(turn)
        return turn

    def _send_turn(self, turn: Turn) -> bool:
        """Send messages; return True if nothing else was to be sent."""
        progress = self._progress
        now_ns = progress.clock.now_ns()
        if progress.is_paused(now_ns):
            # A request that does not wait is answered; it does not wait for the end of the pause.
            return True
        if now_ns < self._not_before_ns:
            return False
        self._not_before_ns = 0
        left = DELIVERY_TURN_MESSAGES
        while (demand := self._delivery.demand(now_ns)) is not None:
            if left <= 0:
                turn.has_more = True
                return False
            sent = self._send_some(demand, min(left, demand.count_max), now_ns)
            if turn.expired is not None:
                return False
            if sent is None:
                return not progress.is_at_ack_limit and not self._not_before_ns
            if self._not_before_ns:
                return False
            left -= max(sent, 1)
        return True

    def _send_some(self, demand: Demand, count: int, now_ns: int) -> int | None:
        """Send messages to where they are wanted; None if none can be sent now."""
        progress = self._progress
        if progress.again and (sent := self._send_again(demand, now_ns)):
            return sent
        if self._turn.expired is not None or progress.is_at_ack_limit:
            return None
        if progress.keys is not None:
            return self._send_by_key(progress.keys, demand, now_ns)
        is_plain = not self._is_special and demand.header is None
        if progress.position.chosen:
            return self._send_chosen(demand, count if is_plain else 0, now_ns)
        if not is_plain or self._is_replaying:
            return self._send_next(demand, now_ns)
        return self._run(demand, count, now_ns)

    @property
    def _is_replaying(self) -> bool:
        return self._progress.position.cursor <= self._replay_up_to

    def _run(self, demand: Demand, count: int, now_ns: int) -> int | None:
        progress, sender = self._progress, self._sender
        position = progress.position
        until = progress.store.durable_seq
        if position.cursor > until:
            return None
        outcome = self._carry(demand, progress.subjects, position.cursor, until, count, now_ns)
        position.cursor = sender.cursor
        progress.counting.delivered(sender.sent, sender.cursor)
        sent = self._note_run(outcome, now_ns)
        if outcome == RUN_UNREAD:
            return sent or self._send_next(demand, now_ns)
        return None if outcome in (RUN_BEHIND, RUN_END) else sent

    def _carry(
        self,
        demand: Demand,
        subjects: SubjectFilter | None,
        cursor: int,
        until: int,
        count: int,
        now_ns: int,
        chosen: list[int] | None = None,
    ) -> int:
        """Have compiled code send messages, or those `chosen`; return why it stopped."""
        progress = self._progress
        limit = progress.config.max_ack_pending
        if limit > 0 and not progress.pending.expects_none:
            count = min(count, limit - len(progress.pending))
        return self._sender.run(
            self._scanner,
            demand.target,
            subjects,
            cursor=cursor,
            until=until,
            count_max=count,
            bytes_max=demand.bytes_max,
            first_goes=demand.first_goes,
            consumer_seq=progress.pending.delivered_consumer_seq + 1,
            num_pending=progress.num_pending(),
            pending=progress.pending,
            now_ns=now_ns,
            targets=demand.targets,
            headers_only=progress.config.headers_only,
            chosen=chosen,
        )

    def _note_run(self, outcome: int, now_ns: int) -> int:
        """Note how a run ended; return how many messages were sent."""
        sender, delivery = self._sender, self._delivery
        sent = sender.sent
        if sent:
            self._note(sent, sender.sent_bytes, now_ns)
        if outcome == RUN_BYTES and not sent:
            delivery.too_large()
        elif outcome == RUN_NOBODY:
            if not sent or delivery.is_wanting:
                delivery.no_subscriber()
        elif outcome == RUN_BEHIND:
            self._not_before_ns = now_ns + _BEHIND_NS
        return sent

    def _note(self, count: int, size: int, now_ns: int) -> None:
        self._progress.last_delivered_ns = now_ns
        self._delivery.sent(count, size, now_ns)
        self._turn.has_sent = True

    # One by one

    def _send_again(self, demand: Demand, now_ns: int) -> int:
        """Send the first message that must be delivered again; 0 if there is none any more.

        If that message is given up or lost, note it in the turn and return 0.
        """
        progress = self._progress
        again = progress.again
        while again:
            seq = again.first
            if not progress.pending.is_queued(seq):
                again.drop_first()
                continue
            deliveries = progress.deliveries_of(seq) + 1
            if 0 < progress.config.max_deliver < deliveries:
                again.drop_first()
                self._turn.expired = Expired(seq, deliveries - 1, is_lost=False)
                return 0
            try:
                message = progress.store.load(seq)
            except (RecordNotFound, CorruptStore):
                again.drop_first()
                self._turn.expired = Expired(seq, deliveries - 1, is_lost=True)
                return 0
            if self._send(message, demand, deliveries, now_ns):
                again.drop_first()
                self._note_one(message, now_ns)
            return 1
        return 0

    def _send_chosen(self, demand: Demand, run_max: int, now_ns: int) -> int | None:
        """Send some of the messages that were chosen: one, or up to `run_max` by a run."""
        chosen = self._progress.position.chosen
        durable_seq = self._progress.store.durable_seq
        if chosen[-1] > durable_seq:
            return None
        if not run_max:
            return self._send_one_chosen(demand, now_ns)
        outcome = self._carry(demand, None, chosen[-1], durable_seq, run_max, now_ns, chosen)
        sent = self._note_run(outcome, now_ns)
        if outcome == RUN_UNREAD:
            return sent or self._send_one_chosen(demand, now_ns)
        return None if outcome == RUN_BEHIND else max(sent, 1)

    def _send_one_chosen(self, demand: Demand, now_ns: int) -> int | None:
        chosen = self._progress.position.chosen
        seq = chosen.pop()
        try:
            message = self._progress.store.load(seq)
        except (RecordNotFound, CorruptStore):
            return 0
        if self._send(message, demand, 1, now_ns):
            self._note_one(message, now_ns)
        else:
            chosen.append(seq)
        return 1

    def _send_by_key(self, keys: KeyOrder, demand: Demand, now_ns: int) -> int | None:
        held = keys.advance()
        message = keys.upcoming
        if message is None:
            return held or None
        left = max(self._progress.num_pending() - 1, 0)
        if self._send(message, demand, 1, now_ns, pending=left):
            keys.sent(message)
            self._note_one(message, now_ns)
        return held + 1

    def _send_next(self, demand: Demand, now_ns: int) -> int | None:
        progress = self._progress
        position, durable_seq = progress.position, progress.store.durable_seq
        try:
            message = progress.store.load_next(position.cursor, progress.subjects)
        except RecordNotFound:
            position.cursor = max(position.cursor, durable_seq + 1)
            return None
        if message.seq > durable_seq:
            return None
        if self._is_replaying and self._must_wait(message, now_ns):
            return None
        before, total = position.cursor, progress.num_pending()
        position.cursor = message.seq + 1
        if not self._send(message, demand, 1, now_ns, pending=max(total - 1, 0)):
            position.cursor = before
            return 1
        progress.counting.delivered(1, position.cursor)
        self._replayed_ns = (message.timestamp_ns, now_ns)
        self._note_one(message, now_ns)
        return None if self._not_before_ns else 1

    def _must_wait(self, message: StoredMessage, now_ns: int) -> bool:
        if self._replayed_ns is None:
            return False
        stored_ns, sent_ns = self._replayed_ns
        apart_ns = message.timestamp_ns - stored_ns
        if apart_ns <= _REPLAY_NS_MIN or now_ns >= sent_ns + apart_ns:
            return False
        self._not_before_ns = sent_ns + apart_ns
        return True

    def _send(
        self,
        message: StoredMessage,
        demand: Demand,
        deliveries: int,
        now_ns: int,
        *,
        pending: int | None = None,
    ) -> bool:
        """Send one message; return False if it was not taken, after noting why."""
        progress = self._progress
        headers, body = message.headers, message.payload
        if progress.config.headers_only:
            headers = with_added(headers, SIZE_HEADER, b"%d" % len(body))
            body = b""
        consumer_seq = progress.pending.delivered_consumer_seq + 1
        reply = self._sender.reply_to(
            deliveries,
            message.seq,
            consumer_seq,
            message.timestamp_ns,
            progress.num_pending() if pending is None else pending,
        )
        subject = message.subject
        size = len(subject) + len(reply) + len(headers) + len(body)
        if 0 <= demand.bytes_max < size and not demand.first_goes:
            self._delivery.too_large()
            return False
        if demand.header is not None:
            headers = with_value(headers, *demand.header)
        if self._sender.is_behind(demand.target):
            self._not_before_ns = now_ns + _BEHIND_NS
            return False
        limit = self._rate_limit
        if limit is not None and (wait_ns := limit.wait_ns(size, now_ns)):
            self._not_before_ns = now_ns + wait_ns
            return False
        hub, sublist = self._stream.host.hub, self._stream.sublist
        if not hub.publish_as(sublist, demand.target, subject, reply, headers, body):
            self._delivery.no_subscriber()
            return False
        if deliveries > 1:
            progress.pending.redelivered[message.seq] = deliveries - 1
        progress.pending.deliver(message.seq, consumer_seq, now_ns)
        self._size = size
        if limit is not None:
            limit.spend(size)
        return True

    def _note_one(self, message: StoredMessage, now_ns: int) -> None:
        self._note(1, self._size, now_ns)
        if self._progress.pending.expects_none:
            self._turn.done.append(message.seq)

    # Time

    def due_ns(self, delivery: DeliveryMode) -> int | None:
        """Return when the consumer's timer must go off next; None if nothing is due."""
        progress = self._progress
        now_ns = progress.clock.now_ns()
        times_ns = [progress.pending.next_due_ns(), delivery.due_ns()]
        if self._not_before_ns:
            times_ns.append(self._not_before_ns)
        if until_ns := progress.paused_until_ns(now_ns):
            times_ns.append(until_ns)
        if progress.config.inactive_threshold > 0:
            unused_ns = progress.config.inactive_threshold
            times_ns.append(self._used_until_ns(delivery, now_ns) + unused_ns)
        return min((each for each in times_ns if each is not None), default=None)

    def is_unused(self, delivery: DeliveryMode, now_ns: int) -> bool:
        """Return True if no client was there for so long that the consumer is removed."""
        threshold_ns = self._progress.config.inactive_threshold
        if threshold_ns <= 0:
            return False
        return now_ns >= self._used_until_ns(delivery, now_ns) + threshold_ns

    def _used_until_ns(self, delivery: DeliveryMode, now_ns: int) -> int:
        """Return until when a client was there, or may be at work on what it was given."""
        config, pending = self._progress.config, self._progress.pending
        used_ns = delivery.used_until_ns(now_ns)
        if used_ns + config.inactive_threshold > now_ns or config.is_push:
            return used_ns
        last = len(pending.waits_ns) - 1
        for seq, _, time_ns in pending.entries():
            again = pending.redelivered.get(seq, 0)
            used_ns = max(used_ns, time_ns + pending.waits_ns[min(again, last)])
        return used_ns
