"""Which message goes next, and how it is sent.

A turn of a consumer sends up to some number of messages to where they are wanted, and goes on
later if there is more. What must be delivered again goes first, then what was chosen when the
consumer was made, then what is at its cursor. A run of compiled code sends whatever wants nothing
special; the rest is sent one by one: with one more header, at the pace at which it was stored,
within a rate, or where the stream waits for each single message.

One thread: the event loop's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.consumer.config import ReplayPolicy
from penstock.consumer.delivery import (
    RUN_BEHIND,
    RUN_BYTES,
    RUN_END,
    RUN_NOBODY,
    RUN_UNREAD,
)
from penstock.consumer.demand import Demand
from penstock.consumer.rate_limit import RateLimit, rate_limit_of
from penstock.consumer.removals import on_lost
from penstock.errors import CorruptStore, RecordNotFound
from penstock.limits import DELIVERY_TURN_MESSAGES
from penstock.store.block_files import StoredMessage
from penstock.stream.config import RetentionPolicy
from penstock.stream.headers import with_added, with_value

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer
    from penstock.consumer.key_order import KeyOrder
    from penstock.subjects import SubjectFilter

SIZE_HEADER = b"Nats-Msg-Size"
_BEHIND_NS = 5_000_000
"""How long a receiver that is far behind is left alone."""

_REPLAY_NS_MIN = 1_000_000
"""Messages that were stored closer to each other than this are delivered at once."""


class Pump:
    """The turns of one consumer; see the module."""

    __slots__ = (
        "_consumer",
        "_is_running",
        "_is_special",
        "_not_before_ns",
        "_rate_limit",
        "_replay_up_to",
        "_replayed_ns",
        "_size",
    )

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._is_running = False
        self._is_special = False
        self._replay_up_to = 0
        """Up to this sequence messages are delivered at their own pace."""

        self._replayed_ns: tuple[int, int] | None = None
        """When the last of them was stored, and when it was sent."""

        self._not_before_ns = 0
        """When it may go on, where something holds it up; 0 where nothing does."""

        self._rate_limit: RateLimit | None = None
        self._size = 0
        """Of the message sent last."""

    def configure(self) -> None:
        """Take over the consumer's configuration."""
        consumer = self._consumer
        config = consumer.config
        if config.replay_policy is ReplayPolicy.ORIGINAL and not self._replay_up_to:
            self._replay_up_to = consumer.stream.store.state().last_seq
        size_max = consumer.stream.config.max_msg_size
        self._rate_limit = rate_limit_of(
            self._rate_limit,
            config.rate_limit_bps,
            burst_bytes=size_max if size_max > 0 else consumer.host.payload_bytes_max,
        )
        awaits_each = consumer.stream.config.retention is not RetentionPolicy.LIMITS
        self._is_special = bool(config.rate_limit_bps) or (
            awaits_each and consumer.pending.expects_none
        )

    # A turn

    def run(self) -> None:
        """Deliver what can be delivered now; come back soon if there is more."""
        consumer = self._consumer
        if self._is_running:
            # This is a consequence of what it is just sending.
            consumer.pump_soon()
            return
        self._is_running = True
        try:
            is_at_end = self._turn()
        finally:
            self._is_running = False
        consumer.outlet.settle(consumer.clock.now_ns(), is_at_end=is_at_end)

    def _turn(self) -> bool:
        """Send up to a turn's worth of messages; tell whether nothing else was to be sent."""
        consumer = self._consumer
        now_ns = consumer.clock.now_ns()
        if consumer.is_paused(now_ns):
            # Who does not want to wait is not left waiting for the end of the rest.
            return True
        if now_ns < self._not_before_ns:
            return False
        self._not_before_ns = 0
        left = DELIVERY_TURN_MESSAGES
        while (demand := consumer.outlet.demand(now_ns)) is not None:
            if left <= 0:
                consumer.pump_soon()
                return False
            sent = self._send_some(demand, min(left, demand.count_max), now_ns)
            if sent is None:
                return not consumer.is_at_ack_limit and not self._not_before_ns
            if self._not_before_ns:
                return False
            left -= max(sent, 1)
        return True

    def _send_some(self, demand: Demand, count: int, now_ns: int) -> int | None:
        """Send messages to where they are wanted; None where none can be sent now."""
        consumer = self._consumer
        if consumer.again and (sent := self._send_again(demand, now_ns)):
            return sent
        if consumer.is_at_ack_limit:
            return None
        if consumer.keys is not None:
            return self._send_by_key(consumer.keys, demand, now_ns)
        is_plain = not self._is_special and demand.header is None
        if consumer.chosen:
            return self._send_chosen(demand, count if is_plain else 1, now_ns)
        if not is_plain or self._is_replaying:
            return self._send_next(demand, now_ns)
        return self._run(demand, count, now_ns)

    @property
    def _is_replaying(self) -> bool:
        return self._consumer.cursor <= self._replay_up_to

    def _run(self, demand: Demand, count: int, now_ns: int) -> int | None:
        consumer = self._consumer
        until = consumer.stream.store.durable_seq
        if consumer.cursor > until:
            return None
        outcome = self._carry(demand, consumer.subjects, consumer.cursor, until, count, now_ns)
        courier = consumer.courier
        consumer.cursor = courier.cursor
        consumer.counting.delivered(courier.sent, courier.cursor)
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
    ) -> int:
        """Have compiled code send messages; tell why it came to an end."""
        consumer = self._consumer
        limit = consumer.config.max_ack_pending
        if limit > 0 and not consumer.pending.expects_none:
            count = min(count, limit - len(consumer.pending))
        return consumer.courier.run(
            consumer.consumers.outtake,
            demand.target,
            subjects,
            cursor=cursor,
            until=until,
            count_max=count,
            bytes_max=demand.bytes_max,
            first_goes=demand.first_goes,
            consumer_seq=consumer.pending.delivered_consumer_seq + 1,
            num_pending=consumer.num_pending(),
            pending=consumer.pending,
            now_ns=now_ns,
            targets=demand.targets,
            headers_only=consumer.config.headers_only,
        )

    def _note_run(self, outcome: int, now_ns: int) -> int:
        """Tell the outlet what a run came to; give how many messages were sent."""
        consumer = self._consumer
        courier = consumer.courier
        sent = courier.sent
        if sent:
            self._note(sent, courier.sent_bytes, now_ns)
        if outcome == RUN_BYTES and not sent:
            consumer.outlet.too_large()
        elif outcome == RUN_NOBODY:
            if not sent or consumer.outlet.is_wanting:
                consumer.outlet.nobody()
        elif outcome == RUN_BEHIND:
            self._not_before_ns = now_ns + _BEHIND_NS
        return sent

    def _note(self, count: int, size: int, now_ns: int) -> None:
        consumer = self._consumer
        consumer.last_delivered_ns = now_ns
        consumer.outlet.sent(count, size, now_ns)
        consumer.consumers.keeper.mark(consumer)

    # One by one

    def _send_again(self, demand: Demand, now_ns: int) -> int:
        """Send the first message that must be delivered again; 0 where there is none any more."""
        consumer = self._consumer
        pending = consumer.pending
        while consumer.again:
            seq = consumer.again.first
            if not pending.is_queued(seq):
                consumer.again.drop_first()
                continue
            deliveries = pending.redelivered.get(seq, 0) + 2
            if 0 < consumer.config.max_deliver < deliveries:
                consumer.again.drop_first()
                consumer.give_up(seq, deliveries - 1)
                pending.redelivered[seq] = deliveries - 1
                continue
            try:
                message = consumer.stream.store.load(seq)
            except (RecordNotFound, CorruptStore):
                consumer.again.drop_first()
                on_lost(consumer, seq)
                continue
            if self._send(message, demand, deliveries, now_ns):
                consumer.again.drop_first()
                self._note_one(message, now_ns)
            return 1
        return 0

    def _send_chosen(self, demand: Demand, count: int, now_ns: int) -> int | None:
        consumer = self._consumer
        chosen = consumer.chosen
        seq = chosen[-1]
        durable_seq = consumer.stream.store.durable_seq
        if seq > durable_seq:
            return None
        # Those that follow each other in the stream go together.
        together = 1
        while together < min(count, len(chosen)) and chosen[-1 - together] == seq + together:
            together += 1
        last_seq = min(seq + together - 1, durable_seq)
        if last_seq > seq:
            sent = self._run_chosen(demand, seq, last_seq, now_ns)
            if sent != 0:
                return sent
        return self._send_one_chosen(demand, now_ns)

    def _run_chosen(self, demand: Demand, seq: int, last_seq: int, now_ns: int) -> int | None:
        """Send chosen messages that follow each other; 0 where the first must go by itself."""
        consumer = self._consumer
        count = last_seq - seq + 1
        outcome = self._carry(demand, None, seq, last_seq, count, now_ns)
        while consumer.chosen and consumer.chosen[-1] < consumer.courier.cursor:
            consumer.chosen.pop()
        sent = self._note_run(outcome, now_ns)
        if outcome == RUN_UNREAD:
            return sent
        return None if outcome == RUN_BEHIND else max(sent, 1)

    def _send_one_chosen(self, demand: Demand, now_ns: int) -> int | None:
        consumer = self._consumer
        seq = consumer.chosen.pop()
        try:
            message = consumer.stream.store.load(seq)
        except (RecordNotFound, CorruptStore):
            return 0
        if self._send(message, demand, 1, now_ns):
            self._note_one(message, now_ns)
        else:
            consumer.chosen.append(seq)
        return 1

    def _send_by_key(self, keys: KeyOrder, demand: Demand, now_ns: int) -> int | None:
        held = keys.advance()
        message = keys.upcoming
        if message is None:
            return held or None
        left = max(self._consumer.num_pending() - 1, 0)
        if self._send(message, demand, 1, now_ns, pending=left):
            keys.sent(message)
            self._note_one(message, now_ns)
        return held + 1

    def _send_next(self, demand: Demand, now_ns: int) -> int | None:
        consumer = self._consumer
        durable_seq = consumer.stream.store.durable_seq
        try:
            message = consumer.stream.store.load_next(consumer.cursor, consumer.subjects)
        except RecordNotFound:
            consumer.cursor = max(consumer.cursor, durable_seq + 1)
            return None
        if message.seq > durable_seq:
            return None
        if self._is_replaying and self._must_wait(message, now_ns):
            return None
        before, total = consumer.cursor, consumer.num_pending()
        consumer.cursor = message.seq + 1
        if not self._send(message, demand, 1, now_ns, pending=max(total - 1, 0)):
            consumer.cursor = before
            return 1
        consumer.counting.delivered(1, consumer.cursor)
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
        """Send one message; False where it was not taken, and the demand is dealt with."""
        consumer = self._consumer
        headers, body = message.headers, message.payload
        if consumer.config.headers_only:
            headers = with_added(headers, SIZE_HEADER, b"%d" % len(body))
            body = b""
        consumer_seq = consumer.pending.delivered_consumer_seq + 1
        reply = consumer.courier.reply_to(
            deliveries,
            message.seq,
            consumer_seq,
            message.timestamp_ns,
            consumer.num_pending() if pending is None else pending,
        )
        subject = message.subject
        size = len(subject) + len(reply) + len(headers) + len(body)
        if 0 <= demand.bytes_max < size and not demand.first_goes:
            consumer.outlet.too_large()
            return False
        if demand.header is not None:
            headers = with_value(headers, *demand.header)
        if consumer.courier.is_behind(demand.target):
            self._not_before_ns = now_ns + _BEHIND_NS
            return False
        limit = self._rate_limit
        if limit is not None and (wait_ns := limit.wait_ns(size, now_ns)):
            self._not_before_ns = now_ns + wait_ns
            return False
        sublist = consumer.stream.sublist
        if not consumer.host.hub.publish_as(sublist, demand.target, subject, reply, headers, body):
            consumer.outlet.nobody()
            return False
        if deliveries > 1:
            consumer.pending.redelivered[message.seq] = deliveries - 1
        consumer.pending.deliver(message.seq, consumer_seq, now_ns)
        self._size = size
        if limit is not None:
            limit.spend(size)
        return True

    def _note_one(self, message: StoredMessage, now_ns: int) -> None:
        self._note(1, self._size, now_ns)
        if self._consumer.pending.expects_none:
            self._consumer.consumers.on_done([message.seq])

    # Time

    def look_at_deadlines(self, now_ns: int) -> None:
        """Have delivered again what was not acknowledged in time."""
        self.expire(self._consumer.pending.take_due(now_ns))

    def expire(self, stream_seqs: list[int]) -> None:
        """Have pending messages delivered again, unless they are lost or were often enough."""
        consumer = self._consumer
        limit = consumer.config.max_deliver
        first_seq = consumer.stream.store.state().first_seq
        due: list[int] = []
        for seq in stream_seqs:
            deliveries = consumer.pending.redelivered.get(seq, 0) + 1
            if seq < first_seq:
                on_lost(consumer, seq)
            elif 0 < limit <= deliveries:
                consumer.give_up(seq, deliveries)
                consumer.pending.redelivered[seq] = deliveries
            else:
                due.append(seq)
        consumer.again.add(seq for seq in due if consumer.pending.queue(seq))

    def due_ns(self) -> int | None:
        """Tell when the timer must go off next."""
        consumer = self._consumer
        now_ns = consumer.clock.now_ns()
        times_ns = [consumer.pending.next_due_ns(), consumer.outlet.due_ns()]
        if self._not_before_ns:
            times_ns.append(self._not_before_ns)
        if until_ns := consumer.paused_until_ns(now_ns):
            times_ns.append(until_ns)
        if consumer.config.inactive_threshold > 0:
            times_ns.append(self._used_until_ns(now_ns) + consumer.config.inactive_threshold)
        return min((each for each in times_ns if each is not None), default=None)

    def is_forgotten(self, now_ns: int) -> bool:
        """Whether nobody was there for so long that the consumer goes."""
        threshold_ns = self._consumer.config.inactive_threshold
        if threshold_ns <= 0:
            return False
        return now_ns >= self._used_until_ns(now_ns) + threshold_ns

    def _used_until_ns(self, now_ns: int) -> int:
        """Tell until when a client was there, or may be at work on what it got."""
        consumer = self._consumer
        used_ns = consumer.outlet.used_until_ns(now_ns)
        if used_ns + consumer.config.inactive_threshold > now_ns or consumer.config.is_push:
            return used_ns
        pending = consumer.pending
        last = len(pending.waits_ns) - 1
        for seq, _, time_ns in pending.entries():
            again = pending.redelivered.get(seq, 0)
            used_ns = max(used_ns, time_ns + pending.waits_ns[min(again, last)])
        return used_ns
