"""`penstock bench` against real servers, with few messages: what it prints, and what it refuses."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.bench.loops import publish_many
from penstock.bench.plan import Kind
from penstock.client.client import Client
from penstock.client.credentials import Credentials
from penstock.testing.servers import ServerThread, start_server
from tests.cli.conftest import Run

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
FEW = ("--msgs", 500, "--size", 16)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    """Return a running server that wants a token."""
    with start_server(settings="authorization { token: s3cret }") as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "publishers", "subscribers", "in_flight"),
    [
        (("pub", "--clients", 2), 2, 0, None),
        (("pubsub",), 1, 1, None),
        (("fanout", "--subscribers", 2), 1, 2, None),
        (("queue", "--subscribers", 2), 1, 2, None),
        (("reqrep", "--in-flight", 5), 1, 1, 5),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_bench_prints_a_document_of_the_documented_shape(
    run: Run,
    server: ServerThread,
    command: tuple[object, ...],
    publishers: int,
    subscribers: int,
    in_flight: int | None,
) -> None:
    access = ("-s", server.url, "--token", "s3cret")
    ran = run("bench", *command, *FEW, *access, "--runs", 2, "--json")

    document = ran.document
    (measured,) = document.pop("servers")
    assert document == {
        "bench": command[0],
        "subject": "bench",
        "size_bytes": 16,
        "publishers": publishers,
        "subscribers": subscribers,
        "in_flight": in_flight,
        "streams": None,
        "storage": None,
        "subjects": None,
        "stored": None,
        "one_in": None,
        "batch": None,
        "ack": None,
        "runs": 2,
    }
    assert measured["server"] == f"127.0.0.1:{server.port}"
    assert (measured["messages"], measured["ratio"]) == (500, None)
    assert 0 < measured["messages_per_second"] <= measured["messages_per_second_best"]
    assert measured["megabytes_per_second"] > 0
    assert len(measured["seconds"]) == 2
    assert ("latency_p50_us" in measured) == (command[0] == "reqrep")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pub", "pubsub", "fanout", "queue"])
def test_messages_are_published_to_as_many_subjects_as_asked(
    run: Run, server: ServerThread, kind: str
) -> None:
    access = ("-s", server.url, "--token", "s3cret")
    with Client.connect(server.url, credentials=Credentials(token="s3cret")) as client:
        sid = client.subscribe(b"bench.s.*")
        client.flush()
        ran = run("bench", kind, *FEW, *access, "--subjects", 50, "--runs", 1, "--json")
        seen = {client.next_message(sid).subject for _ in range(500)}

    assert ran.document["subjects"] == 50
    assert seen == {b"bench.s.%02d" % number for number in range(50)}


@pytest.mark.slow
def test_people_see_a_table(run: Run, server: ServerThread) -> None:
    ran = run("bench", "reqrep", *FEW, "-s", server.url, "--token", "s3cret", "--runs", 1)

    assert ran.code == 0
    assert re.search(r"server .*msgs/s .*MB/s .*p50 µs .*p99 µs", ran.out)
    assert f"127.0.0.1:{server.port}" in ran.out
    assert "ratio" not in ran.out


@pytest.mark.slow
def test_without_a_number_of_messages_a_run_takes_some_time(run: Run, server: ServerThread) -> None:
    access = ("-s", server.url, "--token", "s3cret")
    ran = run("bench", "pub", *access, "--seconds", 0.02, "--runs", 1, "--json")

    assert ran.document["servers"][0]["messages"] > 0


@pytest.mark.slow
def test_a_subscriber_counts_what_others_publish(run: Run, server: ServerThread) -> None:
    is_over = threading.Event()
    publishing = threading.Thread(target=_publish_until, args=(server.url, is_over))
    publishing.start()
    try:
        ran = run("bench", "sub", *FEW, "-s", server.url, "--token", "s3cret", "--json")
    finally:
        is_over.set()
        publishing.join()

    assert (ran.document["publishers"], ran.document["subscribers"]) == (0, 1)
    assert ran.document["servers"][0]["messages_per_second"] > 0


def _publish_until(url: str, is_over: threading.Event) -> None:
    with Client.connect(url, credentials=Credentials(token="s3cret")) as client:
        while not is_over.is_set():
            publish_many(client.wire, b"bench", b"x" * 16, 10)
            client.flush()


@pytest.mark.slow
def test_two_servers_are_compared_in_one_run(run: Run) -> None:
    ran = run("bench", "reqrep", *FEW, "--compare", "nats-server", "--runs", 2, "--json")

    ours, theirs = ran.document["servers"]
    assert (ours["server"], theirs["server"]) == ("penstock", "nats-server")
    assert ours["ratio"] > 0
    assert ours["latency_p50_ratio"] > 0
    assert theirs["ratio"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "streams", "storage", "subjects"),
    [
        (("jspub", "--streams", 2, "--publishers", 2, "--sync", "always"), 2, "file", None),
        (("jspub", "--storage", "memory"), 1, "memory", None),
        (("jsget", "--subjects", 50), 1, "file", 50),
    ],
    ids=["file", "memory", "get"],
)
def test_streams_of_two_servers_are_compared_and_leave_nothing_behind(
    run: Run,
    tmp_path: Path,
    command: tuple[object, ...],
    streams: int,
    storage: str,
    subjects: int | None,
) -> None:
    places = ("--compare", "nats-server", "--data", tmp_path)
    ran = run("bench", *command, *FEW, *places, "--in-flight", 10, "--runs", 1, "--json")

    told = ran.document
    assert (told["streams"], told["storage"], told["subjects"]) == (streams, storage, subjects)
    assert (told["subscribers"], told["in_flight"]) == (0, 10)
    assert told["servers"][0]["latency_p50_ratio"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("jsfetch", "--ack", "explicit", "--batch", 50, "--in-flight", 2), (None, 50, "explicit")),
        (("jsfetch", "--subjects", 20, "--one-in", 10), (10, 500, "none")),
        (("jspush", "--clients", 2), (None, None, "none")),
    ],
    ids=["fetch", "filter", "push"],
)
def test_consumers_of_two_servers_are_compared_and_leave_nothing_behind(
    run: Run, tmp_path: Path, command: tuple[object, ...], expected: tuple[object, ...]
) -> None:
    places = ("--compare", "nats-server", "--data", tmp_path)
    ran = run("bench", *command, *FEW, "--stored", 400, *places, "--runs", 1, "--json")

    told = ran.document
    assert (told["one_in"], told["batch"], told["ack"]) == expected
    assert (told["publishers"], told["stored"]) == (0, 400)
    assert told["servers"][0]["ratio"] > 0
    assert "latency_p50_us" not in told["servers"][0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_comparison_is_a_table_with_the_ratio(run: Run) -> None:
    ran = run("bench", "pubsub", *FEW, "--compare", "nats-server", "--runs", 1)

    assert re.search(r"penstock .*\d\.\d\dx", ran.out)
    assert "nats-server" in ran.out


def test_a_server_that_is_not_there_is_named_with_what_to_do(run: Run) -> None:
    ran = run("bench", "pub", *FEW, "-s", "127.0.0.1:1")

    assert (ran.code, ran.out) == (1, "")
    assert "127.0.0.1:1" in ran.err
    assert "penstock server" in ran.err


def test_who_is_refused_is_told_without_the_secret(run: Run, server: ServerThread) -> None:
    ran = run("bench", "pub", *FEW, "-s", server.url, "--token", "wr0ng")

    assert ran.code == 1
    assert "Authorization Violation" in ran.err
    assert "wr0ng" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("pub", "--compare", "no-such-server"), "no-such-server"),
        (("pub", "--subject", "a.*"), "nobody can publish to the subject 'a.*'"),
        (("pub", "--size", "-1"), "--size must be"),
        (("pubsub", "--subscribers", "0"), "--subscribers must be"),
        (("pubsub", "--publishers", "9", "--msgs", "8"), "--msgs must be at least 9"),
        (("reqrep", "--in-flight", "0"), "--in-flight must be"),
        (("jspub", "--streams", "0"), "--streams must be"),
        (("jspub", "--sync", "sometimes"), "sometimes"),
        (("jsget", "--subjects", "6000000"), "--subjects must be"),
        (("reqrep", "--msgs", "6000000"), "--msgs must be at most 5,000,000"),
        (("jsfetch", "--one-in", "100"), "--one-in 100 wants as many --subjects"),
        (("jspush", "--stored", "10", "--msgs", "20000"), "--msgs must be at most 10,000"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    run: Run, arguments: tuple[str, ...], text: str
) -> None:
    ran = run("bench", *arguments)

    assert ran.code == 2
    assert text in ran.err


@pytest.mark.parametrize("kind", Kind)
def test_every_bench_and_every_option_of_it_is_told_in_the_page(run: Run, kind: Kind) -> None:
    page = PAGE.read_text()
    # How to reach a server is told once, for all commands that do.
    own = _options(run("bench", kind, "--help").out) - _options(run("pub", "--help").out)

    assert f"penstock bench {kind}" in page
    assert {option for option in own if option not in page} == set()


def _options(text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", text))
