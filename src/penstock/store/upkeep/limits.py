"""Limits: which message gives way, and which newcomer is refused.

Works on a `Log` under its lock. Removals go through the ledger like any other, so they are
written as tombstones with the next commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from penstock.errors import CorruptStore, LimitReached, UsageError
from penstock.limits import SEQUENCE_MAX
from penstock.store.interface import Discard, NewMessage
from penstock.store.log.ledger import measure_batch
from penstock.store.log.log import Log
from penstock.store.log.queries import find_next
from penstock.subjects import SubjectFilter

EXPIRE_BATCH = 4096
"""Messages whose time to live ran out that are removed in one go."""


def check_sequence(seq: int) -> None:
    """Raise UsageError for a sequence that no stream may reach."""
    if seq > SEQUENCE_MAX:
        raise UsageError(f"sequence {seq} is above the highest there can be ({SEQUENCE_MAX})")


def refuse(log: Log, subject: bytes, headers: bytes, payload: bytes, *, keep: int = 0) -> None:
    """Raise LimitReached where a message may not come in.

    One that leaves only `keep` of its subject makes the room that it needs there.
    """
    config = log.settings.config
    ledger = log.ledger
    if 0 < config.max_msg_bytes < len(headers) + len(payload):
        raise LimitReached("message size", config.max_msg_bytes)
    if config.discard is not Discard.NEW:
        return
    full_subject = 0 < config.max_msgs_per_subject <= ledger.table.count(subject)
    if full_subject and config.discard_new_per_subject and not keep:
        raise LimitReached("maximum messages per subject", config.max_msgs_per_subject)
    # A full subject gives up its oldest message, so the total does not grow.
    if not full_subject and 0 < config.max_msgs <= ledger.messages:
        raise LimitReached("maximum messages", config.max_msgs)
    size = ledger.message_size(subject, headers, payload)
    if 0 < config.max_bytes < ledger.bytes + size and not (
        full_subject and _oldest_bytes(log, subject) >= size
    ):
        raise LimitReached("maximum bytes", config.max_bytes)


def _oldest_bytes(log: Log, subject: bytes) -> int:
    """Return how many bytes the removal of a subject's oldest message would free."""
    ledger = log.ledger
    seq = find_next(ledger, SubjectFilter([subject]), 0)
    if seq is None:
        return 0
    try:
        oldest = ledger.load(seq)
    except CorruptStore:
        return 0
    return ledger.message_size(oldest.subject, oldest.headers, oldest.payload)


def refuse_batch(log: Log, batch: list[NewMessage]) -> None:
    """Raise LimitReached where one of a batch may not come in, before anything of it is stored."""
    config = log.settings.config
    ledger = log.ledger
    largest = measure_batch(batch)
    if 0 < config.max_msg_bytes < largest:
        raise LimitReached("message size", config.max_msg_bytes)
    if config.discard is not Discard.NEW:
        return
    growth = _growth(log, batch) if config.max_msgs_per_subject > 0 else len(batch)
    if growth and 0 < config.max_msgs < ledger.messages + growth:
        raise LimitReached("maximum messages", config.max_msgs)
    size = sum(ledger.message_size(*message) for message in batch)
    if 0 < config.max_bytes < ledger.bytes + size:
        raise LimitReached("maximum bytes", config.max_bytes)


def _growth(log: Log, batch: list[NewMessage]) -> int:
    """Return by how many messages a batch makes the stream longer: a full subject drops one."""
    counts: dict[bytes, int] = {}
    growth = 0
    per_subject = log.settings.config.max_msgs_per_subject
    for subject, _, _ in batch:
        count = counts.get(subject, log.ledger.table.count(subject))
        if count < per_subject:
            counts[subject] = count + 1
            growth += 1
        elif log.settings.config.discard_new_per_subject:
            raise LimitReached("maximum messages per subject", per_subject)
    return growth


def enforce_totals(log: Log) -> int:
    """Remove the oldest messages until the totals are within their limits.

    A store that refuses new messages keeps its old ones, also where the limits were lowered.
    """
    config = log.settings.config
    ledger = log.ledger
    removed = 0
    if config.discard is Discard.NEW:
        return 0
    if 0 < config.max_msgs < ledger.messages:
        surplus = ledger.messages - config.max_msgs
        removed += ledger.remove_range(0, ledger.last_seq, None, surplus)[0]
    while 0 < config.max_bytes < ledger.bytes and ledger.messages:
        if not ledger.remove(ledger.first_seq):
            break
        removed += 1
    return removed


def enforce(log: Log, keep: int = 0) -> None:
    """Remove what the message that was appended last leaves no room for.

    Of its subject only `keep` stay then, 0 for as many as the configuration says.
    """
    _trim_subject(log, log.settings.config.max_msgs_per_subject)
    enforce_totals(log)
    _trim_subject(log, keep)


def _trim_subject(log: Log, keep: int) -> None:
    if keep > 0:
        log.ledger.trim_subject(log.ledger.appended_item, keep)


def enforce_all(log: Log) -> int:
    """Apply every limit to all that is there: after recovery, and when the limits changed."""
    keep = log.settings.config.max_msgs_per_subject
    removed = 0
    if keep > 0:
        for item in log.ledger.crowded_subjects(keep):
            removed += log.ledger.trim_subject(item, keep)
    return removed + enforce_totals(log) + expire(log)


def expire(log: Log) -> int:
    """Remove what is older than the maximum age or has outlived its own time."""
    if log.settings.config.hands_over_expired:
        return 0
    ledger = log.ledger
    now_ns = log.times.age_now_ns()
    removed = 0
    for seq in _aged(log, now_ns):
        if not ledger.remove(seq):
            break
        removed += 1
    while expired := log.expiries.wheel.expire(now_ns, EXPIRE_BATCH):
        for seq in expired:
            removed += 1 if ledger.remove(seq) else 0
    log.times.forget_before(ledger.first_seq)
    return removed


def due(log: Log, count_max: int) -> list[int]:
    """Return the first messages that have outlived their time; the caller removes them."""
    now_ns = log.times.age_now_ns()
    found = list(islice(_aged(log, now_ns), count_max))
    if len(found) < count_max:
        found += sorted(log.expiries.wheel.expire(now_ns, count_max - len(found)))
    return found


def _aged(log: Log, now_ns: int) -> Iterator[int]:
    """Iterate over what is older than the maximum age, oldest first; each may be removed."""
    age_ns = log.settings.config.max_age_ns
    seq = 0
    while age_ns > 0 and (found := _next_ageing(log, seq)) is not None:
        seq, time_ns = found
        if log.times.born_ns(seq, time_ns) + age_ns > now_ns:
            return
        yield seq
        seq += 1


def _next_ageing(log: Log, seq: int) -> tuple[int, int] | None:
    """Return sequence and time of the first message from a sequence on that has a maximum age."""
    ledger = log.ledger
    if not ledger.messages:
        return None
    seq = max(seq, ledger.first_seq)
    if seq == ledger.first_seq and seq not in log.expiries.lasting:
        return seq, ledger.first_time_ns
    found = find_next(ledger, None, seq)
    while found is not None and found in log.expiries.lasting:
        _, last = next(log.expiries.lasting.ranges_between(found, SEQUENCE_MAX))
        found = find_next(ledger, None, last + 1)
    if found is None:
        return None
    block, _, _ = ledger.place_of(found)
    index = log.cache.index_of(block)
    ordinal = index.ordinal_of(found)
    assert ordinal is not None, "a live message has its entry"
    return found, index.entry(ordinal)[3]


def next_expiry_ns(log: Log) -> int | None:
    """Return when a message may expire next, or None; the caller sets a timer by it."""
    moments = []
    age_ns = log.settings.config.max_age_ns
    if age_ns > 0 and (first := _next_ageing(log, 0)) is not None:
        moments.append(log.times.born_ns(*first) + age_ns)
    due_ns = log.expiries.wheel.next_due_ns()
    if due_ns is not None:
        moments.append(due_ns)
    return log.times.on_the_wall(min(moments)) if moments else None
