"""Objects of a megabyte to a gigabyte, up and down, in turns with nats-server.

An object is stored as clients store it: chunks of 128 KB, all of one subject and many in flight,
and then what describes it, which replaces what described it before. It is read through a consumer
that is made for it. Clients also digest what they send and receive, which costs no server anything
and is left out.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.breadth import GOAL, ROUNDS_MAX
from benchmarks.compared import Runs, compared_row, metered, servers_with_streams
from benchmarks.kv import read_ordered
from benchmarks.measure import Row, Sizes, si
from penstock.bench.load import send_requests
from penstock.bench.runs import Run
from penstock.bench.servers import BenchServer
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.limits import BENCH_WAIT_S

CHUNK_BYTES = 128 * 1024
IN_FLIGHT = 100
RUN_BYTES = 5 * 10**7
"""A run moves so much at least: as many objects of the size as that takes."""

SHORT_BYTES_MAX = 10**8
LONG_ROUNDS = 2
"""Larger objects take longer, and one run of them differs less from the next."""

STREAM = "OBJ_bench"
CHUNKS = "$O.bench.C."
DESCRIPTIONS = "$O.bench.M."
ROLLUP = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    rows: list[Row] = []
    for size_bytes in sizes.objects:
        with servers_with_streams(folder, "objects") as servers:
            rows += _rows(size_bytes, servers, sizes)
    return rows


def _rows(size_bytes: int, servers: tuple[BenchServer, BenchServer], sizes: Sizes) -> list[Row]:
    rounds = ROUNDS_MAX if size_bytes <= SHORT_BYTES_MAX else LONG_ROUNDS
    stores = [ObjectStore.made(server, size_bytes) for server in servers]
    up = [Runs(server.name) for server in servers]
    down = [Runs(server.name) for server in servers]
    try:
        for _ in range(min(sizes.rounds, rounds)):
            for place, store in enumerate(stores):
                store.clear()
                up[place].runs.append(store.measured(store.put))
            for place, store in enumerate(stores):
                down[place].runs.append(store.measured(store.get))
    finally:
        for store in stores:
            store.client.close()
    return [
        compared_row(
            "objects",
            f"object of {si(size_bytes, 'B')}, {direction}",
            sides[0],
            sides[1],
            GOAL,
            measure=_bytes_per_second,
            unit="B/s",
            either=True,
        )
        for direction, sides in (("up", up), ("down", down))
    ]


def _bytes_per_second(run: Run) -> float:
    return run.payload_bytes / run.seconds


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The objects of one server, all of about one size, and a client of them."""

    server: BenchServer
    client: Client
    chunks: int
    count: int

    @classmethod
    def made(cls, server: BenchServer, size_bytes: int) -> ObjectStore:
        """Return a new store of objects of a size, in whole chunks."""
        client = Client.connect(server.url, timeout_s=BENCH_WAIT_S)
        config = {
            "name": STREAM,
            "subjects": [f"{CHUNKS}>", f"{DESCRIPTIONS}>"],
            "discard": "new",
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        JetStream(client).call(f"STREAM.CREATE.{STREAM}", config)
        chunks = max(round(size_bytes / CHUNK_BYTES), 1)
        return cls(server, client, chunks, -(-RUN_BYTES // size_bytes))

    def measured(self, action: Callable[[int], None]) -> Run:
        """Do something with every object; return the run, whose messages are chunks."""

        def all_of_them() -> int:
            for number in range(self.count):
                action(number)
            return self.count * self.chunks

        return metered(self.server, all_of_them, message_bytes=CHUNK_BYTES)

    def put(self, number: int) -> None:
        """Store an object."""
        send_requests(
            self.client,
            f"{CHUNKS}{number}".encode(),
            b"x" * CHUNK_BYTES,
            IN_FLIGHT,
            array("q", bytes(8 * self.chunks)),
        )
        description = {"name": f"object {number}", "bucket": "bench", "chunks": self.chunks}
        body = json.dumps(description).encode()
        JetStream(self.client).publish(f"{DESCRIPTIONS}{number}".encode(), body, headers=ROLLUP)

    def get(self, number: int) -> None:
        """Read an object through a consumer."""
        described = f"$JS.API.DIRECT.GET.{STREAM}.{DESCRIPTIONS}{number}".encode()
        chunks = json.loads(self.client.request(described).payload)["chunks"]
        read_ordered(self.client, STREAM, f"{CHUNKS}{number}", chunks)

    def clear(self) -> None:
        """Remove all objects."""
        JetStream(self.client).call(f"STREAM.PURGE.{STREAM}")
