"""What many messages and many subjects cost a server that starts again, beside nats-server.

Both servers are filled once, each message acknowledged, and stopped cleanly; then each starts again
in turns. A start is over when the server has answered with the state of every stream. Memory is
what is resident then.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import (
    Row,
    Sizes,
    at_most,
    folder_in,
    ratio,
    resident_bytes,
    si,
)
from penstock.bench.load import send_requests
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream
from penstock.client.client import Client
from penstock.client.jetstream import JetStream

REFERENCE = "nats-server"
ROUNDS_MAX = 3
PAYLOAD = b"x" * 128
IN_FLIGHT = 1_000
SUBJECTS_OF_EACH = 100
"""Subjects that the messages of a stream are spread over, where they are not the point."""


@dataclass(slots=True)
class Kept:
    """One server's data, and what its starts cost."""

    name: str
    command: list[str]
    filled_bytes: float = 0.0
    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    rounds = min(sizes.rounds, ROUNDS_MAX)
    with folder_in(folder, "restart") as place:
        each = sizes.restarted // sizes.restarted_streams
        ours, theirs = _measured(place, sizes.restarted_streams, each, SUBJECTS_OF_EACH, rounds)
        what = f"{sizes.restarted / 1e6:.3g} M messages in {sizes.restarted_streams} streams"
        rows = [
            _row(f"restart with {what}: time", ours, theirs, ours.seconds, theirs.seconds, "s"),
            _row(f"restart with {what}: memory", ours, theirs, ours.memory, theirs.memory, "B"),
        ]
    with folder_in(folder, "subjects") as place:
        count = sizes.stream_subjects
        ours, theirs = _measured(place, 1, count, count, rounds)
        what = f"{count / 1e6:.3g} M subjects in a stream"
        filled = [ours.filled_bytes], [theirs.filled_bytes]
        return [
            *rows,
            _row(f"{what}, just filled: memory", ours, theirs, *filled, "B"),
            _row(f"{what}, restarted: memory", ours, theirs, ours.memory, theirs.memory, "B"),
        ]


def _measured(
    place: Path, streams: int, each: int, subjects: int, rounds: int
) -> tuple[Kept, Kept]:
    ours = Kept("penstock", with_jetstream(OURS, place / "ours"))
    theirs = Kept(REFERENCE, with_jetstream([find_executable(REFERENCE)], place / "theirs"))
    for kept in (ours, theirs):
        with _started(kept) as (server, client):
            for number in range(streams):
                _fill(client, number, each, subjects)
            kept.filled_bytes = resident_bytes(server.pid)
    for _ in range(rounds):
        for kept in (ours, theirs):
            before = time.perf_counter()
            with _started(kept) as (server, client):
                found = sum(_messages(client, number) for number in range(streams))
                kept.seconds.append(time.perf_counter() - before)
                kept.memory.append(resident_bytes(server.pid))
                assert found == streams * each
    return ours, theirs


@contextlib.contextmanager
def _started(kept: Kept) -> Iterator[tuple[BenchServer, Client]]:
    with (
        BenchServer(kept.name, kept.command) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        yield server, client


def _fill(client: Client, number: int, messages: int, subjects: int) -> None:
    config = {"name": f"KEPT_{number}", "subjects": [f"kept.{number}.*"]}
    JetStream(client).call(f"STREAM.CREATE.KEPT_{number}", config)
    latencies_ns = array("q", bytes(8 * messages))
    subject = b"kept.%d." % number
    send_requests(client, subject, PAYLOAD, IN_FLIGHT, latencies_ns, spread=subjects)


def _messages(client: Client, number: int) -> int:
    count: int = JetStream(client).call(f"STREAM.INFO.KEPT_{number}")["state"]["messages"]
    return count


def _row(
    what: str, ours: Kept, theirs: Kept, our: list[float], their: list[float], unit: str
) -> Row:
    shown = (si(sorted(values)[len(values) // 2], unit) for values in (our, their))
    return Row(
        "jetstream-restart",
        f"{what}, of {theirs.name}",
        ratio(our, their),
        "x",
        at_most(0.5),
        f"{next(shown)}; {theirs.name} {next(shown)}",
        {ours.name: our, theirs.name: their},
    )
