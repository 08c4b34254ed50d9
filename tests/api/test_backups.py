"""Snapshots between the real server and ours, in both directions, and from before version 2.15."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.format.golang.archive import (
    END,
    MAGIC,
    ArchiveEntry,
    ArchiveParser,
    S2Unpacker,
)
from penstock.format.golang.s2 import encode_s2_stream
from penstock.testing.servers import BOTH, PENSTOCK, REFERENCE, ServerProcess, server_process
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle

DELETED = (1, 2, 50, 300)
LAST_SEQ = 300
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"


def fill(client: NatsClient, name: str = "S", **config: Any) -> None:
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]} | config)
    for place in range(LAST_SEQ):
        headers = HEADERS if place % 3 == 0 else b""
        client.request(f"{name}.{place % 7}", bytes([place % 251]) * place, headers=headers)
    for seq in DELETED:
        client.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})


def taken(client: NatsClient, name: str = "S", **request: Any) -> tuple[bytes, dict[str, Any], int]:
    """Return a snapshot's bytes, the answer, and how many pieces asked for a confirmation."""
    client.subscribe("snapshot")
    wanted = json.dumps({"deliver_subject": "snapshot"} | request).encode()
    client.publish(f"$JS.API.STREAM.SNAPSHOT.{name}", wanted, reply="_IN.answer")
    pieces, answer, end, acknowledged = [], None, None, 0
    while answer is None or end is None:
        found = client.next_delivery()
        # The real server's pieces may overtake its answer, even the last one.
        if found.subject == "_IN.answer":
            answer = json.loads(found.payload)
        elif not found.payload:
            end = found
        else:
            pieces.append(found.payload)
        if found.reply:
            acknowledged += 1
            client.publish(found.reply)
    assert end.headers == (b"NATS/1.0 204\r\n\r\n" if acknowledged else b"")
    return b"".join(pieces), answer, acknowledged


def put_back(
    client: NatsClient, data: bytes, config: dict[str, Any], *, piece_bytes: int = 10_000
) -> dict[str, Any]:
    """Restore a stream; return the last answer."""
    name = config["name"]
    where = client.api(f"STREAM.RESTORE.{name}", {"config": config})["deliver_subject"]
    # The last piece is empty; an error in an earlier one may be answered at once.
    answered = b""
    for start in range(0, len(data) + piece_bytes, piece_bytes):
        answered = answered or client.request(where, data[start : start + piece_bytes]).payload
    answer: dict[str, Any] = json.loads(answered)
    return answer


def messages(client: NatsClient, name: str) -> list[dict[str, Any]]:
    """Return all messages of a stream that has LAST_SEQ sequences."""
    found = []
    for seq in range(1, LAST_SEQ + 1):
        request = json.dumps({"seq": seq}).encode()
        answer = json.loads(client.request(f"$JS.API.STREAM.MSG.GET.{name}", request).payload)
        found.append(answer.get("message") or answer["error"])
    return found


def state(client: NatsClient, name: str = "S") -> dict[str, Any]:
    found: dict[str, Any] = client.api(f"STREAM.INFO.{name}", {"deleted_details": True})["state"]
    return found


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    folder = tmp_path_factory.mktemp("snapshots")
    with (
        server_process(REFERENCE, store_dir=folder / "real") as real,
        server_process(PENSTOCK, store_dir=folder / "ours") as ours,
    ):
        yield {REFERENCE: real, PENSTOCK: ours}


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("source", BOTH)
def test_a_stream_goes_from_server_to_server(
    servers: dict[str, ServerProcess], source: str, target: str
) -> None:
    name = f"{source}-{target}"
    with NatsClient(servers[source].port) as one:
        fill(one, name)
        data, answer, _ = taken(one, name)
        before, held = state(one, name), messages(one, name)
        one.api(f"STREAM.DELETE.{name}")
    # The real server removes the folder after its answer, so the stream gets another name.
    name += "-2"
    subjects = [f"{name}.>"]

    with NatsClient(servers[target].port) as other:
        config = answer["config"] | {"name": name, "subjects": subjects}
        restored = put_back(other, data, config)

        assert "error" not in restored, restored
        assert messages(other, name) == held
        # A snapshot does not say when a message was stored that was deleted since.
        assert state(other, name) | {"last_ts": 0} == before | {"last_ts": 0}


def test_the_answers_are_the_real_servers(servers: dict[str, ServerProcess]) -> None:
    answers = {}
    for kind, server in servers.items():
        with NatsClient(server.port) as client:
            fill(client, "answers", storage="memory")
            _, answers[kind], _ = taken(client, "answers")
            for name in ("first_ts", "last_ts"):
                del answers[kind]["state"][name]

    assert list(answers[PENSTOCK].items()) == list(answers[REFERENCE].items())
    assert list(answers[PENSTOCK]["config"]) == list(answers[REFERENCE]["config"])


def test_the_archives_hold_the_same(servers: dict[str, ServerProcess]) -> None:
    held = {}
    for kind, server in servers.items():
        with NatsClient(server.port) as client:
            fill(client, "archived")
            data, _, _ = taken(client, "archived")
        unpacker, parser = S2Unpacker(), ArchiveParser()
        entries = [each for plain in unpacker.feed(data) for each in parser.feed(plain)]
        assert parser.is_complete
        held[kind] = [(each.name, each.seq, each.headers, each.payload) for each in entries[1:]]

    assert held[PENSTOCK] == held[REFERENCE]


def test_pieces_wait_for_their_acknowledgements(servers: dict[str, ServerProcess]) -> None:
    counts = {}
    for kind, server in servers.items():
        with NatsClient(server.port) as client:
            client.api("STREAM.CREATE.W", {"name": "W"})
            for place in range(200):
                client.request("W", bytes((place * 7 + step * step) % 256 for step in range(500)))
            data, _, acknowledged = taken(client, "W", chunk_size=1024, window_size=1024)
            counts[kind] = (acknowledged, len(data) // 1024)

    assert counts[PENSTOCK][0] == counts[PENSTOCK][1] > 2
    assert counts[REFERENCE][0] == counts[REFERENCE][1] > 2


def test_a_snapshot_that_was_cut_off_restores_nothing(servers: dict[str, ServerProcess]) -> None:
    with NatsClient(servers[PENSTOCK].port) as client:
        fill(client, "cut")
        data, answer, _ = taken(client, "cut")
        client.api("STREAM.DELETE.cut")

        for wrong in (data[:-20], data[: len(data) // 2], b"", b"garbage" * 100, data[10:]):
            restored = put_back(client, wrong, answer["config"])
            assert restored["error"]["err_code"] == 10062, restored
            assert "cut" not in (client.api("STREAM.NAMES")["streams"] or ())

        assert "error" not in put_back(client, data, answer["config"])


def test_a_stream_that_is_being_restored_cannot_be_made(servers: dict[str, ServerProcess]) -> None:
    with NatsClient(servers[PENSTOCK].port) as client:
        fill(client, "twice")
        data, answer, _ = taken(client, "twice")
        client.api("STREAM.DELETE.twice")
        where = client.api("STREAM.RESTORE.twice", {"config": answer["config"]})["deliver_subject"]
        client.request(where, data)

        made = client.request("$JS.API.STREAM.CREATE.twice", b'{"name":"twice"}').payload
        restored = json.loads(client.request(where).payload)

        assert "error" in json.loads(made)
        assert restored["state"]["messages"] == LAST_SEQ - len(DELETED)


def packed(folder: Path) -> bytes:
    """Pack a stream's folder as the reference server did before version 2.15."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("meta.inf", "meta.sum"):
            tar.add(folder / name, name)
        for block in sorted((folder / "msgs").glob("*.blk")):
            tar.add(block, f"msgs/{block.name}")
    return encode_s2_stream(out.getvalue())


def test_a_packed_folder_of_an_older_server_is_restored(
    servers: dict[str, ServerProcess], tmp_path: Path
) -> None:
    with (
        server_process(REFERENCE, store_dir=tmp_path) as server,
        NatsClient(server.port) as client,
    ):
        fill(client, "old")
        config = client.api("STREAM.INFO.old")["config"]
        before, held = state(client, "old"), messages(client, "old")
    data = packed(tmp_path / "jetstream" / "$G" / "streams" / "old")

    with NatsClient(servers[PENSTOCK].port) as client:
        restored = put_back(client, data, config)

        assert "error" not in restored, restored
        assert messages(client, "old") == held
        assert state(client, "old") | {"last_ts": 0} == before | {"last_ts": 0}


@pytest.mark.parametrize("name", ["../meta.inf", "/etc/passwd", "msgs/../../x", "obs/a/b/c"])
def test_a_packed_folder_with_other_files_is_refused(
    servers: dict[str, ServerProcess], name: str
) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))

    with NatsClient(servers[PENSTOCK].port) as client:
        restored = put_back(client, encode_s2_stream(out.getvalue()), {"name": "bad"})

        assert restored["error"]["description"] == "restore failed: unexpected content"


def with_consumers(client: NatsClient, name: str) -> None:
    """A stream of ten messages with a consumer in the middle of it, and a fresh consumer."""
    client.api(f"STREAM.CREATE.{name}", {"name": name})
    for _ in range(10):
        client.request(name, b"hello")
    for config in (
        {"durable_name": "worker", "ack_policy": "explicit"},
        {"name": "passing", "ack_policy": "none", "inactive_threshold": 600 * 10**9},
    ):
        consumer = config.get("durable_name") or config["name"]
        request = {"stream_name": name, "config": config}
        client.api(f"CONSUMER.CREATE.{name}.{consumer}", request)
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.worker", b"4", reply="_IN.messages")
    replies = [client.next_delivery().reply for _ in range(4)]
    for place in (1, 0):
        client.request(replies[place], b"+ACK")


def consumer(client: NatsClient, stream: str, name: str) -> dict[str, Any]:
    found = client.api(f"CONSUMER.INFO.{stream}.{name}")
    places = {key: found[key] for key in ("delivered", "ack_floor")}
    for place in places.values():
        place.pop("last_active", None)
    return places | {key: found[key] for key in ("config", "num_ack_pending", "num_pending")}


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("source", BOTH)
def test_consumers_go_with_their_stream(
    servers: dict[str, ServerProcess], source: str, target: str
) -> None:
    name = f"consumed-{source}-{target}"
    with NatsClient(servers[source].port) as one:
        with_consumers(one, name)
        data, answer, _ = taken(one, name)
        before = [consumer(one, name, each) for each in ("worker", "passing")]
        one.api(f"STREAM.DELETE.{name}")
    config = answer["config"] | {"name": f"{name}-2", "subjects": [f"{name}-2"]}

    with NatsClient(servers[target].port) as other:
        restored = put_back(other, data, config)

        assert "error" not in restored, restored
        assert restored["state"]["consumer_count"] == 2
        after = [consumer(other, f"{name}-2", each) for each in ("worker", "passing")]
        assert after == before


def test_a_snapshot_may_leave_consumers_out(servers: dict[str, ServerProcess]) -> None:
    for server in servers.values():
        with NatsClient(server.port) as client:
            with_consumers(client, "left-out")
            data, answer, _ = taken(client, "left-out", no_consumers=True)
            client.api("STREAM.DELETE.left-out")
            config = answer["config"] | {"name": "left-out-2", "subjects": ["left-out-2"]}

            assert put_back(client, data, config)["state"]["consumer_count"] == 0


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"{", "failed to decode a consumer"),
        (b"{}", "is missing config or state"),
        (b'{"config":{"name":"c"},"state":{"ack_floor":{"stream_seq":1}}}', "acknowledged more"),
        (b'{"config":{"name":"c"},"state":{"redelivered":{"x":1}}}', "no number"),
        (b'{"config":{"name":"c","deliver_subject":"a.*"},"state":{}}', "has wildcards"),
    ],
)
def test_a_consumer_that_cannot_be_restores_nothing(
    servers: dict[str, ServerProcess], document: bytes, reason: str
) -> None:
    entries = [
        ArchiveEntry(b"state.json", 1, payload=b'{"first_seq":1,"consumer_count":1}'),
        ArchiveEntry(b"consumers/c", 1, payload=document),
        END,
    ]
    data = encode_s2_stream(MAGIC + b"".join(each.encode() for each in entries))

    with NatsClient(servers[PENSTOCK].port) as client:
        restored = put_back(client, data, {"name": "wrong"})

        assert reason in restored["error"]["description"]
        assert "wrong" not in (client.api("STREAM.NAMES")["streams"] or ())
