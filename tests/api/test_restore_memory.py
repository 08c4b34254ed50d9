"""Restores take bounded memory, however much their pieces expand to and however many there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.format.golang.archive import END, MAGIC, STATE_NAME, ArchiveEntry
from penstock.format.golang.s2 import encode_s2_stream
from penstock.limits import MIB
from penstock.store.filestore import FileStore
from penstock.stream.restore_memory import RestoreMemory
from penstock.testing.servers import PENSTOCK, server_process, start_server
from tests.support.nats_client import NatsClient

PIECE_BYTES = 500_000


def state(messages: int) -> bytes:
    document = {"messages": messages, "bytes": 1, "first_seq": 1, "last_seq": messages}
    return ArchiveEntry(STATE_NAME, payload=json.dumps(document).encode()).encode()


def expanding(messages: int) -> bytes:
    """Return a packed archive of so many MiB, about a twentieth as large."""
    entries = (
        ArchiveEntry(b"S", 1, seq, payload=bytes(MIB)).encode() for seq in range(1, messages + 1)
    )
    plain = [MAGIC + state(messages), *entries, END.encode()]
    return b"".join(encode_s2_stream(each) for each in plain)


def begin(client: NatsClient, name: str) -> str:
    config = {"config": {"name": name, "subjects": [name]}}
    where: str = client.api(f"STREAM.RESTORE.{name}", config)["deliver_subject"]
    return where


def sent(client: NatsClient, where: str, data: bytes) -> dict[str, Any]:
    """Send pieces; return the answer that is not empty, if there is one."""
    for start in range(0, len(data), PIECE_BYTES):
        answer = client.request(where, data[start : start + PIECE_BYTES]).payload
        if answer:
            found: dict[str, Any] = json.loads(answer)
            return found
    return {}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsClient]:
    monkeypatch.setattr("penstock.api.restores.SNAPSHOT_IDLE_S_MAX", 60.0)
    monkeypatch.setattr(RestoreMemory.__init__, "__defaults__", (4 * MIB,))
    settings = f"port: -1, jetstream {{ store_dir: {json.dumps(str(tmp_path))} }}"
    with start_server(settings=settings) as server, NatsClient(server.port) as client:
        yield client


@pytest.mark.slow
def test_what_a_piece_expands_to_is_stored_before_more_is_expanded(
    client: NatsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.stream.restore.RESTORE_UNSYNCED_BYTES_MAX", MIB)
    stored: list[int] = []
    flush = FileStore.flush

    def noted(store: FileStore) -> int:
        durable = flush(store)
        stored.append(durable)
        return durable

    monkeypatch.setattr(FileStore, "flush", noted)
    where = begin(client, "S")

    # All in one piece.
    assert sent(client, where, expanding(8)) == {}
    before_the_end = list(stored)
    restored = json.loads(client.request(where).payload)

    assert restored["state"]["messages"] == 8
    assert set(range(1, 8)) <= set(before_the_end)


@pytest.mark.slow
def test_entries_that_are_not_whole_share_one_bound(client: NatsClient) -> None:
    entry = ArchiveEntry(b"S", 1, 1, payload=bytes(3 * MIB)).encode()
    unfinished = encode_s2_stream(MAGIC + state(1) + entry[:-1])
    one, other, third = (begin(client, name) for name in ("A", "B", "C"))

    assert sent(client, one, unfinished) == {}
    refused = sent(client, other, unfinished)
    # What has ended holds nothing.
    truncated = json.loads(client.request(one).payload)

    assert refused["error"]["err_code"] == 10028
    assert truncated["error"]["err_code"] == 10062
    assert sent(client, third, unfinished + encode_s2_stream(entry[-1:] + END.encode())) == {}
    assert json.loads(client.request(third).payload)["state"]["messages"] == 1


@pytest.mark.exhaustive
def test_a_small_archive_that_expands_a_lot_takes_little_memory(tmp_path: Path) -> None:
    with server_process(PENSTOCK, store_dir=tmp_path) as server, NatsClient(server.port) as client:
        before_bytes = server.peak_resident_bytes
        where = begin(client, "S")
        assert sent(client, where, expanding(300)) == {}
        restored = json.loads(client.request(where).payload)
        taken_bytes = server.peak_resident_bytes - before_bytes

    assert restored["state"]["messages"] == 300
    assert taken_bytes < 110 * MIB
