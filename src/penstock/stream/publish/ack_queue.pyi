class AckQueue:
    """Messages in the order in which they will be sent; for compiled code."""

    @property
    def count(self) -> int: ...

class CopyText:
    """Writes the copies of a stream's messages; for compiled code."""

    def __init__(self, stream: bytes) -> None: ...
