"""Load processes against real servers: every kind of bench counts what it should."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.bench.loops import publish_many
from penstock.bench.plan import (
    ANSWERED,
    CONSUMED,
    STREAMED,
    Ack,
    Counted,
    Kind,
    Plan,
    Storage,
    Target,
)
from penstock.bench.runs import LoadProcesses, Run
from penstock.bench.servers import OURS, BenchServer
from penstock.client.client import Client
from penstock.client.credentials import Credentials
from penstock.errors import BenchFailed
from penstock.testing.servers import BOTH, server_process, start_server

LAST = Counted.LAST_OF_SUBJECT
NO_SUBSCRIBING = (
    "authorization { users: [{user: u, password: p, permissions: {subscribe: 'bench.end'}}] }"
)


@pytest.fixture(scope="module", params=BOTH)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """Return a running server of either kind, with JetStream."""
    folder = tmp_path_factory.mktemp("streams")
    with server_process(request.param, store_dir=folder) as server:
        yield Target(server.url)


@pytest.fixture(scope="module")
def crew() -> Iterator[LoadProcesses]:
    """Return load processes that the next test uses again."""
    with LoadProcesses() as made:
        yield made


def children() -> set[int]:
    """Return the child processes that still run."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        Plan(Kind.PUB, 1_000, 16, publishers=2),
        Plan(Kind.PUB, 1_001, 16, publishers=2, spread=100),
        Plan(Kind.PUBSUB, 1, 0),
        Plan(Kind.PUBSUB, 200_003, 16, publishers=2, subscribers=2, spread=10_000),
        Plan(Kind.QUEUE, 20_002, 16, publishers=2, subscribers=3, spread=7),
        Plan(Kind.PUBSUB, 200_001, 16, publishers=2, subscribers=2),
        Plan(Kind.PUBSUB, 50, 200_000),
        Plan(Kind.FANOUT, 1_000, 128, subscribers=3),
        Plan(Kind.QUEUE, 200_000, 16, publishers=2, subscribers=3),
        Plan(Kind.REQREP, 501, 16, publishers=2, subscribers=2, in_flight=10),
        Plan(Kind.REQREP, 3, 16, in_flight=10),
        Plan(Kind.JSPUB, 501, 16, publishers=3, in_flight=10, streams=2),
        Plan(Kind.JSPUB, 501, 16, in_flight=10, storage=Storage.MEMORY, spread=7),
        Plan(Kind.JSGET, 501, 16, publishers=2, in_flight=10, spread=60),
        Plan(Kind.JSFETCH, 2_501, 16, stored=1_000, batch=40),
        Plan(
            Kind.JSFETCH,
            2_502,
            16,
            subscribers=3,
            in_flight=2,
            batch=40,
            stored=1_000,
            ack=Ack.EXPLICIT,
        ),
        Plan(Kind.JSFETCH, 45, 16, stored=1_000, spread=100, one_in=50, batch=500),
        Plan(Kind.JSPUSH, 2_503, 16, stored=1_000, subscribers=2, storage=Storage.MEMORY),
        Plan(Kind.JSPUSH, 2_504, 16, stored=1_000, ack=Ack.EXPLICIT),
    ],
    ids=lambda plan: f"{plan.kind}-{plan.messages}-{plan.publishers}-{plan.subscribers}",
)
def test_a_run_counts_every_message(crew: LoadProcesses, target: Target, plan: Plan) -> None:
    run = crew.run(plan, target)

    assert (run.messages, run.payload_bytes) == (plan.counted, plan.counted * plan.size_bytes)
    assert run.seconds > 0
    assert bool(run.latency_hundredths_ns) == (plan.kind in ANSWERED)


def stream_count(target: Target) -> int:
    with Client.connect(target.url) as client:
        count: int = json.loads(client.request(b"$JS.API.STREAM.NAMES").payload)["total"]
        return count


KV = {"max_msgs_per_subject": 1, "discard": "new", "allow_rollup_hdrs": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        Plan(Kind.JSPUB, 501, 16, in_flight=10, headers="Nats-Expected-Stream: {stream}\r\n"),
        Plan(Kind.JSPUB, 501, 16, in_flight=10, counted_header=Counted.MESSAGE_ID),
        Plan(Kind.JSPUB, 501, 16, in_flight=50, spread=7, counted_header=LAST),
        Plan(Kind.JSPUB, 501, 16, in_flight=50, spread=7, filled=14, counted_header=LAST),
        Plan(Kind.JSPUB, 501, 16, spread=7, filled=7, config=KV, counted_header=LAST),
        Plan(Kind.JSPUB, 501, 0, headers="Nats-Incr: 1\r\n", config={"allow_msg_counter": True}),
        Plan(Kind.JSPUB, 2_501, 16, in_flight=50, drained=True, config={"retention": "interest"}),
        Plan(Kind.JSGET, 501, 16, in_flight=10, subject="$KV.bench", spread=60, config=KV),
    ],
    ids=lambda plan: f"{plan.headers or plan.counted_header or plan.config}-{plan.filled}",
)
def test_streams_may_have_options_and_messages_may_have_headers(
    crew: LoadProcesses, target: Target, plan: Plan
) -> None:
    # A server refuses what does not fit its stream, and a refusal fails the run.
    run = crew.run(plan, target)

    assert run.messages == plan.messages
    assert len(run.latency_hundredths_ns) == 101


@pytest.mark.slow
def test_a_wrong_expectation_fails_the_run(crew: LoadProcesses, target: Target) -> None:
    plan = Plan(Kind.JSPUB, 10, 16, headers="Nats-Expected-Stream: another\r\n")

    with pytest.raises(BenchFailed, match="expected stream does not match"):
        crew.run(plan, target)


@pytest.mark.slow
def test_the_processor_time_of_a_server_is_measured_where_its_process_is_known(
    crew: LoadProcesses,
) -> None:
    plan = Plan(Kind.PUB, 20_000, 16)
    with BenchServer("it", OURS) as server:
        measured = crew.run(plan, Target(server.url, pid=server.pid))
        unknown = crew.run(plan, Target(server.url))

    assert measured.message_ns > 0
    assert measured.cores > 0
    assert unknown.processor_ns == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(STREAMED - CONSUMED))
def test_the_streams_of_a_run_are_gone_when_it_is_over(
    crew: LoadProcesses, target: Target, kind: Kind
) -> None:
    before = stream_count(target)

    crew.run(Plan(kind, 10, 16), target)

    assert stream_count(target) == before


@pytest.mark.slow
def test_a_stream_is_filled_once_for_all_runs_that_read_it_and_goes_with_the_crew(
    target: Target,
) -> None:
    before = stream_count(target)
    with LoadProcesses() as crew:
        for kind in sorted(CONSUMED):
            crew.run(Plan(kind, 150, 16, stored=100), target)
            crew.run(Plan(kind, 50, 16, stored=100), target)
        crew.run(Plan(Kind.JSPUSH, 150, 32, stored=100), target)

        assert stream_count(target) == before + 2

    assert stream_count(target) == before


@pytest.mark.slow
def test_a_server_without_jetstream_cannot_have_streams() -> None:
    with start_server() as server, LoadProcesses() as crew, pytest.raises(BenchFailed) as failed:
        crew.run(Plan(Kind.JSPUB, 10, 16), Target(server.url))

    assert failed.value.what == "jspub"
    assert "no JetStream" in failed.value.reason


@pytest.mark.slow
def test_a_publish_that_is_refused_fails_the_run(crew: LoadProcesses, target: Target) -> None:
    with Client.connect(target.url) as client:
        config = b'{"name":"ALL","subjects":["taken.*.0.>"],"max_msgs":1,"discard":"new"}'
        client.request(b"$JS.API.STREAM.CREATE.ALL", config)
        try:
            with pytest.raises(BenchFailed) as failed:
                crew.run(Plan(Kind.JSPUB, 10, 16, spread=5, subject="taken"), target)
        finally:
            client.request(b"$JS.API.STREAM.DELETE.ALL")

    assert "subjects overlap" in failed.value.reason


@pytest.mark.slow
def test_latencies_of_several_clients_are_put_together(crew: LoadProcesses, target: Target) -> None:
    run = crew.run(Plan(Kind.REQREP, 200, 16, publishers=2), target)

    assert 0 < run.latency_us(0) <= run.latency_us(50) <= run.latency_us(99) <= run.latency_us(100)
    assert run.latency_us(100) <= run.seconds * 1e6


@pytest.mark.slow
def test_what_others_publish_is_received(crew: LoadProcesses, target: Target) -> None:
    runs: list[Run] = []
    plan = Plan(Kind.SUB, 1_000, 16, subscribers=2)
    receiving = threading.Thread(target=lambda: runs.append(crew.run(plan, target)))
    receiving.start()
    with Client.connect(target.url) as client:
        while receiving.is_alive():
            publish_many(client.wire, b"bench", b"x" * 16, 10)
            client.flush()

    assert [run.messages for run in runs] == [2_000]


@pytest.mark.slow
def test_progress_is_told_from_the_first_message_to_the_last(
    crew: LoadProcesses, target: Target
) -> None:
    told: list[tuple[int, int]] = []
    plan = Plan(Kind.FANOUT, 100_000, 16, subscribers=2)

    crew.run(plan, target, lambda done, total: told.append((done, total)))

    done = [each for each, _ in told]
    assert done == sorted(done)
    assert done[0] == 1
    assert told[-1] == (200_000, 200_000)
    assert {total for _, total in told} == {200_000}


@pytest.mark.slow
def test_processes_are_used_again_and_end_with_the_crew() -> None:
    plan = Plan(Kind.PUBSUB, 10, 16)
    with start_server() as server:
        before = children()
        with LoadProcesses() as crew:
            crew.run(plan, Target(server.url))
            used = children() - before
            crew.run(plan, Target(server.url))

            assert children() - before == used
            assert len(used) == 2

        assert children() == before


@pytest.mark.slow
def test_a_process_that_ends_before_its_time_fails_the_run_and_not_the_next() -> None:
    with start_server() as server:
        before = children()
        with LoadProcesses() as crew:
            crew.run(Plan(Kind.PUB, 10, 16), Target(server.url))
            for pid in children() - before:
                os.kill(pid, signal.SIGKILL)

            with pytest.raises(BenchFailed) as failed:
                crew.run(Plan(Kind.PUB, 10, 16), Target(server.url))
            assert crew.run(Plan(Kind.PUB, 10, 16), Target(server.url)).messages == 10

    assert failed.value.reason == "a load process ended before its time"


@pytest.mark.slow
def test_a_server_that_is_not_there_fails_the_run() -> None:
    with LoadProcesses() as crew, pytest.raises(BenchFailed) as failed:
        crew.run(Plan(Kind.PUB, 10, 16), Target("nats://127.0.0.1:1"))

    assert (failed.value.what, failed.value.reason) == (
        "pub",
        "cannot connect to 127.0.0.1:1: connection refused",
    )


@pytest.mark.slow
def test_messages_that_do_not_arrive_fail_the_run() -> None:
    with start_server(settings=NO_SUBSCRIBING) as server, LoadProcesses() as crew:
        target = Target(server.url, Credentials(user="u", password="p"))

        with pytest.raises(BenchFailed) as failed:
            crew.run(Plan(Kind.PUBSUB, 10, 16), target)

    assert failed.value.reason == "0 messages came instead of 10"
