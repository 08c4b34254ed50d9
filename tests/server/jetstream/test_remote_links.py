"""Streams of another server, mirrored and sourced through a link to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.servers import ServerProcess, reference_server, server_process
from tests.stream.fed import Side

pytestmark = pytest.mark.oracle

EAST = {"api": "$JS.east.API", "deliver": ""}
USERS = 'authorization { user: "link", password: "s3cret" }'


def _linked(folder: Path, url: str, more: str = "") -> ServerProcess:
    settings = f'jetstream {{ links {{ east {{ url: "{url}", {more} }} }} }}'
    return server_process(store_dir=folder / "here", settings=settings)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Side]:
    with reference_server(store_dir=tmp_path / "there") as server, Side(server.port) as side:
        side.make("O", subjects=["o.>"])
        for number in range(6):
            side.put(f"o.{number % 2}.{number}", b"%d" % number)
        yield side


def test_a_mirror_of_a_stream_there_has_its_sequences_times_and_gaps(
    there: Side, tmp_path: Path
) -> None:
    there.drop("O", 2)
    with _linked(tmp_path, there.url) as server, Side(server.port) as here:
        here.make("M", mirror={"name": "O", "external": EAST})
        here.wait_for("M", 6)
        there.put("o.more", b"late")
        info = here.wait_for("M", 7)
        assert here.kept("M") == there.kept("O")
        assert "error" not in info["mirror"]


def test_a_source_there_is_filtered_and_marked(there: Side, tmp_path: Path) -> None:
    with _linked(tmp_path, there.url) as server, Side(server.port) as here:
        source = {"name": "O", "filter_subject": "o.1.*", "opt_start_seq": 3, "external": EAST}
        here.make("S", sources=[source])
        here.wait_for("S", 2)
        first, second = here.kept("S")
        assert (first.data, second.data) == ("3", "5")
        assert first.headers.endswith(f" 4 o.1.* > o.1.3 {there.identity('O')}\r\n\r\n")


def test_a_work_queue_there_is_emptied_through_the_consumer_that_is_named(
    there: Side, tmp_path: Path
) -> None:
    there.make("W", subjects=["w"], retention="workqueue")
    config = {"durable_name": "D", "deliver_subject": "to.d", "ack_policy": "flow_control"}
    there.api("CONSUMER.CREATE.W.D", {"stream_name": "W", "config": config})
    for number in range(2_000):
        there.publish("w", b"%d" % number)
    named = {"name": "D", "deliver_subject": "to.d"}
    with _linked(tmp_path, there.url) as server, Side(server.port) as here:
        here.make("S", sources=[{"name": "W", "external": EAST, "consumer": named}])
        here.wait_for("S", 2_000)
        there.put("w", b"2000")
        here.wait_for("S", 2_001)
        there.wait("W", lambda info: info["state"]["messages"] == 0)

        assert [each.data for each in here.kept("S")] == [str(each) for each in range(2_001)]


def test_a_stream_that_is_not_there_is_told(there: Side, tmp_path: Path) -> None:
    with _linked(tmp_path, there.url) as server, Side(server.port) as here:
        here.make("M", mirror={"name": "NONE", "external": EAST})
        error = {"code": 404, "err_code": 10059, "description": "stream not found"}
        here.wait("M", lambda info: info["mirror"].get("error") == error)


def test_many_messages_come_whole_and_in_order(there: Side, tmp_path: Path) -> None:
    with _linked(tmp_path, there.url) as server, Side(server.port) as here:
        for number in range(20_000):
            there.publish("o.x", b"%d" % number)
        here.make("M", mirror={"name": "O", "external": EAST})
        state = here.wait_for("M", 20_006)["state"]
        assert (state["messages"], state["bytes"]) == (20_006, there.info("O")["state"]["bytes"])


def test_a_mirror_goes_on_when_the_other_server_is_there_again(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    with reference_server(store_dir=folder) as server, Side(server.port) as there:
        port, url = server.port, server.url
        there.make("O", subjects=["o"])
        there.put("o", b"before")
        here_server = _linked(tmp_path, url)
        with Side(here_server.port) as here:
            here.make("M", mirror={"name": "O", "external": EAST})
            here.wait_for("M", 1)
    again = reference_server(store_dir=folder, port=port)
    with here_server, again, Side(here_server.port) as here, Side(port) as there:
        there.put("o", b"after")
        here.wait_for("M", 2)
        assert [each.data for each in here.kept("M")] == ["before", "after"]


def test_a_source_that_was_made_again_there_is_taken_from_its_start(
    there: Side, tmp_path: Path
) -> None:
    with _linked(tmp_path, there.url) as server, Side(server.port) as here:
        here.make("S", sources=[{"name": "O", "external": EAST}])
        here.wait_for("S", 6)
    there.api("STREAM.DELETE.O")
    there.make("O", subjects=["o.>"])
    there.put("o.new", b"anew")
    with _linked(tmp_path, there.url) as server, Side(server.port) as here:
        here.wait_for("S", 7)
        assert here.kept("S")[-1].data == "anew"


def test_a_link_shows_its_credentials_and_a_refusal_is_logged_without_them(tmp_path: Path) -> None:
    with reference_server(store_dir=tmp_path / "there", settings=USERS) as server:
        url = f"nats://link:s3cret@127.0.0.1:{server.port}"
        with _linked(tmp_path, url) as linked:
            linked.wait_for("JetStream link 'east': connected")
        with _linked(tmp_path, url.replace("s3cret", "wr0ng")) as linked:
            line = linked.wait_for("JetStream link 'east'")
            assert "Authorization Violation" in line
            assert "wr0ng" not in linked.log


def test_a_link_is_for_the_streams_of_its_account_alone(there: Side, tmp_path: Path) -> None:
    with _linked(tmp_path, there.url, 'account: "OTHER"') as server, Side(server.port) as here:
        here.make("M", mirror={"name": "O", "external": EAST})
        info = here.wait("M", lambda info: "error" in info["mirror"])
        assert info["mirror"]["error"]["description"] == "no responders"


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        ("links: 5", "Expected links to be a map"),
        ('links { "a.b" { url: "nats://h" } }', "has other than letters"),
        ("links { east { } }", "has no url"),
    ],
)
def test_a_link_that_cannot_be_is_an_error_of_the_configuration(
    tmp_path: Path, links: str, reason: str
) -> None:
    process = ServerProcess("penstock", settings=f"jetstream {{ {links} }}")
    assert process.wait() == 1
    assert reason in process.log
