"""Storing messages that were judged, and everything that follows from it.

`plan_of` decides what is stored and how: expiry, rollup, where it is published again. The writer
then appends the messages in one go and applies the rest: it remembers their ids, purges what they
roll up, notes schedules and hands copies to the queue of answers. Most single messages do not come
here: `ingest` stores them.

Invariants: a copy is published after its message is durable, behind the acknowledgements before
it. Messages that are given together are stored all or none.

Thread: the event loop's. `Publishing` owns it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock import error_codes
from penstock.errors import ApiError, LimitReached, StoreClosed, StoreError, StoreReadOnly
from penstock.protocol.headers import without
from penstock.store.interface import NEVER_NS
from penstock.stream.config.config import RetentionPolicy
from penstock.stream.consumers_port import ConsumersPort
from penstock.stream.publish.facts import StreamFacts
from penstock.stream.publish.ingest import Ingest
from penstock.stream.publish.message import (
    REQUEST_INFO,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    Entry,
    IncomingMessage,
    OriginPosition,
    as_message,
)
from penstock.stream.publish.message_ids import MessageIds
from penstock.stream.publish.message_rules import MessageRules
from penstock.stream.publish.refusals import store_failed
from penstock.stream.schedule import schedules
from penstock.stream.schedule.schedules import Schedules
from penstock.stream.timers import ExpiryTimer
from penstock.subjects import SubjectFilter, is_literal

if TYPE_CHECKING:
    from penstock.stream.stream import StreamHost


class StorePlan(msgspec.Struct, frozen=True):
    """How messages are stored, in lists of the same length."""

    expiries_ns: list[int]
    """0 for messages that have no time to live of their own."""

    keeps: list[int]
    """1 for a message that replaces those of its subject, 0 for others."""

    copies: list[bytes | None]
    """The subject under which each is published again."""


def plan_of(messages: Sequence[IncomingMessage], rules: MessageRules, now_ns: int) -> StorePlan:
    """Decide how messages are stored at a time. Raise ApiError if a TTL is malformed."""
    for message in messages:
        message.headers = without(message.headers, REQUEST_INFO)
    rolls_up = rules.may_roll_up
    return StorePlan(
        [rules.settle_ttl(message, now_ns) for message in messages],
        [int(rolls_up and bool(message.rollup)) for message in messages],
        [rules.copied_to(message.subject) for message in messages],
    )


class MessageWriter:
    """Writes judged messages into one stream; see the module."""

    def __init__(
        self,
        host: StreamHost,
        facts: StreamFacts,
        ingest: Ingest,
        message_ids: MessageIds,
        schedules: Schedules,
        *,
        consumers: Callable[[], ConsumersPort],
        expiry: ExpiryTimer,
    ) -> None:
        self._host = host
        self._facts = facts
        self._ingest = ingest
        self._message_ids = message_ids
        self._schedules = schedules
        self._consumers = consumers
        self._expiry = expiry

    def is_wanted(self, message: IncomingMessage) -> bool:
        """Return False if no consumer wants a message that is kept for consumers only."""
        if self._facts.config.retention is not RetentionPolicy.INTEREST:
            return True
        return self._consumers().wanted.wants(message.subject)

    def keep(self, message: IncomingMessage) -> int:
        """Store a judged message, or skip it if no consumer wants it; return its sequence."""
        return self.store([message]) if self.is_wanted(message) else self._skip(message)

    def _skip(self, message: IncomingMessage) -> int:
        """Use up a sequence for a message that is not stored; return it."""
        store = self._facts.store
        try:
            seq = store.skip()
        except StoreError as error:
            raise self._refusal(error) from error
        now_ns = self._ingest.last_skip_ns = self._facts.now_ns()
        if message.message_id:
            self._message_ids.remember(message.message_id, seq, now_ns)
        if message.rollup == ROLLUP_SUBJECT and self._facts.rules.may_roll_up:
            store.purge(SubjectFilter([message.subject]), durable=False)
        self._roll_up(message, seq)
        return seq

    def store(
        self, messages: Sequence[IncomingMessage], *, position: OriginPosition | None = None
    ) -> int:
        """Store judged messages, all of them or none; return the last sequence.

        A single one may have the sequence and time of its origin. Raise ApiError if the store
        refuses them.
        """
        store = self._facts.store
        now_ns = self._facts.now_ns() if position is None else position.time_ns
        plan = plan_of(messages, self._facts.rules, now_ns)
        last_seqs = {
            each.subject: self._facts.rules.last_seq_of(each.subject)
            for each, target in zip(messages, plan.copies, strict=True)
            if target is not None
        }
        try:
            if len(messages) == 1:
                last_seq, time_ns = self._append_one(messages[0], plan, position)
            else:
                _, last_seq = store.store_batch(
                    [(each.subject, each.headers, each.body) for each in messages],
                    expires_ns=plan.expiries_ns if any(plan.expiries_ns) else (),
                    keep=plan.keeps if any(plan.keeps) else (),
                )
                time_ns = now_ns
        except StoreError as error:
            raise self._refusal(error) from error
        first_seq = last_seq - len(messages) + 1
        together = zip(messages, plan.copies, strict=True)
        for seq, (message, target) in enumerate(together, first_seq):
            self._follow_up(message, seq, time_ns)
            if target is not None:
                self._ingest.hold_copy(seq, time_ns, target, message, last_seqs[message.subject])
                last_seqs[message.subject] = seq
        expires_ns = min(filter(None, plan.expiries_ns), default=NEVER_NS)
        if expires_ns != NEVER_NS:
            self._expiry.expires_by(expires_ns)
        return last_seq

    def store_members(self, entries: Sequence[Entry], judged: Sequence[IncomingMessage]) -> int:
        """Store a batch of which only some messages were `judged`, the others being plain."""
        for message in judged:
            self._facts.rules.settle_ttl(message, self._facts.now_ns())
        if any(each.rollup or each.ttl_s or each.message_id for each in judged):
            return self.store([as_message(each) for each in entries])
        try:
            _, last_seq = self._facts.store.store_batch(
                [
                    (each.subject, without(each.headers, REQUEST_INFO), each.body)
                    if isinstance(each, IncomingMessage)
                    else each
                    for each in entries
                ]
            )
        except StoreError as error:
            raise self._refusal(error) from error
        return last_seq

    def _append_one(
        self, message: IncomingMessage, plan: StorePlan, position: OriginPosition | None
    ) -> tuple[int, int]:
        """Append a message, behind the others or at its position; return sequence and time."""
        store = self._facts.store
        expires_ns, keep = plan.expiries_ns[0], plan.keeps[0]
        if position is None:
            return store.store(
                message.subject, message.headers, message.body, expires_ns=expires_ns, keep=keep
            )
        store.store_raw(
            message.subject,
            message.headers,
            message.body,
            seq=position.seq,
            timestamp_ns=position.time_ns,
            expires_ns=expires_ns,
            keep=keep,
            is_refusable=True,
        )
        return position.seq, position.time_ns

    def _refusal(self, error: StoreError) -> ApiError:
        if isinstance(error, LimitReached):
            return ApiError(error_codes.STREAM_STORE_FAILED, err=f"{error.limit} exceeded")
        if isinstance(error, StoreClosed):
            return ApiError(error_codes.STREAM_STORE_FAILED, err="store is closed")
        cause = error.cause if isinstance(error, StoreReadOnly) else str(error)
        if os.strerror(errno.ENOSPC) in cause:
            self._host.out_of_storage(self._facts.config.name)
        return store_failed(cause)

    # What follows

    def _follow_up(self, message: IncomingMessage, seq: int, time_ns: int) -> None:
        if message.message_id:
            self._message_ids.remember(message.message_id, seq, time_ns)
        self._roll_up(message, seq)
        if self._facts.config.allow_msg_schedules:
            now_ns = self._facts.now_ns()
            self._schedules.note(
                message.subject, message.headers, seq, after_ns=time_ns, now_ns=now_ns
            )

    def _roll_up(self, message: IncomingMessage, seq: int) -> None:
        """Purge what a stored message replaces, but for its own subject: `keep` did that."""
        store, consumers = self._facts.store, self._consumers()
        if not self._facts.rules.may_roll_up:
            return
        if message.rollup == ROLLUP_ALL:
            store.purge(seq=seq, durable=False)
            consumers.on_purged(None)
        elif message.rollup == ROLLUP_SUBJECT and not is_literal(message.subject):
            # Published to a pattern, it replaces all subjects that the pattern matches.
            store.purge(SubjectFilter([message.subject]), seq=seq, durable=False)
        if message.rollup == ROLLUP_SUBJECT:
            consumers.on_purged(SubjectFilter([message.subject]))
        ended = schedules.purged_by(message)
        if ended:
            store.purge(SubjectFilter([ended]), durable=False)
