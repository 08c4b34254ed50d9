"""What compression saves and costs on our server, beside nats-server: a row of `breadth`.

The messages are small JSON documents whose numbers differ, as devices send them. They are published
without waiting for acknowledgements, in rounds over some thousand different ones. Bytes are those
of the stream's files when the last message is acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compared import REFERENCE, metered
from benchmarks.measure import Row, show_time, si
from penstock.bench.loops import publish_ring
from penstock.bench.runs import Run
from penstock.bench.servers import BenchServer
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.limits import BENCH_WAIT_S

DOCUMENTS = 2_000
KINDS = ("none", "s2")
SUBJECT = "compressed.all"


@dataclass(frozen=True, slots=True)
class Stored:
    """A stream of one kind on one server."""

    run: Run
    disk_bytes: int


def ring_of_documents(seed: int = 1) -> bytes:
    """Return PUB frames of different documents, all of the same length."""
    chance = random.Random(seed)
    frames = []
    for _ in range(DOCUMENTS):
        document = (
            f'{{"device":"sensor-{chance.randrange(10**6):06d}","site":"north-{chance.randrange(9)}"'
            f',"temperature":{chance.randrange(100, 1000) / 10:05.1f}'
            f',"humidity":{chance.randrange(100, 1000) / 10:05.1f}'
            f',"battery_millivolts":{chance.randrange(2_000, 4_000)}'
            f',"firmware":"2.14.{chance.randrange(9)}","status":"operational"'
            f',"message":"reading taken as scheduled","sequence":{chance.randrange(10**9):09d}}}'
        )
        frames.append(f"PUB {SUBJECT} {len(document)}\r\n{document}\r\n".encode())
    return b"".join(frames)


def compression_row(
    servers: tuple[BenchServer, BenchServer], folders: tuple[Path, Path], *, messages: int
) -> Row:
    """Measure, and return the row; the folders are those of the servers' data."""
    ring = ring_of_documents()
    ours, theirs = (
        {kind: _store(server, folder, kind, ring, messages) for kind in KINDS}
        for server, folder in zip(servers, folders, strict=True)
    )
    return Row(
        "breadth",
        "compression s2, JSON of devices: bytes on disk, of uncompressed",
        ours["s2"].disk_bytes / ours["none"].disk_bytes,
        "x",
        None,
        "; ".join(_told(name, of) for name, of in (("penstock", ours), (REFERENCE, theirs))),
        {name: _disk_bytes(of) for name, of in (("penstock", ours), (REFERENCE, theirs))},
    )


def _store(server: BenchServer, folder: Path, kind: str, ring: bytes, messages: int) -> Stored:
    name = f"compressed_{kind}"
    with Client.connect(server.url, timeout_s=BENCH_WAIT_S) as client:
        streams = JetStream(client)
        config = {"name": name, "subjects": [SUBJECT], "compression": kind}
        streams.call(f"STREAM.CREATE.{name}", config)

        def publish() -> int:
            publish_ring(client.wire, ring, len(ring) // DOCUMENTS, 0, messages)
            # Its acknowledgement says that those before it are stored too.
            streams.publish(SUBJECT.encode())
            return messages

        run = metered(server, publish)
        stored = Stored(run, sum(_sizes(folder, name)))
        streams.call(f"STREAM.DELETE.{name}")
    return stored


def _sizes(folder: Path, name: str) -> Iterator[int]:
    for path in folder.rglob("*"):
        if name in path.parts and path.is_file():
            yield path.stat().st_size


def _disk_bytes(of: dict[str, Stored]) -> list[float]:
    return [float(of[kind].disk_bytes) for kind in KINDS]


def _told(name: str, of: dict[str, Stored]) -> str:
    sizes = " of ".join(si(of[kind].disk_bytes, "B") for kind in reversed(KINDS))
    times = " and ".join(show_time(of[kind].run.message_ns) for kind in reversed(KINDS))
    return f"{name} {sizes}, processor time a message {times}"
