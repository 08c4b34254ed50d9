"""Limits applied again, against a simple model of what a stream keeps."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.golang.recovery import Retention

Row = tuple[bytes, int]

rows = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(31, 99)), max_size=40)
limits = st.none() | st.integers(1, 12)


def batch_of(rows: list[Row], first_seq: int) -> tuple[ColumnBatch, memoryview]:
    builder = ColumnBuilder()
    for place, (subject, _) in enumerate(rows):
        builder.append(first_seq + place, 10 * (first_seq + place), 0, subject, b"", b"")
    return builder.take(1), memoryview(b"".join(s.to_bytes(4, "little") for _, s in rows)).cast("I")


def kept_by_a_stream(rows: list[Row], config: dict[str, Any], now_ns: int) -> list[int]:
    """Store one message after the other, each time removing what the limits remove."""
    live: list[tuple[int, bytes, int]] = []
    for seq, (subject, size) in enumerate(rows, start=1):
        live.append((seq, subject, size))
        mine = [each for each in live if each[1] == subject]
        if len(mine) > config.get("max_msgs_per_subject", 1000):
            live.remove(mine[0])
        while len(live) > config.get("max_msgs", 1000):
            live.pop(0)
        while sum(each[2] for each in live) > config.get("max_bytes", 10**9):
            live.pop(0)
    return [seq for seq, _, _ in live if 10 * seq > now_ns - config.get("max_age", 10**9)]


@given(rows, limits, limits, limits, st.integers(1, 39))
def test_blocks_keep_what_the_stream_kept(
    rows: list[Row], count: int | None, size: int | None, per_subject: int | None, cut: int
) -> None:
    config: dict[str, Any] = {"max_age": 10 * 30}
    config |= {"max_msgs": count} if count else {}
    config |= {"max_bytes": size * 100} if size else {}
    config |= {"max_msgs_per_subject": per_subject} if per_subject else {}
    now_ns = 10 * len(rows)
    retention = Retention(config, now_ns)

    newer = retention.apply(*batch_of(rows[cut:], cut + 1))
    older = retention.apply(*batch_of(rows[:cut], 1))

    removed = {*newer.removed, *older.removed}
    kept = [seq for seq in range(1, len(rows) + 1) if seq not in removed]
    assert kept == kept_by_a_stream(rows, config, now_ns)
    assert newer.messages + older.messages == len(kept)
    assert newer.bytes + older.bytes == sum(rows[seq - 1][1] for seq in kept)
    assert (older.first_seq or newer.first_seq) == (kept[0] if kept else 0)


def test_a_stream_that_refuses_new_messages_never_lost_old_ones() -> None:
    retention = Retention({"max_msgs": 1, "max_bytes": 31, "discard": "new"}, None)

    kept = retention.apply(*batch_of([(b"a", 31)] * 5, 1))

    assert (kept.messages, kept.bytes, kept.first_seq) == (5, 155, 1)
    assert retention.removes_nothing


def test_age_counts_only_when_the_time_is_given() -> None:
    config = {"max_age": 5}

    assert Retention(config, None).removes_nothing
    assert Retention(config | {"subject_delete_marker_ttl": 1}, 1000).removes_nothing
    assert not Retention(config, 1000).removes_nothing
