"""What idle durable consumers cost a server, beside nats-server.

By the resident memory of the server's process before and after they came, and by its time on
processors while nothing happens, less what it takes without them.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Row, Sizes, at_most, folder_in, resident_bytes
from penstock.bench.servers import (
    OURS,
    BenchServer,
    find_executable,
    processor_ns,
    with_jetstream,
)
from penstock.client.client import Client
from penstock.client.jetstream import JetStream

REFERENCE = "nats-server"
IN_FLIGHT = 100
WARM_PART = 100
"""One in so many is there before the first look: what every server makes once is not theirs."""

SETTLE_S = 2.0
"""What servers do a little later about consumers that were just made is over by then."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the consumers of one server cost."""

    resident_bytes_each: float
    processor_percent: float
    processor_percent_before: float
    create_seconds: float


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with folder_in(folder, "idle") as place:
        ours = _cost("penstock", with_jetstream(OURS, place / "ours"), sizes)
        command = with_jetstream([find_executable(REFERENCE)], place / "theirs")
        theirs = _cost(REFERENCE, command, sizes)
    count = f"{sizes.idle_consumers:,} idle durable consumers"
    return [
        Row(
            "consumers-idle",
            f"memory of each of {count}",
            ours.resident_bytes_each / 1024,
            "KB",
            at_most(4),
            f"{REFERENCE} {theirs.resident_bytes_each / 1024:.1f} KB; made in"
            f" {ours.create_seconds:.3g} s, {REFERENCE} {theirs.create_seconds:.3g} s",
        ),
        Row(
            "consumers-idle",
            f"processor time of {count}, beyond that of none",
            ours.processor_percent - ours.processor_percent_before,
            "%",
            at_most(0.1),
            f"of one core over {sizes.idle_seconds:g} s; {ours.processor_percent:.3g} % with them,"
            f" {ours.processor_percent_before:.3g} % without; {REFERENCE}"
            f" {theirs.processor_percent:.3g} % and {theirs.processor_percent_before:.3g} %",
        ),
    ]


def _cost(name: str, command: list[str], sizes: Sizes) -> Cost:
    with (
        BenchServer(name, command) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        # By default a stream of either server may have a thousand consumers.
        config = {"name": "IDLE", "subjects": ["idle.>"], "max_consumers": sizes.idle_consumers}
        streams.call("STREAM.CREATE.IDLE", config)
        warm = max(sizes.idle_consumers // WARM_PART, 1)
        _create(streams, 0, warm)
        percent_before = _processor_percent(server.pid, sizes)
        resident_before = resident_bytes(server.pid)
        started = time.perf_counter()
        _create(streams, warm, sizes.idle_consumers)
        create_seconds = time.perf_counter() - started
        percent = _processor_percent(server.pid, sizes)
        grown = resident_bytes(server.pid) - resident_before
    return Cost(grown / (sizes.idle_consumers - warm), percent, percent_before, create_seconds)


def _create(streams: JetStream, first: int, end: int) -> None:
    waiting: deque[bytes] = deque()
    for number in range(first, end):
        name = f"worker_{number}"
        config = {"name": name, "durable_name": name, "ack_policy": "explicit"}
        asked = {"stream_name": "IDLE", "config": config}
        waiting.append(streams.begin(f"CONSUMER.CREATE.IDLE.{name}", asked))
        if len(waiting) == IN_FLIGHT:
            streams.read(streams.client.next_answer(waiting.popleft()))
    for reply in waiting:
        streams.read(streams.client.next_answer(reply))


def _processor_percent(pid: int, sizes: Sizes) -> float:
    time.sleep(min(SETTLE_S, sizes.idle_seconds))
    before, started = processor_ns(pid), time.perf_counter_ns()
    time.sleep(sizes.idle_seconds)
    return 100 * (processor_ns(pid) - before) / (time.perf_counter_ns() - started)
