"""One message in flight: each is published when the one before it was acknowledged.

Penstock waits for a sync before it acknowledges, as nats-server does with `sync_interval: always`;
with its default nats-server acknowledges what only the page cache holds. All three are shown,
beside what the disk itself needs to write as many bytes to a growing file and sync them. They take
turns, a few hundred messages each, so that a disk that is slow for a while is slow for all.

The store alone, without a server, is measured in the same turns: one message stored and flushed.
"""

from __future__ import annotations

import contextlib
import os
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.baselines import write_raw_latencies
from benchmarks.measure import (
    PAYLOAD_BYTES,
    Goal,
    Row,
    Sizes,
    at_most,
    folder_in,
    percentile,
)
from penstock.bench.load import send_requests
from penstock.bench.servers import (
    OURS,
    BenchServer,
    find_executable,
    processor_ns,
    processor_ns_since,
    with_jetstream,
)
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.store.filestore import FileStore

REFERENCE = "nats-server"
SYNCED = f"{REFERENCE} synced"
DISK = "the disk's own write + fdatasync"
KEYS = 1_000
RECORD_OVERHEAD_BYTES = 48
"""About what a record has beside its payload."""

GOALS: dict[str, Goal | None] = {DISK: at_most(1.25), SYNCED: at_most(1), REFERENCE: None}
"""Of the median; what is acknowledged before it is synced is shown, and no goal."""

STREAM: dict[str, Any] = {"name": "ONE", "subjects": ["one.>"], "storage": "file"}
BUCKET: dict[str, Any] = {
    "name": "KV_ONE",
    "subjects": ["$KV.ONE.>"],
    "storage": "file",
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
}
"""As clients configure a bucket."""

Latencies = list[float]
Action = Callable[[int], Latencies]
"""Does something so many times; returns the seconds that each took."""


class Publisher:
    """A client of one server that waits for each acknowledgement."""

    def __init__(self, server: BenchServer, config: dict[str, Any], *, keys: int) -> None:
        """Make the stream; with `keys` messages go to as many subjects in turn."""
        self._client = Client.connect(server.url, timeout_s=60)
        JetStream(self._client).call(f"STREAM.CREATE.{config['name']}", config)
        self._pid = server.pid
        self._keys = keys
        self._subject = config["subjects"][0][:-1].encode() + (b"" if keys else b"x")
        self.processor_ns: list[float] = []
        """Of the server, for each message; one number a turn."""

    def publish(self, count: int) -> Latencies:
        """Publish one message after another."""
        taken_ns = array("q", bytes(8 * count))
        before_ns = processor_ns(self._pid)
        send_requests(
            self._client, self._subject, b"x" * PAYLOAD_BYTES, 1, taken_ns, spread=self._keys
        )
        self.processor_ns.append(processor_ns_since(self._pid, before_ns) / count)
        return [each / 1e9 for each in taken_ns]

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class RawFile:
    """A file that grows by a record at a time."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def append(self, count: int) -> Latencies:
        """Append one record after another, each with a data sync."""
        record = os.urandom(PAYLOAD_BYTES + RECORD_OVERHEAD_BYTES)
        return write_raw_latencies(self._fd, record, count)

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    reference = [find_executable(REFERENCE)]
    with folder_in(folder, "one-in-flight") as place, contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(BenchServer(name, command))
            for name, command in (
                ("penstock", with_jetstream(OURS, place / "ours")),
                (REFERENCE, with_jetstream(reference, place / "theirs")),
                (SYNCED, with_jetstream(reference, place / "synced", sync="always")),
            )
        ]
        raw = RawFile(place / "raw")
        stack.callback(raw.close)
        rows = []
        for what, config, keys in (("publish", STREAM, 0), ("kv put", BUCKET, KEYS)):
            publishers = {}
            for server in servers:
                publishers[server.name] = Publisher(server, config, keys=keys)
                stack.callback(publishers[server.name].close)
            rows += _publish_rows(f"{what}, one in flight", publishers, raw, sizes)
        store = stack.enter_context(FileStore.open(str(place / "store")))
        return rows + _store_rows(store, raw, sizes)


def _publish_rows(
    what: str, publishers: dict[str, Publisher], raw: RawFile, sizes: Sizes
) -> list[Row]:
    actions: dict[str, Action] = {name: each.publish for name, each in publishers.items()}
    taken = _in_turns({**actions, DISK: raw.append}, sizes)
    rows = [_row(what, "penstock", name, taken, 50, goal) for name, goal in GOALS.items()]
    rows.append(_row(what, "penstock", DISK, taken, 99, None))
    spent = {name: sorted(each.processor_ns) for name, each in publishers.items()}
    for name in (REFERENCE, SYNCED):
        ours, theirs = (spent[each][len(spent[each]) // 2] / 1e3 for each in ("penstock", name))
        rows.append(
            Row(
                "one-in-flight",
                f"{what}: processor time of the server, of {name}",
                ours / theirs,
                "x",
                None,
                f"{ours:.1f} µs a message; {name} {theirs:.1f} µs",
                {each: spent[each] for each in ("penstock", name)},
            )
        )
    return rows


def _store_rows(store: FileStore, raw: RawFile, sizes: Sizes) -> list[Row]:
    payload = os.urandom(PAYLOAD_BYTES)

    def store_each(count: int) -> Latencies:
        taken = []
        for _ in range(count):
            started = time.perf_counter()
            store.store(b"one.x", b"", payload)
            store.flush()
            taken.append(time.perf_counter() - started)
        return taken

    taken = _in_turns({"the store": store_each, DISK: raw.append}, sizes)
    what = "store + flush of one message"
    return [
        _row(what, "the store", DISK, taken, 50, GOALS[DISK]),
        _row(what, "the store", DISK, taken, 99, None),
    ]


def _in_turns(actions: dict[str, Action], sizes: Sizes) -> dict[str, list[Latencies]]:
    """Do everything some hundred times, in turns; what each took, turn by turn."""
    for action in actions.values():
        action(sizes.latencies)
    taken: dict[str, list[Latencies]] = {name: [] for name in actions}
    for _ in range(sizes.rounds):
        for name, action in actions.items():
            taken[name].append(action(sizes.latencies))
    return taken


def _row(
    what: str,
    ours: str,
    theirs: str,
    taken: dict[str, list[Latencies]],
    percent: int,
    goal: Goal | None,
) -> Row:
    shown = {
        name: ", ".join(f"p{each} {_all_us(taken[name], each):.0f} µs" for each in (50, 99))
        for name in (ours, theirs)
    }
    return Row(
        "one-in-flight",
        f"{what}: p{percent}, of {theirs}",
        _all_us(taken[ours], percent) / _all_us(taken[theirs], percent),
        "x",
        goal,
        f"{shown[ours]}; {theirs} {shown[theirs]}",
        {name: [percentile(turn, percent) for turn in taken[name]] for name in (ours, theirs)},
    )


def _all_us(turns: Sequence[Latencies], percent: int) -> float:
    return 1e6 * percentile([each for turn in turns for each in turn], percent)
