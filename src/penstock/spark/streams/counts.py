"""How many messages a stretch of a stream holds, and where a time lies, without reading messages.

A consumer that is made and removed at once tells how many messages are waiting for it, those from
its start on, and where that start is. Two of them tell what lies between. A work queue takes no
second consumer: there a message is taken for a sequence. Used in the driver alone.
"""

from __future__ import annotations

import datetime
import itertools
from typing import Any

from penstock.client.jetstream import JetStream
from penstock.spark.streams.facts import StreamFacts

CONSUMER_IDLE_NS = 5_000_000_000


def count_from(streams: JetStream, stream: str, seq: int, subjects: tuple[str, ...] = ()) -> int:
    """Give how many messages a stream has from a sequence on, of some subjects (none: of all)."""
    asked = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(seq, 1)}
    made = _made(streams, stream, asked | filtered_by(subjects))
    pending: int = made["num_pending"]
    return pending


def filtered_by(subjects: tuple[str, ...]) -> dict[str, Any]:
    """Give what a consumer's settings say for these subjects, none meaning all."""
    if len(subjects) == 1:
        return {"filter_subject": subjects[0]}
    return {"filter_subjects": list(subjects)} if subjects else {}


def count_between(
    streams: JetStream, facts: StreamFacts, begin: int, end: int, subjects: tuple[str, ...]
) -> int:
    """Give how many messages of some subjects lie from `begin` up to `end`, which is not in."""
    count = count_from(streams, facts.name, begin, subjects)
    return count if end >= facts.end else count - count_from(streams, facts.name, end, subjects)


def position_at(streams: JetStream, facts: StreamFacts, time_ns: int) -> int | None:
    """Give the first sequence that is not before a time, as the server finds it; None for none."""
    if facts.takes_messages:
        # It is read message by message, and each is held against the time.
        return facts.first_seq
    asked = {"deliver_policy": "by_start_time", "opt_start_time": rfc3339(time_ns)}
    made = _made(streams, facts.name, asked)
    position: int = made["delivered"]["stream_seq"] + 1
    return position if made["num_pending"] else None


def _made(streams: JetStream, stream: str, start: dict[str, Any]) -> dict[str, Any]:
    config = {
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": CONSUMER_IDLE_NS,
    }
    made = streams.call(
        f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config | start}
    )
    streams.call(f"CONSUMER.DELETE.{stream}.{made['name']}")
    return made


def rfc3339(time_ns: int) -> str:
    """Write a time as servers read it; times that cannot be written are the first or the last."""
    bounded = min(max(time_ns, 0), 253_402_300_799_999_999_999)
    seconds, rest = divmod(bounded, 1_000_000_000)
    moment = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def end_of_rows(
    streams: JetStream, facts: StreamFacts, begin: int, end: int, rows: int
) -> tuple[int, int]:
    """Give where `rows` messages from `begin` on end, at most `end`, and how many they are."""
    if facts.is_dense or facts.takes_messages:
        # Without gaps a message is a sequence.
        taken = min(rows, end - begin)
        return begin + taken, taken
    from_begin = count_from(streams, facts.name, begin)
    within = from_begin - count_from(streams, facts.name, end)
    if within <= rows:
        return end, within
    return _mark(streams, facts.name, (begin, end), from_begin - rows), rows


def even_parts(
    streams: JetStream, facts: StreamFacts, bounds: tuple[int, int], parts: int
) -> list[tuple[int, int]]:
    """Divide a sparse stretch into parts with as many messages each, as far as that goes."""
    begin, end = bounds
    from_begin, from_end = (count_from(streams, facts.name, seq) for seq in bounds)
    within = from_begin - from_end
    if within <= 0:
        return [bounds]
    marks = [begin]
    for place in range(1, min(parts, within)):
        left = from_begin - within * place // parts
        marks.append(_mark(streams, facts.name, (marks[-1], end), left))
    return list(itertools.pairwise([*dict.fromkeys(marks), end]))


def _mark(streams: JetStream, stream: str, bounds: tuple[int, int], left: int) -> int:
    # Halving: how many messages are left from a sequence on only falls with it.
    low, high = bounds
    while low + 1 < high:
        middle = (low + high) // 2
        if count_from(streams, stream, middle) > left:
            low = middle
        else:
            high = middle
    return high
