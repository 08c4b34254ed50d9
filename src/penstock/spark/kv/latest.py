"""The newest value of each key of a bucket, through its server or from its block files.

Through a server: a bucket that is one task's work is not listed; the task asks for the last message
of every key. For several tasks the driver lists which message of each key is the newest, and
divides the sequences among them. Either way every key that was there at the start is shown once:
with the value that it had then or, if a change has removed that value from the bucket meanwhile,
with a later one. As of a revision or a time, the newest message up to then is looked for first, and
then read. Values that the bucket's history no longer holds are not seen.

From block files: the driver finds the newest message of each key, without reading values. Tasks
then read their blocks and keep those messages. A value that a server removes meanwhile fails the
query instead of being left out.

`plan_latest` and `plan_newest` are for the driver; the rest is loaded by executors.
"""

from __future__ import annotations

import bisect
import contextlib
import zlib
from array import array
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.jetstream import JetStream, Pulling
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.reader import SEQ_MAX
from penstock.spark import schema
from penstock.spark.arrow import SEQUENCE_MAX, Converter, needs_of
from penstock.spark.blocks import settings as block_settings
from penstock.spark.blocks.scan import BlockRange
from penstock.spark.connection import BROKEN, streams_of, wait_before
from penstock.spark.kv.rows import NewestMessages, with_sequences
from penstock.spark.options import OnCorruptRecord, Size
from penstock.spark.part import MessageSelection, Splitting, StreamPart, split_range
from penstock.spark.position import DataLoss
from penstock.spark.schema import Column
from penstock.spark.streams.read import IDLE_NS, PULL_BYTES, ServerStream, read_stream, unix_ns
from penstock.spark.streams.settings import Settings, bounds_of, find_streams, plan_stream

EVERY_KEY = "$KV.>"
LISTED = [schema.SUBJECT, schema.SEQUENCE]

_WHOLE = Splitting(max_bytes_per_partition=Size(2**62))


class BucketKeys(msgspec.Struct, frozen=True):
    """The newest messages of a bucket's keys, through its server: a source of a `StreamPart`.

    Its columns include the subject and the sequence.
    """

    server: ServerStream
    is_past: bool
    """Whether the bucket is read as of a revision or a time, not as it is now."""

    packed_subjects: bytes = b""
    """The subjects of the keys that the part has, compressed; b"" for every key of the bucket."""

    packed_sequences: bytes = b""
    """The sequence of the newest message of each, in order, compressed."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.server.stream

    @property
    def last_seq(self) -> int:
        """The last sequence that a stream can have: a selection says where a part ends."""
        return SEQ_MAX

    @property
    def count(self) -> int:
        """0: only the server knows."""
        return 0

    @property
    def bytes(self) -> int:
        """0: only the server knows."""
        return 0

    def with_keys(self, keys: pa.Table) -> BucketKeys:
        """Return the source for some keys: a table of subjects and sequences."""
        subjects, sequences = (column.combine_chunks() for column in keys.columns)
        return msgspec.structs.replace(
            self,
            packed_subjects=zlib.compress("\n".join(subjects.to_pylist()).encode(), 1),
            packed_sequences=zlib.compress(sequences.to_numpy().tobytes(), 1),
        )

    def read(
        self, selection: MessageSelection, columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the newest message of each key, each key once."""
        if self.packed_sequences:
            return _read_keys(self, selection, columns)
        if self.is_past:
            return _read_past(self.server, selection, columns)
        return _read_present(self.server, selection, columns)


def plan_latest(settings: Settings, *, is_past: bool) -> list[StreamPart]:
    """Return the parts of a bucket; the keys are listed if there are several."""
    (facts,) = find_streams(settings)
    bounds = bounds_of(settings, facts)
    whole = plan_stream(msgspec.structs.replace(settings, splitting=_WHOLE), facts, *bounds)
    if not whole:
        return []
    # A bucket's first sequence moves whenever its oldest key is changed: that is no loss.
    selection = msgspec.structs.replace(whole[0].selection, fail_on_data_loss=False)
    server = whole[0].source
    assert isinstance(server, ServerStream), "planned by the format of servers"
    source = BucketKeys(server, is_past)
    parts = split_range(
        0, facts.messages, records=facts.messages, size=facts.bytes, splitting=settings.splitting
    )
    if len(parts) < 2:
        return [StreamPart(source, selection)]
    keys = _list_keys(source, selection)
    marks = split_range(
        0, keys.num_rows, records=0, size=0, splitting=Splitting(min_partitions=len(parts))
    )
    return [_part_of(source, selection, keys.slice(low, high - low)) for low, high in marks]


def _part_of(source: BucketKeys, selection: MessageSelection, keys: pa.Table) -> StreamPart:
    sequences = keys.column(schema.SEQUENCE.name)
    first, last = sequences[0].as_py(), sequences[-1].as_py()
    return StreamPart(
        source.with_keys(keys),
        msgspec.structs.replace(selection, first_seq=first, last_seq=last),
    )


def _list_keys(source: BucketKeys, selection: MessageSelection) -> pa.Table:
    """Return the subject and the sequence of every key's newest message, sorted by sequence."""
    newest = NewestMessages()
    server = source.server
    if source.is_past:
        for found in read_stream(server, selection, LISTED):
            newest.add(found)
        return newest.table()
    converter = Converter(LISTED, server.stream)
    with streams_of(server.connection) as streams:
        for batch in _last_messages(streams, server, selection, LISTED):
            newest.add(converter.convert(batch))
    return newest.table()


# Listed keys


def _read_keys(
    source: BucketKeys, selection: MessageSelection, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    wanted = _unpacked(source.packed_sequences)
    found: list[pa.Array] = []
    for batch in read_stream(source.server, selection, columns):
        kept = with_sequences(batch, wanted)
        found.append(kept.column(schema.SEQUENCE.name))
        yield kept
    is_found = pc.is_in(wanted, value_set=pa.chunked_array(found, pa.int64()))
    subjects = pa.array(zlib.decompress(source.packed_subjects).decode().split("\n"), pa.string())
    gone = subjects.filter(pc.invert(is_found)).to_pylist()
    if gone and not source.is_past:
        yield from _replaced(source.server, selection, gone, columns)


def _unpacked(packed: bytes) -> pa.Array:
    data = zlib.decompress(packed)
    return pa.Array.from_buffers(pa.int64(), len(data) // 8, [None, pa.py_buffer(data)])


def _replaced(
    server: ServerStream,
    selection: MessageSelection,
    subjects: list[str],
    columns: Sequence[Column],
) -> Iterator[pa.RecordBatch]:
    """Yield the present messages of keys whose listed value is gone."""
    builder = ColumnBuilder()
    converter = Converter(columns, server.stream)
    with streams_of(server.connection) as streams:
        for each in streams.find_last(server.stream, subjects):
            # A key may be gone altogether.
            if each is not None:
                time_ns = unix_ns(each.time)
                builder.append(each.seq, time_ns, 0, each.subject, each.headers, each.payload)
            if builder.count >= selection.rows_max or builder.data_bytes() >= selection.bytes_max:
                yield converter.convert(builder.take(0))
    yield converter.convert(builder.take(0))


# A whole bucket


def _read_past(
    server: ServerStream, selection: MessageSelection, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    newest = NewestMessages()
    for batch in read_stream(server, selection, LISTED):
        newest.add(batch)
    wanted = newest.table().column(schema.SEQUENCE.name)
    for batch in read_stream(server, selection, columns):
        yield with_sequences(batch, wanted)


def _read_present(
    server: ServerStream, selection: MessageSelection, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    shown: list[pa.Array] = []
    turn = 0
    while True:
        try:
            for batch in _not_shown(server, selection, columns, shown):
                shown.append(batch.column(schema.SUBJECT.name))
                yield batch
                turn = 0
        except BROKEN:
            # Over a new connection, reading goes on with the keys that were not shown yet.
            turn += 1
            if turn > server.connection.retries:
                raise
            wait_before(turn)
        else:
            return


def _not_shown(
    server: ServerStream,
    selection: MessageSelection,
    columns: Sequence[Column],
    shown: list[pa.Array],
) -> Iterator[pa.RecordBatch]:
    converter = Converter(columns, server.stream)
    is_resumed = bool(shown)
    changed = schema.arrow_schema(columns).empty_table()
    with streams_of(server.connection) as streams:
        last_seq = _info(streams, server)["state"]["last_seq"]
        found = _last_messages(streams, server, selection, columns)
        with contextlib.closing(found):
            for batch in map(converter.convert, found):
                # A message that came since is of a key that was changed, and that may not have
                # been shown yet.
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
    """Return the messages of keys that have not been shown."""
    subjects = pa.chunked_array(shown, pa.string())
    is_shown = pc.is_in(messages.column(schema.SUBJECT.name), value_set=subjects)
    return messages.filter(pc.invert(is_shown))


def _newest(messages: pa.Table) -> pa.Table:
    newest = NewestMessages()
    newest.add(messages)
    return with_sequences(messages, newest.table().column(schema.SEQUENCE.name))


def _info(streams: JetStream, server: ServerStream) -> dict[str, Any]:
    info = streams.call(f"STREAM.INFO.{server.stream}")
    if info["created"] != server.created:
        raise DataLoss(f"bucket {server.stream} was made anew while it was read")
    return info


def _last_messages(
    streams: JetStream,
    server: ServerStream,
    selection: MessageSelection,
    columns: Sequence[Column],
) -> Generator[ColumnBatch, None, None]:
    """Yield the last message of each subject, and those that come until the consumer caught up."""
    needs = needs_of(columns)
    info = _info(streams, server)
    config = _consumer_config(info, selection, has_values=needs.payloads)
    asked = {"stream_name": server.stream, "config": config}
    made = streams.call(f"CONSUMER.CREATE.{server.stream}", asked)
    builder = ColumnBuilder(headers=needs.headers, payloads=needs.payloads)
    name = made["name"]
    pulling = Pulling(streams, server.stream, name, batch=server.fetch_batch, bytes_max=PULL_BYTES)
    try:
        is_end = made["num_pending"] == 0
        while not is_end:
            is_end = pulling.collect(builder, SEQUENCE_MAX, selection.rows_max, selection.bytes_max)
            if builder.count:
                yield builder.take(0)
    except BROKEN:
        # The server removes the consumer by itself.
        raise
    except BaseException:
        pulling.end()
        streams.call(f"CONSUMER.DELETE.{server.stream}.{name}")
        raise
    pulling.end()
    streams.call(f"CONSUMER.DELETE.{server.stream}.{name}")


def _consumer_config(
    info: dict[str, Any], selection: MessageSelection, *, has_values: bool
) -> dict[str, Any]:
    # If a bucket keeps one value of a key, every message is its key's last.
    keeps_one = info["config"].get("max_msgs_per_subject") == 1
    return {
        "deliver_policy": "all" if keeps_one else "last_per_subject",
        "filter_subjects": list(selection.subject_texts() or (EVERY_KEY,)),
        # The header that the server then adds says nothing of keys.
        "headers_only": not has_values,
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": IDLE_NS,
        "mem_storage": True,
        "num_replicas": 1,
    }


# Block files


class BlockKeys(msgspec.Struct, frozen=True):
    """The newest messages of their keys in a range of blocks: a source of a `StreamPart`.

    Its columns include the sequence.
    """

    blocks: BlockRange
    packed_sequences: bytes
    """The sequences of the messages, compressed."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.blocks.stream

    @property
    def last_seq(self) -> int:
        """The last sequence of the last block."""
        return self.blocks.last_seq

    @property
    def count(self) -> int:
        """How many messages the blocks hold, older ones of the keys included."""
        return self.blocks.count

    @property
    def bytes(self) -> int:
        """How many bytes the blocks have."""
        return self.blocks.bytes

    def read(
        self, selection: MessageSelection, columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the newest messages; raise DataLoss if one is gone."""
        wanted = _unpacked(self.packed_sequences)
        found = 0
        for batch in self.blocks.read(selection, columns):
            kept = with_sequences(batch, wanted)
            found += kept.num_rows
            yield kept
        if found < len(wanted) and self.blocks.on_corrupt is OnCorruptRecord.FAIL:
            raise DataLoss(
                f"{self.blocks.directory.path}: {len(wanted) - found} values went away while the "
                "bucket was read: give its server instead of the directory"
            )


def plan_newest(settings: block_settings.Settings) -> list[StreamPart]:
    """Return the parts of a bucket's directory that hold the newest messages of its keys."""
    parts = block_settings.plan(settings)
    newest = NewestMessages()
    for each in parts:
        for batch in each.read(LISTED):
            newest.add(batch)
    sequences = array("q", newest.table().column(schema.SEQUENCE.name).to_pylist())
    planned: list[StreamPart] = []
    for each in parts:
        blocks = each.source
        assert isinstance(blocks, BlockRange), "planned by the format of directories"
        low = bisect.bisect_left(sequences, blocks.first_seq)
        high = bisect.bisect_right(sequences, blocks.last_seq)
        if low < high:
            packed = zlib.compress(sequences[low:high].tobytes(), 1)
            planned.append(StreamPart(BlockKeys(blocks, packed), each.selection))
    return planned
