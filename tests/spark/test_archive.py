"""The format `penstock-archive`, read by real Spark and compared with the store, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import UsageError
from penstock.spark import schema
from penstock.spark.archives.scan import ArchiveFiles
from penstock.spark.archives.source import plan, read_settings
from penstock.spark.schema import MESSAGE_COLUMNS, Column
from tests.support.archives import (
    archive_here,
    connect,
    directory,
    make_store,
    publish,
    server_input,
    stored,
)

Told = tuple[int, str, int, bytes, tuple[str, ...]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store, ORDERS, and its archive."""
    folder = tmp_path_factory.mktemp("archived")
    make_store(folder / "ORDERS")
    archive_here(directory(folder / "ORDERS"), folder / "archive")
    return folder


def rows_of(path: Path) -> list[Told]:
    """Return the messages of a store, by the store itself."""
    return [
        (
            seq,
            subject.decode(errors="replace"),
            time_ns,
            payload,
            (number,) if (number := headers[18:].partition(b"\r\n")[0].decode()) else (),
        )
        for seq, time_ns, subject, headers, payload in stored(path)
    ]


def told(frame: DataFrame) -> list[Told]:
    rows = frame.select("sequence", "subject", "time_ns", "data", "headers.Number").collect()
    return sorted((row[0], row[1], row[2], bytes(row[3]), tuple(row[4] or ())) for row in rows)


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("penstock-archive").options(**options).load(str(path))


# Without Spark


def read(path: Path, *columns: Column, **options: str) -> list[dict[str, object]]:
    parts = plan(read_settings({"path": str(path), **options}))
    return [
        row
        for part in parts
        if isinstance(part.source, ArchiveFiles)
        for batch in part.read(columns or [schema.SEQUENCE])
        for row in batch.to_pylist()
    ]


def sequences(path: Path, **options: str) -> list[object]:
    return [row["sequence"] for row in read(path, **options)]


def test_every_column_says_what_the_store_says(place: Path) -> None:
    found = read(place / "archive", *MESSAGE_COLUMNS)

    for row, (seq, time_ns, subject, headers, payload) in zip(
        found, stored(place / "ORDERS"), strict=True
    ):
        assert (row["stream"], row["sequence"], row["time_ns"]) == ("ORDERS", seq, time_ns)
        assert row["subject"] == subject.decode(errors="replace")
        assert (row["headers_raw"], row["data"]) == (headers, payload)
        assert row["size"] == len(headers) + len(payload)
        assert (row["reply"], row["value"]) == (None, payload.decode())
        assert (row["headers"] is None) == (not headers)


@pytest.mark.parametrize("batch", ["1", "7", "100000"])
def test_rows_are_the_same_in_batches_of_any_size(place: Path, batch: str) -> None:
    found = read(place / "archive", *MESSAGE_COLUMNS, arrowBatchRows=batch)

    assert found == read(place / "archive", *MESSAGE_COLUMNS)


def test_ranges_are_cut_to_the_message(place: Path) -> None:
    there = [row[0] for row in stored(place / "ORDERS")]
    archive = place / "archive"

    assert sequences(archive, startingOffsets="1500") == [seq for seq in there if seq >= 1500]
    assert sequences(archive, endingOffsets="1500") == [seq for seq in there if seq < 1500]
    assert sequences(archive, startingOffsets="700", endingOffsets="702") == [700, 701]
    assert sequences(archive, startingOffsets="4000") == []
    assert sequences(archive, startingOffsets="latest") == []


def test_times_are_cut_to_the_nanosecond(place: Path) -> None:
    rows = stored(place / "ORDERS")
    middle_ms = -(-rows[1500][1] // 10**6)

    after = sequences(place / "archive", startingTimestamp=str(middle_ms))
    before = sequences(place / "archive", endingTimestamp=str(middle_ms))

    assert after == [row[0] for row in rows if row[1] >= middle_ms * 10**6]
    assert before == [row[0] for row in rows if row[1] < middle_ms * 10**6]


@pytest.mark.parametrize("pattern", ["orders.7", "orders.*", "orders.1,orders.2", "nobody.>"])
def test_subjects_are_matched_as_a_server_matches_them(place: Path, pattern: str) -> None:
    wanted = {
        "orders.7": {b"orders.7"},
        "orders.*": None,
        "orders.1,orders.2": {b"orders.1", b"orders.2"},
        "nobody.>": set(),
    }[pattern]

    found = sequences(place / "archive", subject=pattern)

    rows = stored(place / "ORDERS")
    assert found == [row[0] for row in rows if wanted is None or row[2] in wanted]


@pytest.mark.parametrize(
    "options",
    [
        {"servers": "nats://127.0.0.1:1"},
        {"startingOffsets": "first"},
        {"endingTimestamp": "yesterday"},
        {"path": ""},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_cannot_be_are_refused(place: Path, options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        plan(read_settings({"path": str(place / "archive"), **options}))


def test_files_that_hold_nothing_wanted_are_not_opened(place: Path, tmp_path: Path) -> None:
    manifest = archive_here(directory(place / "ORDERS"), tmp_path)
    for entry in manifest.files[1:]:
        (tmp_path / entry.name).unlink()

    assert len(sequences(tmp_path, endingOffsets=str(manifest.files[1].first))) > 0


def test_work_is_divided_by_what_files_hold(place: Path) -> None:
    archive = str(place / "archive")

    whole = plan(read_settings({"path": archive}))
    divided = plan(read_settings({"path": archive, "minPartitions": "3"}))
    small = plan(read_settings({"path": archive, "maxRecordsPerPartition": "1"}))

    assert (len(whole), len(divided)) == (1, 3)
    assert len(small) > 3


# With Spark


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_table_holds_what_the_store_holds(spark: SparkSession, place: Path) -> None:
    frame = load(spark, place / "archive", minPartitions="3")

    assert told(frame) == rows_of(place / "ORDERS")
    assert frame.rdd.getNumPartitions() == 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_union_holds_what_archive_and_stream_hold(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    streams = connect(url)
    streams.call("STREAM.CREATE.UNITED", {"name": "UNITED", "subjects": ["united.>"]})
    publish(streams, "united", 200)
    archive_here(server_input(url, "UNITED"), tmp_path, until=121)
    streams.call("STREAM.PURGE.UNITED", {"seq": 101})
    options = {"union": "true", "servers": url, "maxRecordsPerPartition": "30"}

    frame = load(spark, tmp_path, **options)

    assert [row[0] for row in told(frame)] == list(range(1, 201))
    assert frame.where("sequence > 110").count() == 90
    streams.call("STREAM.PURGE.UNITED", {"seq": 150})
    with pytest.raises(PySparkException, match=r"121.*150"):
        load(spark, tmp_path, **options).count()
    streams.call("STREAM.DELETE.UNITED")
    streams.client.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOfsets": "1"}, "startingOffsets"),
        ({"columns": "sequence,sbject"}, "subject"),
        ({"union": "true", "servers": "nats://127.0.0.1:1", "connectTimeoutMs": "100"}, "refused"),
    ],
    ids=["misspelt", "column", "nobody there"],
)
def test_bad_options_are_refused_with_what_is_wrong(
    spark: SparkSession, place: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        load(spark, place / "archive", **options).count()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_folder_without_an_archive_and_a_file_that_is_gone_are_told(
    spark: SparkSession, place: Path, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="no archive"):
        load(spark, tmp_path / "nowhere").count()
    manifest = archive_here(directory(place / "ORDERS"), tmp_path)
    (tmp_path / manifest.files[1].name).unlink()

    with pytest.raises(PySparkException, match="cannot be read"):
        load(spark, tmp_path).count()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsetsByTimestamp", '{"ORDERS": 1}'),
        ("endingOffsetsByTimestamp", '{"ORDERS": 1}'),
        ("startingOffsetsByTimestampStrategy", "latest"),
        ("payloadCompression", "zlib"),
        ("nats.storage.payload-compression", "zlib"),
        ("schemaStyle", "official"),
    ],
)
def test_what_has_no_meaning_in_an_archive_is_refused(place: Path, option: str, value: str) -> None:
    with pytest.raises(UsageError, match="is for streams and directories"):
        read_settings({"path": str(place / "archive"), option: value})
