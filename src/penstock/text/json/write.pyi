from collections.abc import Iterable, Mapping
from typing import Any, final

class Writer:
    """Text that grows."""

    @property
    def size(self) -> int: ...
    def take(self) -> bytes:
        """Return the text, and begin a new one."""

@final
class Encoded:
    """A value that is JSON already; empty if there is none."""

    @property
    def text(self) -> bytes: ...
    def __init__(self, text: bytes) -> None: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Plan:
    """Writes the values of one type."""

    def encode(self, value: Any) -> bytes:
        """Return a value as JSON text."""

@final
class TextPlan(Plan):
    """Strings."""

@final
class WholePlan(Plan):
    """Whole numbers."""

@final
class FlagPlan(Plan):
    """Flags."""

@final
class TimePlan(Plan):
    """Instants."""

@final
class WordPlan(Plan):
    """Words of a list, of which the first is the empty one."""

    def __init__(self, zero: str) -> None: ...

@final
class OptionalPlan(Plan):
    """Values that may be None, which is null."""

    def __init__(self, inner: Plan) -> None: ...

@final
class ArrayPlan(Plan):
    """Values of one type in their order."""

    def __init__(self, item: Plan) -> None: ...

@final
class MapPlan(Plan):
    """Values of one type by name."""

    def __init__(self, item: Plan) -> None: ...

@final
class StructPlan(Plan):
    """Documents of one class."""

    def __init__(self, fields: Iterable[tuple[str, bool, Plan]]) -> None:
        """`fields` are (name, whether it is left out if empty, plan), in their order."""

def encode_after(
    start: bytes, documents: tuple[Any, ...], plans: Mapping[type[Any], StructPlan]
) -> bytes:
    """Return one object: `start`, its opening brace and first fields, then those of documents.

    `plans` has the StructPlan of each class of documents. A document that is JSON already has at
    least one field.
    """
