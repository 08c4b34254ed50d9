"""Publishing to streams with options, in turns with nats-server in its default settings.

Most streams of real users have options: every bucket, every stream at its limit, every stream with
`discard: new`, expectations, ids, counters, transforms. Each case has one of them, 1,000 messages
of 128 bytes in flight unless it says otherwise, and the same goal: twice the rate of nats-server,
or half of its processor time where our server waits for the disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.batches import batches_row
from benchmarks.compared import compared_row, run_in_turns, servers_with_streams
from benchmarks.compression import compression_row
from benchmarks.measure import Row, Sizes, at_least
from penstock.bench.plan import Counted, Kind, Plan
from penstock.bench.runs import LoadProcesses

ROUNDS_MAX = 3
GOAL = at_least(2)
IN_FLIGHT = 1_000
PAYLOAD_BYTES = 128
LIMIT_MESSAGES = 10_000
COUNTERS = 1_000
STREAM_BYTES_MAX = 10**9
LARGE_BYTES = 64 * 1024
LARGE_IN_FLIGHT = 100


@dataclass(frozen=True, slots=True)
class Case:
    """One option of a stream or of its messages, and the plan that publishes with it."""

    what: str
    plan: Plan


def bucket_config(history: int = 1) -> dict[str, Any]:
    """Return the configuration that clients give the stream of a bucket."""
    return {
        "max_msgs_per_subject": history,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


def publish(
    *,
    size_bytes: int = PAYLOAD_BYTES,
    in_flight: int = IN_FLIGHT,
    config: dict[str, Any] | None = None,
    subject: str = "bench",
    **more: Any,
) -> Plan:
    """Return a plan that publishes to a stream with more of a configuration."""
    return Plan(
        Kind.JSPUB,
        1,
        size_bytes,
        in_flight=in_flight,
        subject=subject,
        config=config or {},
        **more,
    )


def put_keys(keys: int, *, history: int = 1, **more: Any) -> Plan:
    """Return a plan that puts values into a bucket, by default one with a value for each key."""
    chosen: dict[str, Any] = {"filled": keys, "config": bucket_config(history)} | more
    return publish(subject="$KV.bench", spread=keys, **chosen)


def cases(sizes: Sizes) -> list[Case]:
    """Return what is measured."""
    keys = sizes.keys
    return [
        Case(
            "discard new + max_bytes",
            publish(config={"discard": "new", "max_bytes": STREAM_BYTES_MAX}),
        ),
        Case(f"KV put, {keys:,} keys, history 1", put_keys(keys)),
        Case(f"KV put, {keys:,} keys, history 5", put_keys(keys, history=5)),
        Case("expected stream", publish(headers="Nats-Expected-Stream: {stream}\r\n")),
        Case(
            f"expected last subject sequence, {keys:,} subjects",
            publish(spread=keys, filled=keys, counted_header=Counted.LAST_OF_SUBJECT),
        ),
        Case(
            "interest retention, to a consumer that acknowledges",
            publish(config={"retention": "interest"}, drained=True),
        ),
        Case("republish", publish(config={"republish": {"src": ">", "dest": "again.>"}})),
        Case(
            "subject transform",
            publish(config={"subject_transform": {"src": ">", "dest": "moved.>"}}),
        ),
        Case("compression s2", publish(config={"compression": "s2"})),
        Case("TTL header", publish(config={"allow_msg_ttl": True}, headers="Nats-TTL: 1h\r\n")),
        Case(
            f"counter, {COUNTERS:,} subjects",
            publish(
                size_bytes=0,
                config={"allow_msg_counter": True},
                headers="Nats-Incr: 1\r\n",
                spread=COUNTERS,
            ),
        ),
        Case(
            f"stream at its limit, max_msgs {LIMIT_MESSAGES:,}",
            publish(config={"max_msgs": LIMIT_MESSAGES}, filled=LIMIT_MESSAGES),
        ),
        Case("message ids", publish(counted_header=Counted.MESSAGE_ID)),
        Case(
            f"64 KB messages, {LARGE_IN_FLIGHT} in flight",
            publish(size_bytes=LARGE_BYTES, in_flight=LARGE_IN_FLIGHT),
        ),
    ]


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure every case, and return the rows of the table."""
    with servers_with_streams(folder, "breadth") as servers, LoadProcesses() as load:
        rows = []
        for case in cases(sizes):
            ours, theirs = run_in_turns(
                load,
                [(server, case.plan) for server in servers],
                seconds=sizes.breadth_seconds,
                rounds=min(sizes.rounds, ROUNDS_MAX),
            )
            what = f"publish, {case.what}"
            rows.append(compared_row("breadth", what, ours, theirs, GOAL, either=True))
        batches = batches_row(
            servers,
            GOAL,
            payload_bytes=PAYLOAD_BYTES,
            seconds=sizes.breadth_seconds,
            rounds=min(sizes.rounds, ROUNDS_MAX),
        )
        place = folder / "breadth"
        compression = compression_row(
            servers, (place / "ours", place / "theirs"), messages=sizes.worked // 10
        )
        return [*rows, batches, compression]
