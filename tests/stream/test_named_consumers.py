"""Mirrors and sources that read through an existing consumer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import server_process
from tests.stream.fed import Side, restarted

pytestmark = pytest.mark.oracle


def consumer(side: Side, stream: str, **config: Any) -> dict[str, Any]:
    """Create a consumer that a stream can read through, with the name `D`."""
    fields = {
        "durable_name": "D",
        "deliver_subject": f"to.{stream}",
        "ack_policy": "flow_control",
        "max_ack_pending": 1000,
    }
    asked = {"stream_name": stream, "config": fields | config}
    return side.api(f"CONSUMER.CREATE.{stream}.D", asked)


def named(stream: str) -> dict[str, Any]:
    return {"name": stream, "consumer": {"name": "D", "deliver_subject": f"to.{stream}"}}


def acked(side: Side, stream: str) -> int:
    return int(side.api(f"CONSUMER.INFO.{stream}.D")["ack_floor"]["stream_seq"])


def wait_until_acked(side: Side, stream: str, seq: int) -> None:
    side.wait(stream, lambda info: acked(side, stream) >= seq)


def test_a_source_takes_what_the_consumer_gives(both: tuple[Side, Side]) -> None:
    pictures = []
    for side in both:
        side.origin("A")
        consumer(side, "A", filter_subject="A.1.*")
        side.make("AS", sources=[named("A")])
        side.wait_for("AS", 3)
        side.put("A.1.6", b"more")
        side.wait_for("AS", 4)
        wait_until_acked(side, "A", 6)
        pictures.append(side.picture("AS"))

    assert pictures[0] == pictures[1]


def test_a_mirror_takes_what_the_consumer_gives(both: tuple[Side, Side]) -> None:
    pictures = []
    for side in both:
        side.origin("B")
        side.drop("B", 3)
        consumer(side, "B")
        side.make("BM", mirror=named("B"))
        side.wait_for("BM", 6)
        pictures.append(side.picture("BM"))

    assert pictures[0] == pictures[1]


def test_a_work_queue_is_emptied_into_the_other_stream(both: tuple[Side, Side]) -> None:
    pictures = []
    for side in both:
        side.origin("W", retention="workqueue")
        consumer(side, "W")
        side.make("WS", sources=[named("W")])
        side.wait_for("WS", 6)
        side.wait("W", lambda info: info["state"]["messages"] == 0)
        pictures.append(side.picture("WS"))

    assert pictures[0] == pictures[1]


def test_a_consumer_that_is_acknowledged_otherwise_is_refused(both: tuple[Side, Side]) -> None:
    errors = []
    for side in both:
        side.origin("C")
        consumer(side, "C", ack_policy="none", max_ack_pending=0)
        side.make("CS", sources=[named("C")])
        side.make("CM", mirror=named("C"))
        source = side.wait("CS", lambda info: "error" in info["sources"][0])["sources"][0]
        mirror = side.wait("CM", lambda info: "error" in info["mirror"])["mirror"]
        errors.append((source["error"], mirror["error"]))

    assert errors[0] == errors[1]


def test_a_consumer_that_comes_later_is_found(both: tuple[Side, Side]) -> None:
    _, ours = both
    ours.origin("L")
    ours.make("LS", sources=[named("L")])
    consumer(ours, "L")

    assert ours.wait_for("LS", 6)["sources"][0]["lag"] == 0


def test_more_than_may_be_on_its_way_comes_in_order(both: tuple[Side, Side]) -> None:
    _, ours = both
    ours.origin("N", 300)
    consumer(ours, "N", max_ack_pending=16)
    ours.make("NS", sources=[named("N")])

    ours.wait_for("NS", 300)

    assert [kept.data for kept in ours.kept("NS")] == [str(number) for number in range(300)]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_nothing_is_lost_or_doubled_by_a_restart(tmp_path: Path, is_killed: bool) -> None:
    server = server_process(store_dir=tmp_path)
    with Side(server.port) as side:
        side.origin("R", 20, retention="workqueue")
        consumer(side, "R")
        side.make("RS", sources=[named("R")])
        side.wait_for("RS", 20)

    server = restarted(server, tmp_path, is_killed=is_killed)
    with server, Side(server.port) as side:
        side.put("R.0", b"20")
        side.wait_for("RS", 21)
        side.wait("R", lambda info: info["state"]["messages"] == 0)

        assert [kept.data for kept in side.kept("RS")] == [str(number) for number in range(21)]
