"""Buckets of keys and values end to end, in turns with nats-server in its default settings.

Puts are in `benchmarks.breadth`. What changes a value is published as clients publish it, with many
in flight: an update expects the sequence of the value before it, a create expects none, a delete
leaves a mark, and a purge removes what was before its mark. A watch and a list of keys read all
keys through a consumer that is made for it; a history does so for one key at a time.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.breadth import GOAL, PAYLOAD_BYTES, ROUNDS_MAX, bucket_config, put_keys
from benchmarks.compared import (
    Runs,
    compared_row,
    metered,
    run_in_turns,
    servers_with_streams,
)
from benchmarks.measure import Goal, Row, Sizes, at_least
from penstock.bench.load import send_requests
from penstock.bench.loops import consume_many
from penstock.bench.plan import Counted, Kind, Plan
from penstock.bench.runs import LoadProcesses
from penstock.bench.servers import BenchServer
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.limits import BENCH_REQUESTS_MAX, BENCH_WAIT_S

HISTORY = 5
FILL_IN_FLIGHT = 1_000
GETS_IN_FLIGHT = 100
SECOND_NS = 10**9
STREAM = "KV_read"
KEYS = "$KV.read."


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with servers_with_streams(folder, "kv") as servers:
        with LoadProcesses() as load:
            rows = [
                _plan_row(load, what, plan, servers, sizes) for what, plan in _plans(sizes).items()
            ]
        buckets = [Bucket.filled(server, sizes.keys) for server in servers]
        try:
            rows += [_read_row(read, buckets, sizes) for read in READS]
        finally:
            for bucket in buckets:
                bucket.client.close()
        return rows


# Requests that change or get values


def _plans(sizes: Sizes) -> dict[str, Plan]:
    keys = sizes.keys
    create = "Nats-Expected-Last-Subject-Sequence: 0\r\n"
    purge = "KV-Operation: PURGE\r\nNats-Rollup: sub\r\n"
    return {
        f"update, {keys:,} keys": put_keys(keys, counted_header=Counted.LAST_OF_SUBJECT),
        "create, each time a new key": put_keys(BENCH_REQUESTS_MAX, filled=0, headers=create),
        f"delete, {keys:,} keys": put_keys(keys, size_bytes=0, headers="KV-Operation: DEL\r\n"),
        f"purge, {keys:,} keys": put_keys(keys, size_bytes=0, headers=purge),
        f"get, {GETS_IN_FLIGHT} in flight, {keys:,} keys": Plan(
            Kind.JSGET,
            1,
            PAYLOAD_BYTES,
            in_flight=GETS_IN_FLIGHT,
            subject="$KV.bench",
            spread=keys,
            config=bucket_config(),
        ),
    }


def _plan_row(
    load: LoadProcesses,
    what: str,
    plan: Plan,
    servers: tuple[BenchServer, BenchServer],
    sizes: Sizes,
) -> Row:
    ours, theirs = run_in_turns(
        load,
        [(server, plan) for server in servers],
        seconds=sizes.breadth_seconds,
        rounds=min(sizes.rounds, ROUNDS_MAX),
    )
    return compared_row("kv", f"KV {what}", ours, theirs, GOAL, either=True)


# Reading many keys through consumers


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket whose keys have `HISTORY` values each, and a client that reads it."""

    server: BenchServer
    client: Client
    keys: int

    @classmethod
    def filled(cls, server: BenchServer, keys: int) -> Bucket:
        """Return a new bucket."""
        client = Client.connect(server.url, timeout_s=BENCH_WAIT_S)
        config = bucket_config(HISTORY) | {"name": STREAM, "subjects": [f"{KEYS}>"]}
        JetStream(client).call(f"STREAM.CREATE.{STREAM}", config)
        send_requests(
            client,
            KEYS.encode(),
            b"x" * PAYLOAD_BYTES,
            FILL_IN_FLIGHT,
            array("q", bytes(8 * keys * HISTORY)),
            spread=keys,
        )
        return cls(server, client, keys)

    def read(self, pattern: str, count: int, **config: object) -> None:
        """Read `count` messages of the bucket through a consumer."""
        read_ordered(self.client, STREAM, pattern, count, **config)


def read_ordered(client: Client, stream: str, pattern: str, count: int, **config: object) -> None:
    """Make a consumer as clients make an ordered one, read `count` messages and remove it."""
    inbox = client.new_inbox() + b".to"
    ordered = {
        "deliver_subject": inbox.decode(),
        "filter_subject": pattern,
        "ack_policy": "none",
        "max_deliver": 1,
        "flow_control": True,
        "idle_heartbeat": 5 * SECOND_NS,
        "inactive_threshold": 300 * SECOND_NS,
        "mem_storage": True,
        "num_replicas": 1,
    }
    streams = JetStream(client)
    asked = {"stream_name": stream, "config": ordered | config}
    name = streams.call(f"CONSUMER.CREATE.{stream}", asked)["name"]
    # The consumer begins when its subject has a subscriber.
    sid = client.subscribe(inbox)
    consume_many(client.wire, count, b"")
    client.unsubscribe(sid)
    streams.call(f"CONSUMER.DELETE.{stream}.{name}")


def _watch(bucket: Bucket, _number: int) -> int:
    bucket.read(f"{KEYS}>", bucket.keys, deliver_policy="last_per_subject")
    return bucket.keys


def _list_keys(bucket: Bucket, _number: int) -> int:
    bucket.read(f"{KEYS}>", bucket.keys, deliver_policy="last_per_subject", headers_only=True)
    return bucket.keys


def _history(bucket: Bucket, number: int) -> int:
    bucket.read(f"{KEYS}{number % bucket.keys}", HISTORY, deliver_policy="all")
    return 1


@dataclass(frozen=True, slots=True)
class Read:
    """What is read again and again; `once` returns how much it read."""

    what: str
    once: Callable[[Bucket, int], int]
    goal: Goal
    unit: str = "keys/s"


READS = [
    Read("watch of all keys", _watch, GOAL),
    Read("list of all keys", _list_keys, GOAL),
    # A consumer is made and removed for five values: the goal is that of making consumers.
    Read("history of a key", _history, at_least(1)),
]


def _read_row(read: Read, buckets: list[Bucket], sizes: Sizes) -> Row:
    ours, theirs = (Runs(bucket.server.name) for bucket in buckets)
    for _ in range(min(sizes.rounds, ROUNDS_MAX)):
        for bucket, side in zip(buckets, (ours, theirs), strict=True):
            action = partial(_repeated, read, bucket, sizes.breadth_seconds)
            side.runs.append(metered(bucket.server, action))
    what = f"KV {read.what}, {sizes.keys:,} keys"
    return compared_row("kv", what, ours, theirs, read.goal, unit=read.unit, either=True)


def _repeated(read: Read, bucket: Bucket, seconds: float) -> int:
    until = time.perf_counter() + seconds
    done = number = 0
    while not done or time.perf_counter() < until:
        done += read.once(bucket, number)
        number += 1
    return done
