"""Filters of queries narrow what is read, never the result."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.limits import PUSHED_SUBJECTS_MAX
from penstock.spark.blocks.scan import BlockRange
from penstock.spark.blocks.settings import narrowed, plan, read_settings
from penstock.spark.pushdown import PushedFilters, both, narrow
from penstock.spark.schema import MESSAGE_COLUMNS, OFFICIAL_COLUMNS
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from penstock.testing.clock import FakeClock

SEQUENCE, SUBJECT, TIME_NS, TIMESTAMP = ("sequence",), ("subject",), ("time_ns",), ("timestamp",)
MOMENT = datetime.datetime(2026, 7, 20, 12, 30, tzinfo=datetime.UTC)
MOMENT_NS = round(MOMENT.timestamp()) * 1_000_000_000


def narrowed_by(*filters: Filter) -> PushedFilters:
    return narrow(filters, MESSAGE_COLUMNS)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([EqualTo(SEQUENCE, 7)], (7, 7)),
        ([EqualNullSafe(SEQUENCE, 7)], (7, 7)),
        ([GreaterThan(SEQUENCE, 7), LessThan(SEQUENCE, 10)], (8, 9)),
        ([GreaterThanOrEqual(SEQUENCE, 7), LessThanOrEqual(SEQUENCE, 10)], (7, 10)),
        ([In(SEQUENCE, (9, 3, 5))], (3, 9)),
        ([GreaterThan(SEQUENCE, 3), GreaterThan(SEQUENCE, 5)], (6, 2**63 - 1)),
        ([Not(EqualTo(SEQUENCE, 7)), IsNotNull(SEQUENCE)], (0, 2**64 - 1)),
        ([EqualNullSafe(SEQUENCE, None)], (0, 2**64 - 1)),
    ],
)
def test_comparisons_bound_sequences(filters: list[Filter], bounds: tuple[int, int]) -> None:
    found = narrowed_by(*filters)

    assert (found.first_seq, found.last_seq) == bounds


def test_a_microsecond_is_a_thousand_nanoseconds_wide() -> None:
    later = narrowed_by(GreaterThan(TIMESTAMP, MOMENT))
    earlier = narrowed_by(LessThan(TIMESTAMP, MOMENT))
    exact = narrowed_by(EqualTo(TIME_NS, MOMENT_NS))

    assert later.first_ns <= MOMENT_NS + 1
    assert earlier.last_ns >= MOMENT_NS - 1
    assert (exact.first_ns, exact.last_ns) == (MOMENT_NS, MOMENT_NS)
    # Without a time zone the moment is unknown.
    assert narrowed_by(EqualTo(TIMESTAMP, MOMENT.replace(tzinfo=None))) == PushedFilters()


@pytest.mark.parametrize(
    ("filters", "subjects"),
    [
        ([EqualTo(SUBJECT, "orders.eu.1")], ("orders.eu.1",)),
        ([In(SUBJECT, ("a.1", "b.2", None))], ("a.1", "b.2")),
        ([StringStartsWith(SUBJECT, "orders.eu.")], ("orders.eu.>",)),
        ([StringStartsWith(SUBJECT, "orders.e")], ("orders.>",)),
        ([StringStartsWith(SUBJECT, "ord")], None),
        ([StringContains(SUBJECT, "eu")], None),
        ([EqualTo(SUBJECT, "a.1"), EqualTo(SUBJECT, "a.2")], ()),
        ([In(SUBJECT, ("a.1", "b.2")), StringStartsWith(SUBJECT, "a.")], ("a.1",)),
        # What may be shown otherwise than it is, and what can be no subject, is left to Spark.
        ([EqualTo(SUBJECT, "orders.\ufffd")], None),
        ([EqualTo(SUBJECT, "a b")], None),
        ([EqualTo(SUBJECT, "a.*")], None),
        ([EqualTo(SUBJECT, "")], None),
        ([In(SUBJECT, tuple(f"a.{n}" for n in range(PUSHED_SUBJECTS_MAX + 1)))], None),
    ],
)
def test_subjects_become_patterns(filters: list[Filter], subjects: tuple[str, ...] | None) -> None:
    assert narrowed_by(*filters).subjects == subjects


def test_columns_are_known_by_what_they_hold() -> None:
    found = narrow([EqualTo(("STREAMSEQ",), 7), EqualTo(("content",), b"x")], OFFICIAL_COLUMNS)

    assert (found.first_seq, found.last_seq) == (7, 7)


TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)
LITERALS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4).map(".".join)


@given(
    one=st.lists(PATTERNS, min_size=1, max_size=3),
    other=st.one_of(
        st.lists(LITERALS, min_size=1, max_size=3), LITERALS.map(lambda start: [f"{start}.>"])
    ),
    subject=LITERALS,
)
def test_what_both_want_is_within_both_patterns_and_of_the_first_alone(
    one: list[str], other: list[str], subject: str
) -> None:
    common = both(tuple(one), tuple(other)) or ()

    is_in_one, is_in_other, is_common = (
        bool(patterns)
        and SubjectFilter(each.encode() for each in patterns).matches(subject.encode())
        for patterns in (one, other, common)
    )
    assert is_common or not (is_in_one and is_in_other)
    assert is_in_one or not is_common


def test_blocks_are_left_out_by_filters(tmp_path: Path) -> None:
    with FileStore.open(str(tmp_path), StoreConfig(name="S", block_bytes=4096)) as store:
        for number in range(1000):
            store.store(b"s.%d" % (number // 100), b"", b"%d" % number)
    settings = read_settings({"path": str(tmp_path)})

    def blocks(*filters: Filter) -> int:
        found = narrowed(settings, narrowed_by(*filters))
        if found is None:
            return 0
        ranges = [part.source for part in plan(found)]
        return sum(len(each.blocks) for each in ranges if isinstance(each, BlockRange))

    whole = blocks()
    assert whole > 8
    assert 0 < blocks(EqualTo(SUBJECT, "s.3")) < whole // 2
    assert blocks(LessThan(SEQUENCE, 5)) == 1
    assert blocks(LessThan(SEQUENCE, 5), GreaterThan(SEQUENCE, 5)) == 0
    assert blocks(LessThan(TIMESTAMP, datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC))) == 0
    assert blocks(EqualTo(SUBJECT, "t.3")) == 0


# With Spark


@pytest.fixture
def narrowing(spark: SparkSession) -> Iterator[SparkSession]:
    """Switch Spark's part of it on for a test."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


COLUMNS = "subject string, sequence long, timestamp timestamp, time_ns long, data binary"
CONDITIONS: list[tuple[str, Callable[[Row], bool]]] = [
    ("subject IN ('s.1', 's.2', 'none')", lambda row: row.subject in ("s.1", "s.2")),
    ("subject LIKE 's.1%'", lambda row: row.subject.startswith("s.1")),
    (
        "sequence BETWEEN 100 AND 110 AND subject <> 's.7'",
        lambda row: 100 <= row.sequence <= 110 and row.subject != "s.7",
    ),
    ("timestamp >= '{moment}'", lambda row: row.time_ns // 1000 >= row.moment_ns // 1000),
    (
        "time_ns < {moment_ns} OR subject = 's.9'",
        lambda row: row.time_ns < row.moment_ns or row.subject == "s.9",
    ),
]


def check_conditions(spark: SparkSession, format_name: str, **options: str) -> None:
    """Ask every question of a table of the catalog, and of its rows as they were read whole."""
    whole = spark.read.format(format_name).options(**options).schema(COLUMNS).load().collect()
    moment_ns = sorted(row.time_ns for row in whole)[len(whole) // 2]
    epoch = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - the session's zone is UTC
    moment = epoch + datetime.timedelta(microseconds=moment_ns // 1000)
    table = f"narrowed_{format_name.replace('-', '_')}"
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING `{format_name}`")
    given = ", ".join(f"`{name}` = '{text}'" for name, text in options.items())
    relation = f"{table} WITH ({given}, `pushdown` = 'true')"
    for condition, is_wanted in CONDITIONS:
        asked = condition.format(moment=moment, moment_ns=moment_ns)
        found = spark.sql(f"SELECT * FROM {relation} WHERE {asked}").collect()
        expected = [row for row in whole if is_wanted(Row(**row.asDict(), moment_ns=moment_ns))]
        assert expected
        assert sorted(found) == sorted(expected), condition
    assert len(spark.sql(f"SELECT * FROM {relation}").collect()) == len(whole)


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_catalog_table_of_blocks_gives_the_same_rows_filtered(
    narrowing: SparkSession, tmp_path: Path
) -> None:
    clock = FakeClock()
    with FileStore.open(
        str(tmp_path / "S"), StoreConfig(name="S", block_bytes=4096), clock=clock
    ) as store:
        for number in range(1000):
            store.store(b"s.%d" % (number % 20), b"", b"%d" % number)
            clock.advance_ns(10_000_000)
        for seq in range(3, 1000, 50):
            store.remove(seq)

    check_conditions(narrowing, "penstock-blocks", path=f"{tmp_path}/S")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_catalog_table_of_a_stream_gives_the_same_rows_filtered(
    narrowing: SparkSession, url: str
) -> None:
    with Client.connect(url, timeout_s=60) as client:
        streams = JetStream(client)
        streams.call("STREAM.CREATE.NARROW", {"name": "NARROW", "subjects": ["s.>"]})
        for number in range(999):
            client.publish(b"s.%d" % (number % 20), b"%d" % number)
        streams.publish(b"s.last", b"last")

    check_conditions(narrowing, "penstock", servers=url, stream="NARROW", minPartitions="2")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_the_option_a_reused_frame_is_whole_again(
    narrowing: SparkSession, tmp_path: Path
) -> None:
    with FileStore.open(str(tmp_path), StoreConfig(name="S")) as store:
        for number in range(30):
            store.store(b"s", b"", b"%d" % number)
    frame = narrowing.read.format("penstock-blocks").load(str(tmp_path))

    assert (frame.filter("sequence < 5").count(), frame.count()) == (4, 30)
