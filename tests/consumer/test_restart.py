"""What consumers remember: over a stop, and over a kill in the middle of it all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.testing.servers import ServerProcess, server_process
from tests.consumer.delivered import MS, Life


def _end(server: ServerProcess, *, kill: bool) -> None:
    if kill:
        server.kill()
    else:
        server.stop()


@pytest.mark.parametrize("kill", [False, True])
def test_confirmed_acknowledgements_outlive_the_server(tmp_path: Path, kill: bool) -> None:
    first = server_process(store_dir=tmp_path)
    with Life(first.port, "S") as life:
        life.stream()
        life.publish_all(*"abcdef")
        life.consumer(ack_wait=200 * MS)
        life.pull(4)
        life.take(4)
        life.ack(0)
        life.ack(2)
    _end(first, kill=kill)

    with server_process(store_dir=tmp_path) as second, Life(second.port, "S") as life:
        life.pull(4)
        found = sorted(life.next_delivery().subject for _ in range(4))

        assert found == ["S.b", "S.d", "S.e", "S.f"]


def test_a_stopped_server_forgets_nothing(tmp_path: Path) -> None:
    first = server_process(store_dir=tmp_path)
    with Life(first.port, "S") as life:
        life.stream()
        life.publish_all(*"abcdef")
        life.consumer(ack_wait=3600_000 * MS)
        life.consumer("all", ack_policy="all", filter_subject="S.b")
        life.consumer("push", deliver_subject="to", ack_policy="none")
        life.subscribe("to")
        life.take(6)
        life.pull(4)
        life.take(4)
        life.say(7, b"-NAK")
        life.say(6)
        life.pull(1)
        life.take(1)
        before = [life.ask(f"CONSUMER.INFO.S.{name}") for name in ("C", "all", "push")]
    first.stop()

    with server_process(store_dir=tmp_path) as second, Life(second.port, "S") as life:
        after = [life.ask(f"CONSUMER.INFO.S.{name}") for name in ("C", "all", "push")]

    fields = ("config", "created", "num_ack_pending", "num_redelivered", "num_pending")
    for old, new in zip(before, after, strict=True):
        assert {name: old[name] for name in fields} == {name: new[name] for name in fields}
        for place in ("delivered", "ack_floor"):
            assert old[place]["consumer_seq"] == new[place]["consumer_seq"]
            assert old[place]["stream_seq"] == new[place]["stream_seq"]


def test_a_damaged_consumer_stays_offline_and_disturbs_nobody(tmp_path: Path) -> None:
    first = server_process(store_dir=tmp_path)
    with Life(first.port, "S") as life:
        life.stream()
        life.publish_all("a")
        life.consumer("good")
        life.consumer("bad")
        life.pull(1, "bad")
        life.take()
    first.stop()
    (state,) = tmp_path.glob("**/consumers/bad/state")
    state.write_bytes(b"\xff" * 40)

    with server_process(store_dir=tmp_path) as second, Life(second.port, "S") as life:
        life.pull(1, "good")
        life.take()
        error = life.ask("CONSUMER.INFO.S.bad")["error"]

    assert error["err_code"] == 10195
    assert state.read_bytes() == b"\xff" * 40


def test_a_consumer_whose_document_asks_for_nonsense_stays_offline(tmp_path: Path) -> None:
    first = server_process(store_dir=tmp_path)
    with Life(first.port, "S") as life:
        life.stream()
        life.consumer(metadata={"penstock.key_token": "2"})
    first.stop()
    (document,) = tmp_path.glob("**/consumers/C/consumer.json")
    changed = json.loads(document.read_text()) | {"version": 1}
    del changed["checksum"]
    changed["config"]["metadata"]["penstock.key_token"] = "two"
    document.write_text(json.dumps(changed))

    with server_process(store_dir=tmp_path) as second, Life(second.port, "S") as life:
        error = life.ask("CONSUMER.INFO.S.C")["error"]

    assert error["err_code"] == 10195
    assert "position of a token" in error["description"]


def test_a_removed_consumer_leaves_nothing(tmp_path: Path) -> None:
    first = server_process(store_dir=tmp_path)
    with Life(first.port, "S") as life:
        life.stream()
        life.consumer()
        life.ask("CONSUMER.DELETE.S.C")
    first.stop()

    assert list(tmp_path.glob("**/consumers/*")) == []


@pytest.mark.parametrize("left", [(), ("state",), ("consumer.json.0123456789abcdef.tmp",)])
def test_what_a_crash_left_of_a_consumer_does_not_block_its_name(
    tmp_path: Path, left: tuple[str, ...]
) -> None:
    first = server_process(store_dir=tmp_path)
    with Life(first.port, "S") as life:
        life.stream()
    first.stop()
    (stream,) = tmp_path.glob("**/streams/S")
    folder = stream / "consumers" / "C"
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).write_bytes(b"half")

    with server_process(store_dir=tmp_path) as second, Life(second.port, "S") as life:
        assert not folder.exists()
        life.consumer()
        assert "error" not in life.ask("CONSUMER.INFO.S.C")


def test_consumers_are_there_after_a_kill_before_their_folders_are(tmp_path: Path) -> None:
    first = server_process(store_dir=tmp_path)
    with Life(first.port, "S") as life:
        life.stream()
        for name in ("one", "two", "three"):
            life.consumer(name)
        life.ask("CONSUMER.DELETE.S.two")
    first.kill()
    assert list(tmp_path.glob("**/consumers.1.journal"))
    assert not list(tmp_path.glob("**/consumers/*"))

    with server_process(store_dir=tmp_path) as second, Life(second.port, "S") as life:
        assert life.ask("CONSUMER.NAMES.S")["consumers"] == ["one", "three"]
        # What is stopped has all of it in folders, where people look for it.
    assert sorted(each.name for each in tmp_path.glob("**/consumers/*")) == ["one", "three"]
    assert not list(tmp_path.glob("**/*.journal"))


def test_a_consumer_that_cannot_be_served_can_be_deleted(tmp_path: Path) -> None:
    first = server_process(store_dir=tmp_path)
    with Life(first.port, "S") as life:
        life.stream()
        life.consumer()
    first.stop()
    (document,) = tmp_path.glob("**/consumers/C/consumer.json")
    document.write_bytes(document.read_bytes().replace(b"C", b"D"))

    with server_process(store_dir=tmp_path) as second, Life(second.port, "S") as life:
        assert "checksums do not match" in life.ask("CONSUMER.INFO.S.C")["error"]["description"]
        assert life.ask("CONSUMER.DELETE.S.C")["success"]
        life.consumer()
        assert "error" not in life.ask("CONSUMER.INFO.S.C")


def test_sealed_messages_are_delivered_as_they_were(tmp_path: Path) -> None:
    with server_process(store_dir=tmp_path) as server, Life(server.port, "S") as life:
        life.stream(compression="s2")
        life.publish_all("a", payload=b"long " * 100, headers=b"NATS/1.0\r\nX: y\r\n\r\n")
        life.publish_all("b", payload=b"short")
        life.consumer()
        life.pull(2)
        one, two = life.next_delivery(), life.next_delivery()

        assert (one.headers, one.payload) == (b"NATS/1.0\r\nX: y\r\n\r\n", b"long " * 100)
        assert two.payload == b"short"
