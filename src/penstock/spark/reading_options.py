"""Options that the reading formats share: which messages, which columns, what becomes of damage.

Pure: texts in, checked values out.
"""

from __future__ import annotations

import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from penstock.errors import UsageError
from penstock.format.reader import SEQ_MAX, TIME_MAX, TIME_MIN
from penstock.spark import schema
from penstock.spark.options import Duration, Names, Size
from penstock.spark.positions import Rules
from penstock.spark.schema import Column
from penstock.subjects import SubjectFilter

_NS = 1_000_000_000
Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class OnCorruptRecord(StrEnum):
    """What becomes of a scan that meets damage."""

    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"


class ValueFormat(StrEnum):
    """How the payload is shown."""

    BINARY = "binary"
    STRING = "string"


class PayloadCompression(StrEnum):
    """What a payload is packed with, by whoever published it."""

    NONE = "none"
    ZLIB = "zlib"


class SchemaStyle(StrEnum):
    """Whose names the columns have: ours, or those of the official NATS connector."""

    PENSTOCK = "penstock"
    OFFICIAL = "official"


class NoMatch(StrEnum):
    """What becomes of a time behind which a stream has no message."""

    ERROR = "error"
    LATEST = "latest"


class Content(msgspec.Struct, frozen=True, rename="camel"):
    """Which columns a table has where the user gives no schema."""

    include_headers: bool = True
    include_raw_headers: bool = False
    columns: Names | None = None
    value_format: ValueFormat = ValueFormat.BINARY
    payload_compression: PayloadCompression = PayloadCompression.NONE
    schema_style: SchemaStyle = SchemaStyle.PENSTOCK

    def known(self, ours: tuple[Column, ...]) -> tuple[Column, ...]:
        """Give the columns that there are, in the style that is asked for."""
        return ours if self.schema_style is SchemaStyle.PENSTOCK else schema.OFFICIAL_COLUMNS

    def choose(self, known: tuple[Column, ...]) -> list[Column]:
        """Give the columns; raises UsageError for unknown ones."""
        if self.schema_style is SchemaStyle.OFFICIAL and self.columns is None:
            return list(known)
        if self.columns is not None:
            return schema.choose(self.columns, known)
        payload = schema.DATA if self.value_format is ValueFormat.BINARY else schema.VALUE
        left_out = {schema.DATA.holds, schema.VALUE.holds} - {payload.holds}
        if not self.include_headers:
            left_out.add(schema.HEADER_MAP.holds)
        if not self.include_raw_headers:
            left_out.add(schema.RAW_HEADERS.holds)
        return [each for each in known if each.holds not in left_out]


class Batches(msgspec.Struct, frozen=True, rename="camel"):
    """How large Arrow batches get."""

    arrow_batch_rows: Positive = 16_384
    arrow_batch_bytes: Size = Size(8 * 1024 * 1024)


class Following(msgspec.Struct, frozen=True, rename="camel"):
    """How a query that goes on reads."""

    max_offsets_per_trigger: Natural = 0
    max_bytes_per_trigger: Size | None = None
    min_offsets_per_trigger: Natural = 0
    max_trigger_delay: Duration = Duration(15 * 60)
    fail_on_data_loss: bool = True
    allow_recreated_stream: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if 0 < self.max_offsets_per_trigger < self.min_offsets_per_trigger:
            raise ValueError("minOffsetsPerTrigger is above maxOffsetsPerTrigger")

    @property
    def rules(self) -> Rules:
        """What a query puts up with."""
        return Rules(self.fail_on_data_loss, self.allow_recreated_stream)


class Range(msgspec.Struct, frozen=True, rename="camel"):
    """From where to where; a time counts over a sequence, as with Kafka's options."""

    starting_offsets: str = ""
    ending_offsets: str = ""
    starting_timestamp: str = ""
    ending_timestamp: str = ""
    starting_offsets_by_timestamp: str = ""
    ending_offsets_by_timestamp: str = ""
    starting_offsets_by_timestamp_strategy: NoMatch = NoMatch.ERROR
    subject: Names | None = None

    def subjects(self) -> SubjectFilter | None:
        """Give the filter; raises UsageError for patterns that are none."""
        if self.subject is None:
            return None
        return SubjectFilter(pattern.encode() for pattern in self.subject)

    def first_ns(self) -> int:
        """Give the earliest time that is wanted."""
        return parse_time(self.starting_timestamp, "startingTimestamp", TIME_MIN)

    def last_ns(self) -> int:
        """Give the latest time that is wanted: `endingTimestamp` itself is not."""
        end = parse_time(self.ending_timestamp, "endingTimestamp", TIME_MAX)
        return end if not self.ending_timestamp else end - 1

    def first_seq(self) -> int:
        """Give the first sequence that is wanted."""
        if self.starting_offsets in ("", "earliest", "latest"):
            return 0
        return parse_sequence(self.starting_offsets, "startingOffsets", "earliest")

    def start_times(self) -> dict[str, int]:
        """Give the time at which each stream is begun that has one; raises UsageError."""
        option = "startingOffsetsByTimestamp"
        return parse_times(self.starting_offsets_by_timestamp, option)

    def end_times(self) -> dict[str, int]:
        """Give the time at which each stream ends that has one; raises UsageError."""
        return parse_times(self.ending_offsets_by_timestamp, "endingOffsetsByTimestamp")

    def starts_at_end(self) -> bool:
        """Tell whether a query that goes on begins with what comes next."""
        return self.starting_offsets == "latest"

    def end_seq(self) -> int:
        """Give the first sequence that is not wanted any more."""
        if self.ending_offsets in ("", "latest"):
            return SEQ_MAX
        return parse_sequence(self.ending_offsets, "endingOffsets", "latest")


def parse_sequence(text: str, option: str, word: str) -> int:
    """Read a sequence; raises UsageError."""
    if not text.isdecimal() or not 0 <= int(text) <= SEQ_MAX:
        raise UsageError(f"option {option}: {text!r} is neither {word!r} nor a sequence")
    return int(text)


def parse_times(text: str, option: str) -> dict[str, int]:
    """Read JSON with a time for each stream; gives Unix nanoseconds."""
    if not text:
        return {}
    try:
        named = msgspec.json.decode(text, type=dict[str, int | str])
    except msgspec.DecodeError as error:
        raise UsageError(f"option {option}: {text!r}: {error}") from None
    return {name: parse_time(str(time), option, TIME_MIN) for name, time in named.items()}


def parse_time(text: str, option: str, default: int) -> int:
    """Read a time, as RFC 3339 or as milliseconds since 1970; gives Unix nanoseconds."""
    if not text:
        return default
    if text.lstrip("-").isdecimal():
        return int(text) * 1_000_000
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"option {option}: {text!r} is no time, like 2026-07-20T12:30:00Z, "
            "nor milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    whole = moment.replace(microsecond=0)
    return round(whole.timestamp()) * _NS + moment.microsecond * 1000
