"""Creating consumers and streams, changing and removing streams, in turns with nats-server.

Penstock answers when what it created, changed or removed is on stable storage; nats-server does not
wait for the disk. One client asks, with a bounded number of requests in flight. Beside each rate
stands the time that the server's process was on processors for one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.compared import REFERENCE, compared_row, metered
from benchmarks.measure import Row, Sizes, at_least, folder_in
from penstock.bench.runs import Run
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream
from penstock.client.client import Client
from penstock.client.jetstream import JetStream

IN_FLIGHT = 20
STREAMS_IN_FLIGHT = 5
DURABLES_IN_FLIGHT = 100
CREATED_PART = 20
"""One in so many of the idle consumers of a run are created in one round of the other rows."""

ROUNDS_MAX = 3
EXISTING_PART = 10
"""How many streams there are already, as a part of the idle consumers: 1,000 of 10,000."""


@dataclass(slots=True)
class Side:
    """One server, and what was measured of it."""

    name: str
    server: BenchServer
    streams: JetStream
    numbers: Iterator[int] = field(default_factory=count)
    runs: list[Run] = field(default_factory=list)

    def ask(self, requests: Iterator[tuple[str, object]], in_flight: int) -> int:
        """Send requests and wait for all answers; return how many there were."""
        waiting: deque[bytes] = deque()
        asked = 0
        for name, document in requests:
            waiting.append(self.streams.begin(name, document))
            asked += 1
            if len(waiting) >= in_flight:
                self.streams.read(self.streams.client.next_answer(waiting.popleft()))
        for reply in waiting:
            self.streams.read(self.streams.client.next_answer(reply))
        return asked

    def measure(self, requests: Iterator[tuple[str, object]], in_flight: int) -> None:
        """Note the rate of requests, and the processor time of each."""
        self.runs.append(metered(self.server, lambda: self.ask(requests, in_flight)))


Requests = Callable[[Iterator[int], int], Iterator[tuple[str, object]]]


def _consumers(*, durable: bool) -> Requests:
    def requests(numbers: Iterator[int], number: int) -> Iterator[tuple[str, object]]:
        for _ in range(number):
            name = f"c{next(numbers)}"
            config: dict[str, Any] = {"name": name, "ack_policy": "explicit"}
            if durable:
                config |= {"durable_name": name}
            else:
                config |= {"mem_storage": True, "inactive_threshold": 3_600_000_000_000}
            yield f"CONSUMER.CREATE.MADE.{name}", {"stream_name": "MADE", "config": config}

    return requests


def _streams(numbers: Iterator[int], number: int) -> Iterator[tuple[str, object]]:
    for _ in range(number):
        name = f"S{next(numbers)}"
        yield f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"made.{name}.>"]}


def _updates(numbers: Iterator[int], number: int) -> Iterator[tuple[str, object]]:
    """Change each of the first `number` streams; each time to another limit."""
    for place in range(number):
        config = {"name": f"S{place}", "subjects": [f"made.S{place}.>"]}
        yield f"STREAM.UPDATE.S{place}", config | {"max_msgs": next(numbers) + 1}


def _deletions(numbers: Iterator[int], number: int) -> Iterator[tuple[str, object]]:
    for _ in range(number):
        yield f"STREAM.DELETE.S{next(numbers)}", None


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    each = max(sizes.idle_consumers // CREATED_PART, 10)
    rounds = min(sizes.rounds, ROUNDS_MAX)
    return [
        _row(folder, "consumers in memory", _consumers(durable=False), IN_FLIGHT, each, rounds),
        _row(folder, "durable consumers", _consumers(durable=True), IN_FLIGHT, each, rounds),
        _row(
            folder,
            "durable consumers at once",
            _consumers(durable=True),
            DURABLES_IN_FLIGHT,
            sizes.idle_consumers,
            1,
        ),
        _row(folder, "streams", _streams, STREAMS_IN_FLIGHT, each // 5, rounds),
        _row(
            folder,
            "streams",
            _streams,
            STREAMS_IN_FLIGHT,
            each // 5,
            rounds,
            existing=sizes.idle_consumers // EXISTING_PART,
        ),
        *(
            _row(
                folder,
                "streams",
                requests,
                STREAMS_IN_FLIGHT,
                each // 5,
                rounds,
                verb=verb,
                # As many as all rounds together and the first one, which is not measured, ask for.
                made=(rounds + 1) * (each // 5),
            )
            for verb, requests in (("update", _updates), ("delete", _deletions))
        ),
    ]


def _row(
    folder: Path,
    what: str,
    requests: Requests,
    in_flight: int,
    each: int,
    rounds: int,
    existing: int = 0,
    verb: str = "create",
    made: int = 0,
) -> Row:
    reference = [find_executable(REFERENCE)]
    with folder_in(folder, "creation") as place, ExitStack() as stack:
        sides = []
        for name, command in (
            ("penstock", with_jetstream(OURS, place / "ours")),
            (REFERENCE, with_jetstream(reference, place / "theirs")),
        ):
            server = stack.enter_context(BenchServer(name, command))
            client = stack.enter_context(Client.connect(server.url, timeout_s=60))
            sides.append(Side(name, server, JetStream(client)))
        for side in sides:
            config = {"name": "MADE", "subjects": ["of.consumers"], "max_consumers": 1_000_000}
            side.streams.call("STREAM.CREATE.MADE", config)
            side.ask(_streams(count(), made), in_flight)
            side.ask(requests(side.numbers, max(existing, each // 10)), in_flight)
        for _ in range(rounds):
            for side in sides:
                side.measure(requests(side.numbers, each), in_flight)
        ours, theirs = sides
    beside = f" beside {existing:,}" if existing else ""
    full = f"{verb} {each:,} {what}{beside}, {in_flight} in flight"
    return compared_row("creation", full, ours, theirs, at_least(1), unit="/s")
