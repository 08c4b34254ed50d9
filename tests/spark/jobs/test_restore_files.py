"""Restoring blocks: the same messages at the same places, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import CorruptStore, UsageError
from penstock.format.reader import StreamReader
from penstock.spark.archives.folder import ArchiveFolder, hex_of
from penstock.spark.archives.parquet import SOURCE_COLUMNS, hash_of_rows
from penstock.spark.jobs.archive import conclude, plan_archive, write_part
from penstock.spark.jobs.job import Input
from penstock.spark.jobs.restore_files import restore_blocks
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.servers import BOTH, server_process, start_server
from tests.support.archives import (
    archive_here,
    connect,
    directory,
    make_store,
    messages,
    publish,
    server_input,
    stored,
)

HOUR_NS = 3600 * 10**9
STREAMS = Path("jetstream") / "$G" / "streams"


def hash_of(source: Input) -> str:
    parts = (batch for part in source.parts() for batch in part.read(SOURCE_COLUMNS))
    return hex_of(sum(hash_of_rows(batch) for batch in parts) % 2**64)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "ORDERS"
    make_store(path)
    return path


@pytest.fixture
def archive(store: Path, tmp_path: Path) -> str:
    archive_here(directory(store), tmp_path / "archive")
    return str(tmp_path / "archive")


def test_every_message_is_where_it_was(store: Path, archive: str, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    report = restore_blocks(
        archive, str(tmp_path / "new"), on_progress=lambda done, total: told.append((done, total))
    )

    assert stored(tmp_path / "new" / "msgs") == stored(store)
    assert hash_of(directory(tmp_path / "new")) == hash_of(directory(store))
    assert StreamReader(str(tmp_path / "new" / "msgs")).damage == []
    assert report.counts["messages"] == len(stored(store))
    assert told[-1] == (report.parts, report.parts)


def test_a_gap_at_the_end_is_kept(tmp_path: Path) -> None:
    make_store(tmp_path / "ORDERS", count=100)
    with FileStore.open(str(tmp_path / "ORDERS"), StoreConfig(name="ORDERS")) as store:
        store.remove(100)
        store.remove(99)
        before = store.state()
    archive_here(directory(tmp_path / "ORDERS"), tmp_path / "archive")

    restore_blocks(str(tmp_path / "archive"), str(tmp_path / "new"))

    with FileStore.open(str(tmp_path / "new" / "msgs"), StoreConfig(name="ORDERS")) as store:
        after = store.state()
    assert (after.first_seq, after.last_seq) == (before.first_seq, before.last_seq)
    assert (after.messages, after.deleted) == (before.messages, before.deleted)


@pytest.mark.parametrize("kind", BOTH)
def test_a_server_serves_what_was_restored_as_the_stream_that_it_was(
    kind: str, tmp_path: Path
) -> None:
    with server_process(kind, store_dir=tmp_path / "server") as server:
        streams = connect(server.url)
        streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        publish(streams, "orders", 100)
        streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": 50})
        archive_here(server_input(server.url, "ORDERS"), tmp_path / "archive")
        before, info = messages(streams, "ORDERS"), streams.call("STREAM.INFO.ORDERS")
        streams.client.close()
    os.makedirs(tmp_path / "data" / STREAMS)

    restore_blocks(str(tmp_path / "archive"), str(tmp_path / "data" / STREAMS / "ORDERS"))

    with start_server(settings=f'jetstream {{ store_dir: "{tmp_path}/data" }}') as restored:
        streams = connect(restored.url)
        assert messages(streams, "ORDERS") == before
        after = streams.call("STREAM.INFO.ORDERS")
        assert (after["state"], after["created"]) == (info["state"], info["created"])
        assert after["config"]["subjects"] == ["orders.>"]
        assert streams.publish(b"orders.1", b"next")["seq"] == 101
        streams.client.close()


def test_messages_that_were_to_expire_expire_as_before(tmp_path: Path) -> None:
    settings = f'jetstream {{ store_dir: "{tmp_path}/old" }}'
    with start_server(settings=settings) as server:
        streams = connect(server.url)
        config = {"name": "ORDERS", "subjects": ["orders.>"], "allow_msg_ttl": True}
        streams.call("STREAM.CREATE.ORDERS", config)
        streams.publish(b"orders.1", b"", headers=b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n")
        streams.publish(b"orders.2", b"stays")
        streams.client.close()
    archive_here(directory(tmp_path / "old" / STREAMS / "ORDERS"), tmp_path / "archive")

    restore_blocks(str(tmp_path / "archive"), str(tmp_path / "new"))

    with FileStore.open(str(tmp_path / "new" / "msgs"), StoreConfig(name="ORDERS")) as store:
        first, second = store.load(1), store.load(2)
    assert first.expires_ns == first.timestamp_ns + HOUR_NS
    assert second.expires_ns == 0


def test_a_place_that_is_taken_is_left_alone(archive: str, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "something").touch()

    with pytest.raises(UsageError):
        restore_blocks(archive, str(tmp_path / "new"))

    assert [path.name for path in (tmp_path / "new").iterdir()] == ["something"]


def test_a_dry_run_writes_nothing(archive: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))

    report = restore_blocks(archive, str(tmp_path / "new"), dry_run=True)

    assert report.outputs == [str(tmp_path / "new")]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("number", [0, -1])
def test_a_damaged_file_leaves_nothing_behind(archive: str, tmp_path: Path, number: int) -> None:
    path = sorted((Path(archive) / "data").iterdir())[number]
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.write_bytes(content)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(CorruptStore):
        restore_blocks(archive, str(tmp_path / "new"))

    assert sorted(tmp_path.rglob("*")) == before


def test_what_an_attempt_that_was_killed_left_does_not_stand_in_the_way(
    store: Path, archive: str, tmp_path: Path
) -> None:
    left = tmp_path / "new.restoring" / "msgs"
    left.mkdir(parents=True)
    (left / "junk.blk").write_bytes(b"half")

    restore_blocks(archive, str(tmp_path / "new"))

    assert stored(tmp_path / "new" / "msgs") == stored(store)
    assert not (tmp_path / "new.restoring").exists()


def test_an_archive_with_holes_is_restored_only_when_they_are_allowed(
    store: Path, tmp_path: Path
) -> None:
    archive_here(directory(store), tmp_path / "archive", until=1000)
    with FileStore.open(str(store), StoreConfig(name="ORDERS", block_bytes=16384)) as opened:
        opened.compact(2000)
    target = str(tmp_path / "archive")
    plan = plan_archive(directory(store), target, allow_holes=True)
    conclude(target, plan, [write_part(task) for task in plan.tasks])

    with pytest.raises(UsageError, match=r"1000.*1999"):
        restore_blocks(target, str(tmp_path / "new"))
    report = restore_blocks(target, str(tmp_path / "new"), allow_holes=True)

    assert len(stored(tmp_path / "new" / "msgs")) == report.counts["messages"]


def test_a_folder_without_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        restore_blocks(str(tmp_path), str(tmp_path / "new"))
    assert ArchiveFolder(str(tmp_path)).names("") == []
