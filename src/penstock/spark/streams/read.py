"""Reading a range of a stream from its server, in a task.

A short-lived consumer without acknowledgements delivers the range; batches are asked for ahead, so
that the server works while we convert. Streams whose messages are taken by their consumers are read
without one; see `stream_direct`.

Where the connection breaks, the range goes on behind the last message that came, over a new one.
What was yielded is never yielded again. Loaded by executors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from penstock.client.jetstream import JetStream
from penstock.client.pulling import Pulling
from penstock.errors import ApiError, CannotConnect
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.reader import TIME_MAX, TIME_MIN
from penstock.spark.arrow import Converter, Needs, needs_of
from penstock.spark.connecting import BROKEN, Connection, streams_of, wait_before
from penstock.spark.payloads import unpack
from penstock.spark.positions import DataLoss
from penstock.spark.reading_options import PayloadCompression
from penstock.spark.schema import Column
from penstock.spark.streams.counts import filtered_by
from penstock.spark.streams.direct import gotten_batches
from penstock.spark.streams.facts import StreamFacts, facts_of

PULL_BYTES = 16 * 1024 * 1024
"""What one request for messages may bring: well below what a server keeps for a slow reader."""

IDLE_NS = 60_000_000_000
"""After this the server removes the consumer of a task that died."""


class StreamRange(msgspec.Struct, frozen=True):
    """What one task reads: the sequences from `first` up to `end`, which is not read."""

    connection: Connection
    stream: str
    created: str
    first: int
    end: int
    subjects: tuple[str, ...]
    first_ns: int
    last_ns: int
    fetch_batch: int
    rows_max: int
    bytes_max: int
    takes_messages: bool
    """Whether there must be no consumer, because it would take messages away."""

    fail_on_data_loss: bool
    is_direct: bool = False
    """Whether messages may be gotten by the batch without a consumer."""

    poll_timeout_ms: int = 120_000
    packed: PayloadCompression = PayloadCompression.NONE


class RangePartition(InputPartition):
    """A range, as Spark carries it to a task."""

    def __init__(self, wanted: StreamRange) -> None:
        self.wanted = wanted


def read_range(wanted: StreamRange, columns: list[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range; raises DataLoss where they are gone."""
    converter = Converter(columns, wanted.stream)
    needs = needs_of(columns)
    if wanted.packed is not PayloadCompression.NONE:
        # Packed payloads are unpacked row by row, headers and all.
        needs = Needs(headers=True, payloads=True)
    selects_times = (wanted.first_ns, wanted.last_ns) != (TIME_MIN, TIME_MAX)
    for batch in _resumed(wanted, needs):
        table = converter.convert(unpack(batch, wanted.packed))
        yield table.filter(_within(batch, wanted)) if selects_times else table


def _within(batch: ColumnBatch, wanted: StreamRange) -> pa.Array:
    times = pa.Array.from_buffers(pa.int64(), batch.count, [None, pa.py_buffer(batch.timestamps)])
    return pc.and_(pc.greater_equal(times, wanted.first_ns), pc.less_equal(times, wanted.last_ns))


def _resumed(wanted: StreamRange, needs: Needs) -> Iterator[ColumnBatch]:
    # A server that is started anew is waited for; what was read before stays read.
    left = wanted
    turn = 0
    while True:
        try:
            for batch in _read(left, needs):
                yield batch
                last_seq = int.from_bytes(batch.sequences[-8:], "little")
                left = msgspec.structs.replace(left, first=last_seq + 1)
                turn = 0
        except CannotConnect:
            # That was tried often enough.
            raise
        except BROKEN:
            turn += 1
            if turn > wanted.connection.retries:
                raise
            wait_before(turn)
        else:
            return


def _read(wanted: StreamRange, needs: Needs) -> Iterator[ColumnBatch]:
    if wanted.first >= wanted.end:
        return
    with streams_of(wanted.connection) as streams:
        streams.client.set_timeout(wanted.poll_timeout_ms / 1000)
        before = check_range(streams, wanted)
        if before is None:
            return
        found = (
            gotten_batches(streams, wanted)
            if wanted.takes_messages
            else _delivered(streams, wanted, needs)
        )
        came = 0
        # Where nobody reads on, the server is told so before the connection is closed.
        with contextlib.closing(found):
            for batch in found:
                came += batch.count
                yield batch
        if wanted.fail_on_data_loss:
            _check_came(streams, wanted, before, came)
        streams.client.set_timeout(wanted.connection.request_timeout_ms / 1000)


def check_range(streams: JetStream, wanted: StreamRange) -> StreamFacts | None:
    """Refuse a range whose beginning went away since it was planned; give the stream as it is.

    None where the stream is gone, and that is no failure.
    """
    try:
        facts = facts_of(streams.call(f"STREAM.INFO.{wanted.stream}"))
    except ApiError as error:
        if wanted.fail_on_data_loss:
            raise DataLoss(f"stream {wanted.stream} went while it was read: {error}") from None
        return None
    if facts.created != wanted.created:
        raise DataLoss(f"stream {wanted.stream} was made anew while it was read")
    if facts.first_seq > wanted.first and wanted.fail_on_data_loss:
        raise DataLoss(
            f"stream {wanted.stream}: sequence {wanted.first} was to be read, and the first that "
            f"is left is {facts.first_seq}; with failOnDataLoss=false what is left is read"
        )
    return facts


def _check_came(streams: JetStream, wanted: StreamRange, before: StreamFacts, came: int) -> None:
    # Messages in between may go as they like; that the stream's beginning moved into what was being
    # read is told by the sequence that is first now, unless every message came before that.
    if before.is_dense and not wanted.subjects and came == wanted.end - wanted.first:
        return
    check_range(streams, wanted)


def _delivered(
    streams: JetStream, wanted: StreamRange, needs: Needs
) -> Generator[ColumnBatch, None, None]:
    created = streams.call(
        f"CONSUMER.CREATE.{wanted.stream}",
        {"stream_name": wanted.stream, "config": _consumer_of(wanted, needs)},
    )
    name = created["name"]
    builder = ColumnBuilder(headers=needs.headers, payloads=needs.payloads)
    try:
        if created["num_pending"]:
            yield from _pulled(streams, wanted, name, builder)
    except BROKEN:
        # There is nobody left to tell; the server forgets the consumer by itself.
        raise
    except BaseException:
        with contextlib.suppress(*BROKEN, ApiError):
            streams.call(f"CONSUMER.DELETE.{wanted.stream}.{name}")
        raise
    streams.call(f"CONSUMER.DELETE.{wanted.stream}.{name}")


def _consumer_of(wanted: StreamRange, needs: Needs) -> dict[str, Any]:
    config: dict[str, Any] = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(wanted.first, 1),
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": IDLE_NS,
        "mem_storage": True,
        "num_replicas": 1,
        **filtered_by(wanted.subjects),
    }
    # The server would add its own header to those of the message.
    if not needs.payloads and not needs.headers:
        config["headers_only"] = True
    return config


def _pulled(
    streams: JetStream, wanted: StreamRange, consumer: str, builder: ColumnBuilder
) -> Iterator[ColumnBatch]:
    pulling = Pulling(
        streams, wanted.stream, consumer, batch=wanted.fetch_batch, bytes_max=PULL_BYTES
    )
    try:
        while True:
            is_end = pulling.collect(builder, wanted.end - 1, wanted.rows_max, wanted.bytes_max)
            if builder.count:
                yield builder.take(0)
            if is_end:
                return
    finally:
        pulling.end()
