"""Batches of messages as Arrow record batches: the same buffers, under the types of the schema.

Only what must change is copied: times become microseconds, headers become maps. Payloads that
publishers compressed are decompressed on the way, up to the size that a message may have: they come
from outside, and a small payload can decompress to any size. Pure; any thread.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import FormatError, UsageError
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.sequence_set import SequenceSet
from penstock.limits import PAYLOAD_BYTES_MAX
from penstock.spark import schema
from penstock.spark.headers import HeaderMapBuilder
from penstock.spark.options import PayloadCompression
from penstock.spark.schema import Column

LIVE, REMOVED = "live", "removed"

SEQUENCE_MAX = 2**63 - 1
"""Sequences are unsigned 64-bit numbers in the store; Spark has only signed ones."""


Maker = Callable[[ColumnBatch, str], pa.Array]


class Needs(msgspec.Struct, frozen=True):
    """Which bytes of messages a set of columns needs."""

    headers: bool
    payloads: bool


def needs_of(columns: Sequence[Column]) -> Needs:
    """Return which bytes of messages these columns need."""
    kinds = {each.holds for each in columns}
    whole = schema.SIZE.holds in kinds
    return Needs(
        headers=whole or bool(kinds & {schema.HEADER_MAP.holds, schema.RAW_HEADERS.holds}),
        payloads=whole or bool(kinds & {schema.DATA.holds, schema.VALUE.holds}),
    )


class Converter:
    """Makes record batches of some columns. A task has one."""

    def __init__(
        self, columns: Sequence[Column], stream: str, removed: SequenceSet | None = None
    ) -> None:
        """Make a converter; `removed` are the sequences that the column `_state` marks as
        removed."""
        makers: dict[str, Maker] = {
            **_MAKERS,
            schema.STATE.holds: partial(_state, removed or SequenceSet()),
        }
        self._schema = schema.arrow_schema(columns)
        self._makers = [makers[each.holds] for each in columns]
        self._stream = stream

    def convert(self, batch: ColumnBatch) -> pa.RecordBatch:
        """Return a batch as Arrow; raise UsageError for sequences that Spark cannot hold."""
        arrays = [make(batch, self._stream) for make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _stream(batch: ColumnBatch, stream: str) -> pa.Array:
    return pa.repeat(pa.scalar(stream, pa.string()), batch.count)


def _subject(batch: ColumnBatch, _stream: str) -> pa.Array:
    return text_of(_binary(batch.count, batch.subject_offsets, batch.subjects))


def _subject_raw(batch: ColumnBatch, _stream: str) -> pa.Array:
    return _binary(batch.count, batch.subject_offsets, batch.subjects)


def _sequence(batch: ColumnBatch, _stream: str) -> pa.Array:
    if batch.count and int.from_bytes(batch.sequences[-8:], "little") > SEQUENCE_MAX:
        raise UsageError(f"sequences above {SEQUENCE_MAX} do not fit Spark's bigint")
    return _fixed(pa.int64(), batch.count, batch.sequences)


def _timestamp(batch: ColumnBatch, _stream: str) -> pa.Array:
    exact = _fixed(pa.timestamp("ns", tz="UTC"), batch.count, batch.timestamps)
    return exact.cast(pa.timestamp("us", tz="UTC"), safe=False)


def _time_ns(batch: ColumnBatch, _stream: str) -> pa.Array:
    return _fixed(pa.int64(), batch.count, batch.timestamps)


def _header_map(batch: ColumnBatch, _stream: str) -> pa.Array:
    if not batch.headers:
        return pa.nulls(batch.count, schema.HEADERS)
    maps = HeaderMapBuilder().build(batch.header_offsets, batch.headers, batch.count)
    keys = len(maps.key_offsets) // 4 - 1
    values = len(maps.value_offsets) // 4 - 1
    names = text_of(_binary(keys, maps.key_offsets, maps.keys))
    texts = text_of(_binary(values, maps.value_offsets, maps.values))
    lists = pa.Array.from_buffers(
        schema.HEADERS.item_type, keys, [None, pa.py_buffer(maps.list_offsets)], children=[texts]
    )
    entries = pa.StructArray.from_arrays(
        [names, lists], fields=[schema.HEADERS.key_field, schema.HEADERS.item_field]
    )
    return pa.Array.from_buffers(
        schema.HEADERS,
        batch.count,
        [pa.py_buffer(maps.validity), pa.py_buffer(maps.map_offsets)],
        null_count=maps.null_count,
        children=[entries],
    )


def _raw_headers(batch: ColumnBatch, _stream: str) -> pa.Array:
    return _binary(batch.count, batch.header_offsets, batch.headers)


def _data(batch: ColumnBatch, _stream: str) -> pa.Array:
    return _binary(batch.count, batch.payload_offsets, batch.payloads)


def _value(batch: ColumnBatch, stream: str) -> pa.Array:
    return text_of(_data(batch, stream))


def _reply(batch: ColumnBatch, _stream: str) -> pa.Array:
    return pa.nulls(batch.count, pa.string())


def _no_number(batch: ColumnBatch, _stream: str) -> pa.Array:
    return pa.nulls(batch.count, pa.int64())


def _size(batch: ColumnBatch, stream: str) -> pa.Array:
    return pc.add(
        pc.binary_length(_raw_headers(batch, stream)), pc.binary_length(_data(batch, stream))
    )


def _block(batch: ColumnBatch, _stream: str) -> pa.Array:
    numbers = [
        pa.repeat(pa.scalar(block, pa.int64()), count)
        for block, count in batch.blocks or ((batch.block, batch.count),)
    ]
    return numbers[0] if len(numbers) == 1 else pa.concat_arrays(numbers)


def _offset(batch: ColumnBatch, _stream: str) -> pa.Array:
    return _fixed(pa.int64(), batch.count, batch.offsets)


def _state(removed: SequenceSet, batch: ColumnBatch, _stream: str) -> pa.Array:
    sequences = memoryview(batch.sequences).cast("Q")
    states: list[pa.Array] = []
    done = 0

    def go_on(end: int, state: str) -> None:
        nonlocal done
        states.append(pa.repeat(pa.scalar(state, pa.string()), end - done))
        done = end

    for first, last in removed.ranges_between(sequences[0], sequences[-1]):
        go_on(bisect_left(sequences, first), LIVE)
        go_on(bisect_left(sequences, last + 1), REMOVED)
    go_on(batch.count, LIVE)
    return pa.concat_arrays(states)


_MAKERS: dict[str, Maker] = {
    schema.STREAM.holds: _stream,
    schema.SUBJECT.holds: _subject,
    schema.SUBJECT_RAW.holds: _subject_raw,
    schema.SEQUENCE.holds: _sequence,
    schema.TIMESTAMP.holds: _timestamp,
    schema.TIME_NS.holds: _time_ns,
    schema.HEADER_MAP.holds: _header_map,
    schema.RAW_HEADERS.holds: _raw_headers,
    schema.DATA.holds: _data,
    schema.VALUE.holds: _value,
    schema.REPLY.holds: _reply,
    schema.SIZE.holds: _size,
    schema.NO_NUMBER.holds: _no_number,
    schema.BLOCK.holds: _block,
    schema.OFFSET.holds: _offset,
}


def _fixed(kind: pa.DataType, count: int, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _binary(count: int, offsets: bytes, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def text_of(array: pa.Array) -> pa.Array:
    """Return bytes as text; bytes that are no UTF-8 are replaced by U+FFFD."""
    # Subjects and payloads may be any bytes, and Arrow's text must be UTF-8.
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [each.decode(errors="replace") for each in array.to_pylist()]
        return pa.array(texts, pa.string())


def unpack(batch: ColumnBatch, packed: PayloadCompression) -> ColumnBatch:
    """Return a batch with its payloads decompressed; raise FormatError with the sequence."""
    if packed is PayloadCompression.NONE or not batch.payloads:
        return batch
    builder = ColumnBuilder()
    for each in batch.messages():
        payload = _inflated(each.seq, each.payload)
        builder.append(
            each.seq, each.timestamp_ns, each.offset, each.subject, each.headers, payload
        )
    return builder.take(batch.block)


def _inflated(seq: int, payload: bytes) -> bytes:
    # A message without payload, such as a delete marker, was not compressed.
    if not payload:
        return b""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(payload, PAYLOAD_BYTES_MAX)
    except zlib.error as error:
        raise FormatError(
            f"the payload of sequence {seq} is not packed with zlib: {error}"
        ) from None
    if not unpacking.eof:
        raise FormatError(
            f"the payload of sequence {seq} is cut short, or more than {PAYLOAD_BYTES_MAX} bytes"
        )
    return data
