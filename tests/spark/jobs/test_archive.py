"""The job `archive`: every message once, from where the last run ended, whatever broke it off."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import UsageError
from penstock.spark.archives.folder import (
    AlreadyThere,
    ArchiveFolder,
    Manifest,
    find_manifest,
    load_manifest,
)
from penstock.spark.archives.parquet import read_exact
from penstock.spark.jobs import archive as job
from penstock.spark.jobs.archive import (
    ArchiveTask,
    Written,
    archive,
    conclude,
    plan_archive,
    write_part,
)
from penstock.spark.jobs.job import Input
from penstock.spark.jobs.verify import check_archive
from penstock.spark.position import DataLoss
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.servers import BOTH, server_process, start_server
from tests.support.archives import (
    Row,
    add,
    archive_here,
    connect,
    directory,
    make_store,
    messages,
    publish,
    server_input,
    stored,
)


def archived(target: Path) -> list[Row]:
    folder = ArchiveFolder(str(target))
    return [
        tuple(row.values())
        for batch in read_exact(folder, load_manifest(folder).files)
        for row in batch.to_pylist()
    ]


def grow(path: Path, first: int, end: int) -> None:
    with FileStore.open(str(path), StoreConfig(name="ORDERS", block_bytes=16384)) as store:
        add(store, first, end)


def purge(path: Path, seq: int) -> None:
    with FileStore.open(str(path), StoreConfig(name="ORDERS", block_bytes=16384)) as store:
        store.compact(seq)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "ORDERS"
    make_store(path)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "archive"


# What is archived


def test_an_archive_holds_every_message_to_the_bit(store: Path, target: Path) -> None:
    manifest = archive_here(directory(store), target)

    assert archived(target) == stored(store)
    assert len(manifest.files) > 3
    assert (manifest.first, manifest.end, manifest.holes()) == (1, 3001, [])
    assert manifest.messages == len(stored(store))


@pytest.mark.parametrize("kind", BOTH)
def test_a_servers_stream_is_archived_to_the_bit(kind: str, tmp_path: Path) -> None:
    with server_process(kind, store_dir=tmp_path / "server") as server:
        streams = connect(server.url)
        streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        publish(streams, "orders", 100)
        for seq in (1, 50, 100):
            streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": seq})

        manifest = archive_here(server_input(server.url, "ORDERS"), tmp_path / "archive")

        there = messages(streams, "ORDERS")
        info = streams.call("STREAM.INFO.ORDERS")
        streams.client.close()
    found = [(row[0], *row[2:]) for row in archived(tmp_path / "archive")]
    assert found == [row[:4] for row in there]
    assert (manifest.first, manifest.end) == (2, 101)
    assert manifest.created == info["created"]
    assert manifest.config["subjects"] == ["orders.>"]


@pytest.mark.parametrize("kind", BOTH)
def test_a_directory_goes_on_where_the_server_ended(kind: str, tmp_path: Path) -> None:
    with server_process(kind, store_dir=tmp_path / "data") as server:
        streams = connect(server.url)
        streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        publish(streams, "orders", 50)
        before = archive_here(server_input(server.url, "ORDERS"), tmp_path / "archive")
        publish(streams, "orders", 50)
        there = messages(streams, "ORDERS")
        streams.client.close()
    path = tmp_path / "data" / "jetstream" / "$G" / "streams" / "ORDERS"

    after = archive_here(directory(path), tmp_path / "archive")

    assert (before.number, after.number, after.end) == (1, 2, 101)
    assert after.config == before.config
    assert [row[0] for row in archived(tmp_path / "archive")] == [row[0] for row in there]


def test_the_next_run_goes_on_behind_the_last(store: Path, target: Path) -> None:
    before = archive_here(directory(store), target)
    grow(store, 3000, 3500)

    after = archive_here(directory(store), target)

    assert after.files[: len(before.files)] == before.files
    assert after.files[len(before.files)].first == before.end == 3001
    assert archived(target) == stored(store)


def test_a_run_with_nothing_new_writes_nothing(store: Path, target: Path) -> None:
    before = archive_here(directory(store), target)
    names = sorted(target.rglob("*"))

    after = archive_here(directory(store), target)

    assert after == before
    assert sorted(target.rglob("*")) == names


def test_what_lies_behind_the_cut_is_left_to_the_next_run(store: Path, target: Path) -> None:
    first = archive_here(directory(store), target, until=1234)
    assert (first.end, archived(target)[-1][0]) == (1234, 1233)

    second = archive_here(directory(store), target)

    assert second.holes() == []
    assert archived(target) == stored(store)


def test_the_same_messages_make_the_same_manifest(store: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        archive_here(directory(store), place)

    names = [path.relative_to(one) for path in sorted(one.rglob("*")) if path.is_file()]
    assert len(names) > 4
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes()


# What breaks a run off


def test_files_that_no_manifest_names_yet_are_not_written_again(store: Path, target: Path) -> None:
    plan = plan_archive(directory(store), str(target))
    for task in plan.tasks[:2]:
        write_part(task)
    assert find_manifest(ArchiveFolder(str(target))) is None
    grow(store, 3000, 3500)

    again = plan_archive(directory(store), str(target))
    written = [write_part(task) for task in again.tasks]
    conclude(str(target), again, written)

    assert [each.was_there for each in written[:3]] == [True, True, False]
    assert archived(target) == stored(store)


def test_what_was_written_keeps_its_stretch_though_the_stream_has_grown(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    with start_server(settings=f'jetstream {{ store_dir: "{tmp_path}/data" }}') as server:
        streams = connect(server.url)
        streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        publish(streams, "orders", 99)
        source = server_input(server.url, "ORDERS", minPartitions="3")
        left = write_part(plan_archive(source, str(target)).tasks[1])
        publish(streams, "orders", 21)

        plan = plan_archive(source, str(target))
        written = [write_part(task) for task in plan.tasks]
        manifest = conclude(str(target), plan, written)

        there = [row[0] for row in messages(streams, "ORDERS")]
        streams.client.close()
    assert [each.entry for each in written if each.was_there] == [left.entry]
    assert manifest.holes() == []
    assert [row[0] for row in archived(target)] == there


def test_a_file_in_the_middle_of_what_is_missing_is_kept_too(store: Path, target: Path) -> None:
    write_part(plan_archive(directory(store), str(target)).tasks[2])

    again = plan_archive(directory(store), str(target))
    written = [write_part(task) for task in again.tasks]
    manifest = conclude(str(target), again, written)

    assert sum(each.was_there for each in written) == 1
    assert manifest.holes() == []
    assert archived(target) == stored(store)


@pytest.mark.parametrize("left", [b"", b"PAR1 and no more", b"half"], ids=["empty", "cut", "half"])
def test_half_a_file_is_written_anew(store: Path, target: Path, left: bytes) -> None:
    task = plan_archive(directory(store), str(target)).tasks[1]
    write_part(task)
    path = target / task.file.name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if left == b"half" else left)

    archive_here(directory(store), target)

    assert archived(target) == stored(store)


def test_what_broken_runs_left_is_swept_and_other_files_are_not(store: Path, target: Path) -> None:
    data = target / "data"
    data.mkdir(parents=True)
    ours = data / f"{1:020d}-{77:020d}.parquet.0123456789abcdef.unfinished"
    ours.write_bytes(b"half")
    overlapping = data / f"{70:020d}-{4000:020d}.parquet"
    overlapping.write_bytes(b"beyond the end of the stream")
    theirs = data / "notes.txt"
    theirs.write_bytes(b"not ours")

    archive_here(directory(store), target)

    assert not ours.exists()
    assert theirs.exists()
    assert overlapping.exists()
    assert archived(target) == stored(store)


def test_of_two_runs_at_a_time_one_is_refused_and_nothing_is_twice(
    store: Path, target: Path
) -> None:
    slow = plan_archive(directory(store), str(target))
    late = [write_part(task) for task in slow.tasks]
    archive_here(directory(store), target)

    with pytest.raises(AlreadyThere):
        conclude(str(target), slow, late)

    assert archived(target) == stored(store)


# What is refused


def test_an_archive_of_another_stream_is_refused(store: Path, target: Path) -> None:
    archive_here(directory(store), target)

    with pytest.raises(UsageError, match="ORDERS"):
        plan_archive(directory(store, stream="OTHERS"), str(target))


def test_a_stream_that_was_made_anew_is_refused(store: Path, target: Path, tmp_path: Path) -> None:
    archive_here(directory(store), target)
    make_store(tmp_path / "new" / "ORDERS", count=4000)

    with pytest.raises(UsageError, match="made"):
        plan_archive(directory(tmp_path / "new" / "ORDERS"), str(target))


def test_messages_that_went_before_they_were_archived_are_told_with_both_numbers(
    store: Path, target: Path
) -> None:
    archive_here(directory(store), target, until=1000)
    purge(store, 1500)

    with pytest.raises(DataLoss, match=r"1000.*1500"):
        plan_archive(directory(store), str(target))


def test_holes_that_are_allowed_are_noted(store: Path, target: Path) -> None:
    archive_here(directory(store), target, until=1000)
    purge(store, 1500)

    plan = plan_archive(directory(store), str(target), allow_holes=True)
    manifest = conclude(str(target), plan, [write_part(task) for task in plan.tasks])

    assert manifest.holes() == [(1000, 1499)]
    assert archived(target)[-len(stored(store)) :] == stored(store)


@pytest.mark.parametrize(
    "options",
    [
        {"subject": "orders.1"},
        {"startingTimestamp": "2026-01-01"},
        {"EndingTimestamp": "2026-01-01"},
        {"onCorruptRecord": "skip"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_an_input_that_leaves_messages_out_is_refused(
    store: Path, target: Path, options: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match="leave out"):
        plan_archive(directory(store, **options), str(target))


def test_other_bad_inputs_are_refused_before_anything_is_written(
    store: Path, target: Path, tmp_path: Path
) -> None:
    for source in (
        Input("parquet", {"path": str(store)}),
        directory(tmp_path / "nowhere"),
        directory(store, startingOfsets="1"),
    ):
        with pytest.raises(UsageError):
            plan_archive(source, str(target))
    assert not target.exists()


# With Spark


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_archives_and_tells_what_it_did(
    spark: SparkSession, store: Path, target: Path
) -> None:
    told: list[tuple[int, int]] = []

    dry = archive(spark, directory(store), str(target), dry_run=True)
    assert not target.exists()
    report = archive(
        spark,
        directory(store),
        str(target),
        on_progress=lambda done, total: told.append((done, total)),
    )

    manifest: Manifest = load_manifest(ArchiveFolder(str(target)))
    assert archived(target) == stored(store)
    assert report.parts == dry.parts == len(manifest.files) == report.counts["files"]
    assert report.outputs == dry.outputs
    assert report.counts["messages"] == len(stored(store))
    assert told[-1] == (report.parts, report.parts)
    checked = check_archive(spark, str(target))
    assert (checked.exit_code, checked.counts["messages"]) == (0, len(stored(store)))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_reads_the_files_without_us(spark: SparkSession, store: Path, target: Path) -> None:
    archive_here(directory(store), target)

    table = spark.read.parquet(f"{target}/data").orderBy("sequence")
    found = table.select("sequence", "time_ns", "headers", "data").collect()

    assert [(row[0], row[1], bytes(row[2]), bytes(row[3])) for row in found] == [
        (sequence, time_ns, headers, data) for sequence, time_ns, _, headers, data in stored(store)
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_whose_worker_is_killed_is_finished_by_the_next(
    spark: SparkSession, store: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(task: ArchiveTask) -> Written:
        if task.file.first > 2000:
            os.kill(os.getpid(), signal.SIGKILL)
        return write_part(task)

    monkeypatch.setattr(job, "write_part", dying)
    with pytest.raises(Exception, match="worker"):
        archive(spark, directory(store), str(target))
    assert find_manifest(ArchiveFolder(str(target))) is None
    monkeypatch.undo()

    archive(spark, directory(store), str(target))

    assert archived(target) == stored(store)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_check_tells_of_files_that_are_damaged_or_gone(
    spark: SparkSession, store: Path, target: Path
) -> None:
    manifest = archive_here(directory(store), target)
    damaged, gone = manifest.files[0].name, manifest.files[2].name
    content = bytearray((target / damaged).read_bytes())
    content[len(content) // 2] ^= 1
    (target / damaged).write_bytes(content)
    (target / gone).unlink()

    report = check_archive(spark, str(target))

    assert [(each.kind, each.where) for each in report.findings] == [
        ("damaged", damaged),
        ("damaged", gone),
    ]
    assert report.exit_code == 1
