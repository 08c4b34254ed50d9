"""Atomic batches to a stream, in turns with nats-server: a row of `benchmarks.breadth`.

A batch is made once, with room for its id. Python runs once per batch, which costs the load less
than the messages of the batch do.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from benchmarks.compared import Runs, compared_row, metered
from benchmarks.measure import Goal, Row
from penstock.bench.servers import BenchServer
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import BenchFailed
from penstock.limits import BENCH_WAIT_S

BATCH_MESSAGES = 100
IN_FLIGHT = 10
STREAM = "batches"
SUBJECT = "batches.all"
ROOM = b"BATCH-ID"
"""What stands in a batch where its id will be; an id has as many digits."""


def batch_with_room(inbox: bytes, payload: bytes) -> bytes:
    """Return the frames of a batch; the last one commits it, and is answered to `inbox`."""
    frames = []
    for number in range(1, BATCH_MESSAGES + 1):
        lines = b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n" % (ROOM, number)
        reply = b""
        if number == BATCH_MESSAGES:
            lines += b"Nats-Batch-Commit: 1\r\n"
            reply = inbox + b" "
        block = b"NATS/1.0\r\n%b\r\n" % lines
        sizes = (len(block), len(block) + len(payload))
        head = b"HPUB %b %b%d %d\r\n" % (SUBJECT.encode(), reply, *sizes)
        frames.append(b"%b%b%b\r\n" % (head, block, payload))
    return b"".join(frames)


def publish_batches(client: Client, payload: bytes, seconds: float) -> int:
    """Publish batches for so long; return how many messages they had."""
    inbox = client.new_inbox() + b".batch"
    sid = client.subscribe(inbox)
    batch = batch_with_room(inbox, payload)
    until = time.perf_counter() + seconds
    waiting: deque[int] = deque()
    begun = 0
    while not begun or time.perf_counter() < until or waiting:
        while len(waiting) < IN_FLIGHT and (not begun or time.perf_counter() < until):
            client.wire.write(batch.replace(ROOM, b"%0*d" % (len(ROOM), begun)))
            waiting.append(begun)
            begun += 1
        client.send()
        answer = client.next_message(sid).payload
        if b'"error"' in answer:
            raise BenchFailed("atomic batch", answer.decode())
        waiting.popleft()
    client.unsubscribe(sid)
    return begun * BATCH_MESSAGES


def batches_row(
    servers: tuple[BenchServer, BenchServer],
    goal: Goal,
    *,
    payload_bytes: int,
    seconds: float,
    rounds: int,
) -> Row:
    """Measure, and return the row."""
    ours, theirs = (Runs(server.name) for server in servers)
    for _ in range(rounds):
        for server, side in zip(servers, (ours, theirs), strict=True):
            with Client.connect(server.url, timeout_s=BENCH_WAIT_S) as client:
                streams = JetStream(client)
                config = {"name": STREAM, "subjects": [SUBJECT], "allow_atomic": True}
                streams.call(f"STREAM.CREATE.{STREAM}", config)
                action = partial(publish_batches, client, b"x" * payload_bytes, seconds)
                side.runs.append(metered(server, action))
                streams.call(f"STREAM.DELETE.{STREAM}")
    what = f"publish, atomic batches of {BATCH_MESSAGES}, {IN_FLIGHT} in flight"
    return compared_row("breadth", what, ours, theirs, goal, either=True)
