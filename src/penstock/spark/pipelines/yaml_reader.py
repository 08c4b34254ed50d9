"""YAML read into Structs, so that every error has its line and its key.

A document is data for a class. An unknown key is refused with the nearest name. A repeated key is
refused, and so are anchors, which can make a small text very large. The lines of all parts are
kept, for errors that are found later. Pure.
"""

from __future__ import annotations

import contextlib
import difflib
import types
from collections.abc import Iterator
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from penstock.errors import UsageError
from penstock.limits import PIPELINE_FILE_BYTES_MAX

T = TypeVar("T")


class DocumentError(UsageError):
    """Something in a document is wrong; `place` says where."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}")
        self.place = place


class DocumentLines:
    """The lines of a document's parts, by their paths: `flows.totals.steps[0].filter`."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: dict[str, int] = {}

    def note(self, path: str, node: yaml.Node) -> None:
        """Remember the line of a part."""
        self._lines[path] = node.start_mark.line + 1

    def at(self, path: str) -> str:
        """Return file, line and path of a part; a part that is not in the file is at line 1."""
        return f"{self._file}:{self._lines.get(path, 1)}: {path}"

    @contextlib.contextmanager
    def telling(self, path: str) -> Iterator[None]:
        """Raise a UsageError from within as a DocumentError with the line."""
        try:
            yield
        except DocumentError:
            raise
        except UsageError as error:
            raise DocumentError(self.at(path), str(error)) from None


def read_yaml(text: str, file: str, kind: type[T]) -> tuple[T, DocumentLines]:
    """Return a document as a class, and its lines; raise UsageError."""
    if len(text) > PIPELINE_FILE_BYTES_MAX:
        raise UsageError(f"{file}: more than {PIPELINE_FILE_BYTES_MAX} letters")
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise DocumentError(_place(file, event), "anchors are not known here")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise DocumentError(f"{file}:{line}", f"no YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{file}: no YAML: {str(error).splitlines()[0]}") from None
    if node is None:
        raise DocumentError(f"{file}:1", "the file is empty")
    reader = _Reader(file)
    return reader.value(node, kind, ""), reader.lines


def _place(file: str, at: Any, path: str = "") -> str:
    where = f"{file}:{at.start_mark.line + 1}"
    return f"{where}: {path}" if path else where


class _Reader:
    """Converts a document to a class, by the types of its fields."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.lines = DocumentLines(file)

    def value(self, node: yaml.Node, kind: Any, path: str) -> Any:
        """Return the value of a node."""
        self.lines.note(path, node)
        if get_origin(kind) in (Union, types.UnionType):
            every = [each for each in get_args(kind) if each is not types.NoneType]
            # Of a text and a mapping, the node decides which is meant.
            is_mapping = isinstance(node, yaml.MappingNode)
            kind = next((each for each in every if (each is not str) == is_mapping), every[0])
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(node, kind, path)
        if get_origin(kind) is dict:
            return {
                key.value: self.value(each, get_args(kind)[1], _below(path, key.value))
                for key, each in self._entries(node, path)
            }
        if get_origin(kind) is list:
            return self._list(node, get_args(kind)[0], path)
        return self._scalar(node, kind, path)

    def _struct(self, node: yaml.Node, kind: type[msgspec.Struct], path: str) -> msgspec.Struct:
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        hints = get_type_hints(kind)
        values: dict[str, Any] = {}
        for key, each in self._entries(node, path):
            field = fields.get(key.value)
            if field is None:
                raise DocumentError(self._where(key, path), _unknown(key.value, list(fields)))
            values[field.name] = self.value(each, hints[field.name], _below(path, key.value))
        for name, field in fields.items():
            if field.required and field.name not in values:
                raise DocumentError(self._where(node, path), f"the key {name} is missing")
        return kind(**values)

    def _list(self, node: yaml.Node, kind: Any, path: str) -> list[Any]:
        if not isinstance(node, yaml.SequenceNode):
            raise DocumentError(self._where(node, path), "a list belongs here, as in [a, b]")
        return [self.value(each, kind, f"{path}[{place}]") for place, each in enumerate(node.value)]

    def _entries(self, node: yaml.Node, path: str) -> list[tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise DocumentError(self._where(node, path), "keys with values belong here")
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise DocumentError(self._where(key, path), "a key is a word")
            if key.value in seen:
                raise DocumentError(self._where(key, path), f"the key {key.value} is there twice")
            seen.add(key.value)
        entries: list[tuple[yaml.Node, yaml.Node]] = node.value
        return entries

    def _scalar(self, node: yaml.Node, kind: Any, path: str) -> Any:
        if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
            raise DocumentError(self._where(node, path), "one value belongs here")
        if kind is str:
            return node.value
        try:
            return msgspec.convert(node.value, kind, strict=False)
        except msgspec.ValidationError as error:
            raise DocumentError(self._where(node, path), f"{node.value!r}: {error}") from None

    def _where(self, node: yaml.Node, path: str) -> str:
        return _place(self._file, node, path)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"no key {name!r}{hint} There are: {', '.join(known)}"
