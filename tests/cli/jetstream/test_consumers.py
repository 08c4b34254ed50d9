"""`penstock consumer` against the real server and ours: the same commands, the same results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.jetstream.consumer_options import start_fields, until
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from tests.cli.conftest import Ran, Run

pytestmark = pytest.mark.slow
Consumer = Callable[..., Ran]
SECOND_NS = 10**9
BACKOFFS = ("--backoff", "1s", "--backoff", "2s")
NOW_NS = 1_750_000_000 * SECOND_NS


@pytest.fixture
def streams(jetstream_url: str) -> Iterator[JetStream]:
    """Return JetStream with a stream ORDERS of five messages, and nothing afterwards."""
    with Client.connect(jetstream_url) as client:
        made = JetStream(client)
        made.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        for number in range(5):
            block = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number
            made.publish(b"orders.%d" % (number % 2), b"body %d" % number, headers=block)
        yield made
        made.call("STREAM.DELETE.ORDERS")


@pytest.fixture
def consumer(run: Run, streams: JetStream, jetstream_url: str) -> Consumer:
    """Return a function that runs `penstock consumer` with arguments."""
    return lambda *arguments: run("consumer", *arguments, "-s", jetstream_url)


@pytest.fixture
def billing(consumer: Consumer) -> Consumer:
    """Return the same, where ORDERS has a consumer that is pulled."""
    assert consumer("add", "ORDERS", "billing").code == 0
    return consumer


def state(streams: JetStream, name: str = "billing") -> tuple[int, int]:
    """Return how many messages are acknowledged in a row, and how many wait for that."""
    info = streams.call(f"CONSUMER.INFO.ORDERS.{name}")
    return info["ack_floor"]["stream_seq"], info["num_ack_pending"]


def test_what_is_said_of_a_new_consumer_becomes_its_configuration(consumer: Consumer) -> None:
    ran = consumer(
        "add", "ORDERS", "all", "--filter", "orders.0", "--filter", "orders.1",
        "--deliver", 2, "--wait", "1m", "--max-deliver", 3, "--backoff", "5s", "--backoff", "20s",
        "--max-pending", 7, "--max-waiting", 9, "--max-pull-batch", 11, "--max-pull-bytes", "1KB",
        "--max-pull-expire", "30s", "--inactive-threshold", "1h", "--headers-only", "--sample", 25,
        "--replay", "original", "--memory", "--description", "for all", "--metadata", "owner:me",
        "--json",
    )  # fmt: skip

    config = ran.document["config"]
    assert config["metadata"].pop("owner") == "me"
    wanted = {
        "name": "all",
        "durable_name": "all",
        "filter_subjects": ["orders.0", "orders.1"],
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 2,
        "ack_policy": "explicit",
        "ack_wait": 5 * SECOND_NS,
        "max_deliver": 3,
        "backoff": [5 * SECOND_NS, 20 * SECOND_NS],
        "max_ack_pending": 7,
        "max_waiting": 9,
        "max_batch": 11,
        "max_bytes": 1024,
        "max_expires": 30 * SECOND_NS,
        "inactive_threshold": 3600 * SECOND_NS,
        "headers_only": True,
        "sample_freq": "25%",
        "replay_policy": "original",
        "mem_storage": True,
        "description": "for all",
    }
    assert {key: config[key] for key in wanted} == wanted


def test_a_consumer_may_push(consumer: Consumer) -> None:
    ran = consumer(
        "add", "ORDERS", "mirror", "--target", "mirror.in", "--deliver-group", "workers",
        "--heartbeat", "5s", "--flow-control", "--bps", 1_000_000, "--ack", "all", "--ephemeral",
        "--filter", "orders.1", "--deliver", "new", "--pause", "1h", "--json",
    )  # fmt: skip
    grouped = consumer(
        "add", "ORDERS", "grouped", "--priority", "pinned_client", "--priority-group", "g",
        "--pinned-ttl", "10s", "--json",
    )  # fmt: skip

    config = ran.document["config"]
    assert "durable_name" not in config
    wanted = {
        "deliver_subject": "mirror.in",
        "deliver_group": "workers",
        "idle_heartbeat": 5 * SECOND_NS,
        "flow_control": True,
        "rate_limit_bps": 1_000_000,
        "ack_policy": "all",
        "filter_subject": "orders.1",
        "deliver_policy": "new",
    }
    assert {key: config.get(key) for key in wanted} == wanted
    assert ran.document["paused"] is True
    priority = ("priority_policy", "priority_groups", "priority_timeout")
    made = grouped.document["config"]
    assert [made[key] for key in priority] == ["pinned_client", ["g"], 10 * SECOND_NS]


def test_options_of_our_own_are_kept_as_metadata(consumer: Consumer) -> None:
    ran = consumer("add", "ORDERS", "jobs", "--dead-letter", "dead.orders", "--key-token", 2,
                   "--max-deliver", 3, "--json")  # fmt: skip

    kept = ran.document["config"]["metadata"]
    assert (kept["penstock.dead_letter"], kept["penstock.key_token"]) == ("dead.orders", "2")


def test_a_consumer_may_be_made_from_a_file(consumer: Consumer, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    said = {"durable_name": "B", "ack_policy": "none", "max_deliver": 5, "max_waiting": 3}
    file.write_text(json.dumps(said))
    options = ("--config", file, "--max-waiting", 7, "--json")

    config = consumer("add", "ORDERS", "A", *options).document["config"]
    ephemeral = consumer("add", "ORDERS", "E", *options, "--ephemeral").document["config"]

    fields = ("name", "durable_name", "ack_policy", "max_deliver", "max_waiting")
    assert [config.get(key) for key in fields] == ["A", "A", "none", 5, 7]
    assert [ephemeral.get(key) for key in fields] == ["E", None, "none", 5, 7]


def test_an_edit_changes_what_is_said_and_nothing_else(consumer: Consumer) -> None:
    asked = ("add", "ORDERS", "billing", "--filter", "orders.0", "--metadata", "a:b", "--json")
    before = consumer(*asked).document["config"]

    edited = ("edit", "ORDERS", "billing", "--max-pending", 9, "--filter", "orders.0",
              "--filter", "orders.1", "--metadata", "c:d", "--json")  # fmt: skip
    after = consumer(*edited).document["config"]

    changed = {key for key in before.keys() | after.keys() if after.get(key) != before.get(key)}
    assert changed == {"max_ack_pending", "filter_subject", "filter_subjects", "metadata"}
    assert (after["max_ack_pending"], after["filter_subjects"]) == (9, ["orders.0", "orders.1"])
    assert {"a": "b", "c": "d"}.items() <= after["metadata"].items()


def test_people_see_configuration_and_state(billing: Consumer) -> None:
    billing("next", "ORDERS", "billing", "--no-ack")

    ran = billing("info", "ORDERS", "billing")

    for line in (
        r"kind +durable, pulled",
        r"acks +explicit",
        r"ack wait +30s",
        r"max deliveries +unlimited",
        r"delivered up to sequence +1\b",
        r"acknowledged up to sequence +0\b",
        r"last acknowledgement +never",
        r"acks pending +1\b",
        r"messages to come +4\b",
    ):
        assert re.search(line, ran.out), line
    assert "_nats" not in ran.out


def test_consumers_are_listed_in_their_order(billing: Consumer) -> None:
    billing("add", "ORDERS", "audit", "--filter", "orders.1", "--target", "a.b")

    listed = billing("ls", "ORDERS", "--json").document["consumers"]

    assert [(each["name"], each["kind"], each["filters"], each["pending"]) for each in listed] == [
        ("audit", "durable, pushes to a.b", ["orders.1"], 2),
        ("billing", "durable, pulled", [], 5),
    ]
    assert billing("ls", "ORDERS", "--names").out.split() == ["audit", "billing"]
    assert re.search(r"billing │ durable, pulled +│ all ", billing("ls", "ORDERS").out)


def test_a_message_is_pulled_printed_and_acknowledged(
    billing: Consumer, streams: JetStream
) -> None:
    (first,) = billing("next", "ORDERS", "billing", "--json").lines

    assert re.match(r"20\d\d-\d\d-\d\dT", first.pop("time"))
    assert first == {
        "seq": 1,
        "consumer_seq": 1,
        "deliveries": 1,
        "pending": 4,
        "subject": "orders.0",
        "headers": {"Number": ["0"]},
        "payload": "body 0",
    }
    assert state(streams) == (1, 0)
    shown = billing("next", "ORDERS", "billing").out
    assert re.match(r"\[2\] 20.*Z orders\.1 \(3 to come\)\nNumber: 1\n\nbody 1\n", shown)
    assert billing("next", "ORDERS", "billing", "--raw", "--count", 3).raw == (
        b"body 2\nbody 3\nbody 4\n"
    )
    assert state(streams) == (5, 0)


def test_messages_may_be_left_refused_or_ended(billing: Consumer, streams: JetStream) -> None:
    billing("next", "ORDERS", "billing", "--term")
    assert state(streams) == (1, 0)

    billing("next", "ORDERS", "billing", "--no-ack")
    assert state(streams) == (1, 1)

    (refused,) = billing("next", "ORDERS", "billing", "--nak", "--json").lines
    (again,) = billing("next", "ORDERS", "billing", "--json").lines
    assert (refused["seq"], again["seq"], again["deliveries"]) == (3, 3, 2)


def test_fewer_messages_than_wanted_are_printed_and_told(billing: Consumer) -> None:
    ran = billing("next", "ORDERS", "billing", "--count", 6, "--raw", "--timeout", "300ms")

    assert ran.code == 1
    assert len(ran.raw.splitlines()) == 5
    assert "5 of 6 messages within 300ms" in ran.err


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--target", "out.here"),
        ("--target", "out.here", "--deliver-group", "g", "--heartbeat", "5s", "--flow-control"),
        ("--ack", "none"),
        ("--priority", "pinned_client", "--priority-group", "g"),
    ],
    ids=["pulled", "pushed", "flow", "unacknowledged", "pinned"],
)
def test_messages_are_printed_as_they_come(
    consumer: Consumer, streams: JetStream, options: tuple[str, ...]
) -> None:
    assert consumer("add", "ORDERS", "reader", *options).code == 0

    ran = consumer("sub", "ORDERS", "reader", "--count", 5, "--raw")

    assert ran.raw == b"body 0\nbody 1\nbody 2\nbody 3\nbody 4\n"
    info = streams.call("CONSUMER.INFO.ORDERS.reader")
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)


def test_a_consumer_is_paused_and_goes_on(billing: Consumer) -> None:
    paused = billing("pause", "ORDERS", "billing", "1h", "--json").document
    shown = billing("info", "ORDERS", "billing").out
    resumed = billing("resume", "ORDERS", "billing", "--json").document

    assert paused["paused"] is True
    assert 3_500 < paused["pause_remaining"] / SECOND_NS <= 3_600
    assert re.search(r"paused for +59m\d+s +\n", shown)
    assert not resumed.get("paused")
    assert "paused" not in billing("info", "ORDERS", "billing").out


def test_a_consumer_is_reset_and_delivers_again(billing: Consumer) -> None:
    billing("next", "ORDERS", "billing", "--count", 4)

    told = billing("reset", "ORDERS", "billing", "--seq", 2, "-f", "--json").document

    assert told["reset_seq"] == 2
    assert billing("next", "ORDERS", "billing", "--raw").raw == b"body 1\n"
    assert "Begins with sequence 3" in billing("reset", "ORDERS", "billing", "-f").out


def test_a_pinned_client_is_unpinned(consumer: Consumer, streams: JetStream) -> None:
    group = ("--priority", "pinned_client", "--priority-group", "g")
    consumer("add", "ORDERS", "pinned", *group, "--pinned-ttl", "1h")
    consumer("next", "ORDERS", "pinned", "--group", "g")
    assert re.search(r"pinned +g: \S+", consumer("info", "ORDERS", "pinned").out)

    assert consumer("unpin", "ORDERS", "pinned", "g", "-f").code == 0

    (held,) = streams.call("CONSUMER.INFO.ORDERS.pinned")["priority_groups"]
    assert "pinned_client_id" not in held


def test_what_is_removed_is_gone(billing: Consumer) -> None:
    assert billing("rm", "ORDERS", "billing", "--force").code == 0

    assert billing("ls", "ORDERS", "--json").document["consumers"] == []


@pytest.mark.parametrize("command", ["rm", "reset"])
def test_nothing_is_removed_where_nobody_can_be_asked(billing: Consumer, command: str) -> None:
    billing("next", "ORDERS", "billing", "--count", 2)
    ran = billing(command, "ORDERS", "billing")

    assert ran.code == 2
    assert "--force" in ran.err
    assert billing("info", "ORDERS", "billing", "--json").document["ack_floor"]["stream_seq"] == 2


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (("info", "ORDERS", "biling"), 2, "no consumer 'biling'; did you mean 'billing'?"),
        (("info", "ORDERS", "zzz"), 2, "there is no consumer 'zzz'; there are 1"),
        (("info", "ORDER", "billing"), 2, "there is no stream 'ORDER'; did you mean 'ORDERS'?"),
        (("pause", "ORDERS", "zzz", "1h"), 2, "there is no consumer 'zzz'"),
        (("reset", "ORDERS", "zzz", "-f"), 2, "there is no consumer 'zzz'"),
        (("next", "ORDERS", "a.b"), 2, "not a name for a consumer: 'a.b'"),
        (("ls", "a b"), 2, "not a name for a stream: 'a b'"),
        (("edit", "ORDERS", "billing"), 2, "nothing to change"),
        (("next", "ORDERS", "billing", "--nak", "--term"), 2, "exclude each other"),
        (("add", "ORDERS", "x", "--deliver", "soon"), 2, "not where delivery can begin: 'soon'"),
        (("pause", "ORDERS", "billing", "0s"), 2, "not a time to come: '0s'"),
        (("add", "ORDERS", "x", "--wait", "long"), 2, "not a duration: 'long'"),
        (("add", "ORDERS", "billing", "--max-deliver", 3), 1, "`edit` changes one that is there"),
        (("add", "ORDERS", "x", "--flow-control"), 1, "--target makes it push"),
        (("add", "ORDERS", "x", *BACKOFFS, "--max-deliver", 1), 1, "--max-deliver above"),
    ],
)
def test_what_cannot_be_is_told_in_a_line_that_helps(
    billing: Consumer, command: tuple[object, ...], code: int, text: str
) -> None:
    ran = billing(*command)

    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err


def test_a_consumer_that_pushes_is_not_pulled(consumer: Consumer) -> None:
    consumer("add", "ORDERS", "mirror", "--target", "mirror.in")

    ran = consumer("next", "ORDERS", "mirror")

    assert ran.code == 2
    assert "pushes to mirror.in; `penstock consumer sub` prints it" in ran.err


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("all", {"deliver_policy": "all"}),
        ("subject", {"deliver_policy": "last_per_subject"}),
        ("17", {"deliver_policy": "by_start_sequence", "opt_start_seq": 17}),
        (
            "1h",
            {
                "deliver_policy": "by_start_time",
                "opt_start_time": "2025-06-15T14:06:40.000000000Z",
            },
        ),
        (
            "2025-06-15T14:00:00.5Z",
            {
                "deliver_policy": "by_start_time",
                "opt_start_time": "2025-06-15T14:00:00.500000000Z",
            },
        ),
    ],
)
def test_where_delivery_begins_is_read(text: str, fields: dict[str, object]) -> None:
    assert start_fields(text, NOW_NS) == fields


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1h", "2025-06-15T16:06:40.000000000Z"),
        ("2d", "2025-06-17T15:06:40.000000000Z"),
        ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00.000000000Z"),
    ],
)
def test_a_time_to_come_is_read(text: str, time: str) -> None:
    assert until(text, NOW_NS) == time


@pytest.mark.parametrize("text", ["", "soon", "0s", "2020-01-01T00:00:00Z"])
def test_what_is_no_time_to_come_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        until(text, NOW_NS)
