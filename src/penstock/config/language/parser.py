"""The configuration language: files to values that know their place.

    {"port": Value(4222, location=SourceLocation("server.conf", 1, 0)), "tls": Value({…}, …)}

A value in a map is placed where its key stands, a value in an array where it stands itself. Maps
keep the order of the file; a key given twice counts with its last value. `$NAME` is looked up among
the keys seen so far, innermost map first, then in the environment; `include` reads another file's
keys into the map where it stands, relative to the file that says so.

Bounded: bytes of a file, depth of includes and of nesting, number of values. Reads the files that
it is asked for and nothing else; the environment is an argument.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from penstock import limits
from penstock.config.language.lexer import Lexer
from penstock.config.language.scanner import Item, Kind
from penstock.errors import ConfigError, ConfigSyntaxError

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_SUFFIXES: Final = {
    letter + tail: base**power
    for power, letter in enumerate("kmgtpe", start=1)
    for tail, base in (("", 1000), ("b", 1024), ("i", 1024), ("ib", 1024))
} | {"": 1}
_TRUE: Final = frozenset({"true", "yes", "on"})
# Such a password hash starts with the sign that a variable starts with.
_BCRYPT: Final = "2a$"
_ENVIRONMENT_KEY: Final = "value"


class SourceLocation(msgspec.Struct, frozen=True):
    """Where something stands in a file."""

    file: str
    line: int
    column: int


NOWHERE: Final = SourceLocation("", 0, 0)

_TYPE_NAMES: Final = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    dict: "a map",
    list: "an array",
    datetime: "a date",
}


class Value(msgspec.Struct):
    """One value of a configuration; `is_variable` once something referred to its key.

    `size` counts the values in it, those that variables brought in as often as they came.
    """

    value: Plain
    location: SourceLocation
    is_variable: bool = False
    size: int = 1

    def error(self, reason: str) -> ConfigError:
        """Make the error that says what is wrong with this value."""
        return ConfigError(self.location.file, self.location.line, self.location.column, reason)

    @property
    def type_name(self) -> str:
        """What people call this kind of value."""
        return _TYPE_NAMES[type(self.value)]


ConfigMap = dict[str, Value]
Plain = str | bool | int | float | datetime | ConfigMap | list[Value]


class _Budget(msgspec.Struct):
    """What one configuration may still use, over all its files."""

    values_left: int = limits.CONFIG_VALUES_MAX
    references: set[str] = msgspec.field(default_factory=set)


def parse_file(path: str, environ: Mapping[str, str]) -> ConfigMap:
    """Read a configuration file and all that it includes; raise ConfigError."""
    return _parse_file(path, environ, _Budget(), 0)


def parse_text(text: str, environ: Mapping[str, str], file: str = "") -> ConfigMap:
    """Read a configuration from text, whose includes are relative to `file`; raise ConfigError."""
    return _Parser(text, file, environ, _Budget(), 0).parse()


def _parse_file(path: str, environ: Mapping[str, str], budget: _Budget, depth: int) -> ConfigMap:
    if depth > limits.CONFIG_INCLUDE_DEPTH_MAX:
        raise ConfigError(path, 0, 0, "files include one another too deeply")
    text = read_text(path, limits.CONFIG_FILE_BYTES_MAX)
    return _Parser(text, path, environ, budget, depth).parse()


def read_text(path: str, bytes_max: int) -> str:
    """Read a file that configuration names, or raise ConfigError in the system's words."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(path, 0, 0, describe_open_error(path, error)) from error
    if len(data) > bytes_max:
        raise ConfigError(path, 0, 0, f"{path}: longer than {bytes_max} bytes")
    return data.decode("utf-8", "surrogateescape")


def describe_open_error(path: str, error: Exception) -> str:
    """Say why a file could not be read, as the reference server says it."""
    number = getattr(error, "errno", None)
    if number == errno.EISDIR:
        return f"read {path}: is a directory"
    return f"open {path}: {os.strerror(number).lower() if number else 'invalid argument'}"


class _Parser:
    """Turns the items of one text into one map."""

    def __init__(
        self, text: str, file: str, environ: Mapping[str, str], budget: _Budget, depth: int
    ) -> None:
        self._lexer = Lexer(text, file)
        self._file = file
        self._environ = environ
        self._budget = budget
        self._depth = depth
        self._open: list[ConfigMap | list[Value]] = [{}]
        self._keys: list[Item] = []

    def parse(self) -> ConfigMap:
        previous: Item | None = None
        for item in self._lexer.items():
            if item.kind is Kind.END:
                self._check_end(previous, item)
                break
            previous = item
            self._take(item)
        outermost = self._open[0]
        assert isinstance(outermost, dict)
        return outermost

    def _check_end(self, previous: Item | None, item: Item) -> None:
        # A brace that closes the whole file may come out as a last key.
        if previous is not None and previous.kind is Kind.KEY and previous.text != "}":
            place = f"{self._file}:{item.line}:{item.column}"
            raise ConfigSyntaxError(
                self._file, item.line, item.column, f"config is invalid ({place})"
            )

    def _take(self, item: Item) -> None:
        match item.kind:
            case Kind.KEY:
                self._keys.append(item)
            case Kind.MAP_START:
                self._open.append({})
            case Kind.ARRAY_START:
                self._open.append([])
            case Kind.MAP_END | Kind.ARRAY_END:
                self._close(item)
            case Kind.INTEGER:
                self._set_integer(item)
            case Kind.INCLUDE:
                self._include(item)
            case Kind.VARIABLE:
                found = self._look_up(item)
                self._set(item, found.value, found.size)
            case _:
                self._set(item, self._scalar(item))

    def _scalar(self, item: Item) -> Plain:
        match item.kind:
            case Kind.BOOLEAN:
                return item.text.lower() in _TRUE
            case Kind.FLOAT:
                return float(item.text)
            case Kind.DATE:
                return self._date(item)
            case _:
                return item.text

    def _fail(self, item: Item, reason: str) -> ConfigSyntaxError:
        return ConfigSyntaxError(self._file, item.line, item.column, reason)

    def _set(self, item: Item, value: Plain, size: int = 1) -> None:
        self._budget.values_left -= size
        if self._budget.values_left < 0:
            raise self._fail(item, "the configuration has too many values")
        into = self._open[-1]
        if isinstance(into, list):
            into.append(Value(value, SourceLocation(self._file, item.line, item.column), size=size))
            return
        key = self._keys.pop()
        # Removed first, so that a key that is given twice has the position of the last.
        into.pop(key.text, None)
        into[key.text] = Value(value, SourceLocation(self._file, key.line, key.column), size=size)

    def _close(self, item: Item) -> None:
        closed = self._open.pop()
        values = closed.values() if isinstance(closed, dict) else closed
        size = sum(value.size for value in values)
        # Its values have been paid for one by one.
        self._budget.values_left += size
        self._set(item, closed, 1 + size)

    def _set_integer(self, item: Item) -> None:
        digits = item.text.rstrip("kKmMgGtTpPeEbBiI")
        try:
            number = int(digits)
        except ValueError:
            raise self._fail(item, f"expected integer, but got '{item.text}'") from None
        factor = _SUFFIXES.get(item.text[len(digits) :].lower())
        if factor is None:
            # The reference server drops such a value (1kbb) and leaves its key waiting.
            return
        if not digits.isascii():
            raise self._fail(item, f"expected integer, but got '{item.text}'")
        if not INT64_MIN <= number * factor <= INT64_MAX:
            raise self._fail(item, f"integer '{item.text}' is out of the range")
        self._set(item, number * factor)

    def _date(self, item: Item) -> datetime:
        try:
            return datetime.strptime(item.text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            reason = f"expected Zulu formatted DateTime, but got '{item.text}'"
            raise self._fail(item, reason) from None

    def _look_up(self, item: Item) -> Value:
        name = item.text
        if name.startswith(_BCRYPT):
            return Value("$" + name, NOWHERE)
        for scope in reversed(self._open):
            if isinstance(scope, dict) and (known := scope.get(name)) is not None:
                known.is_variable = True
                return known
        found = self._look_up_environment(item)
        if found is None:
            reason = f"variable reference for '{name}' on line {item.line} can not be found"
            raise self._fail(item, reason)
        return found

    def _look_up_environment(self, item: Item) -> Value | None:
        """Find a variable of the environment, whose text is read as a value is."""
        name = item.text
        prefix = f"variable reference for '{name}' on line {item.line} could not be parsed: "
        if name in self._budget.references:
            raise self._fail(item, f"{prefix}variable reference cycle for '{name}'")
        text = self._environ.get(name)
        if text is None:
            return None
        self._budget.references.add(name)
        try:
            inner = _Parser(
                f"{_ENVIRONMENT_KEY}={text}", "", self._environ, self._budget, self._depth
            )
            return inner.parse().get(_ENVIRONMENT_KEY)
        except ConfigError as error:
            raise self._fail(item, prefix + error.reason) from None
        finally:
            self._budget.references.discard(name)

    def _include(self, item: Item) -> None:
        path = os.path.normpath(f"{os.path.dirname(self._file) or '.'}/{item.text}")
        try:
            included = _parse_file(path, self._environ, self._budget, self._depth + 1)
        except ConfigError as error:
            reason = f"error parsing include file '{item.text}', {error.reason}"
            raise ConfigSyntaxError(error.file, error.line, error.column, reason) from error
        into = self._open[-1]
        # Only where a key may stand does the lexer see the keyword.
        assert isinstance(into, dict)
        into.update(included)
