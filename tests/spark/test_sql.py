"""Streams, buckets and directories as tables of SQL: results of statements, and what they read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import PenstockError, QueryFailed, UsageError
from penstock.spark.failures import FAILURES, as_ours
from penstock.spark.sql.catalog import (
    PUSHDOWN_CONF,
    SCHEMA,
    Catalog,
    Table,
    table_of_directory,
    tables_of_server,
)
from penstock.spark.sql.results import Result
from penstock.testing.servers import PENSTOCK, server_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 100
STREAMS = ("ORDERS", "odd-one", "Twin", "TWIN")


class Place(msgspec.Struct):
    """A server with some streams, and its files."""

    url: str
    folder: Path

    def tables(self, **options: str) -> list[Table]:
        """Return the server's tables, with further options."""
        found = tables_of_server({"servers": self.url})
        return [msgspec.structs.replace(each, options=each.options | options) for each in found]


@contextlib.contextmanager
def connected(url: str) -> Iterator[JetStream]:
    """Connect for a moment: a server drops a client that does not answer while Spark works."""
    with Client.connect(url, timeout_s=60) as client:
        yield JetStream(client)


def payload(number: int) -> bytes:
    document = {
        "id": number,
        "price": number * 1.5,
        "customer": {"name": f"c{number % 4}"},
        "tags": ["a", "b"],
        "timestamp": "mine",
        "mixed": number if number % 2 else "text",
    }
    return json.dumps(document).encode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("store")
    with server_process(PENSTOCK, store_dir=folder) as server:
        with connected(server.url) as streams:
            fill(streams)
        yield Place(server.url, folder / "jetstream")


def fill(streams: JetStream) -> None:
    for number, name in enumerate(STREAMS):
        streams.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"s{number}.>"]})
    bucket = {"name": "KV_b", "subjects": ["$KV.b.>"], "max_msgs_per_subject": 5}
    streams.call("STREAM.CREATE.KV_b", bucket)
    for number in range(COUNT):
        streams.publish(b"s0.%d" % (number % 10), payload(number))
    for text in (b"no json", b"\xff\xfe", b"", b"[1, 2]"):
        streams.publish(b"s0.odd", text)
    streams.publish(b"s1.x", b"7")
    for number in range(6):
        streams.publish(b"$KV.b.key%d" % (number % 2), b'{"n": %d}' % number)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session as `penstock sql` opens it; nothing is left in its catalog."""
    spark.conf.set(PUSHDOWN_CONF, "true")
    yield spark
    spark.conf.set(PUSHDOWN_CONF, "false")
    spark.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    for view in spark.catalog.listTables():
        if view.isTemporary:
            spark.catalog.dropTempView(view.name)


def rows(catalog: Catalog, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in Result(catalog.frame(statement)).rows()]


def failure(catalog: Catalog, statement: str) -> PenstockError:
    """Return the error with which a statement ends."""
    with pytest.raises(FAILURES) as raised:
        rows(catalog, statement)
    return as_ours(raised.value, catalog)


@pytest.mark.promise
def test_every_stream_is_a_table_under_its_name(session: SparkSession, place: Place) -> None:
    catalog = Catalog(session, place.tables())
    with connected(place.url) as streams:
        stored = [(each.seq, each.subject.decode()) for each in streams.each("ORDERS")]

    assert catalog.names() == sorted([*STREAMS, "KV_b"])
    assert rows(catalog, "SELECT sequence, subject FROM orders ORDER BY 1") == stored
    assert rows(catalog, "SELECT subject, value FROM `odd-one`") == [("s1.x", 7)]
    assert rows(catalog, "SELECT key, value:n::int FROM KV_b ORDER BY key") == [
        ("key0", 4),
        ("key1", 5),
    ]


def test_a_real_servers_streams_are_tables_too(session: SparkSession, url: str) -> None:
    with connected(url) as streams:
        streams.call("STREAM.CREATE.REAL", {"name": "REAL", "subjects": ["real.>"]})
        streams.publish(b"real.1", b'{"a": {"b": 5}}')

    catalog = Catalog(session, tables_of_server({"servers": url}))

    found = rows(catalog, "SELECT sequence, value:a.b FROM REAL WHERE subject = 'real.1'")
    assert found == [(1, 5)]


def test_directories_are_tables_without_a_server(session: SparkSession, place: Place) -> None:
    streams = place.folder / "$G" / "streams"
    tables = [table_of_directory(name, str(streams / name), {}) for name in ("ORDERS", "KV_b")]
    catalog = Catalog(session, tables)

    found = rows(catalog, "SELECT count(*), min(_block), max(value:id::int) FROM ORDERS")

    assert found == [(COUNT + 4, 1, COUNT - 1)]
    assert len(rows(catalog, "SELECT * FROM KV_b")) == 2


def test_payloads_that_are_no_json_spoil_nothing(session: SparkSession, place: Place) -> None:
    catalog = Catalog(session, place.tables())

    found = rows(
        catalog,
        "SELECT value, value:id::int FROM ORDERS WHERE subject = 's0.odd' ORDER BY sequence",
    )

    assert found == [("no json", None), (None, None), ("", None), ([1, 2], None)]
    sums = "SELECT sum(value:price::double), sum(try_cast(value:mixed AS int)) FROM ORDERS"
    prices = sum(number * 1.5 for number in range(COUNT))
    assert rows(catalog, sums) == [(prices, sum(range(1, COUNT, 2)))]


TWICE = [
    "SELECT count(*) FROM ORDERS WHERE sequence < 20 UNION ALL SELECT count(*) FROM ORDERS",
    "SELECT count(*) FROM ORDERS UNION ALL SELECT count(*) FROM ORDERS WHERE sequence < 20",
    "SELECT count(*) FROM ORDERS a CROSS JOIN ORDERS b WHERE a.sequence < 20",
    "SELECT (SELECT count(*) FROM ORDERS WHERE sequence < 20), (SELECT count(*) FROM ORDERS)",
    "WITH o AS (SELECT * FROM ORDERS) "
    "SELECT count(*) FROM o WHERE sequence < 20 UNION ALL SELECT count(*) FROM o",
    "SELECT count(*) FROM ORDERS WHERE sequence > (SELECT min(sequence) FROM ORDERS "
    "WHERE subject = 's0.7')",
]


@pytest.mark.parametrize("statement", TWICE)
def test_a_statement_that_reads_a_stream_twice_misses_nothing(
    session: SparkSession, place: Place, statement: str
) -> None:
    catalog = Catalog(session, place.tables())
    assert rows(catalog, "SELECT count(*) FROM ORDERS WHERE sequence < 20") == [(19,)]
    found = rows(catalog, statement)

    # The same rows in a table that is no stream of ours.
    copy = catalog.frame("SELECT sequence, subject FROM ORDERS").collect()
    session.createDataFrame(copy, "sequence long, subject string").createOrReplaceTempView("copied")

    assert found == rows(catalog, statement.replace("ORDERS", "copied"))


def test_views_of_ones_own_miss_nothing(session: SparkSession, place: Place) -> None:
    catalog = Catalog(session, place.tables())
    catalog.frame("CREATE TEMPORARY VIEW mine AS SELECT * FROM ORDERS")

    assert rows(catalog, "SELECT subject FROM ORDERS WHERE sequence = 3") == [("s0.2",)]
    assert rows(catalog, "SELECT max(value:id::int), count(*) FROM mine") == [
        (COUNT - 1, COUNT + 4)
    ]
    assert rows(
        catalog, "SELECT count(*) FROM mine WHERE sequence < 20 UNION ALL SELECT count(*) FROM mine"
    ) == [(19,), (COUNT + 4,)]


def test_filters_and_columns_narrow_what_is_read(session: SparkSession, place: Place) -> None:
    catalog = Catalog(session, place.tables(maxRecordsPerPartition="20"))

    whole = catalog.frame("SELECT subject FROM ORDERS")
    narrow = catalog.frame("SELECT subject FROM ORDERS WHERE sequence BETWEEN 5 AND 9")

    assert whole.rdd.getNumPartitions() > 4
    assert narrow.rdd.getNumPartitions() == 1
    plan = whole._jdf.queryExecution().analyzed().toString()
    assert "subject#" in plan
    assert "data#" not in plan
    assert "headers#" not in plan


def test_fields_of_payloads_become_columns(session: SparkSession, place: Place) -> None:
    catalog = Catalog(session, place.tables(), is_inferring=True)

    found = catalog.frame("SELECT * FROM ORDERS")
    kinds = {field.name: field.dataType.simpleString() for field in found.schema.fields}

    assert kinds["id"] == "bigint"
    assert kinds["price"] == "double"
    assert kinds["customer"] == "struct<name:string>"
    assert kinds["tags"] == "array<string>"
    assert kinds["mixed"] == "variant"
    assert (kinds["timestamp"], kinds["value_timestamp"]) == ("timestamp", "string")
    by_name = "SELECT customer.name, sum(price) FROM ORDERS WHERE id < 8 GROUP BY 1 ORDER BY 1"
    assert rows(catalog, by_name) == [("c0", 6.0), ("c1", 9.0), ("c2", 12.0), ("c3", 15.0)]


def test_only_tables_that_are_mentioned_are_made(session: SparkSession) -> None:
    many = [
        table_of_directory(f"STREAM_{number}", f"/nowhere/{number}", {}) for number in range(1000)
    ]
    catalog = Catalog(session, many)

    catalog.frame("SELECT subject FROM STREAM_7 JOIN stream_8 USING (subject)")

    made = [each.name for each in session.catalog.listTables(SCHEMA) if not each.isTemporary]
    assert len(made) == 2


def test_what_cannot_be_is_told_in_one_line(session: SparkSession, place: Place) -> None:
    catalog = Catalog(session, place.tables())

    for statement, kind, words in (
        ("SELECT * FROM ORDER_S", UsageError, "no table ORDER_S; did you mean ORDERS"),
        ("SELECT * FROM odd_one", UsageError, "did you mean `odd-one`"),
        ("SELECT * FROM zzzzzzz", UsageError, "there are: KV_b, ORDERS"),
        ("SELEC 1", UsageError, "Syntax error"),
        ("SELECT odd-one FROM odd-one", UsageError, "`odd-one`"),
        ("SELECT pryce FROM ORDERS", UsageError, "pryce"),
        ("SELECT raise_error('boom') FROM ORDERS", QueryFailed, "boom"),
    ):
        error = failure(catalog, statement)
        assert type(error) is kind, statement
        assert words in str(error), str(error)
        assert "\n" not in str(error)


def test_names_that_differ_by_case_alone_are_told_apart_as_they_are_written(
    session: SparkSession, place: Place
) -> None:
    catalog = Catalog(session, place.tables())
    with connected(place.url) as streams:
        streams.publish(b"s2.x", b"1")

    assert rows(catalog, "SELECT subject FROM Twin") == [("s2.x",)]
    assert rows(catalog, "SELECT subject FROM TWIN") == []
    with pytest.raises(UsageError, match="TWIN, Twin"):
        catalog.frame("SELECT * FROM twin")
    with pytest.raises(UsageError, match="TWIN, Twin"):
        catalog.frame("SELECT * FROM TWIN, Twin")


def test_a_stream_that_is_gone_is_told_with_its_name(session: SparkSession, place: Place) -> None:
    with connected(place.url) as streams:
        streams.call("STREAM.CREATE.GONE", {"name": "GONE", "subjects": ["gone.>"]})
        catalog = Catalog(session, place.tables())
        streams.call("STREAM.DELETE.GONE")

    error = failure(catalog, "SELECT * FROM GONE")

    assert isinstance(error, UsageError)
    assert "GONE" in str(error)
