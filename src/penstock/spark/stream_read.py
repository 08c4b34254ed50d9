"""Reading a range of a stream from its server, in a task.

A short-lived consumer without acknowledgements delivers the range; batches are asked for ahead, so
that the server works while we convert. Streams whose messages are taken by their consumers
(work queues) are read message by message instead: reading must not consume. Loaded by executors.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.client.jetstream import JetStream
from penstock.client.pulling import Pulling
from penstock.errors import RefusedByServer
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.spark.arrow import Converter, Needs, needs_of
from penstock.spark.connecting import Connection, streams_of
from penstock.spark.positions import DataLoss
from penstock.spark.schema import Column
from penstock.subjects import SubjectFilter

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
    """Whether the stream's consumers take messages away, so that there must be none."""

    fail_on_data_loss: bool


class RangePartition(InputPartition):
    """A range, as Spark carries it to a task."""

    def __init__(self, wanted: StreamRange) -> None:
        self.wanted = wanted


def read_range(wanted: StreamRange, columns: list[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range; raises DataLoss where they are gone."""
    converter = Converter(columns, wanted.stream)
    with streams_of(wanted.connection) as streams:
        check_range(streams, wanted)
        found = (
            _taken_one_by_one(streams, wanted)
            if wanted.takes_messages
            else _delivered(streams, wanted, columns)
        )
        for batch in found:
            yield converter.convert(batch)


def check_range(streams: JetStream, wanted: StreamRange) -> None:
    """Refuse a range whose beginning went away since it was planned."""
    info = streams.call(f"STREAM.INFO.{wanted.stream}")
    if info["created"] != wanted.created:
        raise DataLoss(f"stream {wanted.stream} was made anew while it was read")
    first = info["state"]["first_seq"]
    if first > wanted.first and wanted.fail_on_data_loss:
        raise DataLoss(
            f"stream {wanted.stream}: sequence {wanted.first} was to be read, and the first that "
            f"is left is {first}; with failOnDataLoss=false what is left is read"
        )


def _delivered(
    streams: JetStream, wanted: StreamRange, columns: list[Column]
) -> Iterator[ColumnBatch]:
    needs = needs_of(columns)
    created = streams.call(
        f"CONSUMER.CREATE.{wanted.stream}",
        {"stream_name": wanted.stream, "config": _consumer_of(wanted, needs)},
    )
    name = created["name"]
    builder = ColumnBuilder(headers=needs.headers, payloads=needs.payloads)
    selects_times = (wanted.first_ns, wanted.last_ns) != (-(2**63), 2**63 - 1)
    try:
        for batch in _pulled(streams, wanted, name, builder):
            yield _within(batch, wanted) if selects_times else batch
    finally:
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
    }
    if len(wanted.subjects) == 1:
        config["filter_subject"] = wanted.subjects[0]
    elif wanted.subjects:
        config["filter_subjects"] = list(wanted.subjects)
    # The server would add its own header to those of the message.
    if not needs.payloads and not needs.headers:
        config["headers_only"] = True
    return config


def _pulled(
    streams: JetStream, wanted: StreamRange, consumer: str, builder: ColumnBuilder
) -> Iterator[ColumnBatch]:
    pulling = Pulling(
        streams.client, wanted.stream.encode(), consumer.encode(), wanted.fetch_batch, PULL_BYTES
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


def _within(batch: ColumnBatch, wanted: StreamRange) -> ColumnBatch:
    builder = ColumnBuilder()
    for each in batch.messages():
        if wanted.first_ns <= each.timestamp_ns <= wanted.last_ns:
            builder.append(each.seq, each.timestamp_ns, 0, each.subject, each.headers, each.payload)
    return builder.take(0)


def _taken_one_by_one(streams: JetStream, wanted: StreamRange) -> Iterator[ColumnBatch]:
    subjects = SubjectFilter(each.encode() for each in wanted.subjects)
    builder = ColumnBuilder()
    for each in streams.each(wanted.stream, ">", wanted.first):
        if each.seq >= wanted.end:
            break
        time_ns = unix_ns(each.time)
        if wanted.first_ns <= time_ns <= wanted.last_ns and subjects.matches(each.subject):
            builder.append(each.seq, time_ns, 0, each.subject, each.headers, each.payload)
        if builder.count >= wanted.rows_max or builder.data_bytes() >= wanted.bytes_max:
            yield builder.take(0)
    if builder.count:
        yield builder.take(0)


def unix_ns(text: str) -> int:
    """Read a time as servers write it, RFC 3339 with up to nine digits; raises RefusedByServer."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    try:
        seconds = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC).timestamp()
        return round(seconds) * 1_000_000_000 + int((rest or "0").ljust(9, "0")[:9])
    except ValueError:
        raise RefusedByServer(f"the server wrote a time that is none: {text!r}") from None
