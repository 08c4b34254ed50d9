"""Limits: which message gives way, and which newcomer is refused.

Works on an `Engine` under its lock. Removals go through the ledger like any other, so they are
written as tombstones with the next commit.
"""

from __future__ import annotations

from penstock.errors import LimitReached, UsageError
from penstock.limits import SEQUENCE_MAX
from penstock.store.engine import Engine
from penstock.store.interface import Discard

EXPIRE_BATCH = 4096
"""Messages whose time to live ran out that are removed in one go."""


def check_sequence(seq: int) -> None:
    """Raise UsageError for a sequence that no stream may reach."""
    if seq > SEQUENCE_MAX:
        raise UsageError(f"sequence {seq} is above the highest there can be ({SEQUENCE_MAX})")


def refuse(engine: Engine, subject: bytes, size: int, body_bytes: int) -> None:
    """Raise LimitReached where a message may not come in; `size` is what it would count for."""
    config = engine.config
    ledger = engine.ledger
    if 0 < config.max_msg_bytes < body_bytes:
        raise LimitReached("message size", config.max_msg_bytes)
    if config.discard is not Discard.NEW:
        return
    full_subject = 0 < config.max_msgs_per_subject <= ledger.table.count(subject)
    if full_subject and config.discard_new_per_subject:
        raise LimitReached("maximum messages per subject", config.max_msgs_per_subject)
    # A full subject gives up its oldest message, so the total does not grow.
    if not full_subject and 0 < config.max_msgs <= ledger.messages:
        raise LimitReached("maximum messages", config.max_msgs)
    if 0 < config.max_bytes < ledger.bytes + size:
        raise LimitReached("maximum bytes", config.max_bytes)


def enforce_totals(engine: Engine) -> int:
    """Remove the oldest messages until the totals are within their limits."""
    config = engine.config
    ledger = engine.ledger
    removed = 0
    if 0 < config.max_msgs < ledger.messages:
        surplus = ledger.messages - config.max_msgs
        removed += ledger.remove_range(0, ledger.last_seq, None, surplus)[0]
    while 0 < config.max_bytes < ledger.bytes and ledger.messages:
        if not ledger.remove(ledger.first_seq):
            break
        removed += 1
    return removed


def enforce_subject(engine: Engine) -> int:
    """Remove the oldest messages of the subject that was appended to last."""
    keep = engine.config.max_msgs_per_subject
    if keep <= 0:
        return 0
    return engine.ledger.trim_subject(engine.ledger.appended_item, keep)


def enforce_all(engine: Engine) -> int:
    """Apply every limit to all that is there: after recovery, and when the limits changed."""
    keep = engine.config.max_msgs_per_subject
    removed = 0
    if keep > 0:
        for item in engine.ledger.crowded_subjects(keep):
            removed += engine.ledger.trim_subject(item, keep)
    return removed + enforce_totals(engine) + expire(engine)


def expire(engine: Engine) -> int:
    """Remove what is older than the maximum age or has outlived its own time."""
    ledger = engine.ledger
    times = engine.times
    now_ns = times.age_now_ns()
    removed = 0
    age_ns = engine.config.max_age_ns
    while (
        age_ns > 0
        and ledger.messages
        and times.born_ns(ledger.first_seq, ledger.first_time_ns) + age_ns <= now_ns
    ):
        if not ledger.remove(ledger.first_seq):
            break
        removed += 1
    while due := engine.wheel.expire(now_ns, EXPIRE_BATCH):
        for seq in due:
            removed += 1 if ledger.remove(seq) else 0
    times.forget_before(ledger.first_seq)
    return removed


def next_expiry_ns(engine: Engine) -> int | None:
    """Tell when something may expire next, or None: for whoever sets a timer."""
    ledger = engine.ledger
    moments = []
    if engine.config.max_age_ns > 0 and ledger.messages:
        born_ns = engine.times.born_ns(ledger.first_seq, ledger.first_time_ns)
        moments.append(born_ns + engine.config.max_age_ns)
    due = engine.wheel.next_due_ns()
    if due is not None:
        moments.append(due)
    return engine.times.on_the_wall(min(moments)) if moments else None
