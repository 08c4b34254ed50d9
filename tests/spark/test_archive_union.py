"""An archive and the stream behind it as one table: every message once, also under purges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.spark import schema
from penstock.spark.archives import scan as archive_union
from penstock.spark.archives.source import plan, read_settings
from penstock.spark.part import MessageSelection, StreamPart
from penstock.spark.position import DataLoss
from penstock.spark.schema import Column
from penstock.spark.streams import settings as stream_settings
from penstock.spark.streams.facts import StreamFacts
from penstock.spark.streams.read import ServerStream, read_stream
from tests.support.archives import archive_here, connect, publish, server_input

COLUMNS = [schema.DATA, schema.SEQUENCE]
SMALL = {"arrowBatchRows": "10", "fetchBatch": "10"}
"""So that a purge comes between two batches, not behind all of them."""

Parts = list[StreamPart]


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Yield a server with the stream ORDERS: 100 messages, numbered from 1."""
    found = connect(url)
    found.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    publish(found, "orders", 100)
    yield found
    found.call("STREAM.DELETE.ORDERS")
    found.client.close()


def planned(url: str, target: Path, **options: str) -> Parts:
    given = {"path": str(target), "union": "true", "servers": url, **SMALL, **options}
    return plan(read_settings(given))


def batches(parts: Parts, columns: list[Column] = COLUMNS) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from part.read(columns)


def sequences(
    parts: Parts, after_rows: int = -1, then: Callable[[], object] = lambda: None
) -> list[int]:
    """Read everything; behind so many rows, do something."""
    found: list[int] = []
    for batch in batches(parts):
        found += batch.column("sequence").to_pylist()
        if 0 <= after_rows <= len(found):
            after_rows = -1
            then()
    return found


def tiered(url: str, streams: JetStream, target: Path, cut: int) -> None:
    """Archive up to the cut, and purge what was archived."""
    archive_here(server_input(url, "ORDERS"), target, until=cut)
    streams.call("STREAM.PURGE.ORDERS", {"seq": cut})


def test_a_table_goes_on_in_the_stream_where_the_archive_ends(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    archive_here(server_input(url, "ORDERS"), tmp_path, until=61)

    parts = planned(url, tmp_path)

    assert sequences(parts) == list(range(1, 101))
    rows = [row for batch in batches(parts) for row in batch.to_pylist()]
    assert [row["data"] for row in rows] == [b"payload %d" % each for each in range(100)]


def test_what_was_purged_behind_the_archive_is_read_from_it(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    tiered(url, streams, tmp_path, 61)

    assert sequences(planned(url, tmp_path)) == list(range(1, 101))


def test_a_stream_that_is_archived_and_purged_after_the_plan_is_still_read_whole(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    tiered(url, streams, tmp_path, 31)
    parts = planned(url, tmp_path, minPartitions="3")
    tiered(url, streams, tmp_path, 81)

    assert sequences(parts) == list(range(1, 101))


@pytest.mark.parametrize("after_rows", [30, 35, 50, 75])
def test_a_stream_that_is_archived_and_purged_during_the_read_is_still_read_whole(
    url: str, streams: JetStream, tmp_path: Path, after_rows: int
) -> None:
    tiered(url, streams, tmp_path, 31)

    found = sequences(
        planned(url, tmp_path), after_rows, lambda: tiered(url, streams, tmp_path, 96)
    )

    assert found == list(range(1, 101))


def test_a_stream_that_is_tiered_away_wholly_during_the_read_is_still_read_whole(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    tiered(url, streams, tmp_path, 31)

    found = sequences(planned(url, tmp_path), 40, lambda: tiered(url, streams, tmp_path, 101))

    assert found == list(range(1, 101))


def test_a_stream_that_is_tiered_away_between_two_looks_is_still_read_whole(
    url: str, streams: JetStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiered(url, streams, tmp_path, 31)
    parts = planned(url, tmp_path)

    def late(
        server: ServerStream, selection: MessageSelection, columns: list[Column]
    ) -> Iterator[pa.RecordBatch]:
        tiered(url, streams, tmp_path, 101)
        return read_stream(server, selection, columns)

    monkeypatch.setattr(archive_union, "read_stream", late)

    assert sequences(parts) == list(range(1, 101))


def test_a_stream_that_is_tiered_while_it_is_planned_is_no_hole(
    url: str, streams: JetStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiered(url, streams, tmp_path, 31)
    ask = stream_settings.find_streams

    def late(settings: stream_settings.Settings) -> list[StreamFacts]:
        monkeypatch.undo()
        tiered(url, streams, tmp_path, 71)
        return ask(settings)

    monkeypatch.setattr(stream_settings, "find_streams", late)

    assert sequences(planned(url, tmp_path)) == list(range(1, 101))


def test_a_hole_between_archive_and_stream_is_told_with_both_numbers(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    tiered(url, streams, tmp_path, 31)
    streams.call("STREAM.PURGE.ORDERS", {"seq": 50})

    with pytest.raises(DataLoss, match=r"31.*50"):
        planned(url, tmp_path)

    left = planned(url, tmp_path, failOnDataLoss="false")
    assert sequences(left) == [*range(1, 31), *range(50, 101)]


def test_a_hole_that_opens_during_the_read_is_told_with_both_numbers(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    tiered(url, streams, tmp_path, 31)

    with pytest.raises(DataLoss, match=r"31.*90"):
        sequences(
            planned(url, tmp_path), 40, lambda: streams.call("STREAM.PURGE.ORDERS", {"seq": 90})
        )


def test_single_messages_that_were_deleted_are_no_hole(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    archive_here(server_input(url, "ORDERS"), tmp_path, until=31)
    for seq in (31, 32, 50, 100):
        streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": seq})

    assert sequences(planned(url, tmp_path)) == [*range(1, 31), *range(33, 50), *range(51, 100)]


def test_ranges_and_subjects_hold_on_both_sides(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    tiered(url, streams, tmp_path, 61)

    def wanted(**options: str) -> list[int]:
        return sequences(planned(url, tmp_path, **options))

    assert wanted(startingOffsets="50", endingOffsets="70") == list(range(50, 70))
    assert wanted(startingOffsets="70") == list(range(70, 101))
    assert wanted(endingOffsets="20") == list(range(1, 20))
    assert wanted(subject="orders.3") == list(range(4, 101, 7))
    assert wanted(startingOffsets="1000") == []


def test_an_archive_of_a_stream_that_was_made_anew_is_refused(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    archive_here(server_input(url, "ORDERS"), tmp_path)
    streams.call("STREAM.DELETE.ORDERS")
    streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})

    with pytest.raises(DataLoss, match="made"):
        planned(url, tmp_path)


def test_a_stream_made_anew_during_the_read_is_told(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    archive_here(server_input(url, "ORDERS"), tmp_path, until=31)

    def made_anew() -> None:
        streams.call("STREAM.DELETE.ORDERS")
        streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})

    with pytest.raises(DataLoss):
        sequences(planned(url, tmp_path), 40, made_anew)


def test_bad_options_are_refused_before_anything_is_read(
    url: str, streams: JetStream, tmp_path: Path
) -> None:
    archive_here(server_input(url, "ORDERS"), tmp_path)

    for options in ({"stream": "OTHERS"}, {"unoin": "true"}, {"union": "perhaps"}):
        with pytest.raises(UsageError):
            planned(url, tmp_path, **options)
    with pytest.raises(UsageError, match="union"):
        read_settings({"path": str(tmp_path), "servers": url})
    with pytest.raises(UsageError):
        read_settings({"union": "true"})
