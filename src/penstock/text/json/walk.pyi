def value_at(data: bytes, start: int) -> tuple[int, int]:
    """Return where the next value starts and ends; both are the end if only white space is left.

    Raises SyntaxFault and UnfinishedText.
    """

def check_end(data: bytes, start: int) -> None:
    """Raise SyntaxFault if anything but white space follows."""
