"""The newest value of each key of a bucket, through its server.

A bucket that is one task's work is not listed: the task asks for the last message of every key. For
several tasks the driver lists which message of each key is the newest, and they divide the
sequences among them. Either way every key that was there at the start is shown once: with the value
that it had then or, where a change has pushed that out of the bucket meanwhile, with a later one.

As of a revision or a time the newest message up to then is looked for first, and then read. What
the bucket's history no longer holds is not seen.

`plan_latest` is for the driver; the rest is loaded by executors.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Generator, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from penstock.client.jetstream import JetStream
from penstock.client.pulling import Pulling
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.spark import schema
from penstock.spark.arrow import SEQUENCE_MAX, Converter, needs_of
from penstock.spark.connecting import BROKEN, streams_of, wait_before
from penstock.spark.kv.rows import Newest, Rows, among
from penstock.spark.options import Size
from penstock.spark.plan import Splitting, split_range
from penstock.spark.positions import DataLoss
from penstock.spark.schema import Column
from penstock.spark.streams.direct import unix_ns
from penstock.spark.streams.read import IDLE_NS, PULL_BYTES, StreamRange, read_range
from penstock.spark.streams.settings import Settings, bounds_of, find_streams, ranges_of

EVERY_KEY = "$KV.>"
LISTED = [schema.SUBJECT, schema.SEQUENCE]

_WHOLE = Splitting(max_bytes_per_partition=Size(2**62))


class BucketPartition(InputPartition):
    """What one task reads: the newest messages of all keys."""

    def __init__(self, whole: StreamRange, *, is_past: bool) -> None:
        self.whole = whole
        self.is_past = is_past
        """Whether it is not for what the bucket holds now."""


class KeysPartition(InputPartition):
    """What one task reads: the messages of a range that were the newest of their keys."""

    def __init__(self, wanted: StreamRange, keys: pa.Table, *, is_past: bool) -> None:
        self.wanted = wanted
        self.is_past = is_past
        subjects, sequences = (column.combine_chunks() for column in keys.columns)
        self._subjects = zlib.compress("\n".join(subjects.to_pylist()).encode(), 1)
        self._sequences = zlib.compress(sequences.to_numpy().tobytes(), 1)

    def subjects(self) -> pa.Array:
        """Give the subjects of the keys."""
        return pa.array(zlib.decompress(self._subjects).decode().split("\n"), pa.string())

    def sequences(self) -> pa.Array:
        """Give the sequence of each one's newest message, in order."""
        data = zlib.decompress(self._sequences)
        return pa.Array.from_buffers(pa.int64(), len(data) // 8, [None, pa.py_buffer(data)])


def plan_latest(settings: Settings, *, is_past: bool) -> list[InputPartition]:
    """Divide the keys of a bucket among tasks."""
    (facts,) = find_streams(settings)
    bounds = bounds_of(settings, facts)
    ranges = ranges_of(msgspec.structs.replace(settings, splitting=_WHOLE), facts, *bounds)
    if not ranges:
        return []
    # A bucket's first sequence moves on whenever its oldest key is changed: that is no loss.
    whole = msgspec.structs.replace(ranges[0], fail_on_data_loss=False)
    parts = split_range(
        0, facts.messages, records=facts.messages, size=facts.bytes, splitting=settings.splitting
    )
    if len(parts) < 2:
        return [BucketPartition(whole, is_past=is_past)]
    keys = _list_keys(whole, is_past=is_past)
    marks = split_range(
        0, keys.num_rows, records=0, size=0, splitting=Splitting(min_partitions=len(parts))
    )
    return [_part(whole, keys.slice(low, high - low), is_past) for low, high in marks]


def _part(whole: StreamRange, keys: pa.Table, is_past: bool) -> KeysPartition:
    sequences = keys.column(schema.SEQUENCE.name)
    first, last = sequences[0].as_py(), sequences[-1].as_py()
    return KeysPartition(
        msgspec.structs.replace(whole, first=first, end=last + 1), keys, is_past=is_past
    )


def _list_keys(whole: StreamRange, *, is_past: bool) -> pa.Table:
    """Give the subject and the sequence of every key's newest message, by sequences."""
    newest = Newest()
    if is_past:
        for found in read_range(whole, LISTED):
            newest.add(found)
        return newest.table()
    converter = Converter(LISTED, whole.stream)
    with streams_of(whole.connection) as streams:
        for batch in _last_messages(streams, whole, LISTED):
            newest.add(converter.convert(batch))
    return newest.table()


# Planned keys


def read_keys(part: KeysPartition, rows: Rows) -> Iterator[pa.RecordBatch]:
    """Yield the rows of planned keys, each once."""
    wanted = part.sequences()
    found: list[pa.Array] = []
    for batch in read_range(part.wanted, rows.needed):
        kept = among(batch, wanted)
        found.append(kept.column(schema.SEQUENCE.name))
        yield rows.convert(kept)
    is_found = pc.is_in(wanted, value_set=pa.chunked_array(found, pa.int64()))
    gone = part.subjects().filter(pc.invert(is_found)).to_pylist()
    if gone and not part.is_past:
        for batch in _replaced(part.wanted, gone, rows):
            yield rows.convert(batch)


def _replaced(wanted: StreamRange, subjects: list[str], rows: Rows) -> Iterator[pa.RecordBatch]:
    """Yield what stands now where a key's value was pushed out."""
    builder = ColumnBuilder()
    converter = Converter(rows.needed, wanted.stream)
    with streams_of(wanted.connection) as streams:
        for each in streams.find_last(wanted.stream, subjects):
            # A key may have gone altogether.
            if each is not None:
                time_ns = unix_ns(each.time)
                builder.append(each.seq, time_ns, 0, each.subject, each.headers, each.payload)
            if builder.count >= wanted.rows_max or builder.data_bytes() >= wanted.bytes_max:
                yield converter.convert(builder.take(0))
    yield converter.convert(builder.take(0))


# A whole bucket


def read_bucket(part: BucketPartition, rows: Rows) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all keys, each once."""
    found = _past(part.whole, rows) if part.is_past else _present(part.whole, rows)
    for batch in found:
        yield rows.convert(batch)


def _past(whole: StreamRange, rows: Rows) -> Iterator[pa.RecordBatch]:
    newest = Newest()
    for batch in read_range(whole, LISTED):
        newest.add(batch)
    wanted = newest.table().column(schema.SEQUENCE.name)
    for batch in read_range(whole, rows.needed):
        yield among(batch, wanted)


def _present(whole: StreamRange, rows: Rows) -> Iterator[pa.RecordBatch]:
    shown: list[pa.Array] = []
    turn = 0
    while True:
        try:
            for batch in _not_shown(whole, rows, shown):
                shown.append(batch.column(schema.SUBJECT.name))
                yield batch
                turn = 0
        except BROKEN:
            # Over a new connection it goes on with the keys that were not shown yet.
            turn += 1
            if turn > whole.connection.retries:
                raise
            wait_before(turn)
        else:
            return


def _not_shown(whole: StreamRange, rows: Rows, shown: list[pa.Array]) -> Iterator[pa.RecordBatch]:
    converter = Converter(rows.needed, whole.stream)
    is_resumed = bool(shown)
    changed = schema.arrow_schema(rows.needed).empty_table()
    with streams_of(whole.connection) as streams:
        last_seq = _info(streams, whole)["state"]["last_seq"]
        found = _last_messages(streams, whole, rows.needed)
        with contextlib.closing(found):
            for batch in map(converter.convert, found):
                # What came since is of keys that were changed, perhaps of one that has not been
                # shown yet.
                is_old = pc.less_equal(batch.column(schema.SEQUENCE.name), last_seq)
                old = batch.filter(is_old)
                if old.num_rows:
                    yield _without(old, shown) if is_resumed else old
                if old.num_rows < batch.num_rows:
                    new = pa.Table.from_batches([batch.filter(pc.invert(is_old))])
                    changed = _newest(pa.concat_tables([changed, new]))
    if changed.num_rows:
        yield from _without(changed, shown).to_batches()


def _without(messages: Any, shown: list[pa.Array]) -> Any:  # Any: a batch or a table, as given
    """Give the messages of keys that have not been shown."""
    subjects = pa.chunked_array(shown, pa.string())
    is_shown = pc.is_in(messages.column(schema.SUBJECT.name), value_set=subjects)
    return messages.filter(pc.invert(is_shown))


def _newest(messages: pa.Table) -> pa.Table:
    newest = Newest()
    newest.add(messages)
    return among(messages, newest.table().column(schema.SEQUENCE.name))


def _info(streams: JetStream, whole: StreamRange) -> dict[str, Any]:
    info = streams.call(f"STREAM.INFO.{whole.stream}")
    if info["created"] != whole.created:
        raise DataLoss(f"bucket {whole.stream} was made anew while it was read")
    return info


def _last_messages(
    streams: JetStream, whole: StreamRange, columns: list[Column]
) -> Generator[ColumnBatch, None, None]:
    """Yield the last message of each subject, and those that came meanwhile until we caught up."""
    needs = needs_of(columns)
    config = _consumer_of(_info(streams, whole), whole, has_values=needs.payloads)
    asked = {"stream_name": whole.stream, "config": config}
    made = streams.call(f"CONSUMER.CREATE.{whole.stream}", asked)
    builder = ColumnBuilder(headers=needs.headers, payloads=needs.payloads)
    name = made["name"]
    pulling = Pulling(streams, whole.stream, name, batch=whole.fetch_batch, bytes_max=PULL_BYTES)
    try:
        is_end = made["num_pending"] == 0
        while not is_end:
            is_end = pulling.collect(builder, SEQUENCE_MAX, whole.rows_max, whole.bytes_max)
            if builder.count:
                yield builder.take(0)
    except BROKEN:
        # There is nobody left to tell; the server forgets the consumer by itself.
        raise
    except BaseException:
        pulling.end()
        streams.call(f"CONSUMER.DELETE.{whole.stream}.{name}")
        raise
    pulling.end()
    streams.call(f"CONSUMER.DELETE.{whole.stream}.{name}")


def _consumer_of(info: dict[str, Any], whole: StreamRange, *, has_values: bool) -> dict[str, Any]:
    # Where a bucket keeps one value of a key, every message is its key's last.
    keeps_one = info["config"].get("max_msgs_per_subject") == 1
    return {
        "deliver_policy": "all" if keeps_one else "last_per_subject",
        "filter_subjects": list(whole.subjects or (EVERY_KEY,)),
        # The header that the server then adds says nothing of keys.
        "headers_only": not has_values,
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": IDLE_NS,
        "mem_storage": True,
        "num_replicas": 1,
    }
