from typing import final

from penstock.text.json.faults import Kind

@final
class Node:
    """A value that stands in a text."""

    @property
    def kind(self) -> Kind: ...
    @property
    def raw(self) -> bytes:
        """Its text as it was sent."""
    @property
    def text(self) -> str:
        """What a string says; bytes and surrogates that are no text become U+FFFD."""
    @property
    def keys(self) -> list[str]:
        """The keys of an object, in their order."""
    @property
    def items(self) -> list[Node]:
        """What is in an array or object, in its order; raises InvalidDocument beyond the bound."""
    def texts(self) -> list[str] | None:
        """Return the strings of an array or object, or None if a value is no string."""
    def wholes(self) -> list[int] | None:
        """Return the whole numbers of an array or object, or None if a value may be no such."""

def scan(data: bytes, start: int = 0) -> tuple[Node | None, int]:
    """Read one value; give it and where it ends, None where only white space is left.

    Raises SyntaxFault and UnfinishedText.
    """
