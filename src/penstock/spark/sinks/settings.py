"""What is written by `penstock`, and where to: rows as messages, the options, what a stream allows.

Rows: which columns of a frame are used, and their bytes as they are sent. Works on whole Arrow
columns: no Python runs for each row. Called in tasks.

Options are read in the driver, before any row is: those that cannot work, for the frame or for the
stream, are refused. Tasks get a `Sink` with all that they need.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructType

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.errors import ApiError, UsageError
from penstock.spark.connection import ALIASES, Connection, Milliseconds, streams_of
from penstock.spark.headers import MapColumn, header_blocks
from penstock.spark.options import Names, Options
from penstock.spark.sinks.fences import check_sink_id
from penstock.subjects import is_literal, is_subset, is_valid_subject

# Rows as messages

PAYLOADS = ("data", "value", "content")
ID_COLUMN = "msg_id"
ORIGIN_COLUMNS = ("stream", "sequence")
ORIGIN_TIME = "time_ns"
"""The headers that say where a message was before, and when, if that is known."""


class RowShape(msgspec.Struct, frozen=True):
    """Which columns of a frame make up a message."""

    payload: str
    subject: str = ""
    """The subject of all rows; "" if each has its own."""

    has_headers: bool = False
    id_column: str = ""
    keeps_origin: bool = False

    def rows(self, batch: pa.RecordBatch, id_start: bytes | None = None, first: int = 0) -> Rows:
        """Return the rows of a batch as messages; raise UsageError.

        Without a column of ids, their ids are `id_start` and their numbers from `first` on.
        """
        return Rows(
            column_bytes(self.subjects(batch), "subject"),
            self._header_blocks(batch, id_start, first),
            column_bytes(batch.column(self.payload), self.payload),
        )

    def subjects(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the rows' subjects."""
        if self.subject:
            return pa.repeat(self.subject, batch.num_rows)
        return batch.column("subject")

    def _header_blocks(
        self, batch: pa.RecordBatch, id_start: bytes | None, first: int
    ) -> tuple[memoryview, memoryview] | None:
        if not (self.has_headers or self.id_column or id_start or self.keeps_origin):
            return None
        ids = lines = None
        if self.id_column:
            ids = column_bytes(batch.column(self.id_column).cast(pa.string()), self.id_column)
        if self.keeps_origin:
            lines = column_bytes(_origin_lines(batch), " or ".join(ORIGIN_COLUMNS))
        offsets, blocks = header_blocks(
            batch.num_rows,
            map_column(batch.column("headers")) if self.has_headers else None,
            ids,
            None if self.id_column else id_start,
            first,
            lines,
        )
        return memoryview(offsets), memoryview(blocks)


def shape_of(
    kinds: Mapping[str, Any], subject: str, id_column: str, keeps_origin: bool
) -> RowShape:
    """Return which of a frame's columns are used; raise UsageError."""
    payloads = [each for each in PAYLOADS if each in kinds]
    if len(payloads) != 1:
        raise UsageError(f"the frame needs one of the columns {', '.join(PAYLOADS)}")
    _check_type(kinds, payloads[0], BinaryType, StringType)
    if not subject:
        if "subject" not in kinds:
            raise UsageError("give the option subject, or a column subject")
        _check_type(kinds, "subject", StringType)
    if "headers" in kinds:
        _check_type(kinds, "headers", MapType)
    if id_column and id_column not in kinds:
        raise UsageError(f"option msgIdColumn: the frame has no column {id_column}")
    if keeps_origin:
        if not kinds.keys() >= set(ORIGIN_COLUMNS):
            raise UsageError(f"preserveOrigin needs the columns {' and '.join(ORIGIN_COLUMNS)}")
        _check_type(kinds, "stream", StringType)
        _check_type(kinds, "sequence", LongType)
        if ORIGIN_TIME in kinds:
            _check_type(kinds, ORIGIN_TIME, LongType)
    return RowShape(payloads[0], subject, "headers" in kinds, id_column, keeps_origin)


def _check_type(kinds: Mapping[str, Any], name: str, *wanted: type) -> None:
    if not isinstance(kinds[name], wanted):
        raise UsageError(f"column {name} cannot be {kinds[name].simpleString()}")


def _origin_lines(batch: pa.RecordBatch) -> pa.Array:
    stream = batch.column("stream")
    # The value becomes one header line, so it must have no line break.
    if pc.any(pc.match_substring_regex(stream, "[\r\n]")).as_py():
        raise UsageError("column stream holds what is no stream's name")
    parts = ["Nats-Orig-Stream: ", stream, "\r\nNats-Orig-Sequence: "]
    parts.append(batch.column("sequence").cast(pa.string()))
    if ORIGIN_TIME in batch.schema.names:
        moments = batch.column(ORIGIN_TIME).cast(pa.timestamp("ns", tz="UTC"))
        parts += ["\r\nNats-Orig-Time: ", pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ")]
    return pc.binary_join_element_wise(*parts, "\r\n", "")


def column_bytes(column: pa.Array, name: str) -> tuple[memoryview, memoryview]:
    """Return a column's offsets (int32) and its bytes; raise UsageError if a row is null."""
    if column.null_count:
        raise UsageError(f"column {name} is null in a row")
    plain = column.cast(pa.binary())
    if plain.offset:
        plain = pa.concat_arrays([plain])
    _, offsets, data = plain.buffers()
    if offsets is None:
        return memoryview(bytes(4)).cast("i"), memoryview(b"")
    return _offsets(offsets, len(plain)), _bytes(data)


def map_column(column: pa.MapArray) -> MapColumn:
    """Return the buffers of a column of headers; raise UsageError if a value is null."""
    if column.offset:
        column = pa.concat_arrays([column])
    keys, lists = column.keys, column.items
    values = lists.values
    if values.null_count:
        raise UsageError("column headers has a null among the values of a name")
    validity, offsets = column.buffers()[:2]
    list_validity, list_offsets = lists.buffers()[:2]
    return MapColumn(
        _bytes(validity),
        _offsets(offsets, len(column)),
        *column_bytes(keys, "headers"),
        _bytes(list_validity),
        _offsets(list_offsets, len(lists)),
        *column_bytes(values, "headers"),
    )


def _offsets(buffer: pa.Buffer | None, count: int) -> memoryview:
    if buffer is None or buffer.size < 4:
        return memoryview(bytes(4)).cast("i")
    return memoryview(buffer.slice(0, (count + 1) * 4)).cast("i")


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if buffer is None else buffer).cast("B")


# Options

FORMAT = "penstock"
FENCES = "_fence"
"""The default prefix of fences' subjects, before the stream's name."""


class Delivery(StrEnum):
    """How often a row may be stored."""

    AT_LEAST_ONCE = "at-least-once"
    DEDUPE = "dedupe"
    EXACTLY_ONCE = "exactly-once"


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """Where rows go, and with which promise."""

    stream: str = ""
    subject: str = ""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    sink_id: str = ""
    version: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    fence_prefix: str = ""
    msg_id_column: str = ""
    recovery_window_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 120_000
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4096
    publish_timeout_ms: Milliseconds = 60_000
    preserve_origin: bool = False
    create_stream: Names | None = None
    expected_last_sequence: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    allow_purge: bool = False


class Sink(msgspec.Struct, frozen=True):
    """Everything that a task needs to publish."""

    connection: Connection
    target: Target
    shape: RowShape
    stream_subjects: tuple[bytes, ...] = ()
    """The subjects of the stream, if it is known which one is written to."""

    purges_to: int = 0
    """The last message that is replaced: it and all before it go when the rows are in."""

    @property
    def is_exact(self) -> bool:
        """Whether fences are set."""
        return self.target.delivery is Delivery.EXACTLY_ONCE

    @property
    def fence_prefix(self) -> str:
        """The prefix of the subjects of fences."""
        return self.target.fence_prefix or f"{FENCES}.{self.target.stream}"


def read_sink(
    given: Mapping[str, str],
    schema: StructType,
    *,
    overwrites: bool = False,
    is_streaming: bool = False,
) -> Sink:
    """Return the sink for options and a frame's columns; raise UsageError.

    The server is asked for the stream.
    """
    options = Options(FORMAT, given, ALIASES)
    connection = options.group(Connection)
    target = options.group(Target)
    options.finish()
    kinds = {field.name: field.dataType for field in schema.fields}
    ids = target.msg_id_column
    if not ids and target.delivery is Delivery.DEDUPE and ID_COLUMN in kinds:
        ids = ID_COLUMN
    try:
        _check_options(target, overwrites=overwrites, is_streaming=is_streaming)
        shape = shape_of(kinds, target.subject, ids, keeps_origin=target.preserve_origin)
        sink = Sink(connection, target, shape)
        if not _asks_for_stream(target, overwrites=overwrites):
            return sink
        with streams_of(connection) as streams:
            return _checked(streams, sink, overwrites=overwrites)
    except UsageError as error:
        raise UsageError(f"{FORMAT}: {error}") from None


def _check_options(target: Target, *, overwrites: bool, is_streaming: bool) -> None:
    if target.subject and not is_literal(target.subject.encode()):
        raise UsageError(f"option subject: {target.subject!r}: no subject to publish to")
    if target.sink_id:
        check_sink_id(target.sink_id)
    if is_streaming:
        if overwrites:
            raise UsageError('a query only ever appends to a stream: outputMode("append")')
        for name, is_given in (
            ("version", target.version is not None),
            ("expectedLastSequence", target.expected_last_sequence is not None),
        ):
            if is_given:
                raise UsageError(f"option {name} is for single writes: a query has its batches")
    elif target.delivery is Delivery.EXACTLY_ONCE and (
        not target.sink_id or target.version is None
    ):
        raise UsageError(
            "delivery=exactly-once of a single write needs sinkId and version: which job writes, "
            "and the number of this write, higher each time"
        )
    if overwrites and not (target.allow_purge and target.stream):
        raise UsageError(
            'a stream is only ever appended to: mode("append"). With the options stream and '
            "allowPurge=true overwriting removes what the stream has, once the rows are in"
        )


def _asks_for_stream(target: Target, *, overwrites: bool) -> bool:
    return (
        overwrites
        or bool(target.stream or target.create_stream)
        or target.expected_last_sequence is not None
        or target.delivery is Delivery.EXACTLY_ONCE
        or (target.delivery is Delivery.DEDUPE and bool(target.subject))
    )


def _checked(streams: JetStream, sink: Sink, *, overwrites: bool) -> Sink:
    """Return the sink with the stream's facts; raise UsageError if the stream does not allow it."""
    target = sink.target
    name = target.stream or _stream_of(streams, target.subject)
    sink = msgspec.structs.replace(sink, target=msgspec.structs.replace(target, stream=name))
    info = _info(streams, sink)
    config, last_seq = info["config"], info["state"]["last_seq"]
    subjects = tuple(each.encode() for each in config.get("subjects") or ())
    if target.subject and not any(is_subset(target.subject.encode(), each) for each in subjects):
        raise UsageError(f"stream {name} does not take {target.subject!r}, but {_shown(subjects)}")
    if config.get("no_ack"):
        raise UsageError(f"stream {name} acknowledges nothing (no_ack): no row could be sure")
    expected = target.expected_last_sequence
    if expected is not None and expected != last_seq:
        raise UsageError(
            f"stream {name} ends with sequence {last_seq}, not with {expected}: it was written to"
        )
    if target.delivery is Delivery.DEDUPE:
        _check_window(target, name, config)
    if target.delivery is Delivery.EXACTLY_ONCE:
        _check_exact(sink, config, subjects)
    return msgspec.structs.replace(
        sink, stream_subjects=subjects, purges_to=last_seq if overwrites else 0
    )


def _stream_of(streams: JetStream, subject: str) -> str:
    if not subject:
        raise UsageError("give the option stream: which stream the rows go to")
    names = list(streams.pages("STREAM.NAMES", "streams", {"subject": subject}))
    if len(names) != 1:
        raise UsageError(f"no stream takes {subject!r}")
    return str(names[0])


def _info(streams: JetStream, sink: Sink) -> dict[str, Any]:
    name = sink.target.stream
    if any(letter in name for letter in ".*> \t\r\n"):
        raise UsageError(f"{name!r} cannot be a stream's name")
    try:
        return streams.call(f"STREAM.INFO.{name}")
    except ApiError as error:
        is_missing = error.err_code == error_codes.STREAM_NOT_FOUND.err_code
        if not is_missing or sink.target.create_stream is None:
            raise UsageError(f"stream {name}: {error}") from None
    subjects = [*sink.target.create_stream]
    config: dict[str, Any] = {"name": name, "subjects": subjects, "allow_direct": True}
    if sink.is_exact:
        subjects.append(f"{sink.fence_prefix}.>")
        config["allow_atomic"] = True
    try:
        return streams.call(f"STREAM.CREATE.{name}", config)
    except ApiError as error:
        raise UsageError(f"stream {name} cannot be made: {error}") from None


def _check_window(target: Target, name: str, config: Mapping[str, Any]) -> None:
    window_ms = config.get("duplicate_window", 0) // 1_000_000
    if window_ms < target.recovery_window_ms:
        raise UsageError(
            f"stream {name} knows message ids for {window_ms} ms (duplicate_window), and a task "
            f"may come again after {target.recovery_window_ms} ms (recoveryWindowMs)"
        )


def _check_exact(sink: Sink, config: Mapping[str, Any], subjects: tuple[bytes, ...]) -> None:
    name = sink.target.stream
    wants = [
        (config.get("allow_atomic"), "takes no atomic batches: set allow_atomic"),
        (config.get("retention", "limits") == "limits", "drops fences: its retention is no limit"),
        (not config.get("subject_transform"), "renames what it takes (subject_transform)"),
        (not config.get("allow_msg_counter"), "takes counters only (allow_msg_counter)"),
        (not config.get("sealed"), "is sealed"),
    ]
    for holds, problem in wants:
        if not holds:
            raise UsageError(f"delivery=exactly-once: stream {name} {problem}")
    prefix = sink.fence_prefix
    if not is_valid_subject(prefix.encode()) or not is_literal(prefix.encode()):
        raise UsageError(f"option fencePrefix: {prefix!r}: no beginning of a subject")
    fences = f"{prefix}.{sink.target.sink_id or '*'}.*"
    if not any(is_subset(fences.encode(), each) for each in subjects):
        raise UsageError(
            f"delivery=exactly-once: stream {name} has no subject for fences: add "
            f"{json.dumps(f'{prefix}.>')} to its subjects, or say with fencePrefix where they go"
        )


def _shown(subjects: tuple[bytes, ...]) -> str:
    return ", ".join(each.decode() for each in subjects) or "no subject"
