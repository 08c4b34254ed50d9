"""Buckets as tables: through their server, ours and the real one, and from their directories."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import DataType, LongType, StringType, StructType

from penstock.client.client import Client
from penstock.client.jetstream import JetStream, pull
from penstock.errors import RefusedByServer, UsageError
from penstock.spark.kv.rows import NewestMessages, keys_of, operations_of
from penstock.spark.kv.source import KvReader, KvSource, read_sink
from penstock.spark.position import DataLoss
from penstock.testing.servers import BOTH, server_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BUCKET = "PRICES"
STREAM = f"KV_{BUCKET}"
KEYS = 300
ROUNDS = 6

Row = dict[str, Any]


def make_bucket(
    streams: JetStream, bucket: str = BUCKET, *, history: int = 10, **more: object
) -> None:
    """Make a bucket as clients make it."""
    config = {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": history,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "discard": "new",
        **more,
    }
    streams.call(f"STREAM.CREATE.KV_{bucket}", config)


def put(streams: JetStream, key: str, value: str = "", operation: str = "") -> None:
    """Change a key as clients do; it is done when the server has acknowledged a later change."""
    lines = f"NATS/1.0\r\nKV-Operation: {operation}\r\n\r\n".encode()
    subject = f"$KV.{BUCKET}.{key}".encode()
    streams.client.publish(subject, value.encode(), headers=lines if operation else None)


def put_last(streams: JetStream, key: str, value: str) -> None:
    """Change a key, and wait until this and all changes before it are done."""
    streams.client.send()
    streams.publish(f"$KV.{BUCKET}.{key}".encode(), value.encode())


def fill(streams: JetStream, *, history: int = 10) -> None:
    """Make a bucket of keys that were changed some times; some are deleted at the end."""
    make_bucket(streams, history=history)
    for turn, number in itertools.product(range(ROUNDS), range(KEYS)):
        key = f"item.{number}"
        # Not each time, so that the newest changes lie among older ones.
        if turn and (number + turn) % 3 == 0:
            continue
        if number % 7 == turn:
            put(streams, key, operation="DEL" if number % 2 else "PURGE")
        else:
            put(streams, key, f"{turn} of {number}")
    put_last(streams, "item.last", "the last")


def changes(streams: JetStream) -> list[Row]:
    """Return every change of a bucket, by the server itself."""
    return [
        {
            "key": each.subject.decode().removeprefix(f"$KV.{BUCKET}."),
            "value": each.payload,
            "revision": each.seq,
            "operation": each.headers.partition(b"KV-Operation: ")[2].partition(b"\r")[0].decode()
            or "PUT",
        }
        for each in streams.each(STREAM)
    ]


def newest(rows: Iterable[Row]) -> list[Row]:
    """Return the last change of each key."""
    return sorted({row["key"]: row for row in rows}.values(), key=lambda row: row["revision"])


def reader_of(**options: str) -> KvReader:
    source = KvSource(options)
    return source.reader(source.schema())


def rows_of(partitions: Iterable[InputPartition], reader: KvReader) -> list[Row]:
    batches = (batch for each in partitions for batch in reader.read(each))
    rows = [row for batch in batches for row in batch.to_pylist()]
    wanted = ("key", "value", "revision", "operation")
    return sorted(({name: row[name] for name in wanted} for row in rows), key=_revision)


def _revision(row: Row) -> int:
    revision: int = row["revision"]
    return revision


def load(**options: str) -> list[Row]:
    """Read a table as tasks would, without Spark."""
    reader = reader_of(**options)
    return rows_of(reader.partitions(), reader)


@pytest.mark.parametrize("parts", [1, 5])
def test_a_table_shows_the_newest_value_of_each_key(
    url: str, streams: JetStream, parts: int
) -> None:
    fill(streams)
    expected = newest(changes(streams))
    given = {"servers": url, "bucket": BUCKET, "minPartitions": str(parts)}

    reader = reader_of(**given)
    partitions = reader.partitions()

    assert len(partitions) == parts
    assert rows_of(partitions, reader) == [row for row in expected if row["operation"] == "PUT"]
    assert load(**given, includeDeletes="true") == expected
    assert list(streams.pages(f"CONSUMER.NAMES.{STREAM}", "consumers", {})) == []


def test_history_shows_every_change(url: str, streams: JetStream) -> None:
    fill(streams, history=3)

    found = load(servers=url, bucket=BUCKET, mode="history", minPartitions="3")

    assert found == changes(streams)
    assert len(found) == KEYS * 3 + 1


def test_a_value_that_a_limit_removed_is_told_with_the_reason(url: str, streams: JetStream) -> None:
    hour_ns = 3600 * 10**9
    make_bucket(
        streams,
        allow_msg_ttl=True,
        subject_delete_marker_ttl=hour_ns,
        max_age=10**9,
        duplicate_window=10**9,
    )
    config = {"durable_name": "marker", "ack_policy": "none", "deliver_policy": "new"}
    asked = {"stream_name": STREAM, "config": config}
    streams.call(f"CONSUMER.DURABLE.CREATE.{STREAM}.marker", asked)

    put_last(streams, "short", "soon gone")
    # The value itself, and what the server puts in its place, which stays no longer.
    _, marker = pull(streams.client, STREAM.encode(), b"marker", 2, expires_s=50)

    assert operations_of(pa.array([marker.headers], pa.binary())).to_pylist() == ["MaxAge"]


@pytest.mark.parametrize("parts", ["1", "3"])
def test_a_table_shows_a_bucket_as_of_a_revision_or_a_time(
    url: str, streams: JetStream, parts: str
) -> None:
    fill(streams)
    revision = KEYS * 2 + KEYS // 2
    (then,) = (each.time for each in streams.each(STREAM) if each.seq == revision + 1)
    expected = newest(row for row in changes(streams) if row["revision"] <= revision)
    given = {"servers": url, "bucket": BUCKET, "includeDeletes": "true", "minPartitions": parts}

    assert load(**given, asOf=str(revision)) == expected
    # Times in options have six digits at most: what came within the same microsecond is left out.
    before = load(**given, asOf=then[:26] + "Z")
    assert before == newest(changes(streams)[: len(before_of(streams, then[:26]))])


def before_of(streams: JetStream, moment: str) -> list[str]:
    return [each.time for each in streams.each(STREAM) if each.time[:26] < moment]


@pytest.mark.parametrize(
    ("keys", "is_wanted"),
    [
        ("item.7", lambda key: key == "item.7"),
        ("item.1,item.2", lambda key: key in ("item.1", "item.2")),
        ("item.*", lambda _: True),
        ("none.>", lambda _: False),
    ],
)
def test_keys_are_chosen_by_name_and_pattern(
    url: str, streams: JetStream, keys: str, is_wanted: Any
) -> None:
    fill(streams)
    expected = [row for row in newest(changes(streams)) if is_wanted(row["key"])]

    found = load(servers=url, bucket=BUCKET, keys=keys, includeDeletes="true")

    assert found == expected


@pytest.mark.parametrize("parts", ["1", "4"])
@pytest.mark.parametrize("history", [1, 10])
def test_a_key_that_changes_while_it_is_read_is_shown_once(
    url: str, streams: JetStream, history: int, parts: str
) -> None:
    fill(streams, history=history)
    before = {row["key"] for row in newest(changes(streams)) if row["operation"] == "PUT"}
    reader = reader_of(
        servers=url, bucket=BUCKET, minPartitions=parts, arrowBatchRows="20", fetchBatch="20"
    )
    partitions = reader.partitions()
    batches = (batch for each in partitions for batch in reader.read(each))

    shown = next(batches).to_pylist()
    for key in before:
        put(streams, key, "changed")
    put_last(streams, "item.new", "came since")
    shown += [row for batch in batches for row in batch.to_pylist()]

    keys = [row["key"] for row in shown]
    assert sorted(set(keys) - {"item.new"}) == sorted(before)
    assert len(keys) == len(set(keys))
    # A value that was pushed out is shown by what came in its place; others as they were.
    is_changed = b"changed" in {row["value"] for row in shown}
    assert is_changed == (history == 1)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("parts", ["1", "3"])
def test_a_server_that_is_started_anew_is_waited_for(kind: str, parts: str, tmp_path: Path) -> None:
    given = {"bucket": BUCKET, "minPartitions": parts, "arrowBatchRows": "20", "fetchBatch": "20"}
    with server_process(kind, store_dir=tmp_path) as server:
        with Client.connect(server.url, timeout_s=60) as client:
            streams = JetStream(client)
            fill(streams)
            expected = [row for row in newest(changes(streams)) if row["operation"] == "PUT"]
        url, port = server.url, server.port
        reader = reader_of(servers=url, retries="10", **given)
        batches = (batch for each in reader.partitions() for batch in reader.read(each))
        found = next(batches).to_pylist()

    with server_process(kind, store_dir=tmp_path, port=port):
        found += [row for batch in batches for row in batch.to_pylist()]

    assert sorted(row["revision"] for row in found) == [row["revision"] for row in expected]


def test_a_schema_and_options_choose_columns(url: str, streams: JetStream) -> None:
    make_bucket(streams)
    put_last(streams, "a", "1")
    given = {"servers": url, "bucket": BUCKET}

    for options, wanted in (
        ({"columns": "revision,key"}, [{"revision": 1, "key": "a"}]),
        ({"columns": "value", "valueFormat": "string"}, [{"value": "1"}]),
        ({"columns": "bucket,operation"}, [{"bucket": BUCKET, "operation": "PUT"}]),
    ):
        reader = reader_of(**given, **options)
        batches = [batch for each in reader.partitions() for batch in reader.read(each)]
        assert [row for batch in batches for row in batch.to_pylist()] == wanted


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "give a bucket"),
        ({"bukket": "A"}, "did you mean bucket"),
        ({"bucket": "a.b"}, "cannot be a bucket"),
        ({"bucket": "A", "mode": "lates"}, "mode"),
        ({"bucket": "A", "asOf": "soon"}, "asOf"),
        ({"bucket": "A", "keys": "a..b"}, "no key"),
        ({"bucket": "A", "columns": "revison"}, "did you mean revision"),
        ({"path": "/nowhere"}, "no such folder"),
        ({"bucket": "A", "layout": "go"}, "no option 'layout'"),
    ],
)
def test_a_wrong_option_is_named_before_any_work(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        KvSource(options).schema()


def test_a_bucket_that_is_not_there_is_told(url: str) -> None:
    with pytest.raises(UsageError, match="KV_NONE"):
        reader_of(servers=url, bucket="NONE")


# Following


def followed(follower: Any, start: dict[str, Any]) -> tuple[dict[str, Any], list[Row]]:
    """Read what has come since a position; give the next one and the changes."""
    end = follower.latestOffset(start, follower.getDefaultReadLimit())
    parts = follower.partitions(start, end)
    batches = (batch for each in parts for batch in follower.read(each))
    return end, [row for batch in batches for row in batch.to_pylist()]


def follower_of(**options: str) -> Any:
    source = KvSource(options | {"startingOffsets": "earliest", "columns": "key,operation"})
    return source.streamReader(source.schema())


def test_changes_are_followed_through_a_server_and_from_its_directory(tmp_path: Path) -> None:
    with (
        server_process(BOTH[0], store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        make_bucket(streams)
        put(streams, "a", "1")
        put(streams, "a", operation="DEL")
        put_last(streams, "b", "2")
        path = str(tmp_path / "jetstream" / "$G" / "streams" / STREAM)
        given: list[dict[str, str]] = [{"servers": server.url, "bucket": BUCKET}, {"path": path}]
        followers = [follower_of(**options) for options in given]

        at = [followed(each, each.initialOffset()) for each in followers]
        put_last(streams, "c", "3")
        later = [followed(each, start) for each, (start, _) in zip(followers, at, strict=True)]

    assert [[tuple(row.values()) for row in rows] for _, rows in at] == [
        [("a", "PUT"), ("a", "DEL"), ("b", "PUT")]
    ] * 2
    assert [[tuple(row.values()) for row in rows] for _, rows in later] == [[("c", "PUT")]] * 2


def test_what_follows_a_bucket_gives_changes_alone() -> None:
    for options in ({"asOf": "7"}, {"mode": "latest"}):
        source = KvSource({"bucket": BUCKET, **options})
        with pytest.raises(UsageError, match="gives its changes"):
            source.streamReader(StructType().add("key", "string"))


# Directories


@pytest.mark.parametrize("kind", BOTH)
def test_a_directory_shows_what_its_server_showed(kind: str, tmp_path: Path) -> None:
    with (
        server_process(kind, store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        fill(streams)
        every = changes(streams)
    path = str(tmp_path / "jetstream" / "$G" / "streams" / STREAM)
    wanted = {"includeDeletes": "true"}

    assert load(path=path) == [row for row in newest(every) if row["operation"] == "PUT"]
    assert load(path=f"file://{path}", **wanted) == newest(every)
    assert load(path=path, mode="history", minPartitions="2") == every
    assert load(path=path, asOf="700", **wanted) == newest(every[:700])
    assert load(path=path, keys="item.5", **wanted) == [
        row for row in newest(every) if row["key"] == "item.5"
    ]


def test_a_value_that_goes_away_under_a_task_fails_the_query(tmp_path: Path) -> None:
    with (
        server_process(BOTH[0], store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        fill(JetStream(client))
    path = tmp_path / "jetstream" / "$G" / "streams" / STREAM
    reader = reader_of(path=str(path))
    partitions = reader.partitions()

    shutil.rmtree(path / "msgs")
    (path / "msgs").mkdir()

    with pytest.raises(DataLoss, match="went away"):
        rows_of(partitions, reader)


# Writing


def sink_of(url: str, **columns: DataType) -> Any:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return read_sink({"servers": url, "bucket": BUCKET, "maxInFlight": "16"}, schema)


def batch_of(**columns: list[Any]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict(columns)])


def test_rows_put_delete_and_purge_keys(url: str, streams: JetStream) -> None:
    make_bucket(streams)
    sink = sink_of(url, key=StringType(), value=StringType(), operation=StringType())

    done = sink.write(
        batch_of(
            key=["a", "b.c", "a", "b.c", "d"],
            value=["1", "2", None, "ignored", "3"],
            operation=[None, "PUT", "DEL", "PURGE", "PUT"],
        )
    )

    assert done.rows == 5
    assert [(row["key"], row["operation"], row["value"]) for row in changes(streams)] == [
        ("a", "PUT", b"1"),
        ("a", "DEL", b""),
        # A purge leaves nothing of its key but itself.
        ("b.c", "PURGE", b""),
        ("d", "PUT", b"3"),
    ]


def test_an_expected_revision_guards_a_key(url: str, streams: JetStream) -> None:
    make_bucket(streams)
    sink = sink_of(url, key=StringType(), value=StringType(), expected_revision=LongType())

    sink.write(batch_of(key=["a", "b"], value=["1", "2"], expected_revision=[0, None]))
    sink.write(batch_of(key=["a"], value=["3"], expected_revision=[1]))
    with pytest.raises(RefusedByServer, match="wrong last sequence"):
        sink.write(batch_of(key=["a"], value=["4"], expected_revision=[1]))

    assert [(row["key"], row["value"]) for row in newest(changes(streams))] == [
        ("b", b"2"),
        ("a", b"3"),
    ]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": ["a b"], "value": ["1"]}, "'a b' is no key"),
        ({"key": ["a..b"], "value": ["1"]}, "is no key"),
        ({"key": [None], "value": ["1"]}, "is no key"),
        ({"key": ["a"], "value": [None]}, "null"),
        ({"key": ["a"], "value": ["1"], "operation": ["DROP"]}, "'DROP' is none"),
    ],
)
def test_a_row_that_cannot_be_written_is_told(
    url: str, streams: JetStream, columns: dict[str, list[Any]], reason: str
) -> None:
    make_bucket(streams)
    sink = sink_of(url, **dict.fromkeys(columns, StringType()))
    batch = pa.RecordBatch.from_pydict(
        columns, pa.schema([(name, pa.string()) for name in columns])
    )

    with pytest.raises(UsageError, match=reason):
        sink.write(iter([batch]))

    assert changes(streams) == []


def test_a_frame_that_does_not_fit_is_refused_before_any_work(url: str, streams: JetStream) -> None:
    with pytest.raises(UsageError, match="bucket PRICES"):
        sink_of(url, key=StringType(), value=StringType())
    make_bucket(streams)

    for columns, reason in (
        ({"value": StringType()}, "needs the columns"),
        ({"key": StringType()}, "needs the columns"),
        ({"key": LongType(), "value": StringType()}, "key cannot be bigint"),
    ):
        with pytest.raises(UsageError, match=reason):
            sink_of(url, **columns)
    with pytest.raises(UsageError, match="append"):
        KvSource({"servers": url, "bucket": BUCKET}).writer(StructType(), overwrite=True)


# With Spark


def test_a_query_copies_a_bucket_change_by_change(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    fill(streams)
    make_bucket(streams, "COPY")
    connected = {"servers": url}

    def copy_what_is_there() -> None:
        changed = (
            spark.readStream.format("penstock-kv")
            .options(**connected, bucket=BUCKET, startingOffsets="earliest")
            .load()
        )
        query = (
            changed.writeStream.format("penstock-kv")
            .options(**connected, bucket="COPY", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    copy_what_is_there()
    put_last(streams, "item.late", "1")
    copy_what_is_there()

    def values(bucket: str) -> list[tuple[str, str]]:
        table = spark.read.format("penstock-kv").options(**connected, bucket=bucket).load()
        return sorted((row.key, bytes(row.value).decode()) for row in table.collect())

    assert values("COPY") == values(BUCKET)
    assert ("item.late", "1") in values("COPY")


@pytest.mark.promise
def test_a_frame_is_put_into_a_bucket(spark: SparkSession, url: str, streams: JetStream) -> None:
    make_bucket(streams)
    frame = spark.range(100).selectExpr("concat('n.', id) as key", "cast(id as string) as value")

    frame.write.format("penstock-kv").mode("append").options(servers=url, bucket=BUCKET).save()
    table = (
        spark.read.format("penstock-kv")
        .schema("key string, value string")
        .options(servers=url, bucket=BUCKET)
        .load()
    )

    assert {tuple(row) for row in table.collect()} == {(f"n.{n}", str(n)) for n in range(100)}


# Without a server


def test_headers_tell_what_happened_to_a_key() -> None:
    headers = [
        b"",
        b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n",
        b"NATS/1.0\r\nX: y\r\nKV-Operation:PURGE\r\nNats-Rollup: sub\r\n\r\n",
        b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1m\r\n\r\n",
        b"NATS/1.0\r\nNats-Marker-Reason: Purge\r\n\r\n",
        b"NATS/1.0\r\nNats-Marker-Reason: Remove\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Size: 7\r\n\r\n",
        b"NATS/1.0\r\nX-KV-Operation: DEL\r\n\r\n",
    ]

    words = operations_of(pa.array(headers, pa.binary())).to_pylist()

    assert words == ["PUT", "DEL", "PURGE", "MaxAge", "PURGE", "Remove", "PUT", "PUT"]


def test_a_key_is_what_follows_the_bucket() -> None:
    subjects = pa.array(["$KV.A.b", "$KV.A.b.c", "$KV.OTHER.$KV.A.x", "plain"])

    assert keys_of(subjects).to_pylist() == ["b", "b.c", "$KV.A.x", "plain"]


@given(st.lists(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 10**6)))))
def test_the_newest_of_each_subject_is_found(groups: list[list[tuple[str, int]]]) -> None:
    found = NewestMessages()
    expected: dict[str, int] = {}

    for rows in groups:
        subjects, sequences = [row[0] for row in rows], [row[1] for row in rows]
        columns = [pa.array(subjects, pa.string()), pa.array(sequences, pa.int64())]
        found.add(pa.RecordBatch.from_arrays(columns, names=["subject", "sequence"]))
        for subject, sequence in rows:
            expected[subject] = max(expected.get(subject, 0), sequence)

    assert dict(zip(*(found.table().to_pydict().values()), strict=True)) == expected
    assert found.table().column("sequence").to_pylist() == sorted(expected.values())
