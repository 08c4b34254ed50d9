from typing import final

from penstock.documents.kinds import Kind

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
        """Give what the strings in an array or object say; None where not all are strings."""
    def wholes(self) -> list[int] | None:
        """Give the whole numbers in an array or object; None where not all are surely such."""

def scan(data: bytes, start: int = 0) -> tuple[Node | None, int]:
    """Read one value; give it and where it ends, None where only white space is left.

    Raises SyntaxFault and UnfinishedText.
    """
