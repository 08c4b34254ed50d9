"""The Python half of a stream's publish path: judge a message, store it, answer its publisher.

The compiled half (`ingest.pyx`) stores most messages by itself and calls here for what is rare.
This is the one owner of the parts: they decide and return, this module applies.

    rules                 whether a message may be stored; the compiled half has the same
    judge                 the same for messages of a batch, in their order
    refusals              why a message is refused, in words
    writer                storing, and what follows from it
    atomic_batches        which atomic batches are open, and when one is complete
    fast_batches          how far fast batches are, and what their publishers are answered
    message_id_recovery   ids from before a restart; messages held until they are known
    schedules             messages that are published later

Invariants: no answer overtakes that of an earlier message, refusals included. A message is answered
and published again only when it is durable.

Thread: the event loop's. The stream calls it, and so do the feeds of mirrors and sources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import ApiError
from penstock.limits import MESSAGE_IDS_PRUNE_S_MIN
from penstock.protocol.headers import value_of
from penstock.routing.sublist import Sublist
from penstock.store.filestore import FileStore
from penstock.stream.config.config import DiscardPolicy, RetentionPolicy, StreamConfig
from penstock.stream.consumers_port import ConsumersPort
from penstock.stream.publish import counters, markers
from penstock.stream.publish.atomic_batches import AtomicBatches, CommittedBatch, torn_batch
from penstock.stream.publish.batches import (
    TIMEOUT,
    BatchAbandoned,
    ack_part,
    refusal_body,
)
from penstock.stream.publish.facts import StreamFacts
from penstock.stream.publish.fast_batches import (
    FAST_BATCH_END,
    Arrival,
    FastBatches,
    FlowAnswer,
)
from penstock.stream.publish.ingest import Ingest
from penstock.stream.publish.judge import BatchJudge, judge
from penstock.stream.publish.message import BATCH_ID, IncomingMessage, OriginPosition
from penstock.stream.publish.message_id_recovery import Held, MessageIdRecovery
from penstock.stream.publish.message_ids import MessageIds
from penstock.stream.publish.message_rules import MessageRules
from penstock.stream.publish.refusals import DUPLICATE, AlreadyStored, trace_reason
from penstock.stream.publish.writer import MessageWriter
from penstock.stream.quota import StorageQuota
from penstock.stream.schedule.schedules import Schedules
from penstock.stream.timers import DueTimer, ExpiryTimer

if TYPE_CHECKING:
    from penstock.stream.stream import StreamHost


class Publishing:
    """The publish path of one stream in Python; see the module."""

    def __init__(
        self,
        host: StreamHost,
        sublist: Sublist,
        config: StreamConfig,
        store: FileStore,
        ingest: Ingest,
        message_ids: MessageIds,
        *,
        consumers: Callable[[], ConsumersPort],
        quota: Callable[[], StorageQuota],
        expiry: ExpiryTimer,
    ) -> None:
        """`consumers` and `quota` return the stream's consumers and what it may still store."""
        self._host = host
        self._sublist = sublist
        self._store = store
        self._ingest = ingest
        self._quota = quota
        self._expiry = expiry
        self.message_ids = message_ids
        self.schedules = Schedules()
        self.message_id_recovery = MessageIdRecovery(message_ids, store, host.clock)
        self.rules = MessageRules(
            config,
            store,
            message_ids,
            read_ids=self.message_id_recovery.read_all,
            payload_bytes_max=lambda: host.payload_bytes_max,
        )
        self._facts = StreamFacts(
            config, store, host.clock, message_ids, self.rules, reserve=self._reserve
        )
        self.writer = MessageWriter(
            host,
            self._facts,
            ingest,
            message_ids,
            self.schedules,
            consumers=consumers,
            expiry=expiry,
        )
        self._atomic_batches = AtomicBatches(
            self._facts, host.batch_quota, host.clock, ingest.open_batches
        )
        self._fast_batches = FastBatches(self._facts, host.batch_quota, host.clock, ingest.ack)
        self._timer = DueTimer(host, self._due_in_s, self._run_due)
        self._recovery_turn: asyncio.Handle | None = None
        self._is_pruning = False
        """Whether ids older than the window are left to be removed."""

        self._configure(config)

    def _configure(self, config: StreamConfig) -> None:
        self._facts.configure(config)
        self.message_ids.window_ns = config.duplicate_window
        self._judges_all = (
            config.sealed
            or config.allow_msg_counter
            or config.allow_msg_schedules
            or config.retention is RetentionPolicy.INTEREST
            or config.subject_transform is not None
            or config.republish is not None
        )

    @property
    def is_careful(self) -> bool:
        """Whether every message must be judged here, whatever it says."""
        return self._facts.config.allow_msg_schedules or self.message_id_recovery.is_under_way

    @property
    def judges_all(self) -> bool:
        """Whether rules concern every message, so that none may be stored without a look."""
        return self._judges_all or self.message_id_recovery.is_under_way

    # Start and stop

    def start(self) -> None:
        """Undo a torn batch, and find the stream's schedules."""
        if self._facts.config.mirror is None:
            self._undo(torn_batch(self._store))
        if not self._store.state().last_seq:
            self.message_ids.is_ready = True
        self._find_schedules()

    def update(self, config: StreamConfig) -> None:
        """Go over to another configuration."""
        self._configure(config)
        self._find_schedules()

    def on_failed(self) -> None:
        """Know no message that was not stored after all: the store has failed."""
        self.message_ids.clear()
        self.message_ids.is_ready = True
        self._fast_batches.clear()

    def on_reopened(self) -> None:
        """Find out again what the stream holds: its store was reopened."""
        self.message_id_recovery.begin_again()
        self.rules.configure(self._facts.config)
        self.start()

    def stop(self) -> None:
        """Drop open batches and held messages; run no timer again."""
        self._timer.stop()
        self.message_id_recovery.stop()
        if self._recovery_turn is not None:
            self._recovery_turn.cancel()
        self._atomic_batches.clear()
        self._fast_batches.clear()

    def _undo(self, torn: range) -> None:
        if torn:
            removed = sum(self._store.remove(seq) for seq in torn)
            text = f"{removed} messages of a batch that was cut short were removed"
            self._host.log("WRN", f"JetStream stream {self._facts.config.name!r}: {text}")

    def _find_schedules(self) -> None:
        if self._facts.config.allow_msg_schedules:
            self.schedules.recover(self._store, self._facts.now_ns())
            self._timer.plan()

    # Messages of clients

    def take(self, message: IncomingMessage, reply: bytes | None) -> None:
        """Store a message or refuse it, and answer its publisher.

        While message ids are being read, the message is held and judged in its turn.
        """
        recovery = self.message_id_recovery
        if not recovery.holds(message, reply):
            self._take(message, reply)
        elif recovery.is_full:
            self._take_all(recovery.read_rest())
        elif self._recovery_turn is None:
            self._ingest.careful = True
            self._plan_recovery()

    def _plan_recovery(self) -> None:
        self._recovery_turn = self._host.loop.call_soon(self._recover_ids)

    def _recover_ids(self) -> None:
        self._take_all(self.message_id_recovery.read_slice())
        if self.message_id_recovery.is_under_way:
            self._plan_recovery()
        else:
            self._recovery_turn = None
            self._ingest.careful = self.is_careful
        self._host.hub.flush()

    def _take_all(self, held: Iterable[Held]) -> None:
        for message, reply in held:
            self._take(message, reply)

    def _take(self, message: IncomingMessage, reply: bytes | None) -> None:
        if reply is not None and reply.endswith(FAST_BATCH_END):
            self._take_fast(message, reply)
        elif batch_id := value_of(message.headers, BATCH_ID):
            self._take_atomic(batch_id, message, reply)
        else:
            self._publish(message, reply)
        if message.trace is not None:
            message.trace.finish()

    def _publish(self, message: IncomingMessage, reply: bytes | None) -> None:
        """Store a single message or refuse it, and answer its publisher."""
        try:
            self.judge(message)
            self._trace_accepted(message)
            if message.is_only_traced:
                return
            seq = self.writer.keep(message)
        except AlreadyStored as known:
            if message.trace is not None:
                message.trace.refuse(DUPLICATE)
            self._answer(reply, known.seq, self._ingest.duplicate_ack(known.seq))
            return
        except ApiError as error:
            self._refuse(reply, error, message)
            return
        more = counters.ack_value(message) if self._facts.config.allow_msg_counter else b""
        self._answer(reply, seq, self._ingest.ack(seq, more))
        self.on_stored()

    def _take_atomic(self, batch_id: bytes, message: IncomingMessage, reply: bytes | None) -> None:
        """Add a message to an atomic batch, store the batch if that commits it, and answer."""
        body, seq = b"", 0
        try:
            number = self._atomic_batches.check(batch_id, message)
            if not message.is_only_traced:
                committed = self._atomic_batches.add(
                    batch_id, number, message, takes_plain=self._takes_plain()
                )
                if committed is not None:
                    seq = self._commit(committed)
                    count = len(committed.entries)
                    body = self._ingest.ack(seq, ack_part(batch_id, count))
        except ApiError as error:
            if isinstance(error, BatchAbandoned):
                self._advise_abandoned(batch_id, error.reason)
            self._refuse(reply, error, message)
            return
        self._trace_accepted(message)
        if message.is_only_traced:
            return
        if number == 1:
            self._timer.plan()
        self._answer(reply, seq, body)
        if seq:
            self.on_stored()

    def _takes_plain(self) -> bool:
        """Return True if plain members of atomic batches need not be judged one by one.

        They are like single messages that are stored without a look; but limits that refuse new
        messages count them one by one.
        """
        return not self.judges_all and self._facts.config.discard is not DiscardPolicy.NEW

    def _commit(self, batch: CommittedBatch) -> int:
        """Judge and store a batch; return the last sequence. Raise ApiError."""
        batch.begin(takes_plain=self._takes_plain())
        messages = [each for each in batch.entries if isinstance(each, IncomingMessage)]
        for message in messages:
            self._rename(message)
        batch.judge(BatchJudge(self._facts))
        batch.mark_end()
        if len(messages) < len(batch.entries):
            return self.writer.store_members(batch.entries, messages)
        if all(map(self.writer.is_wanted, messages)):
            return self.writer.store(messages)
        seq = 0
        for message in messages:
            # Some are not wanted, and those that are need not be kept together.
            seq = self.writer.keep(message)
        return seq

    def _take_fast(self, message: IncomingMessage, reply: bytes) -> None:
        """Take a message of a fast batch, and answer its publisher if it is time to."""
        try:
            position = self._fast_batches.check(message, reply)
            if message.is_only_traced:
                self._trace_accepted(message)
                return
            arrival = self._fast_batches.arrive(position, message)
        except ApiError as error:
            self._refuse(reply, error, message)
            return
        if position.seq == 1:
            self._timer.plan()
        self._answer_all(reply, arrival.answers)
        if arrival.is_to_store:
            self._store_fast(arrival, message, reply)

    def _store_fast(self, arrival: Arrival, message: IncomingMessage, reply: bytes) -> None:
        batches = self._fast_batches
        try:
            self._rename(message)
            BatchJudge(self._facts).add(message)
            if not self._has_expected_id(message, reply):
                batches.stuck(arrival)
                return
            seq = self.writer.keep(message)
        except AlreadyStored as known:
            self._trace_refused(message, known)
            self._answer_all(reply, batches.duplicate(arrival, known.seq))
            return
        except ApiError as error:
            self._trace_refused(message, error)
            self._answer_all(reply, batches.refused(arrival, error))
            return
        self._trace_accepted(message)
        self._answer_all(reply, batches.stored(arrival, seq))
        self.on_stored()

    def _has_expected_id(self, message: IncomingMessage, reply: bytes) -> bool:
        """Check the stream's last id; a message of a batch is refused for it like a single one."""
        try:
            self.rules.check_last_id(message)
        except ApiError as error:
            self._refuse(reply, error, message)
            return False
        return True

    # Messages of origins, which get no answer

    def judge(self, message: IncomingMessage) -> None:
        """Transform a message's subject, and check it by all rules; raise ApiError.

        Raise AlreadyStored if the stream has a message with its id.
        """
        self._rename(message)
        judge(message, self._facts)

    def store_copies(self, messages: Sequence[IncomingMessage]) -> int:
        """Store judged messages, all of them or none; return the last sequence."""
        return self.writer.store(messages)

    def store_copy(self, message: IncomingMessage) -> int:
        """Store a judged message, or skip it if no consumer wants it; return its sequence."""
        return self.writer.keep(message)

    def store_at(self, message: IncomingMessage, position: OriginPosition) -> None:
        """Store a judged message with its origin's sequence and time, or leave a gap there."""
        if self.writer.is_wanted(message):
            self.writer.store([message], position=position)
        else:
            self._store.skip(position.seq - self._store.last_seq)

    # What the rules are given

    def _rename(self, message: IncomingMessage) -> None:
        message.subject = self.rules.renamed(message.subject)

    def _reserve(self, size: int) -> None:
        """Take bytes of what may still be stored; raise ApiError if there are not enough."""
        ingest = self._ingest
        if size > ingest.bytes_left:
            ingest.bytes_left = self._quota().grant_with(size)
        ingest.bytes_left -= size

    # Answers

    def _answer(self, reply: bytes | None, seq: int, body: bytes) -> None:
        """Answer a publisher when a sequence is durable; 0: as soon as all before it is."""
        if reply is not None and not self._facts.config.no_ack:
            self._ingest.hold(seq, reply, body)

    def _answer_all(self, reply: bytes, answers: Sequence[FlowAnswer]) -> None:
        for each in answers:
            if not (each.heeds_no_ack and self._facts.config.no_ack):
                self._ingest.hold(each.seq, reply, each.body)

    def _refuse(self, reply: bytes | None, error: ApiError, message: IncomingMessage) -> None:
        """Answer a publisher, and note in the message's trace, why it was not stored."""
        self._trace_refused(message, error)
        self._answer(reply, 0, refusal_body(error, self._facts.config.name))

    def _trace_accepted(self, message: IncomingMessage) -> None:
        if message.trace is not None:
            is_wanted = self.writer.is_wanted(message)
            message.trace.accept(message.subject, is_wanted=is_wanted)

    def _trace_refused(self, message: IncomingMessage, error: ApiError) -> None:
        if message.trace is not None:
            message.trace.refuse(trace_reason(error, message, self._facts))

    def _advise_abandoned(self, batch_id: bytes, reason: str) -> None:
        """Publish the advisory that an atomic batch came to nothing."""
        name = self._facts.config.name
        fields = {"stream": name}
        if self._host.domain:
            fields["domain"] = self._host.domain
        fields |= {"batch": batch_id.decode("utf-8", "replace"), "reason": reason}
        subject = f"ADVISORY.STREAM.BATCH_ABANDONED.{name}"
        kind = "advisory.v1.stream_batch_abandoned"
        self._host.advise(self._sublist, subject, kind, fields)

    # Time

    def on_members(self) -> None:
        """Note that the compiled path has added members to atomic batches."""
        self._atomic_batches.touch()

    def on_stored(self, expires_ns: int = 0) -> None:
        """Plan what stored messages make due: their expiry, old ids, schedules.

        `expires_ns` is when the first of them expires that has a time for it, 0 for none.
        """
        if expires_ns:
            self._expiry.expires_by(expires_ns)
        if not self._expiry.is_set and self._facts.config.max_age > 0:
            self._expiry.plan()
        if self._facts.config.allow_msg_schedules or (
            len(self.message_ids) and not self._timer.is_set
        ):
            self._timer.plan()

    def expire(self, count_max: int) -> bool:
        """Store markers in place of expired messages that were the last of their subjects.

        At most `count_max` messages are looked at. Return True if there may be more.
        """
        due = self._store.due(count_max)
        for seq, subject in markers.take_expired(self._store, due):
            self._publish(markers.marker_for(subject, self._facts.config), None)
            # If there was no room for a marker, the message goes without one.
            self._store.remove(seq)
        return len(due) == count_max

    def _due_in_s(self) -> float | None:
        delays_s = [self._atomic_batches.due_in_s(), self._fast_batches.due_in_s()]
        if self._is_pruning:
            delays_s.append(0.0)
        elif len(self.message_ids):
            delays_s.append(max(self.message_ids.window_ns / 1e9, MESSAGE_IDS_PRUNE_S_MIN))
        due_ns = self.schedules.next_due_ns()
        if due_ns is not None:
            delays_s.append(max((due_ns - self._facts.now_ns()) / 1e9, 0.0))
        return min((each for each in delays_s if each is not None), default=None)

    def _run_due(self) -> None:
        now_ns = self._facts.now_ns()
        self._is_pruning = self.message_ids.prune(now_ns)
        for batch_id in self._atomic_batches.drop_idle():
            self._advise_abandoned(batch_id, TIMEOUT)
        # Messages of a fast batch are in the stream: there is nothing to report.
        self._fast_batches.drop_idle()
        for message in self.schedules.take_due(self._store, now_ns):
            self._publish(message, None)
        self._timer.plan()
        self._host.hub.flush()
