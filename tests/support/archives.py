"""Streams to archive, and what they hold, told by themselves."""

from __future__ import annotations

from pathlib import Path

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import RecordNotFound
from penstock.spark.archives.folder import ArchiveFolder, Manifest, load_manifest
from penstock.spark.archives.parquet import read_exact
from penstock.spark.jobs.archive import conclude, plan_archive, write_part
from penstock.spark.jobs.job import Input
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

COUNT = 3000

Row = tuple[int, int, bytes, bytes, bytes]
"""Sequence, time, subject, headers and payload."""


def make_store(path: Path, count: int = COUNT) -> None:
    """Make a stream ORDERS of many small blocks, with gaps, headers, and a subject of no text."""
    with FileStore.open(str(path), StoreConfig(name="ORDERS", block_bytes=16384)) as store:
        add(store, 0, count)
        for seq in range(8, count, 100):
            store.remove(seq)


def add(store: FileStore, first: int, end: int) -> None:
    """Add messages."""
    for number in range(first, end):
        headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else b""
        subject = b"orders.\xff\xfe" if number % 500 == 7 else b"orders.%d" % (number % 50)
        store.store(subject, headers, b"payload %d" % number)


def stored(path: Path) -> list[Row]:
    """Return what a store says is in it."""
    with FileStore.open(str(path), StoreConfig(name="ORDERS")) as store:
        found: list[Row] = []
        seq = store.state().first_seq
        while True:
            try:
                message = store.load_next(seq)
            except RecordNotFound:
                return found
            seq = message.seq + 1
            found.append(
                (
                    message.seq,
                    message.timestamp_ns,
                    message.subject,
                    message.headers,
                    message.payload,
                )
            )


def directory(path: Path, **options: str) -> Input:
    """Return a store as what a job reads, in several parts."""
    return Input(
        "penstock-blocks",
        {"path": str(path), "stream": "ORDERS", "maxBytesPerPartition": "50k", **options},
    )


def server_input(url: str, stream: str, **options: str) -> Input:
    """Return a server's stream as what a job reads, in several parts where nothing else is said."""
    options = options or {"maxRecordsPerPartition": "40"}
    return Input("penstock", {"servers": url, "stream": stream, **options})


def archive_here(source: Input, target: Path, until: int | None = None) -> Manifest:
    """Archive in this process, without Spark."""
    plan = plan_archive(source, str(target), until=until)
    return conclude(str(target), plan, [write_part(task) for task in plan.tasks])


def connect(url: str) -> JetStream:
    """Return a connection."""
    return JetStream(Client.connect(url))


def publish(streams: JetStream, subject: str, count: int) -> None:
    """Publish messages, every third with headers."""
    for number in range(count):
        headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else None
        streams.publish(f"{subject}.{number % 7}".encode(), b"payload %d" % number, headers=headers)


def messages(streams: JetStream, stream: str) -> list[tuple[int, bytes, bytes, bytes, str]]:
    """Return what a server says is in a stream."""
    return [
        (each.seq, each.subject, each.headers, each.payload, each.time)
        for each in streams.each(stream)
    ]


def archived_sequences(target: Path) -> list[int]:
    """Return the sequences of all messages that an archive names."""
    folder = ArchiveFolder(str(target))
    batches = read_exact(folder, load_manifest(folder).files)
    return [seq for batch in batches for seq in batch.column("sequence").to_pylist()]
