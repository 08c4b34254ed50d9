"""Schemas as text, read without a session, so that what is wrong is told before Spark starts.

    id long not null, price double, tags array<string>, place struct<lat: double, lon: double>

The types and their names are Spark's. A field with `not null` must be there in every message.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
_DEPTH_MAX = 32
"""Types within each other: enough for any document, and no stack is filled."""


def read_schema(given: str | Mapping[str, str] | StructType) -> StructType:
    """Read a schema, as text or as names with the texts of their types; raises UsageError."""
    if isinstance(given, StructType):
        return given
    if isinstance(given, Mapping):
        return StructType([_Reader(text).whole_field(name) for name, text in given.items()])
    return _Reader(given).whole_struct()


class _Reader:
    """Goes through a text from left to right."""

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
        if depth > _DEPTH_MAX:
            raise self._wrong(f"more than {_DEPTH_MAX} types within each other")
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
