"""Options of the formats: how they are parsed, and the groups that reading formats share.

Spark passes options as texts under names of any case. A group is a Struct whose field names, in
camel case, are the options' names. A format reads its groups; an option that belongs to none is
refused with the nearest name, because Spark itself ignores a misspelt option. Pure.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec

from penstock.errors import UsageError
from penstock.format.reader import SEQ_MAX, TIME_MAX, TIME_MIN
from penstock.spark import schema
from penstock.spark.schema import Column
from penstock.subjects import SubjectFilter

_SUFFIXES = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?)(?P<unit>ms|s|m|h|d)")

_REPEATED = "option."
"""The prefix under which Spark repeats the options of a catalog's table."""

_OF_TABLES = {
    "provider",
    "location",
    "owner",
    "external",
    "comment",
    "collation",
    "is_managed_location",
    "table_type",
}
"""Properties of a catalog's table, which Spark adds to its options."""

SHARED = {"path", "checkpointlocation"}
"""Options that Spark itself adds for any format."""

Group = TypeVar("Group", bound=msgspec.Struct)


class Options:
    """The options of one use of a format; see the module."""

    def __init__(
        self, format_name: str, given: Mapping[str, str], aliases: Mapping[str, str] | None = None
    ) -> None:
        """Take options as given; `aliases` maps other names, in lower case, to options."""
        self._format = format_name
        self._aliases = aliases or {}
        self._given: dict[str, tuple[str, str]] = {}
        is_table = any(name.lower().startswith(_REPEATED) for name in given)
        for name, text in given.items():
            if name.lower().startswith(_REPEATED) or (is_table and name.lower() in _OF_TABLES):
                continue
            meant = self._aliases.get(name.lower(), name).lower()
            known = self._given.setdefault(meant, (name, text))
            if known[1] != text:
                raise UsageError(
                    f"{format_name}: options {known[0]} and {name} are one and the same, "
                    "with different values"
                )
        self._known: dict[str, str] = {}

    def group(self, kind: type[Group]) -> Group:
        """Return a group of options; raise UsageError that names a wrong one."""
        values: dict[str, Any] = {}
        for field in msgspec.structs.fields(kind):
            name = field.encode_name
            self._known[name.lower()] = name
            if name.lower() in self._given:
                shown, text = self._given[name.lower()]
                values[name] = self._convert(shown, text, field.type)
        try:
            return msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            raise UsageError(f"{self._format}: {error}") from None

    def _convert(self, name: str, text: str, kind: Any) -> Any:
        try:
            return msgspec.convert(text, kind, strict=False, dec_hook=_of_our_own)
        except (msgspec.ValidationError, ValueError) as error:
            raise UsageError(f"{self._format}: option {name}: {text!r}: {error}") from None

    def finish(self) -> None:
        """Raise UsageError if an option belongs to no group that was read."""
        for meant, (name, _) in self._given.items():
            if meant not in self._known and meant not in SHARED:
                raise UsageError(self._unknown(name))

    def _unknown(self, name: str) -> str:
        names = {**self._known, **self._aliases}
        near = difflib.get_close_matches(name.lower(), list(names), n=1)
        listed = ", ".join(sorted(self._known.values()))
        hint = f"; did you mean {names[near[0]]}?" if near else "."
        return f"{self._format}: no option {name!r}{hint} There are: {listed}"


def hint_of(given: Mapping[str, str]) -> str:
    """Return a hint for an error if there are no options at all; else ""."""
    if given:
        return ""
    return "; a table of the catalog is read WITH its options: FROM orders WITH (`stream` = 'A')"


class Size(int):
    """A number of bytes, as in 1024, 64k, 256m, 2g."""


class Duration(float):
    """A number of seconds, as in 250ms, 30s, 15m, 2h."""


class Names(tuple[str, ...]):
    """Several names, separated by commas."""

    __slots__ = ()


def _of_our_own(kind: type, text: Any) -> Any:
    if kind is Size:
        return _size(text)
    if kind is Names:
        return _names(text)
    if kind is Duration:
        return _duration(text)
    raise NotImplementedError(kind)


def _size(text: str) -> Size:
    number = text.strip().lower().removesuffix("b")
    factor = _SUFFIXES.get(number[-1:], 1)
    digits = number[:-1] if factor > 1 else number
    if not digits.isdecimal() or int(digits) * factor < 1:
        raise ValueError("a size is a number of bytes, as in 1024, 64k, 256m or 2g")
    return Size(int(digits) * factor)


def _duration(text: str) -> Duration:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("a duration is a number with its unit, as in 250ms, 30s, 15m or 2h")
    return Duration(float(found["number"]) * _SECONDS[found["unit"]])


def _names(text: str) -> Names:
    names = Names(name for each in text.split(",") if (name := each.strip()))
    if not names:
        raise ValueError("a name is missing")
    return names


_NS = 1_000_000_000
Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class OnCorruptRecord(StrEnum):
    """What a scan does when it meets damage."""

    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"


class ValueFormat(StrEnum):
    """The type of the payload's column."""

    BINARY = "binary"
    STRING = "string"


class PayloadCompression(StrEnum):
    """How publishers compressed the payloads."""

    NONE = "none"
    ZLIB = "zlib"


class SchemaStyle(StrEnum):
    """Which names the columns have: ours, or those of the official NATS connector."""

    PENSTOCK = "penstock"
    OFFICIAL = "official"


class NoMatch(StrEnum):
    """What happens if a stream has no message from a given time on."""

    ERROR = "error"
    LATEST = "latest"


class Content(msgspec.Struct, frozen=True, rename="camel"):
    """Options: which columns a table has if the user gives no schema."""

    include_headers: bool = True
    include_raw_headers: bool = False
    columns: Names | None = None
    value_format: ValueFormat = ValueFormat.BINARY
    payload_compression: PayloadCompression = PayloadCompression.NONE
    schema_style: SchemaStyle = SchemaStyle.PENSTOCK

    def known(self, ours: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the known columns in the chosen style."""
        return ours if self.schema_style is SchemaStyle.PENSTOCK else schema.OFFICIAL_COLUMNS

    def choose(self, known: tuple[Column, ...]) -> list[Column]:
        """Return the columns of the table; raise UsageError for unknown ones."""
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
    """Options: how large Arrow batches are."""

    arrow_batch_rows: Positive = 16_384
    arrow_batch_bytes: Size = Size(8 * 1024 * 1024)


class Rules(msgspec.Struct, frozen=True):
    """Which losses a query accepts."""

    fail_on_data_loss: bool = True
    allow_recreated_stream: bool = False


class Following(msgspec.Struct, frozen=True, rename="camel"):
    """Options: how a streaming query reads."""

    max_offsets_per_trigger: Natural = 0
    max_bytes_per_trigger: Size | None = None
    min_offsets_per_trigger: Natural = 0
    max_trigger_delay: Duration = Duration(15 * 60)
    fail_on_data_loss: bool = True
    allow_recreated_stream: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError if the least is above the most."""
        if 0 < self.max_offsets_per_trigger < self.min_offsets_per_trigger:
            raise ValueError("minOffsetsPerTrigger is above maxOffsetsPerTrigger")

    @property
    def rules(self) -> Rules:
        """Which losses a query accepts."""
        return Rules(self.fail_on_data_loss, self.allow_recreated_stream)


class Range(msgspec.Struct, frozen=True, rename="camel"):
    """Options: which messages are read. A time counts over a sequence, as with Kafka's options."""

    starting_offsets: str = ""
    ending_offsets: str = ""
    starting_timestamp: str = ""
    ending_timestamp: str = ""
    starting_offsets_by_timestamp: str = ""
    ending_offsets_by_timestamp: str = ""
    starting_offsets_by_timestamp_strategy: NoMatch = NoMatch.ERROR
    subject: Names | None = None

    def subjects(self) -> SubjectFilter | None:
        """Return the filter of subjects, or None; raise UsageError for a wrong pattern."""
        if self.subject is None:
            return None
        return SubjectFilter(pattern.encode() for pattern in self.subject)

    def first_ns(self) -> int:
        """Return the earliest time that is read."""
        return parse_time(self.starting_timestamp, "startingTimestamp", TIME_MIN)

    def last_ns(self) -> int:
        """Return the latest time that is read: `endingTimestamp` itself is not."""
        end = parse_time(self.ending_timestamp, "endingTimestamp", TIME_MAX)
        return end if not self.ending_timestamp else end - 1

    def first_seq(self) -> int:
        """Return the first sequence that is read."""
        if self.starting_offsets in ("", "earliest", "latest"):
            return 0
        return parse_sequence(self.starting_offsets, "startingOffsets", "earliest")

    def start_times(self) -> dict[str, int]:
        """Return the starting times by stream; raise UsageError."""
        option = "startingOffsetsByTimestamp"
        return parse_times(self.starting_offsets_by_timestamp, option)

    def end_times(self) -> dict[str, int]:
        """Return the ending times by stream; raise UsageError."""
        return parse_times(self.ending_offsets_by_timestamp, "endingOffsetsByTimestamp")

    def starts_at_end(self) -> bool:
        """Return True if a streaming query begins at the end of the stream."""
        return self.starting_offsets == "latest"

    def end_seq(self) -> int:
        """Return the first sequence that is not read any more."""
        if self.ending_offsets in ("", "latest"):
            return SEQ_MAX
        return parse_sequence(self.ending_offsets, "endingOffsets", "latest")


def parse_sequence(text: str, option: str, word: str) -> int:
    """Return a sequence from text; raise UsageError."""
    if not text.isdecimal() or not 0 <= int(text) <= SEQ_MAX:
        raise UsageError(f"option {option}: {text!r} is neither {word!r} nor a sequence")
    return int(text)


def parse_times(text: str, option: str) -> dict[str, int]:
    """Return Unix nanoseconds by stream, from JSON; raise UsageError."""
    if not text:
        return {}
    try:
        named = msgspec.json.decode(text, type=dict[str, int | str])
    except msgspec.DecodeError as error:
        raise UsageError(f"option {option}: {text!r}: {error}") from None
    return {name: parse_time(str(time), option, TIME_MIN) for name, time in named.items()}


def parse_time(text: str, option: str, default: int) -> int:
    """Return Unix nanoseconds of a time, as RFC 3339 or as milliseconds since 1970; raise
    UsageError."""
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
