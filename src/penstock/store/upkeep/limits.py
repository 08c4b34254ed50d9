"""Which messages have outlived their time, and all limits applied to all that is there.

What a new message is refused for, and what gives way to it, is in `store.log.capacity`. Works on a
`Log` under its lock. Removals go through the ledger like any other, so they are written as
tombstones with the next commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from penstock.errors import UsageError
from penstock.limits import REMOVED_AT_ONCE, SEQUENCE_MAX
from penstock.store.log.log import Log
from penstock.store.log.queries import find_next
from penstock.store.upkeep.aging import remove_aged, remove_expired


def check_sequence(seq: int) -> None:
    """Raise UsageError for a sequence that no stream may reach."""
    if seq > SEQUENCE_MAX:
        raise UsageError(f"sequence {seq} is above the highest there can be ({SEQUENCE_MAX})")


def enforce_all(log: Log) -> None:
    """Apply every limit to all that is there: after recovery, and when the limits changed."""
    for _ in enforce_in_slices(log):
        pass


def enforce_in_slices(log: Log) -> Iterator[None]:
    """Apply every limit, some messages at a time; the lock is needed while the iterator works.

    Between two slices messages may come and go. A new one makes room by its limits, but not for all
    that is still beyond them.
    """
    capacity = log.writer.capacity
    capacity.is_behind = True
    try:
        seq = log.ledger.first_seq if capacity.is_any_above() else 0
        while seq and (seq := capacity.trim_from(seq, REMOVED_AT_ONCE)):
            yield
        while capacity.enforce_totals(REMOVED_AT_ONCE) == REMOVED_AT_ONCE:
            yield
    finally:
        capacity.is_behind = False
    while expire(log, REMOVED_AT_ONCE) == REMOVED_AT_ONCE:
        yield


def expire(log: Log, count_max: int) -> int:
    """Remove what is older than the maximum age or has outlived its own time.

    Return how many messages these were, at most `count_max`: then there may be more.
    """
    if log.settings.config.hands_over_expired:
        return 0
    now_ns = log.times.age_now_ns()
    age_ns = log.settings.config.max_age_ns
    removed = 0
    if age_ns > 0:
        removed += remove_aged(log.ledger, log.expiries, log.times, age_ns, now_ns, count_max)
    if removed < count_max:
        removed += remove_expired(log.ledger, log.expiries, now_ns, count_max - removed)
    log.times.forget_before(log.ledger.first_seq)
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
