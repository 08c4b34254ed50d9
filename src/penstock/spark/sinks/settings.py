"""The options of `penstock` for writing, and whether the stream allows them.

Used in the driver, before any row is read: options that cannot work are refused here. Tasks get a
`Sink` with all that they need.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from pyspark.sql.types import StructType

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, UsageError
from penstock.spark.connection import ALIASES, Connection, Milliseconds, streams_of
from penstock.spark.options import Names, Options
from penstock.spark.sinks.fences import check_sink_id
from penstock.spark.sinks.rows import ID_COLUMN, RowShape, shape_of
from penstock.subjects import is_literal, is_subset, is_valid_subject

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
