"""Messages that are published later, once or repeatedly: `Nats-Schedule`.

A schedule is a message of the stream: the last one of its subject, which it rolls up. When it is
due, a copy of it, or of the last message of another subject, is stored under its target. A schedule
that is due once is purged by that; the copy of a repeating one says when it is due next.

Invariant: everything here can be found again in the stream, so a restart loses nothing. What was
due meanwhile is published once.

Thread: the event loop's. The publish rules check schedules, `Publishing` publishes what is due.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from penstock import error_codes
from penstock.errors import ApiError, InvalidDocument, StoreError, UsageError
from penstock.protocol.headers import value_of, with_added, without, without_prefix
from penstock.store.filestore import FileStore
from penstock.store.log.block import StoredMessage
from penstock.stream.config.config import StreamConfig
from penstock.stream.publish.message import MESSAGE_ID, ROLLUP, ROLLUP_SUBJECT, TTL, IncomingMessage
from penstock.stream.publish.ttl import parse_ttl
from penstock.stream.schedule.patterns import Due, find_zone, next_due
from penstock.subjects import is_literal, is_valid_subject, patterns_overlap
from penstock.text.times import parse_instant

PATTERN: Final = b"Nats-Schedule"
TIME_ZONE: Final = b"Nats-Schedule-Time-Zone"
SCHEDULE_TTL: Final = b"Nats-Schedule-TTL"
SCHEDULE_ROLLUP: Final = b"Nats-Schedule-Rollup"
TARGET: Final = b"Nats-Schedule-Target"
SOURCE: Final = b"Nats-Schedule-Source"
SCHEDULER: Final = b"Nats-Scheduler"
NEXT: Final = b"Nats-Schedule-Next"
NEXT_PURGE: Final = b"purge"

QUEUE_SLACK: Final = 64
"""How many outdated entries the queue may have before they are removed."""


def due_of(headers: bytes, *, after_ns: int, now_ns: int) -> Due | None:
    """Return when a message that was stored at `after_ns` is due; None if it is not a schedule.

    Raise ApiError if the schedule is malformed.
    """
    if not headers:
        return None
    zone = value_of(headers, TIME_ZONE)
    pattern = (value_of(headers, PATTERN) or b"").decode("utf-8", "replace")
    zone_name = None if zone is None else zone.decode("utf-8", "replace")
    if zone_name is not None and not _is_zone(zone_name):
        raise ApiError(error_codes.MESSAGE_SCHEDULES_TIME_ZONE_INVALID)
    try:
        return next_due(pattern, zone_name, after_ns=after_ns, now_ns=now_ns)
    except UsageError as error:
        raise ApiError(error_codes.MESSAGE_SCHEDULES_PATTERN_INVALID) from error


def check(
    message: IncomingMessage,
    config: StreamConfig,
    now_ns: int,
    is_schedule: Callable[[bytes], bool],
) -> bool:
    """Raise ApiError for an invalid schedule; return True if the message is a schedule.

    `is_schedule` returns True if a subject's last message is a schedule, or there is none.
    """
    if PATTERN not in message.headers:
        # The names of all these headers begin with it.
        return False
    try:
        due = due_of(message.headers, after_ns=now_ns, now_ns=now_ns)
    except ApiError as error:
        if not config.allow_msg_schedules:
            raise ApiError(error_codes.MESSAGE_SCHEDULES_DISABLED) from error
        raise
    if due is not None:
        _check_schedule(message, config)
    _check_scheduler(message, config, is_schedule)
    return due is not None


def _check_schedule(message: IncomingMessage, config: StreamConfig) -> None:
    if not config.allow_msg_schedules:
        raise ApiError(error_codes.MESSAGE_SCHEDULES_DISABLED)
    ttl = message.value(SCHEDULE_TTL)
    try:
        parse_ttl(ttl)
    except ApiError as error:
        raise ApiError(error_codes.MESSAGE_SCHEDULES_TTL_INVALID) from error
    if message.value(SCHEDULE_ROLLUP) not in (b"", ROLLUP_SUBJECT.encode()):
        raise ApiError(error_codes.MESSAGE_SCHEDULES_ROLLUP_INVALID)
    if ttl and not config.allow_msg_ttl:
        raise ApiError(error_codes.MESSAGE_TTL_DISABLED)
    _check_subjects(message, config)
    rollup = message.value(ROLLUP).lower()
    if not rollup:
        message.headers = with_added(message.headers, ROLLUP, ROLLUP_SUBJECT.encode())
    elif rollup != ROLLUP_SUBJECT.encode():
        raise ApiError(error_codes.MESSAGE_SCHEDULES_ROLLUP_INVALID)


def _check_subjects(message: IncomingMessage, config: StreamConfig) -> None:
    target, source = message.value(TARGET), message.value(SOURCE)
    if target == message.subject or not _is_publishable(target):
        raise ApiError(error_codes.MESSAGE_SCHEDULES_TARGET_INVALID)
    if source and (source in (target, message.subject) or not _is_publishable(source)):
        raise ApiError(error_codes.MESSAGE_SCHEDULES_SOURCE_INVALID)
    subjects = [subject.encode() for subject in config.subjects]
    if not any(patterns_overlap(subject, target) for subject in subjects):
        raise ApiError(error_codes.MESSAGE_SCHEDULES_TARGET_INVALID)
    if source and not any(patterns_overlap(subject, source) for subject in subjects):
        raise ApiError(error_codes.MESSAGE_SCHEDULES_SOURCE_INVALID)


def _check_scheduler(
    message: IncomingMessage, config: StreamConfig, is_schedule: Callable[[bytes], bool]
) -> None:
    """Raise ApiError if a client sends a schedule's copy, unless it ends the schedule."""
    scheduler = message.value(SCHEDULER)
    following = message.value(NEXT)
    if not following:
        if scheduler:
            raise ApiError(error_codes.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
        return
    if following != NEXT_PURGE or scheduler == message.subject or not _is_publishable(scheduler):
        raise ApiError(error_codes.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    if not config.allow_msg_schedules:
        raise ApiError(error_codes.MESSAGE_SCHEDULES_DISABLED)
    if not is_schedule(scheduler):
        raise ApiError(error_codes.MESSAGE_SCHEDULES_SCHEDULER_INVALID)


def may_be_schedule(store: FileStore, subject: bytes) -> bool:
    """Return True if the last message of a subject is a schedule, or there is none."""
    try:
        return bool(value_of(store.load_last(subject).headers, PATTERN))
    except StoreError:
        return True


def purged_by(message: IncomingMessage) -> bytes:
    """Return the subject of the schedule that a message ends; empty for none."""
    return message.value(SCHEDULER) if message.value(NEXT) == NEXT_PURGE else b""


class Schedules:
    """The schedules of one stream, by when they are due."""

    def __init__(self) -> None:
        self._due: dict[bytes, tuple[int, int]] = {}
        """Due time and sequence of each subject's schedule."""

        self._queue: list[tuple[int, int, bytes]] = []
        """The same by time, with outdated entries."""

    def __len__(self) -> int:
        return len(self._due)

    @property
    def queue_length(self) -> int:
        """How many entries the queue has, outdated ones included."""
        return len(self._queue)

    def recover(self, store: FileStore, now_ns: int) -> None:
        """Find the schedules in a stream."""
        for seq in store.all_last():
            try:
                message = store.load(seq)
            except StoreError:
                # It is gone, or damaged, which the store reports.
                continue
            after_ns = message.timestamp_ns
            self.note(message.subject, message.headers, seq, after_ns=after_ns, now_ns=now_ns)

    def note(self, subject: bytes, headers: bytes, seq: int, *, after_ns: int, now_ns: int) -> None:
        """Note a stored message: a schedule, the end of one, or a schedule's copy."""
        try:
            due = due_of(headers, after_ns=after_ns, now_ns=now_ns)
        except ApiError:
            due = None
        scheduler = value_of(headers, SCHEDULER)
        if due is not None:
            self._plan(subject, due.at.time_ns, seq)
        elif not scheduler:
            self._due.pop(subject, None)
        following = value_of(headers, NEXT)
        if scheduler and following and following != NEXT_PURGE and scheduler in self._due:
            try:
                due_ns = parse_instant(following.decode("utf-8", "replace")).time_ns
            except InvalidDocument:
                return
            self._plan(scheduler, due_ns, self._due[scheduler][1])

    def _plan(self, subject: bytes, due_ns: int, seq: int) -> None:
        self._due[subject] = (due_ns, seq)
        if len(self._queue) > 2 * len(self._due) + QUEUE_SLACK:
            self._queue = [(*due, each) for each, due in self._due.items()]
            heapq.heapify(self._queue)
        else:
            heapq.heappush(self._queue, (due_ns, seq, subject))

    def next_due_ns(self) -> int | None:
        """Return when the next schedule is due, or None."""
        while self._queue:
            due_ns, seq, subject = self._queue[0]
            if self._due.get(subject) == (due_ns, seq):
                return due_ns
            heapq.heappop(self._queue)
        return None

    def take_due(self, store: FileStore, now_ns: int) -> list[IncomingMessage]:
        """Return the messages to publish now, in the order of the schedules' sequences."""
        found: list[tuple[int, IncomingMessage]] = []
        while (due_ns := self.next_due_ns()) is not None and due_ns <= now_ns:
            _, seq, subject = heapq.heappop(self._queue)
            del self._due[subject]
            fired = _fired(store, seq, due_ns, now_ns)
            if fired is None:
                continue
            message, due = fired
            found.append((seq, message))
            if due.repeats:
                self._plan(subject, due.at.time_ns, seq)
        found.sort(key=lambda each: each[0])
        return [message for _, message in found]


def _fired(
    store: FileStore, seq: int, due_ns: int, now_ns: int
) -> tuple[IncomingMessage, Due] | None:
    """Return the message to publish and when the schedule is due next; None if it is invalid."""
    try:
        schedule = store.load(seq)
        due = due_of(schedule.headers, after_ns=due_ns, now_ns=now_ns)
        ttl = value_of(schedule.headers, SCHEDULE_TTL) or b""
        parse_ttl(ttl)
    except (StoreError, ApiError):
        return None
    target = value_of(schedule.headers, TARGET)
    if due is None or not target:
        return None
    original = _original(store, schedule)
    headers = original.headers
    for prefix in (b"Nats-Schedule", b"Nats-Expected-"):
        headers = without_prefix(headers, prefix)
    for name in (MESSAGE_ID, TTL, ROLLUP):
        headers = without(headers, name)
    headers = with_added(headers, SCHEDULER, schedule.subject)
    headers = with_added(headers, NEXT, str(due.at).encode() if due.repeats else NEXT_PURGE)
    if ttl:
        headers = with_added(headers, TTL, ttl)
    rollup = value_of(schedule.headers, SCHEDULE_ROLLUP)
    if rollup:
        headers = with_added(headers, ROLLUP, rollup)
    return IncomingMessage(target, headers, original.payload, is_sourced=True), due


def _original(store: FileStore, schedule: StoredMessage) -> StoredMessage:
    source = value_of(schedule.headers, SOURCE)
    if not source:
        return schedule
    try:
        return store.load_last(source)
    except StoreError:
        return schedule


def _is_zone(name: str) -> bool:
    return bool(name) and find_zone(name) is not None


def _is_publishable(subject: bytes) -> bool:
    return is_valid_subject(subject) and is_literal(subject)
