"""Schemas of payloads: read from text, and applied to JSON.

    id long not null, price double, tags array<string>, place struct<lat: double, lon: double>

The types and their names are Spark's. A text is parsed without a session, so that errors come
before Spark starts. A field with `not null` must be in every message.

A message fits if its payload is one JSON object, each field in it has the schema's type, and no
`not null` field is missing. A message that does not fit is never a row: it fails the flow with its
stream and sequence, or becomes a dead letter that keeps its payload, with the reason. All of it is
Spark's own expressions: no Python runs for each message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import UsageError
from penstock.limits import SCHEMA_DEPTH_MAX

if TYPE_CHECKING:
    from penstock.spark.pipelines.pipeline import Template

MESSAGE_COLUMNS = {
    "_stream": "stream",
    "_subject": "subject",
    "_sequence": "sequence",
    "_timestamp": "timestamp",
    "_headers": "headers",
}
"""The columns of a row's message, and their names in the format `penstock`."""

_SIMPLE: dict[str, DataType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "byte": ByteType(),
    "tinyint": ByteType(),
    "short": ShortType(),
    "smallint": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "bigint": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "binary": BinaryType(),
    "decimal": DecimalType(10, 0),
}
_TOKEN = re.compile(r"\s*(?:(\w+)|`([^`]+)`|([<>(),:]))")


def read_schema(given: str | Mapping[str, str] | StructType) -> StructType:
    """Return a schema from text, or from names with the texts of their types; raise UsageError."""
    if isinstance(given, StructType):
        return given
    if isinstance(given, Mapping):
        return StructType([_Reader(text).whole_field(name) for name, text in given.items()])
    return _Reader(given).whole_struct()


class _Reader:
    """Parses a text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._place = 0

    def whole_struct(self) -> StructType:
        fields = self._fields(depth=0, end="")
        self._expect("")
        return fields

    def whole_field(self, name: str) -> StructField:
        field = self._typed(name, depth=0)
        self._expect("")
        return field

    def _fields(self, *, depth: int, end: str) -> StructType:
        fields: list[StructField] = []
        while True:
            name = self._word("a field's name")
            if self._peek() == ":":
                self._place += 1
            field = self._typed(name, depth=depth)
            if any(field.name == each.name for each in fields):
                raise self._wrong(f"field {name} is there twice")
            fields.append(field)
            if self._peek() != ",":
                if end:
                    self._expect(end)
                return StructType(fields)
            self._place += 1

    def _typed(self, name: str, *, depth: int) -> StructField:
        kind = self._type(depth)
        if self._peek().lower() != "not":
            return StructField(name, kind)
        self._place += 1
        if self._word("null").lower() != "null":
            raise self._wrong("not what? A field that must be there is `not null`")
        return StructField(name, kind, nullable=False)

    def _type(self, depth: int) -> DataType:
        if depth > SCHEMA_DEPTH_MAX:
            raise self._wrong(f"more than {SCHEMA_DEPTH_MAX} types within each other")
        name = self._word("a type").lower()
        if name == "array":
            self._expect("<")
            array = ArrayType(self._type(depth + 1))
            self._expect(">")
            return array
        if name == "map":
            self._expect("<")
            key = self._type(depth + 1)
            self._expect(",")
            mapped = MapType(key, self._type(depth + 1))
            self._expect(">")
            return mapped
        if name == "struct":
            self._expect("<")
            return self._fields(depth=depth + 1, end=">")
        if name == "decimal" and self._peek() == "(":
            return self._decimal()
        if name not in _SIMPLE:
            listed = ", ".join([*_SIMPLE, "decimal(p,s)", "array<…>", "map<…,…>", "struct<…>"])
            raise self._wrong(f"no type {name!r}. There are: {listed}")
        return _SIMPLE[name]

    def _decimal(self) -> DecimalType:
        self._expect("(")
        digits = self._number()
        scale = 0
        if self._peek() == ",":
            self._place += 1
            scale = self._number()
        self._expect(")")
        if not 0 <= scale <= digits <= 38 or not digits:
            raise self._wrong("a decimal has up to 38 digits, and no more behind its point")
        return DecimalType(digits, scale)

    def _number(self) -> int:
        word = self._word("a number")
        if not word.isdecimal() or len(word) > 2:
            raise self._wrong(f"{word!r} is no number of digits")
        return int(word)

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _word(self, what: str) -> str:
        token = self._peek()
        if not token or token in "<>(),:":
            raise self._wrong(f"{what} is missing" + (f" before {token!r}" if token else ""))
        self._place += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._peek()
        if found != token:
            raise self._wrong(f"{token!r} is missing" if token else f"{found!r} cannot be there")
        self._place += 1

    def _wrong(self, what: str) -> UsageError:
        return UsageError(f"schema {self._text!r}: {what}")


def _tokens(text: str) -> list[str]:
    tokens = []
    place = 0
    text = text.rstrip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise UsageError(f"schema {text!r}: {text[place:].strip()[:1]!r} cannot be there")
        tokens.append(found[1] or found[2] or found[3])
        place = found.end()
    return tokens


_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_problem"}

REASON = "Penstock-Reason"
ORIGIN = {
    "Penstock-Stream": "_stream",
    "Penstock-Subject": "_subject",
    "Penstock-Sequence": "_sequence",
}
"""The headers of a dead letter's origin, and the columns that they come from."""


def parsed(messages: DataFrame, schema: StructType) -> DataFrame:
    """Return messages of the format `penstock` with their payload parsed: `_parsed`, `_problem`."""
    named = [F.col(column).alias(name) for name, column in MESSAGE_COLUMNS.items()]
    # Spark parses the first document of a text and ignores what follows. So the payload is
    # wrapped into another document, with an end that must be found.
    text = F.concat(F.lit('{"v":['), F.col("_data").cast("string"), F.lit('],"end":true}'))
    whole = StructType(
        [
            StructField("v", ArrayType(_nullable(schema))),
            StructField("end", BooleanType()),
            StructField("_problem", StringType()),
        ]
    )
    return (
        messages.select(*named, F.col("data").alias("_data"))
        .withColumn("_parsed", F.from_json(text, whole, _OPTIONS))
        .withColumn("_row", F.when(_is_one(), F.col("_parsed.v")[0]))
        .withColumn("_problem", _problem(schema))
    )


def fitting(read: DataFrame, schema: StructType, *, fail: bool) -> DataFrame:
    """Return the rows of messages that fit; others are left out, or fail the query."""
    is_good = F.col("_problem").isNull()
    if fail:
        told = F.concat_ws(
            "",
            F.lit("stream "),
            F.col("_stream"),
            F.lit(", sequence "),
            F.col("_sequence").cast("string"),
            F.lit(": "),
            F.col("_problem"),
        )
        is_good = F.when(is_good, F.lit(True)).otherwise(F.raise_error(told).cast("boolean"))
    fields = [F.col(f"_row.`{each.name}`").alias(each.name) for each in schema.fields]
    return read.where(is_good).select(*fields, *MESSAGE_COLUMNS)


def dead_letters(read: DataFrame, subject: Template) -> DataFrame:
    """Return the dead letters: messages that do not fit, as they are published."""
    origin = [
        item
        for header, column in ORIGIN.items()
        for item in (F.lit(header), F.array(F.col(column).cast("string")))
    ]
    reason = (F.lit(REASON), F.array(F.col("_problem")))
    own = F.map_filter(
        F.coalesce(F.col("_headers"), F.create_map().cast("map<string,array<string>>")),
        lambda name, _: ~name.startswith("Nats-") & ~name.startswith("Penstock-"),
    )
    return read.where(F.col("_problem").isNotNull()).select(
        subject.value().alias("subject"),
        F.col("_data").alias("data"),
        F.map_concat(own, F.create_map(*reason, *origin)).alias("headers"),
    )


def _is_one() -> Column:
    return (F.size("_parsed.v") == 1) & F.col("_parsed.end")


def _problem(schema: StructType) -> Column:
    """Return a column with the reason why a message does not fit; null if it does."""
    value = F.col("_row")
    missing = [each for each in schema.fields if not each.nullable]
    lacks = [value[each.name].isNull() for each in missing]
    is_bad = reduce(
        lambda one, other: one | other,
        [F.col("_parsed._problem").isNotNull(), value.isNull(), *lacks],
    )
    return F.when(is_bad, _reason(schema))


def _reason(schema: StructType) -> Column:
    # Spark does not say which field was wrong: one with a value in the document, and none in
    # the row.
    document = F.try_parse_json(F.col("_data").cast("string"))
    chosen = (
        F.when(document.isNull(), F.lit("the payload is no JSON"))
        .when(
            ~F.schema_of_variant(document).startswith("OBJECT"),
            F.lit("the payload is no JSON object"),
        )
        .when(F.col("_row").isNull(), F.lit("the payload is not one JSON object"))
    )
    for each in schema.fields:
        there = F.try_variant_get(document, _path(each.name), "string").isNotNull()
        in_row = F.col(f"_row.`{each.name}`").isNotNull()
        kind = each.dataType.simpleString()
        chosen = chosen.when(there & ~in_row, F.lit(f"field {each.name} does not fit {kind}"))
        if not each.nullable:
            chosen = chosen.when(~in_row, F.lit(f"field {each.name} is missing"))
    return chosen.otherwise(F.lit("the payload does not fit the schema"))


def _path(field: str) -> str:
    # A name with both kinds of quotes cannot be written in a path: it matches no field.
    return f"$['{field}']" if "'" not in field else '$["{}"]'.format(field.replace('"', ""))


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(each.name, each.dataType) for each in schema.fields])
