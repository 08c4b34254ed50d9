"""Origins behind an external prefix, read through a consumer as from another account or domain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.replication.remote_reader import Delivery, read_delivery
from penstock.testing.servers import server_process
from tests.stream.fed import Side

FAR = {"api": "$JS.far.API", "deliver": "far.deliver"}
_NUMBER = st.integers(0, 2**63 - 1)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with server_process(store_dir=tmp_path) as server, Side(server.port) as side:
        side.make("O", subjects=["o.>"])
        for number in range(4):
            side.put(f"o.{number % 2}", b"%d" % number, A="b")
        side.drop("O", 2)
        yield server.port


def _lead_on(far: Side) -> str:
    """Forward one request from behind the prefix to the API; return its subject."""
    request = far.next_delivery()
    while not request.subject.startswith("$JS.far"):
        # Both connections receive what the other is answered.
        request = far.next_delivery()
    subject = request.subject.replace("$JS.far.API", "$JS.API")
    far.publish(subject, request.payload, reply=request.reply)
    return subject


def test_a_mirror_is_led_to_its_origin_by_the_prefix(port: int) -> None:
    with Side(port) as side, Side(port) as far:
        far.subscribe("$JS.far.API.>")
        far.subscribe("ready")
        far.publish("ready")
        assert far.next_delivery().subject == "ready"
        side.make("M", mirror={"name": "O", "external": FAR})
        assert _lead_on(far) == "$JS.API.CONSUMER.CREATE.O"
        side.wait_for("M", 4)
        side.put("o.more")
        info = side.wait_for("M", 5)
        assert side.kept("M") == side.kept("O")
        assert info["mirror"]["external"] == FAR
        assert "error" not in info["mirror"]


def test_a_source_is_filtered_at_its_origin(port: int) -> None:
    with Side(port) as side, Side(port) as far:
        far.subscribe("$JS.far.API.>")
        far.subscribe("ready")
        far.publish("ready")
        assert far.next_delivery().subject == "ready"
        side.make("S", sources=[{"name": "O", "filter_subject": "o.1", "external": FAR}])
        subject = _lead_on(far)
        assert subject.startswith("$JS.API.CONSUMER.CREATE.O.")
        assert subject.endswith(".o.1")
        side.wait_for("S", 1)
        (kept,) = side.kept("S")
        assert (kept.subject, kept.data) == ("o.1", "3")


def test_a_prefix_that_nobody_answers_to_is_told(port: int) -> None:
    with Side(port) as side:
        side.make("M", mirror={"name": "O", "external": FAR})
        info = side.wait("M", lambda info: "error" in info["mirror"])
        assert info["mirror"]["error"]["err_code"] == 10029


@given(seq=_NUMBER, delivered=_NUMBER, time_ns=_NUMBER, pending=_NUMBER)
def test_both_forms_of_a_delivery_are_read(
    seq: int, delivered: int, time_ns: int, pending: int
) -> None:
    numbers = b"1.%d.%d.%d.%d" % (seq, delivered, time_ns, pending)
    expected = Delivery(seq, delivered, time_ns, pending)
    assert read_delivery(b"$JS.ACK.S.C." + numbers) == expected
    assert read_delivery(b"$JS.ACK._.szMpdrwD.S.C." + numbers) == expected
    assert read_delivery(b"$JS.ACK._.szMpdrwD.S.C." + numbers + b".more") == expected


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"_INBOX.1",
        b"$JS.ACK.S.C.1.2.3.4",
        b"$JS.ACK.S.C.1.x.3.4.5",
        b"$JS.ACK.S.C.1.-2.3.4.5",
        b"$JS.ACK.S.C.1.9223372036854775808.3.4.5",
        b"$JS.FC.S.C.1.2.3.4.5",
    ],
)
def test_what_is_no_delivery_is_none(reply: bytes) -> None:
    assert read_delivery(reply) is None
