"""Reading streams through consumers, in turns with nats-server, and making consumers.

The streams are filled before, each message acknowledged; every run reads through consumers that
were just made. Rounds are short and many, so that a disturbance of one of them does not change
the median.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.compared import REFERENCE, compared_row, run_in_turns
from benchmarks.measure import Goal, Row, Sizes, at_least, at_most, folder_in
from penstock.bench.load import send_requests
from penstock.bench.plan import Ack, Kind, Plan
from penstock.bench.runs import LoadProcesses
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream
from penstock.client.client import Client
from penstock.client.jetstream import JetStream

PAYLOAD_BYTES = 128
GROUPS = 100
"""A filter for one of so many groups of subjects lets a hundredth pass."""

SECONDS_PART = 0.5
"""A run's part of the time that other benches' runs take; there are more of them."""

ROUNDS_PART = 2
"""So many times as many rounds as other benches have."""

FILL_PART = 1_000_000
FILL_IN_FLIGHT = 1_000
CREATE_TRIES = 20


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and how it must compare with nats-server."""

    what: str
    plan: Plan
    goal: Goal


def _cases(sizes: Sizes) -> Iterator[Case]:
    fetch = Plan(Kind.JSFETCH, 1, PAYLOAD_BYTES, batch=500, stored=sizes.consumed)
    yield Case("pull, batch 500, ack none", fetch, at_least(3))
    yield Case(
        "pull, batch 500, explicit acks",
        msgspec.structs.replace(fetch, ack=Ack.EXPLICIT),
        at_least(2),
    )
    push = Plan(Kind.JSPUSH, 1, PAYLOAD_BYTES, stored=sizes.consumed)
    yield Case("push, ordered, ack none", push, at_least(2))
    filtered = msgspec.structs.replace(
        fetch, stored=sizes.filtered, spread=sizes.filtered_subjects, one_in=GROUPS
    )
    yield Case(
        f"pull through a filter that one in {GROUPS} of {sizes.filtered / 1e6:.3g} M messages over"
        f" {sizes.filtered_subjects:,} subjects passes",
        filtered,
        at_least(5),
    )


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with folder_in(folder, "consumers") as place:
        with contextlib.ExitStack() as stack:
            servers = [
                stack.enter_context(BenchServer(name, command))
                for name, command in (
                    ("penstock", with_jetstream(OURS, place / "ours")),
                    (REFERENCE, with_jetstream([find_executable(REFERENCE)], place / "theirs")),
                )
            ]
            crew = stack.enter_context(LoadProcesses())
            rows = [_row(crew, case, servers, sizes) for case in _cases(sizes)]
        return [*rows, _creating(sizes, place / "created")]


def _row(crew: LoadProcesses, case: Case, servers: list[BenchServer], sizes: Sizes) -> Row:
    ours, theirs = run_in_turns(
        crew,
        [(server, case.plan) for server in servers],
        seconds=sizes.server_seconds * SECONDS_PART,
        rounds=sizes.rounds * ROUNDS_PART,
    )
    return compared_row("consumers", case.what, ours, theirs, case.goal)


# Making a consumer


def _creating(sizes: Sizes, place: Path) -> Row:
    """Make consumers with filters of several kinds on a large stream; the slowest kind counts."""
    with (
        BenchServer("penstock", with_jetstream(OURS, place)) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        streams.call("STREAM.CREATE.LARGE", {"name": "LARGE", "subjects": ["large.>"]})
        for start in range(0, sizes.created_on, FILL_PART):
            latencies_ns = array("q", bytes(8 * min(FILL_PART, sizes.created_on - start)))
            send_requests(
                client,
                b"large.",
                b"x" * PAYLOAD_BYTES,
                FILL_IN_FLIGHT,
                latencies_ns,
                spread=sizes.filtered_subjects,
                groups=GROUPS,
            )
        taken = {
            kind: [_create_ms(streams, kind, number) for number in range(CREATE_TRIES)]
            for kind in ("large.{}.*", "large.*.{}", "large.{}.{}", "large.>")
        }
    medians = {kind: statistics.median(values) for kind, values in taken.items()}
    return Row(
        "consumers",
        f"making a filtered consumer on a stream of {sizes.created_on / 1e6:.3g} M messages",
        max(medians.values()),
        "ms",
        at_most(100),
        "; ".join(f"{kind.format('N', 'N')} {value:.3g} ms" for kind, value in medians.items()),
        taken,
    )


def _create_ms(streams: JetStream, kind: str, number: int) -> float:
    config = {
        "name": "made",
        "durable_name": "made",
        "ack_policy": "explicit",
        "filter_subject": kind.format(number, number),
    }
    started = time.perf_counter()
    asked = {"stream_name": "LARGE", "config": config}
    made = streams.call("CONSUMER.CREATE.LARGE.made", asked)
    taken = time.perf_counter() - started
    assert made["num_pending"] > 0
    streams.call("CONSUMER.DELETE.LARGE.made")
    return taken * 1000
