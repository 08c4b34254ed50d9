"""What a class looks like as a document: how each field is read, written and left out.

A document is a frozen msgspec.Struct whose every field has a default. Field names are the keys, in
the order in which they are written; class names stand in errors as the reference server's do.

    class Placement(msgspec.Struct, frozen=True):
        cluster: Annotated[str, OMIT_EMPTY] = ""
        tags: Annotated[tuple[str, ...], OMIT_EMPTY] = ()

Invariant: reading never changes a document. It fills a draft, a plain dictionary, so that a
repeated key is read over the first value, as in the reference server. Numbers stay within the
bounds of their declared type.

Pure; any thread. Called by `codec`; modules that declare documents use the annotations.
"""

from __future__ import annotations

import functools
import types
import typing
from enum import StrEnum
from typing import Annotated, Any, Final, Protocol, Self

import msgspec

from penstock.errors import InternalError, InvalidDocument
from penstock.text.json.faults import Kind
from penstock.text.json.quick import (
    Quick,
    QuickArray,
    QuickFlag,
    QuickMap,
    QuickStruct,
    QuickText,
    QuickWhole,
    QuickWord,
)
from penstock.text.json.scan import Node
from penstock.text.json.write import (
    ArrayPlan,
    Encoded,
    FlagPlan,
    MapPlan,
    OptionalPlan,
    Plan,
    StructPlan,
    TextPlan,
    TimePlan,
    WholePlan,
    WordPlan,
)
from penstock.text.quoting import quoted_bytes
from penstock.text.times import ZERO_TIME, Instant, parse_instant

OMIT_EMPTY: Final = "omit empty"
"""Marks a field that is not written where it is empty, zero or false."""

POINTER: Final = "pointer"
"""Marks the items of an array that may be null."""


class Integer(msgspec.Struct, frozen=True):
    """Marks a whole number with the name and the bounds of its type."""

    go_type: str
    low: int
    high: int


def _signed(go_type: str, bits: int) -> Integer:
    return Integer(go_type, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


Int = Annotated[int, _signed("int", 64)]
Int32 = Annotated[int, _signed("int32", 32)]
Int64 = Annotated[int, _signed("int64", 64)]
Uint64 = Annotated[int, Integer("uint64", 0, 2**64 - 1)]
DurationNs = Annotated[int, _signed("time.Duration", 64)]


class Word(StrEnum):
    """A word of a fixed list; the first one stands where nothing was said."""

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read it from JSON text, which must be the word between quotes and nothing else."""
        for each in cls:
            if raw == b'"%s"' % each.encode():
                return each
        raise InvalidDocument(f"can not unmarshal {quoted_bytes(raw)}")


class Shape(Protocol):
    """How values of one type are read and written."""

    @property
    def go_type(self) -> str:
        """The name of the type in errors."""
        ...

    def zero(self) -> Any:
        """Return the draft of an absent value."""
        ...

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        """Return the draft of a request's value, read over the draft that was there before."""
        ...

    def finish(self, draft: Any) -> Any:
        """Return the value of a draft."""
        ...

    @property
    def plan(self) -> Plan:
        """How values are written."""
        ...

    @property
    def quick(self) -> Quick | None:
        """How values are read that are written as nearly every client does; None for no such."""
        ...


class Reading(msgspec.Struct):
    """One pass over a request: what it is for, and where in it we are."""

    root: str
    strict: bool
    path: list[str] = msgspec.field(default_factory=list)

    def mismatch(self, found: str, go_type: str) -> InvalidDocument:
        """Say that something else was expected here."""
        if not self.path:
            place = "Go value"
        else:
            steps = (step.replace("~", "~0").replace("/", "~1") for step in self.path)
            place = f"{self.root}.{'.'.join(steps)}"
            # The reference server takes whatever looks like the index of an array for one.
            if not self.path[-1].isdecimal():
                place = f"Go struct field {place}"
        return InvalidDocument(f"json: cannot unmarshal {found} into {place} of type {go_type}")


class _Scalar:
    """What texts, flags and words have in common: a draft is the value itself."""

    def finish(self, draft: Any) -> Any:
        return draft


class _Whole(_Scalar, msgspec.Struct, frozen=True):
    bounds: Integer

    @property
    def go_type(self) -> str:
        return self.bounds.go_type

    @property
    def plan(self) -> Plan:
        return WholePlan()

    @property
    def quick(self) -> Quick:
        return QuickWhole(self.bounds.low, self.bounds.high)

    def zero(self) -> int:
        return 0

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        if node.kind is Kind.NULL:
            return old
        if node.kind is not Kind.NUMBER:
            raise reading.mismatch(str(node.kind), self.go_type)
        raw = node.raw
        # Longer than any number of 64 bits: not worth the work of reading it.
        number = int(raw) if len(raw) <= 20 and raw.lstrip(b"-").isdigit() else None
        if number is None or not self.bounds.low <= number <= self.bounds.high:
            raise reading.mismatch(f"number {raw.decode()}", self.go_type)
        return number


class _Text(_Scalar):
    go_type = "string"
    plan: Plan = TextPlan()
    quick: Quick | None = QuickText()

    def zero(self) -> str:
        return ""

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        if node.kind is Kind.NULL:
            return old
        if node.kind is not Kind.STRING:
            raise reading.mismatch(str(node.kind), self.go_type)
        return node.text


class _Flag(_Scalar):
    go_type = "bool"
    plan: Plan = FlagPlan()
    quick: Quick | None = QuickFlag()

    def zero(self) -> bool:
        return False

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        if node.kind is Kind.NULL:
            return old
        if node.kind is not Kind.BOOL:
            raise reading.mismatch(str(node.kind), self.go_type)
        return node.raw == b"true"


class _Time(_Scalar):
    go_type = "time.Time"
    plan: Plan = TimePlan()
    quick: Quick | None = None

    def zero(self) -> Instant:
        return ZERO_TIME

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        if node.kind is Kind.NULL:
            return old
        if node.kind is not Kind.STRING:
            raise reading.mismatch(str(node.kind), self.go_type)
        return parse_instant(node.text)


class _OneOf(_Scalar, msgspec.Struct, frozen=True):
    words: type[Word]

    @property
    def go_type(self) -> str:
        return f"server.{self.words.__name__}"

    @property
    def plan(self) -> Plan:
        return WordPlan(self.zero())

    @property
    def quick(self) -> Quick:
        return QuickWord({each.encode(): each for each in self.words})

    def zero(self) -> Word:
        return next(iter(self.words))

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        return self.words.from_json(node.raw)


def _read_alike(item: Shape, node: Node) -> list[Any] | None:
    """Read all that is in an array or object at once; None where it is to be one by one.

    Of texts and numbers there may be very many.
    """
    if isinstance(item, _Text):
        return node.texts()
    if not isinstance(item, _Whole):
        return None
    found = node.wholes()
    bounds = item.bounds
    return found if found and bounds.low <= min(found) and max(found) <= bounds.high else None


class _Optional(msgspec.Struct, frozen=True):
    inner: Shape

    @property
    def go_type(self) -> str:
        return self.inner.go_type

    @property
    def plan(self) -> Plan:
        return OptionalPlan(self.inner.plan)

    @property
    def quick(self) -> Quick | None:
        return self.inner.quick

    def zero(self) -> None:
        return None

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        if node.kind is Kind.NULL:
            return None
        return self.inner.read(node, self.inner.zero() if old is None else old, reading)

    def finish(self, draft: Any) -> Any:
        return None if draft is None else self.inner.finish(draft)


class _Array(msgspec.Struct, frozen=True):
    item: Shape
    is_pointer: bool

    @property
    def go_type(self) -> str:
        return f"[]{'*' if self.is_pointer else ''}{self.item.go_type}"

    @property
    def plan(self) -> Plan:
        return ArrayPlan(self.item.plan)

    @property
    def quick(self) -> Quick | None:
        item = self.item.quick
        return None if item is None else QuickArray(item)

    def zero(self) -> list[Any]:
        return []

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        if node.kind is Kind.NULL:
            return []
        if node.kind is not Kind.ARRAY:
            raise reading.mismatch(str(node.kind), self.go_type)
        drafts = _read_alike(self.item, node)
        if drafts is not None:
            return drafts
        drafts = []
        for place, item in enumerate(node.items):
            reading.path.append(str(place))
            # Items go on with what stood in their place before.
            before = old[place] if place < len(old) else self.item.zero()
            drafts.append(self.item.read(item, before, reading))
            reading.path.pop()
        return drafts

    def finish(self, draft: Any) -> Any:
        if isinstance(self.item, _Scalar):
            return tuple(draft)
        return tuple(map(self.item.finish, draft))


class _Map(msgspec.Struct, frozen=True):
    """Values by name."""

    item: Shape

    @property
    def go_type(self) -> str:
        return f"map[string]{self.item.go_type}"

    @property
    def plan(self) -> Plan:
        return MapPlan(self.item.plan)

    @property
    def quick(self) -> Quick | None:
        item = self.item.quick
        return None if item is None else QuickMap(item)

    def zero(self) -> dict[str, Any]:
        return {}

    def read(self, node: Node, old: Any, reading: Reading) -> Any:
        if node.kind is Kind.NULL:
            return {}
        if node.kind is not Kind.OBJECT:
            raise reading.mismatch(str(node.kind), self.go_type)
        draft = dict(old)
        drafts = _read_alike(self.item, node)
        if drafts is not None:
            draft.update(zip(node.keys, drafts, strict=True))
            return draft
        for key, item in zip(node.keys, node.items, strict=True):
            reading.path.append(key)
            draft[key] = self.item.read(item, self.item.zero(), reading)
            reading.path.pop()
        return draft

    def finish(self, draft: Any) -> Any:
        if isinstance(self.item, _Scalar):
            return draft
        return {key: self.item.finish(value) for key, value in draft.items()}


class _Field(msgspec.Struct, frozen=True):
    shape: Shape
    omit_empty: bool


class StructShape(msgspec.Struct, frozen=True):
    """A document, or one within another."""

    made: type[msgspec.Struct]
    fields: dict[str, _Field]
    names_folded: dict[str, str]
    plan: StructPlan
    quick: QuickStruct

    @property
    def go_type(self) -> str:
        """The name of the type in errors."""
        return f"server.{self.made.__name__}"

    def zero(self) -> dict[str, Any]:
        """Return an empty draft."""
        return {}

    def read(self, node: Node, old: Any, reading: Reading) -> dict[str, Any]:
        """Return a draft with what is in an object, over what was there before."""
        if node.kind is Kind.NULL:
            return dict(old)
        if node.kind is not Kind.OBJECT:
            raise reading.mismatch(str(node.kind), self.go_type)
        draft = dict(old)
        for key, item in zip(node.keys, node.items, strict=True):
            name = key if key in self.fields else self.names_folded.get(_folded(key))
            if name is None:
                if reading.strict:
                    raise InvalidDocument(f"json: unknown field {quoted_bytes(key.encode())}")
                continue
            shape = self.fields[name].shape
            reading.path.append(key)
            draft[name] = shape.read(item, draft.get(name, shape.zero()), reading)
            reading.path.pop()
        return draft

    def finish(self, draft: Any) -> Any:
        """Return the document of a draft."""
        values = {name: self.fields[name].shape.finish(value) for name, value in draft.items()}
        return self.made(**values)


TEXT: Final[Shape] = _Text()
"""The shape of a string."""

_SCALARS: Final[dict[Any, Shape]] = {str: TEXT, bool: _Flag(), Instant: _Time()}


@functools.cache
def shape_of(made: type[msgspec.Struct]) -> StructShape:
    """Return the shape of a class of documents."""
    hints = typing.get_type_hints(made, include_extras=True)
    fields = {
        name: _Field(_shape(hints[name]), OMIT_EMPTY in _marks(hints[name]))
        for name in made.__struct_fields__
    }
    # Where names differ in nothing but case the first one counts.
    folded = {_folded(name): name for name in reversed(fields)}
    plan = StructPlan([(name, each.omit_empty, each.shape.plan) for name, each in fields.items()])
    quick = QuickStruct(made, {name.encode(): each.shape.quick for name, each in fields.items()})
    return StructShape(made, fields, folded, plan, quick)


def _marks(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()


def _shape(hint: Any) -> Shape:
    integers = [mark for mark in _marks(hint) if isinstance(mark, Integer)]
    if integers:
        return _Whole(integers[0])
    bare = typing.get_args(hint)[0] if _marks(hint) else hint
    if bare in _SCALARS:
        return _SCALARS[bare]
    # What is encoded before it is put into a document is never read.
    arguments = [each for each in typing.get_args(bare) if each is not Encoded]
    if Encoded in typing.get_args(bare) and len(arguments) == 1:
        return _shape(arguments[0])
    if isinstance(bare, types.UnionType) or typing.get_origin(bare) is typing.Union:
        return _Optional(_shape(arguments[0]))
    if typing.get_origin(bare) is tuple:
        return _Array(_shape(arguments[0]), POINTER in _marks(arguments[0]))
    if typing.get_origin(bare) is dict:
        return _Map(_shape(arguments[1]))
    if isinstance(bare, type) and issubclass(bare, Word):
        return _OneOf(bare)
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return shape_of(bare)
    raise InternalError(f"a document cannot hold {hint}")


def _folded(key: str) -> str:
    # Letters of any case are one; so are the two characters beyond ASCII that fold onto letters.
    return key.lower().replace("\u017f", "s") if not key.isascii() else key.lower()
