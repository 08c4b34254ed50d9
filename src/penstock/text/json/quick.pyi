from typing import Any, final

import msgspec

class Quick:
    """Reads the values of one type."""

@final
class QuickText(Quick):
    """Strings."""

@final
class QuickFlag(Quick):
    """Flags."""

@final
class QuickWhole(Quick):
    """Whole numbers within bounds."""

    def __init__(self, low: int, high: int) -> None: ...

@final
class QuickWord(Quick):
    """Words of a list."""

    def __init__(self, words: dict[bytes, Any]) -> None: ...

@final
class QuickArray(Quick):
    """Values of one type in their order."""

    def __init__(self, item: Quick) -> None: ...

@final
class QuickMap(Quick):
    """Values of one type by name."""

    def __init__(self, item: Quick) -> None: ...

@final
class QuickStruct(Quick):
    """Documents of one class."""

    def __init__(self, made: type[msgspec.Struct], fields: dict[bytes, Quick | None]) -> None:
        """`fields` are readers by key; None for one whose values are never read here."""

    def read(self, body: bytes) -> Any:
        """Return the document in a body, or None if the careful way must look."""
