"""`penstock stream` against the real server and ours: the same commands, the same results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.jetstream.stream_options import duration_ns, size_bytes
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.testing.servers import server_process
from tests.cli.conftest import Ran, Run

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
pytestmark = pytest.mark.slow
Stream = Callable[..., Ran]


@pytest.fixture
def streams(jetstream_url: str) -> Iterator[JetStream]:
    """Return JetStream without streams, now and afterwards."""
    with Client.connect(jetstream_url) as client:
        made = JetStream(client)
        yield made
        for name in list(made.pages("STREAM.NAMES", "streams", {})):
            made.call(f"STREAM.DELETE.{name}")


@pytest.fixture
def stream(run: Run, streams: JetStream, jetstream_url: str) -> Stream:
    """Return a function that runs `penstock stream` with arguments."""
    return lambda *arguments: run("stream", *arguments, "-s", jetstream_url)


@pytest.fixture
def orders(stream: Stream, streams: JetStream) -> Stream:
    """Return the same, where there is a stream ORDERS with five messages."""
    assert stream("add", "ORDERS", "--subjects", "orders.>").code == 0
    for number in range(5):
        block = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number
        streams.publish(b"orders.%d" % (number % 2), b"body %d" % number, headers=block)
    return stream


def test_what_is_said_of_a_new_stream_becomes_its_configuration(stream: Stream) -> None:
    ran = stream(
        "add", "EVENTS", "--subjects", "events.>", "--subjects", "audit",
        "--max-age", "7d", "--max-bytes", "10MB", "--max-msgs", "1000", "--max-msg-size", "64KB",
        "--max-msgs-per-subject", "3", "--storage", "memory", "--retention", "work",
        "--discard", "new", "--dupe-window", "1m30s", "--description", "all of it",
        "--allow-rollup", "--no-allow-direct", "--allow-batch", "--metadata", "owner:me", "--json",
    )  # fmt: skip

    config = ran.document["config"]
    assert config["metadata"].pop("owner") == "me"
    wanted = {
        "name": "EVENTS",
        "subjects": ["events.>", "audit"],
        "max_age": 7 * 86_400 * 10**9,
        "max_bytes": 10 * 1024 * 1024,
        "max_msgs": 1000,
        "max_msg_size": 64 * 1024,
        "max_msgs_per_subject": 3,
        "storage": "memory",
        "retention": "workqueue",
        "discard": "new",
        "duplicate_window": 90 * 10**9,
        "description": "all of it",
        "allow_rollup_hdrs": True,
        "allow_direct": False,
        "allow_atomic": True,
    }
    assert {key: config[key] for key in wanted} == wanted


def test_a_stream_may_be_made_from_a_file(stream: Stream, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"subjects": ["a.*"], "max_msgs": 5, "sealed": False}))

    config = stream("add", "A", "--config", file, "--max-msgs", 7, "--json").document["config"]

    assert (config["name"], config["subjects"], config["max_msgs"]) == ("A", ["a.*"], 7)


def test_a_stream_without_subjects_takes_its_own_name(stream: Stream) -> None:
    assert stream("add", "A", "--json").document["config"]["subjects"] == ["A"]


def test_an_edit_changes_what_is_said_and_nothing_else(orders: Stream) -> None:
    before = orders("info", "ORDERS", "--json").document["config"]

    after = orders("edit", "ORDERS", "--max-msgs", 9, "--json").document["config"]

    changed = {key for key in after if after[key] != before[key]}
    assert (changed, after["max_msgs"]) == ({"max_msgs"}, 9)


def test_people_see_configuration_and_state(orders: Stream) -> None:
    ran = orders("info", "ORDERS", "--subjects", ">")

    for line in (
        r"subjects +orders\.>",
        r"max messages +unlimited",
        r"messages +5",
        r"last sequence +5",
        r"orders\.0 +│ +3",
    ):
        assert re.search(line, ran.out), line


def test_streams_are_listed_in_their_order(orders: Stream) -> None:
    orders("add", "AUDIT")

    listed = orders("ls", "--json").document["streams"]

    assert [(each["name"], each["messages"]) for each in listed] == [("AUDIT", 0), ("ORDERS", 5)]
    assert orders("ls", "--names").out.split() == ["AUDIT", "ORDERS"]
    assert orders("ls", "--names", "--subject", "orders.1").out.split() == ["ORDERS"]


def test_a_message_is_gotten_by_sequence_or_by_subject(orders: Stream) -> None:
    (first,) = orders("get", "ORDERS", 1, "--json").lines

    assert re.match(r"20\d\d-\d\d-\d\dT", first.pop("time"))
    assert first == {
        "seq": 1,
        "subject": "orders.0",
        "headers": {"Number": ["0"]},
        "payload": "body 0",
    }
    assert orders("get", "ORDERS", "--last-for", "orders.1", "--raw").raw == b"body 3\n"
    shown = orders("get", "ORDERS", 2).out
    assert re.match(r"\[2\] 20.*Z orders\.1\nNumber: 1\n\nbody 1\n", shown)


def test_messages_are_viewed_in_their_order(orders: Stream) -> None:
    viewed = orders("view", "ORDERS", "--subject", "orders.0", "--seq", 2, "--json").lines

    assert [each["seq"] for each in viewed] == [3, 5]
    assert orders("view", "ORDERS", "--limit", 2, "--raw").raw == b"body 0\nbody 1\n"


def test_what_is_removed_is_gone(orders: Stream) -> None:
    assert orders("rmm", "ORDERS", 2, "--force").code == 0
    assert (
        orders("purge", "ORDERS", "--subject", "orders.0", "-f", "--json").document["purged"] == 3
    )

    assert [each["seq"] for each in orders("view", "ORDERS", "--json").lines] == [4]
    assert orders("rm", "ORDERS", "-f").code == 0
    assert orders("ls", "--json").document["streams"] == []


@pytest.mark.parametrize("command", [("rm", "ORDERS"), ("purge", "ORDERS"), ("rmm", "ORDERS", 1)])
def test_nothing_is_removed_where_nobody_can_be_asked(
    orders: Stream, command: tuple[object, ...]
) -> None:
    ran = orders(*command)

    assert ran.code == 2
    assert "--force" in ran.err
    assert orders("info", "ORDERS", "--json").document["state"]["messages"] == 5


def test_a_backup_restores_the_stream(orders: Stream, tmp_path: Path) -> None:
    before = orders("info", "ORDERS", "--json").document
    viewed = orders("view", "ORDERS", "--json").lines
    told = orders("backup", "ORDERS", tmp_path / "kept", "--json").document
    orders("rm", "ORDERS", "-f")

    assert told["state"]["messages"] == 5
    assert orders("restore", tmp_path / "kept").code == 0
    after = orders("info", "ORDERS", "--json").document
    assert after["config"] == before["config"]
    assert orders("view", "ORDERS", "--json").lines == viewed
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == [
        "backup.json",
        "stream.tar.s2",
    ]


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (("info", "ORDER"), 2, "there is no stream 'ORDER'; did you mean 'ORDERS'?"),
        (("info", "orders"), 2, "did you mean 'ORDERS'?"),
        (("rm", "zzz", "-f"), 2, "there is no stream 'zzz'; there are 1"),
        (("info", "a.b"), 2, "not a name for a stream: 'a.b'"),
        (("add", "a b"), 2, "not a name for a stream: 'a b'"),
        (("get", "ORDERS", 99), 2, "there is no message 99 in ORDERS; it has 5"),
        (("get", "ORDERS"), 2, "a sequence or --last-for"),
        (("edit", "ORDERS"), 2, "nothing to change"),
        (("purge", "ORDERS", "--seq", 2, "--keep", 2, "-f"), 2, "exclude each other"),
        (("add", "ORDERS", "--max-bytes", "much"), 2, "not a size: 'much'"),
        (("add", "ORDERS", "--max-age", "long"), 2, "not a duration: 'long'"),
        (("add", "ORDERS", "--metadata", "x"), 2, "not metadata: 'x'"),
        (("add", "MORE", "--subjects", "orders.1"), 1, "10065); another stream takes them"),
        (("add", "ORDERS", "--subjects", "x"), 1, "10058); `edit` changes one that is there"),
        (("restore", "."), 2, "has no backup"),
    ],
)
def test_what_cannot_be_is_told_in_a_line_that_helps(
    orders: Stream, command: tuple[object, ...], code: int, text: str
) -> None:
    ran = orders(*command)

    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err


def test_a_server_without_jetstream_is_told(run: Run) -> None:
    with server_process() as server:
        ran = run("stream", "ls", "-s", server.url)

    assert ran.code == 1
    assert "penstock server -js" in ran.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("512", 512), ("1k", 1024), ("64KB", 65536), ("2MiB", 2 << 20), ("-1", -1)],
)
def test_a_size_is_read_with_its_unit(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected_s"), [("7d", 604_800), ("1d12h", 129_600), ("90s", 90), ("unlimited", 0)]
)
def test_a_duration_may_have_days(text: str, expected_s: int) -> None:
    assert duration_ns(text) == expected_s * 10**9


@pytest.mark.parametrize("text", ["", "d", "1x", "-5s", "1.5d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        duration_ns(text)


@pytest.mark.parametrize("group", ["stream", "consumer", "kv", "object"])
def test_every_command_and_every_option_is_told_in_the_page(run: Run, group: str) -> None:
    page = PAGE.read_text()
    shared = _options(run("pub", "--help").out)
    listed = run(group, "--help").out.partition("Commands:")[2]
    commands = re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)

    assert commands
    for command in commands:
        assert f"`penstock {group} {command}" in page
        own = _options(run(group, command, "--help").out) - shared
        assert {option for option in own if option not in page} == set()


def _options(text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", text))
