def value_at(data: bytes, start: int) -> tuple[int, int]:
    """Give where the next value starts and ends: both at the end where only white space is left.

    Raises SyntaxFault and UnfinishedText.
    """

def check_end(data: bytes, start: int) -> None:
    """Raise SyntaxFault if anything but white space follows."""
