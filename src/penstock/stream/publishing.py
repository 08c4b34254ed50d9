"""What becomes of a published message that wants a closer look: the rules, in their order.

First the subject is transformed; then the stream's rules judge the message, each in a module of its
own; then it is stored, and what follows from that is done: its id is remembered, what it stands for
is removed, it is published again, its publisher is answered. The order of the checks is the
reference server's, for a message that breaks two rules is refused for the first.

What always holds: no answer overtakes that of an earlier message, refusals included; nobody is
told of a message before it is durable.

One thread: the event loop's. The stream calls it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock import error_codes
from penstock.documents.encoding import to_json
from penstock.errors import ApiError, LimitReached, StoreClosed, StoreError, StoreReadOnly
from penstock.limits import GO_RECORD_BYTES_MAX, MESSAGE_HEADERS_BYTES_MAX
from penstock.store.interface import NEVER_NS
from penstock.stream import (
    counters,
    deduplication,
    expectations,
    lifetimes,
    republishing,
    rollups,
    schedules,
)
from penstock.stream.batches import AtomicBatches
from penstock.stream.config import RetentionPolicy, StorageType
from penstock.stream.fast_batches import FAST_BATCH_END, FastBatches
from penstock.stream.headers import value_of, without
from penstock.stream.message_ids import MessageIds
from penstock.stream.messages import (
    BATCH_ID,
    MESSAGE_ID,
    REQUEST_INFO,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    STREAM_SOURCE,
    Entry,
    Message,
    Place,
    as_message,
    record_size,
)
from penstock.stream.publishing_timer import PublishingTimer
from penstock.stream.refusals import DUPLICATE, reason_of
from penstock.stream.schedules import Schedules
from penstock.subjects import SubjectFilter, is_literal

if TYPE_CHECKING:
    from penstock.stream.stream import Stream


class Publishing:
    """The careful way into one stream; see the module."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.message_ids = MessageIds()
        self.schedules = Schedules()
        self.atomic_batches = AtomicBatches(self)
        self.fast_batches = FastBatches(self)
        self.recollection = deduplication.Recollection(self)
        self.timer = PublishingTimer(self)
        self.configure()

    def configure(self) -> None:
        """Take over the stream's configuration."""
        config = self.stream.config
        self.message_ids.window_ns = config.duplicate_window
        self._transform = republishing.transform_of(config.subject_transform)
        self._republish = republishing.transform_of(config.republish)
        self._wants_care = (
            config.sealed
            or config.allow_msg_counter
            or config.allow_msg_schedules
            or config.retention is RetentionPolicy.INTEREST
            or self._transform is not None
            or self._republish is not None
        )

    @property
    def is_careful(self) -> bool:
        """Whether every message wants a closer look."""
        return self._wants_care or self.recollection.is_under_way

    def start(self) -> None:
        """Find in the stream what must be known of it."""
        stream = self.stream
        self.atomic_batches.undo_torn()
        if not stream.store.state().last_seq:
            self.message_ids.is_ready = True
        self._find_schedules()

    def refresh(self) -> None:
        """Take over a configuration that has changed."""
        self.configure()
        self._find_schedules()

    def _find_schedules(self) -> None:
        if self.stream.config.allow_msg_schedules:
            self.schedules.recover(self.stream.store, self.stream.host.clock.now_ns())
            self.timer.plan()

    def stop(self) -> None:
        """Give up what is not finished."""
        self.timer.cancel()
        self.recollection.stop()
        self.atomic_batches.clear()
        self.fast_batches.clear()

    # Messages

    def take(self, message: Message, reply: bytes | None) -> None:
        """Store a message or refuse it, now or when it can be judged, and answer its publisher."""
        if not self.recollection.holds(message, reply):
            self.take_now(message, reply)

    def take_now(self, message: Message, reply: bytes | None) -> None:
        """Store a message or refuse it, and answer its publisher."""
        self._take(message, reply)
        if message.trace is not None:
            message.trace.finish()

    def _take(self, message: Message, reply: bytes | None) -> None:
        if reply is not None and reply.endswith(FAST_BATCH_END):
            self.fast_batches.take(message, reply)
        elif batch_id := value_of(message.headers, BATCH_ID):
            self.atomic_batches.take(batch_id, message, reply)
        else:
            self.publish(message, reply)

    def publish(self, message: Message, reply: bytes | None) -> None:
        """Store a single message or refuse it, and answer its publisher."""
        self.transform(message)
        try:
            known_seq = self.judge(message)
            if known_seq:
                if message.trace is not None:
                    message.trace.refuse(DUPLICATE)
                self.answer(reply, known_seq, self.stream.ingest.duplicate_ack(known_seq))
                return
            self.tell_accepted(message)
            if message.is_only_traced:
                return
            seq = self.keep(message)
        except ApiError as error:
            self.refuse(reply, error, message)
            return
        more = counters.ack_value(message) if self.stream.config.allow_msg_counter else b""
        self.answer(reply, seq, self.stream.ingest.ack(seq, more))
        self.stream.on_stored()

    def tell_accepted(self, message: Message) -> None:
        """Tell whoever traces a message that it may be stored."""
        if message.trace is not None:
            message.trace.accept(message.subject, is_wanted=self.is_wanted(message))

    def tell_refused(self, message: Message, error: ApiError) -> None:
        """Tell whoever traces a message why it was not stored."""
        if message.trace is not None:
            message.trace.refuse(reason_of(error, message, self.stream))

    def transform(self, message: Message) -> None:
        """Give a message the subject under which it is stored."""
        subject = republishing.renamed(self._transform, message.subject)
        if subject is not None:
            message.subject = subject

    def judge(self, message: Message) -> int:
        """Refuse a message that breaks a rule; give the sequence of one that is there already."""
        config, store = self.stream.config, self.stream.store
        self.check_record(message)
        if config.sealed:
            raise ApiError(error_codes.STREAM_SEALED)
        message.headers = without(message.headers, REQUEST_INFO)
        self.check_size(message)
        last_seq = store.last_seq
        if message.headers:
            counters.check(message, config)
            expectations.check_stream(message, config)
            lifetimes.check_allowed(message, config)
            expectations.check_subject_seq(message, store)
            expectations.check_last_seq(message, last_seq)
            if not message.is_sourced:
                now_ns = self.stream.host.clock.now_ns()
                schedules.check(message, config, now_ns, self._may_be_schedule)
                if message.value(STREAM_SOURCE):
                    raise ApiError(error_codes.MESSAGE_SOURCE_HDR_NOT_ALLOWED)
            known_seq = self.known_seq(message)
            if known_seq:
                return known_seq
            expectations.check_last_id(message, self.known_ids, last_seq)
            rollups.check(message, config)
        counters.check_present(message, config)
        if message.increment is not None and config.allow_msg_counter:
            counters.apply(message, counters.total_of(store, message.subject))
            self.check_counted(message)
        self.check_room(message)
        return 0

    def _may_be_schedule(self, subject: bytes) -> bool:
        return schedules.may_be_schedule(self.stream.store, subject)

    def check_record(self, message: Message) -> None:
        """Refuse what is larger than a record may be."""
        storage = self.stream.config.storage
        if storage is StorageType.FILE and record_size(message, storage) > GO_RECORD_BYTES_MAX:
            raise ApiError(error_codes.STREAM_STORE_FAILED, err="message too large")

    def check_size(self, message: Message) -> None:
        """Refuse what is larger than the stream or anybody allows."""
        size = len(message.headers) + len(message.body)
        if 0 <= self.stream.config.max_msg_size < size:
            raise ApiError(error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        if len(message.headers) > MESSAGE_HEADERS_BYTES_MAX:
            raise ApiError(error_codes.STREAM_HEADER_EXCEEDS_MAXIMUM)

    def check_counted(self, message: Message) -> None:
        """Refuse a counter that has become larger than the stream or anybody allows."""
        size_max = self.stream.host.payload_bytes_max
        if len(message.headers) + len(message.body) > size_max:
            raise ApiError(error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        self.check_size(message)

    def check_room(self, message: Message) -> None:
        """Refuse what the account or the server has no room for."""
        ingest = self.stream.ingest
        size = record_size(message, self.stream.config.storage)
        if size > ingest.bytes_left:
            room = self.stream.room()
            if room.server_bytes < 0:
                raise ApiError(error_codes.INSUFFICIENT_RESOURCES)
            if room.account_bytes < size:
                raise ApiError(error_codes.ACCOUNT_RESOURCES_EXCEEDED)
            ingest.bytes_left = room.grant(size) + size
        ingest.bytes_left -= size

    def known_ids(self) -> MessageIds:
        """Give the message ids; those from before a restart are looked for when first needed."""
        self.recollection.read_all()
        return self.message_ids

    def known_seq(self, message: Message) -> int:
        """Note a message's id; give the sequence of one with the same id, or 0."""
        message.message_id = message.value(MESSAGE_ID)
        # A mirror has what its origin has, and judges nothing.
        if not message.message_id or self.stream.config.mirror is not None:
            return 0
        now_ns = self.stream.host.clock.now_ns()
        return self.known_ids().find(message.message_id, now_ns)

    # Storing

    def is_wanted(self, message: Message) -> bool:
        """Tell whether a message is kept at all."""
        if self.stream.config.retention is not RetentionPolicy.INTEREST:
            return True
        return self.stream.consumers.wants(message.subject)

    def keep(self, message: Message) -> int:
        """Store a message that was judged, or pass over it; give its sequence."""
        return self.store([message]) if self.is_wanted(message) else self.skip(message)

    def skip(self, message: Message) -> int:
        """Pass over a message that nobody wants; give the sequence that it would have had."""
        try:
            seq = self.stream.store.skip()
        except StoreError as error:
            raise self._refusal(error) from error
        now_ns = self.stream.last_skip_ns = self.stream.host.clock.now_ns()
        if message.message_id:
            self.message_ids.remember(message.message_id, seq, now_ns)
        if message.rollup == ROLLUP_SUBJECT and rollups.is_allowed(self.stream.config):
            self.stream.store.purge(SubjectFilter([message.subject]), durable=False)
        self._roll_up(message, seq)
        return seq

    def store(self, messages: Sequence[Message], *, place: Place | None = None) -> int:
        """Store messages that were judged, all of them or none; give the last sequence.

        A single one may have its `place` already.
        """
        config, store = self.stream.config, self.stream.store
        for message in messages:
            message.headers = without(message.headers, REQUEST_INFO)
            lifetimes.settle(message, config)
        now_ns = self.stream.host.clock.now_ns() if place is None else place.time_ns
        expiries = [lifetimes.expires_ns(message, config, now_ns) for message in messages]
        rolls_up = rollups.is_allowed(config)
        keeps = [int(rolls_up and bool(each.rollup)) for each in messages]
        copies = [self._copy_target(message) for message in messages]
        last_seqs = {
            each.subject: expectations.last_seq_of(store, each.subject)
            for each, target in zip(messages, copies, strict=True)
            if target is not None
        }
        try:
            if len(messages) == 1:
                last_seq, time_ns = self._store_one(messages[0], expiries[0], keeps[0], place)
            else:
                _, last_seq = store.store_batch(
                    [(each.subject, each.headers, each.body) for each in messages],
                    expires_ns=expiries if any(expiries) else (),
                    keep=keeps if any(keeps) else (),
                )
                time_ns = now_ns
        except StoreError as error:
            raise self._refusal(error) from error
        first_seq = last_seq - len(messages) + 1
        together = zip(messages, copies, strict=True)
        for seq, (message, target) in enumerate(together, first_seq):
            self._follow_up(message, seq, time_ns)
            if target is not None:
                self._copy(message, target, seq=seq, time_ns=time_ns, last_seqs=last_seqs)
        expires_ns = min(filter(None, expiries), default=NEVER_NS)
        if expires_ns != NEVER_NS:
            self.stream.expires_by(expires_ns)
        return last_seq

    def store_members(self, entries: Sequence[Entry], judged: Sequence[Message]) -> int:
        """Store messages together of which only some were `judged`, the others being plain."""
        config, store = self.stream.config, self.stream.store
        for message in judged:
            lifetimes.settle(message, config)
        if any(each.rollup or each.ttl_s or each.message_id for each in judged):
            return self.store([as_message(each) for each in entries])
        try:
            _, last_seq = store.store_batch(
                [
                    (each.subject, without(each.headers, REQUEST_INFO), each.body)
                    if isinstance(each, Message)
                    else each
                    for each in entries
                ]
            )
        except StoreError as error:
            raise self._refusal(error) from error
        return last_seq

    def _store_one(
        self, message: Message, expires_ns: int, keep: int, place: Place | None
    ) -> tuple[int, int]:
        """Store a message behind the others or at its place; give sequence and time."""
        store = self.stream.store
        if place is None:
            return store.store(
                message.subject, message.headers, message.body, expires_ns=expires_ns, keep=keep
            )
        store.store_raw(
            message.subject,
            message.headers,
            message.body,
            seq=place.seq,
            timestamp_ns=place.time_ns,
            expires_ns=expires_ns,
            keep=keep,
            is_refusable=True,
        )
        return place.seq, place.time_ns

    def _refusal(self, error: StoreError) -> ApiError:
        if isinstance(error, LimitReached):
            return ApiError(error_codes.STREAM_STORE_FAILED, err=f"{error.limit} exceeded")
        if isinstance(error, StoreClosed):
            return ApiError(error_codes.STREAM_STORE_FAILED, err="store is closed")
        self.stream.host.log("ERR", f"JetStream stream {self.stream.name!r}: {error}")
        if isinstance(error, StoreReadOnly) and os.strerror(errno.ENOSPC) in error.cause:
            self.stream.host.out_of_storage(self.stream.name)
        return ApiError(error_codes.INSUFFICIENT_RESOURCES)

    def _copy_target(self, message: Message) -> bytes | None:
        """Give where a message is published again."""
        return republishing.destination(self._republish, message.subject)

    def _copy(
        self,
        message: Message,
        target: bytes,
        *,
        seq: int,
        time_ns: int,
        last_seqs: dict[bytes, int],
    ) -> None:
        """Publish a message again; `last_seqs` are those of the messages before it."""
        stream = self.stream
        republish = stream.config.republish
        headers, body = republishing.copy_of(
            message,
            stream.name,
            seq=seq,
            time_ns=time_ns,
            last_seq=last_seqs[message.subject],
            is_empty=republish is not None and republish.headers_only,
        )
        last_seqs[message.subject] = seq
        stream.ingest.hold(seq, target, body, headers)

    def _follow_up(self, message: Message, seq: int, time_ns: int) -> None:
        stream = self.stream
        if message.message_id:
            self.message_ids.remember(message.message_id, seq, time_ns)
        self._roll_up(message, seq)
        if stream.config.allow_msg_schedules:
            now_ns = stream.host.clock.now_ns()
            self.schedules.note(
                message.subject, message.headers, seq, after_ns=time_ns, now_ns=now_ns
            )
            self.timer.plan()

    def _roll_up(self, message: Message, seq: int) -> None:
        """Remove what a message stands for; its own subject's is gone when it is stored."""
        store = self.stream.store
        if not rollups.is_allowed(self.stream.config):
            return
        if message.rollup == ROLLUP_ALL:
            store.purge(seq=seq, durable=False)
            self.stream.consumers.on_purged(None)
        elif message.rollup == ROLLUP_SUBJECT and not is_literal(message.subject):
            # Published to a pattern, it stands for all that the pattern matches.
            store.purge(SubjectFilter([message.subject]), seq=seq, durable=False)
        if message.rollup == ROLLUP_SUBJECT:
            self.stream.consumers.on_purged(SubjectFilter([message.subject]))
        ended = schedules.purged_by(message)
        if ended:
            store.purge(SubjectFilter([ended]), durable=False)

    # Answers

    def answer(self, reply: bytes | None, seq: int, body: bytes) -> None:
        """Answer a publisher when a sequence is durable; 0 for as soon as all before it is."""
        if reply is not None and not self.stream.config.no_ack:
            self.stream.ingest.hold(seq, reply, body)

    def refuse(self, reply: bytes | None, error: ApiError, message: Message) -> None:
        """Tell a publisher, and whoever traces the message, why it was not stored."""
        self.tell_refused(message, error)
        self.answer_refused(reply, error)

    def answer_refused(self, reply: bytes | None, error: ApiError) -> None:
        """Tell a publisher why its message was not stored."""
        answer = {"error": error.document(), "stream": self.stream.name, "seq": 0}
        self.answer(reply, 0, to_json(answer))

    def advise_abandoned(self, batch_id: bytes, reason: str) -> None:
        """Tell whoever listens that a batch came to nothing."""
        stream = self.stream
        fields = {"stream": stream.name}
        if stream.host.domain:
            fields["domain"] = stream.host.domain
        fields |= {"batch": batch_id.decode("utf-8", "replace"), "reason": reason}
        subject = f"ADVISORY.STREAM.BATCH_ABANDONED.{stream.name}"
        kind = "advisory.v1.stream_batch_abandoned"
        stream.host.advise(stream.sublist, subject, kind, fields)

    # Time

    def on_stored(self) -> None:
        """Messages came in by the compiled path: their ids will be too old one day."""
        if len(self.message_ids) and not self.timer.is_set:
            self.timer.plan()

    def expire(self) -> None:
        """Put markers where the last messages of subjects have expired."""
        store = self.stream.store
        for seq, subject in lifetimes.take_expired(store):
            self.publish(lifetimes.marker_for(subject, self.stream.config), None)
            # Where there was no room for a marker the message goes without one.
            store.remove(seq)
