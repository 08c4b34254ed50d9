"""The demo's parts with a client of another make: it talks through a server, and fills a stream.

The server is a process of its own. The client is nats-py, which knows nothing of Penstock; without
it these parts are left out, and the first says how to get it.

The stream: while the client publishes to it the server is killed, and nothing is lost. Every event
carries an id. Events not acknowledged when the server died are published again after its restart,
and the ids prevent duplicates. In the end the stream's files are inspected with `penstock store`,
beside the server that has them open.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from penstock.bench.plan import Kind, Plan, Target
from penstock.bench.runs import LoadProcesses
from penstock.bench.servers import OURS, BenchServer
from penstock.cli.demo.shop import event
from penstock.cli.demo.stage import Stage
from penstock.cli.output import count, printable

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import PubAck


# Through a server

TALK_EVENTS = 1_000
REQUESTS = 100
BENCH_MESSAGES = 500_000
BENCH_BYTES = 128
WAIT_S = 30


def play_server(stage: Stage) -> None:
    """Start a server, talk through it, look at its monitoring, and measure it."""
    stage.heading("A server, and a client that takes it for a nats-server")
    if importlib.util.find_spec("nats") is None:
        stage.say("left out: it wants a client to talk with; pip install nats-py")
        return
    command = [*OURS, "-m", "-1", "--ports_file_dir", str(stage.folder)]
    with BenchServer("penstock", command) as server:
        stage.say(f"penstock-server listens on {server.url}")
        asyncio.run(_talk(stage, server.url))
        # Written before the first client was served.
        ports = json.loads(next(stage.folder.glob("*.ports")).read_text())
        _look(stage, ports["monitoring"][0])
        _measure(stage, server.url)


async def _talk(stage: Stage, url: str) -> None:
    import nats

    clients = [await nats.connect(url, name=name) for name in ("shop", "worker 1", "worker 2")]
    try:
        await _publish_events(stage, clients[0])
        await _request(stage, *clients)
    finally:
        for client in clients:
            await client.close()


async def _publish_events(stage: Stage, client: NatsClient) -> None:
    subscription = await client.subscribe("orders.>")
    sent = [event(number) for number in range(1, TALK_EVENTS + 1)]
    for number, (subject, _, payload) in enumerate(sent, 1):
        await client.publish(subject.decode(), payload, headers={"Number": str(number)})
    received = [await subscription.next_msg(WAIT_S) for _ in range(TALK_EVENTS)]
    stage.check(
        [(each.subject.encode(), b"", each.data) for each in received] == sent
        and [(each.headers or {}).get("Number") for each in received]
        == [str(number) for number in range(1, TALK_EVENTS + 1)],
        f"{count(TALK_EVENTS)} events published by nats-py came through, in order, byte for byte",
    )


async def _request(stage: Stage, asking: NatsClient, *workers: NatsClient) -> None:
    import nats.errors

    answered = [0] * len(workers)

    def service(place: int) -> Any:
        async def answer(request: Msg) -> None:
            answered[place] += 1
            await request.respond(request.data[::-1])

        return answer

    for place, worker in enumerate(workers):
        await worker.subscribe("reverse", queue="workers", cb=service(place))
        await worker.flush()
    answers = [await asking.request("reverse", b"%d." % each, WAIT_S) for each in range(REQUESTS)]
    stage.check(
        [each.data for each in answers] == [(b"%d." % each)[::-1] for each in range(REQUESTS)],
        f"{REQUESTS} requests answered",
    )
    stage.check(
        min(answered) > 0 and sum(answered) == REQUESTS,
        f"by a queue group that shared them: {' and '.join(map(str, answered))}",
    )
    try:
        await asking.request("nobody.listens", b"", WAIT_S)
        told = False
    except nats.errors.NoRespondersError:
        told = True
    stage.check(told, "a request that nobody listens to is told so at once")


def _look(stage: Stage, url: str) -> None:
    with urllib.request.urlopen(f"{url}/varz", timeout=WAIT_S) as page:
        varz = json.load(page)
    with urllib.request.urlopen(f"{url}/connz?state=closed&sort=cid", timeout=WAIT_S) as page:
        connections = json.load(page)["connections"]
    # An event and a request are in once; an answer is in once more.
    expected = TALK_EVENTS + 2 * REQUESTS + 1
    stage.check(varz["in_msgs"] == expected, f"monitoring counted {count(expected)} messages in")
    headings = ("client", "speaks", "subscriptions", "in", "out")
    table = Table(*headings, title="/connz, as dashboards see it", title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    for each in connections:
        speaks = f"{each.get('lang', '?')} {each.get('version', '')}"
        numbers = (count(each[name]) for name in ("subscriptions", "in_msgs", "out_msgs"))
        table.add_row(printable(str(each.get("name", "?")).encode()), speaks, *numbers)
    stage.console.print(table)


def _measure(stage: Stage, url: str) -> None:
    plan = Plan(kind=Kind.PUBSUB, messages=BENCH_MESSAGES, size_bytes=BENCH_BYTES)
    with LoadProcesses() as crew:
        run = crew.run(plan, Target(url))
    stage.check(
        run.messages == BENCH_MESSAGES,
        f"{count(BENCH_MESSAGES)} messages of {BENCH_BYTES} B from one process to another",
    )
    stage.say(
        f"{count(round(run.messages_per_second))} messages/s; "
        "`penstock bench pubsub --compare nats-server` puts the Go server beside it"
    )


# Into a stream

STREAM = "ORDERS"
SUBJECTS = "orders.>"
WORKER = "worker"
READ_EVENTS = 1_000
EVENTS = 10_000
ACKED_BEFORE_KILL = 4_000
IN_FLIGHT = 1_000
FETCHED_TOGETHER = 500


@dataclass(slots=True)
class Shop:
    """Publishes events by their numbers, and keeps the sequence of each acknowledgement."""

    acked: dict[int, int] = field(default_factory=dict)
    duplicates: int = 0

    async def publish(self, jetstream: JetStreamContext, number: int) -> asyncio.Future[PubAck]:
        """Publish an event under its number as the id; its acknowledgement comes later."""
        subject, _, payload = event(number)
        future = await jetstream.publish_async(
            subject.decode(), payload, headers={"Nats-Msg-Id": str(number)}
        )
        future.add_done_callback(lambda done: self._note(number, done))
        return future

    def _note(self, number: int, done: asyncio.Future[PubAck]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        ack = done.result()
        self.acked[number] = ack.seq
        self.duplicates += bool(ack.duplicate)


def stream_path(store_dir: Path) -> Path:
    """Return the folder in which the server keeps the stream's messages."""
    return store_dir / "jetstream" / "$G" / "streams" / STREAM / "msgs"


def play_jetstream(stage: Stage) -> None:
    """Publish, read, kill, publish again, and look at the files."""
    if importlib.util.find_spec("nats") is None:
        return
    stage.heading("A stream: published to by nats-py, and read by a pull consumer")
    store_dir = stage.folder / "server"
    command = [*OURS, "-js", "-sd", str(store_dir)]
    shop = Shop()
    with BenchServer("penstock", command) as server:
        asyncio.run(_publish_and_read(stage, server.url, shop))
        stage.heading("The server is killed with SIGKILL while events are published")
        asyncio.run(_publish_until_killed(stage, server, shop))
    with stage.timed() as taken:
        server = BenchServer("penstock", command)
    stage.say(f"started again within {taken[0]:.1f} s, without any repair")
    with server:
        asyncio.run(_go_on(stage, server.url, shop))
        _look_at_files(stage, stream_path(store_dir))


@contextlib.asynccontextmanager
async def _connected(url: str, **options: Any) -> AsyncIterator[JetStreamContext]:
    import nats

    client = await nats.connect(url, connect_timeout=WAIT_S, **options)
    try:
        yield client.jetstream(timeout=WAIT_S, publish_async_max_pending=IN_FLIGHT)
    finally:
        await client.close()


async def _publish_and_read(stage: Stage, url: str, shop: Shop) -> None:
    async with _connected(url) as jetstream:
        await _publish_to_stream(stage, jetstream, shop)
        read = await _read(jetstream, READ_EVENTS)
    stage.check(
        read == {number: event(number) for number in range(1, READ_EVENTS + 1)},
        "all of them fetched and acknowledged, in order, byte for byte",
    )


async def _publish_to_stream(stage: Stage, jetstream: JetStreamContext, shop: Shop) -> None:
    await jetstream.add_stream(name=STREAM, subjects=[SUBJECTS])
    with stage.timed() as taken:
        await asyncio.gather(
            *[await shop.publish(jetstream, number) for number in range(1, READ_EVENTS + 1)]
        )
    stage.check(
        shop.acked == {number: number for number in range(1, READ_EVENTS + 1)},
        f"{count(READ_EVENTS)} events acknowledged: each is on stable storage",
    )
    stage.say(f"{count(round(READ_EVENTS / taken[0]))} acknowledged events/s from nats-py")


async def _read(jetstream: JetStreamContext, wanted: int) -> dict[int, Any]:
    """Fetch and acknowledge so many messages; return them by sequence, as events are."""
    worker = await jetstream.pull_subscribe(SUBJECTS, durable=WORKER)
    read: dict[int, Any] = {}
    last = 0
    while wanted:
        batch = min(wanted, FETCHED_TOGETHER)
        messages = await worker.fetch(batch, timeout=WAIT_S)
        for number, message in enumerate(messages, 1):
            seq = message.metadata.sequence.stream
            # A message that came twice or out of order does not count.
            if seq > last:
                read[seq] = (message.subject.encode(), b"", message.data)
            last = seq
            # With the last answer the worker's progress is on stable storage.
            await (message.ack() if number < len(messages) else message.ack_sync())
        wanted -= len(messages)
    return read


async def _publish_until_killed(stage: Stage, server: BenchServer, shop: Shop) -> None:
    closed = asyncio.Event()

    async def note_close() -> None:
        closed.set()

    async def note_error(error: Exception) -> None:
        stage.say(f"the client is told: {error}")

    published: list[asyncio.Future[PubAck]] = []
    async with _connected(
        server.url, allow_reconnect=False, closed_cb=note_close, error_cb=note_error
    ) as jetstream:
        numbers = iter(range(READ_EVENTS + 1, EVENTS + 1))
        for number in numbers:
            published.append(await shop.publish(jetstream, number))
            if len(shop.acked) >= ACKED_BEFORE_KILL:
                break
        burst = itertools.islice(numbers, IN_FLIGHT // 2)
        published += [await shop.publish(jetstream, number) for number in burst]
        # The client writes them when the loop turns: the server is then in the middle of its work.
        await asyncio.sleep(0)
        os.kill(server.pid, signal.SIGKILL)
        # Acknowledgements that were under way count too.
        await asyncio.wait_for(closed.wait(), WAIT_S)
    sent = READ_EVENTS + len(published)
    stage.check(
        len(shop.acked) >= ACKED_BEFORE_KILL,
        f"killed: {count(len(shop.acked))} of {count(sent)} events were acknowledged",
    )


async def _go_on(stage: Stage, url: str, shop: Shop) -> None:
    promised = {seq: event(number) for number, seq in shop.acked.items()}
    missing = [number for number in range(1, EVENTS + 1) if number not in shop.acked]
    async with _connected(url) as jetstream:
        survived = (await jetstream.stream_info(STREAM)).state.messages
        await asyncio.gather(*[await shop.publish(jetstream, number) for number in missing])
        read = await _read(jetstream, EVENTS - READ_EVENTS)
        state = (await jetstream.stream_info(STREAM)).state
        worker = await jetstream.consumer_info(STREAM, WORKER)
    stage.check(
        all(read.get(seq) == kept for seq, kept in promised.items() if seq > READ_EVENTS),
        "every acknowledged event is there, under its sequence, byte for byte",
    )
    stage.say(f"{count(survived)} events survived; the worker goes on behind those it acknowledged")
    stage.check(
        state.messages == EVENTS == len(set(shop.acked.values()))
        and sorted(read.values()) == sorted(map(event, range(READ_EVENTS + 1, EVENTS + 1))),
        f"the others published again: {count(EVENTS)} events, each of them once",
    )
    stage.say(f"{count(shop.duplicates)} were there already, and known by their ids")
    stage.check(
        (worker.num_pending, worker.num_ack_pending) == (0, 0),
        "the consumer has nothing left to deliver",
    )


def _look_at_files(stage: Stage, path: Path) -> None:
    stage.say(f"the stream's files: {path.relative_to(stage.folder)}")
    command = [sys.executable, "-m", "penstock", "store", "verify", str(path), "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    told = json.loads(ended.stdout) if ended.returncode == 0 else {}
    stage.check(
        bool(told.get("clean")) and [each["messages"] for each in told["streams"]] == [EVENTS],
        f"`penstock store verify` finds {count(EVENTS)} sound records beside the running server",
    )
