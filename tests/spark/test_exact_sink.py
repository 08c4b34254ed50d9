"""Exactly once, without Spark: attempts that lose, come again, meet others or lose their server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.errors import NoAnswer, RefusedByServer, UsageError
from penstock.limits import SINK_BATCH_ROWS_MAX
from penstock.spark.connection import Connection, streams_of
from penstock.spark.options import Names
from penstock.spark.sinks.exact_sink import ExactWriter, InputFailed, UnconfirmedRows
from penstock.spark.sinks.fences import (
    Committed,
    Fence,
    FenceLost,
    FenceSubjects,
    NotTheSameRows,
    check_partitions,
    read_committed,
    read_fence,
    write_committed,
)
from penstock.spark.sinks.settings import RowShape
from penstock.testing.servers import PENSTOCK, WAIT_S, server_process

pytestmark = pytest.mark.slow

PLACE = FenceSubjects("OUT", "fences", "job")
SHAPE = RowShape("data")


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Yield JetStream with a stream OUT that takes atomic batches."""
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        # In memory: the real server may mistake a stream on disk for one that it has just removed.
        made_stream(made, storage="memory")
        yield made
        made.call("STREAM.DELETE.OUT")


def made_stream(streams: JetStream, **more: object) -> None:
    subjects = ["out.>", "fences.>"]
    config = {"name": "OUT", "subjects": subjects, "allow_atomic": True} | more
    streams.call("STREAM.CREATE.OUT", config)


def connection_to(url: str) -> Connection:
    return Connection(servers=Names((url,)))


def rows_of(texts: list[bytes]) -> Rows:
    # By what they hold, so that they are the same however they are divided.
    subjects = pa.array([f"out.{len(text) % 3}" for text in texts], pa.string())
    return SHAPE.rows(pa.record_batch({"subject": subjects, "data": pa.array(texts, pa.binary())}))


def texts_of(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def divided(texts: list[bytes], size: int) -> Iterator[Rows]:
    for first in range(0, len(texts), size):
        yield rows_of(texts[first : first + size])


class Killed(Exception):
    """The task is gone."""


def killed_behind_fence(streams: JetStream, texts: list[bytes]) -> Iterator[Rows]:
    """Yield rows; the task dies when the first of them are in the stream."""
    yield rows_of(texts)
    while read_fence(streams, PLACE, 0) is None:
        pass
    raise Killed


def killed_at(rows: Iterator[Rows], at: int) -> Iterator[Rows]:
    """Yield rows up to one of the parts, at which the task dies."""
    for number, part in enumerate(rows):
        if number == at:
            raise Killed
        yield part


def write(
    url: str,
    rows: Iterator[Rows],
    *,
    batch: int = 1,
    partition: int = 0,
    query: str = "",
    is_end_sure: bool = True,
) -> ExactWriter:
    unwritten = UnconfirmedRows(rows)
    writer = ExactWriter(PLACE, partition, batch, query, unwritten, is_end_sure=is_end_sure)

    @contextlib.contextmanager
    def connect() -> Iterator[JetStream]:
        # Each attempt is a process of its own, in Spark.
        streams = connection_to(url).connect()
        try:
            yield streams
        finally:
            streams.client.close()

    writer.run(connect, WAIT_S)
    return writer


def stored(streams: JetStream) -> list[bytes]:
    """Return the payloads of all rows, in the stream's order."""
    with streams_of(connection_to(f"nats://127.0.0.1:{streams.client.info['port']}")) as reading:
        sid = reading.client.subscribe(b"read.rows")
        reading.call(
            "CONSUMER.CREATE.OUT",
            {
                "stream_name": "OUT",
                "config": {
                    "deliver_subject": "read.rows",
                    "ack_policy": "none",
                    "filter_subject": "out.>",
                },
            },
        )
        count = sum(n for _, n in reading.subjects("OUT", "out.>"))
        found = [reading.client.next_message(sid).payload for _ in range(count)]
        reading.client.unsubscribe(sid)
    return found


def test_rows_come_in_once_however_often_they_are_written(url: str, streams: JetStream) -> None:
    texts = texts_of(0, 2500)

    first = write(url, divided(texts, 700))
    again = write(url, divided(texts, 1100))

    assert (first.rows, first.written) == (2500, 2500)
    assert (again.rows, again.written) == (2500, 0)
    assert stored(streams) == texts
    assert read_fence(streams, PLACE, 0) == Fence(1, 2500, again._confirmed.hash, True, "", 2503)


@pytest.mark.parametrize("count", [0, 1, 998, 999, 1000, 1998])
def test_a_partition_of_any_length_ends_with_a_fence(
    url: str, streams: JetStream, count: int
) -> None:
    write(url, divided(texts_of(0, count), 500))

    fence = read_fence(streams, PLACE, 0)
    assert fence is not None
    assert (fence.rows, fence.done) == (count, True)
    assert stored(streams) == texts_of(0, count)
    fences = dict(streams.subjects("OUT", "fences.>"))
    assert fences == {"fences.job.0": max(-(-count // SINK_BATCH_ROWS_MAX), 1)}


def test_an_attempt_goes_on_where_the_last_one_died(url: str, streams: JetStream) -> None:
    texts = texts_of(0, 7000)
    random = Random(7)
    for _ in range(6):
        size = random.randrange(300, 1500)
        with pytest.raises(Killed):
            write(url, killed_at(divided(texts, size), random.randrange(1, 7000 // size)))

    last = write(url, divided(texts, 640))

    assert last.rows == 7000
    assert stored(streams) == texts


def test_attempts_that_run_at_once_write_each_row_once(url: str, streams: JetStream) -> None:
    texts = texts_of(0, 12_000)
    begin = threading.Barrier(3)
    written = []

    def attempt(size: int) -> None:
        begin.wait(WAIT_S)
        written.append(write(url, divided(texts, size)).written)

    tasks = [threading.Thread(target=attempt, args=(size,)) for size in (999, 1000, 2500)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join(WAIT_S)

    assert sum(written) == 12_000
    assert stored(streams) == texts


def test_a_batch_that_is_over_is_not_written_again(url: str, streams: JetStream) -> None:
    write(url, divided(texts_of(0, 10), 10), batch=1)
    write(url, divided(texts_of(10, 20), 10), batch=2)

    late = write(url, divided(texts_of(0, 10), 10), batch=1)

    assert (late.rows, late.written) == (0, 0)
    assert stored(streams) == texts_of(0, 20)


def test_an_attempt_of_an_earlier_batch_that_went_on_too_long_brings_nothing_in(
    url: str, streams: JetStream
) -> None:
    texts = texts_of(0, 3000)
    stopped, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[Rows]:
        yield from divided(texts[:1500], 500)
        stopped.set()
        go_on.wait(WAIT_S)
        yield from divided(texts[1500:], 500)

    results: list[ExactWriter] = []
    zombie = threading.Thread(target=lambda: results.append(write(url, slow())))
    zombie.start()
    stopped.wait(WAIT_S)
    write(url, divided(texts, 3000))
    write(url, divided(texts_of(3000, 3100), 100), batch=2)
    go_on.set()
    zombie.join(WAIT_S)

    assert results[0].written <= 1000
    assert stored(streams) == texts_of(0, 3100)


@pytest.mark.parametrize(
    "other",
    [
        texts_of(0, 1500)[::-1],
        texts_of(1, 1501),
        texts_of(0, 900),
        [*texts_of(0, 998), b"other", *texts_of(999, 1500)],
    ],
    ids=["another order", "others", "fewer", "one other"],
)
def test_other_rows_are_refused_and_nothing_is_written(
    url: str, streams: JetStream, other: list[bytes]
) -> None:
    with pytest.raises(Killed):
        write(url, killed_behind_fence(streams, texts_of(0, 1500)))
    before = stored(streams)

    with pytest.raises(NotTheSameRows):
        write(url, divided(other, 400))

    assert before == texts_of(0, 999)
    assert stored(streams) == before


def test_more_rows_than_the_batch_had_are_refused(url: str, streams: JetStream) -> None:
    write(url, divided(texts_of(0, 100), 100))

    with pytest.raises(NotTheSameRows):
        write(url, divided(texts_of(0, 101), 100))

    assert stored(streams) == texts_of(0, 100)


@pytest.mark.parametrize("count", [0, 1, 998, 999, 1000, 2500])
def test_where_an_end_is_not_sure_another_attempt_may_know_more(
    url: str, streams: JetStream, count: int
) -> None:
    cut_short = write(url, divided(texts_of(0, count), 500), is_end_sure=False)
    fence = read_fence(streams, PLACE, 0)
    again = write(url, divided(texts_of(0, 2500), 700), is_end_sure=False)

    assert cut_short.written == count
    assert (fence.rows, fence.done) == (count, False) if fence is not None else count == 0
    assert again.written == 2500 - count
    assert stored(streams) == texts_of(0, 2500)


def test_what_is_complete_is_said_once_and_of_the_last_batch(streams: JetStream) -> None:
    assert read_committed(streams, PLACE) is None
    for batch in (3, 3, 1, 4):
        write_committed(streams, PLACE, Committed(batch, "q"), 1)

    assert read_committed(streams, PLACE) == Committed(4, "q", 2)


def test_a_batch_that_is_complete_may_be_replayed_by_fewer_tasks(
    url: str, streams: JetStream
) -> None:
    for partition in range(3):
        write(url, divided(texts_of(0, 10), 10), partition=partition)
    with pytest.raises(NotTheSameRows):
        write_committed(streams, PLACE, Committed(1), 2)
    write_committed(streams, PLACE, Committed(1), 3)

    write_committed(streams, PLACE, Committed(1), 2)

    assert read_committed(streams, PLACE) == Committed(1, "", 34)


def test_a_partition_that_nobody_replayed_is_told(url: str, streams: JetStream) -> None:
    for partition in range(3):
        rows = divided(texts_of(partition * 10, partition * 10 + 10), 10)
        write(url, rows, partition=partition)

    check_partitions(streams, PLACE, 1, 3)
    check_partitions(streams, PLACE, 2, 2)
    with pytest.raises(NotTheSameRows, match="partition 2 has written 10 rows"):
        check_partitions(streams, PLACE, 1, 2)


def test_another_query_is_not_taken_for_the_first(url: str, streams: JetStream) -> None:
    write(url, divided(texts_of(0, 10), 10), query="one")

    with pytest.raises(UsageError, match="another query"):
        write(url, divided(texts_of(0, 10), 10), query="two")

    assert stored(streams) == texts_of(0, 10)


def test_a_fence_that_vanishes_meanwhile_fails_the_task(url: str, streams: JetStream) -> None:
    def rows() -> Iterator[Rows]:
        yield from divided(texts_of(0, 3000), 1000)
        streams.call("STREAM.PURGE.OUT", {"filter": "fences.>"})
        yield from divided(texts_of(3000, 6000), 1000)

    with pytest.raises(FenceLost):
        write(url, rows())


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError(), NoAnswer("no")])
def test_an_input_that_breaks_off_is_not_taken_for_the_end_of_it(
    url: str, streams: JetStream, error: Exception
) -> None:
    def breaking() -> Iterator[Rows]:
        yield from divided(texts_of(0, 2500), 500)
        raise error

    with pytest.raises(InputFailed):
        write(url, breaking())
    write(url, divided(texts_of(0, 4000), 700))

    assert stored(streams) == texts_of(0, 4000)


def test_what_the_stream_refuses_is_told_and_nothing_of_it_is_stored(
    url: str, streams: JetStream
) -> None:
    config = streams.call("STREAM.INFO.OUT")["config"]
    streams.call("STREAM.UPDATE.OUT", config | {"max_msg_size": 400})
    texts = [*texts_of(0, 1500), b"x" * 1000]

    with pytest.raises(RefusedByServer, match=r"behind row 999: .*exceeds maximum"):
        write(url, divided(texts, 2000))

    assert stored(streams) == texts_of(0, 999)


def test_a_server_that_is_killed_and_comes_back_loses_and_doubles_nothing(tmp_path: Path) -> None:
    texts = texts_of(0, 40_000)
    server = server_process(PENSTOCK, store_dir=tmp_path)
    with Client.connect(server.url, timeout_s=60) as client:
        made_stream(JetStream(client))
    url, port = server.url, server.port

    def rows() -> Iterator[Rows]:
        nonlocal server
        for number, part in enumerate(divided(texts, 4000)):
            if number in (3, 6):
                server.kill()
                server = server_process(PENSTOCK, store_dir=tmp_path, port=port)
            yield part

    try:
        writer = write(url, rows())
        with Client.connect(url, timeout_s=60) as client:
            found = stored(JetStream(client))
    finally:
        server.stop()

    assert writer.rows == 40_000
    assert found == texts


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.data())
def test_rows_are_the_same_however_they_are_divided(sizes: list[int], data: st.DataObject) -> None:
    count = sum(sizes)
    texts = [b"%d" % number for number in range(count)]
    parts, at = [], 0
    for size in sizes:
        parts.append(rows_of(texts[at : at + size]))
        at += size
    rows = UnconfirmedRows(iter(parts))
    whole = rows_of(texts)
    first = data.draw(st.integers(0, count))
    end = data.draw(st.integers(first, count))

    assert rows.has(end - 1) or end == 0
    assert rows.hashed(first, end, 9) == whole.hashed(first, end, 9)
    most, fit = data.draw(st.integers(1, 10)), data.draw(st.integers(1, 40))
    assert rows.end_of(first, rows_max=most, bytes_max=fit) == whole.end_of(first, most, fit)[0]
    assert not rows.has(count)
