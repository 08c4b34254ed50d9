"""The demo's server: a process of its own, and a client of another make that talks through it.

The client is nats-py, which knows nothing of Penstock. Without it the part is left out, and says
how to get it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import urllib.request
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

EVENTS = 1_000
REQUESTS = 100
BENCH_MESSAGES = 500_000
BENCH_BYTES = 128
WAIT_S = 30.0


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
        await _publish(stage, clients[0])
        await _request(stage, *clients)
    finally:
        for client in clients:
            await client.close()


async def _publish(stage: Stage, client: NatsClient) -> None:
    subscription = await client.subscribe("orders.>")
    sent = [event(number) for number in range(1, EVENTS + 1)]
    for number, (subject, _, payload) in enumerate(sent, 1):
        await client.publish(subject.decode(), payload, headers={"Number": str(number)})
    received = [await subscription.next_msg(WAIT_S) for _ in range(EVENTS)]
    stage.check(
        [(each.subject.encode(), b"", each.data) for each in received] == sent
        and [(each.headers or {}).get("Number") for each in received]
        == [str(number) for number in range(1, EVENTS + 1)],
        f"{count(EVENTS)} events published by nats-py came through, in order, byte for byte",
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
    expected = EVENTS + 2 * REQUESTS + 1
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
