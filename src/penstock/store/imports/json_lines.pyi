"""The old layout's `messages.jsonl`: one JSON object a line, read as a stream of messages."""

from collections.abc import Iterator

import msgspec

from penstock.store.interface import RawMessage
from penstock.store.vfs import File

class TornLine(msgspec.Struct, frozen=True):
    """A last line without its end that cannot be read: the write that was cut off."""

    offset: int
    data: bytes

class JsonLines:
    """One pass over a `messages.jsonl`; afterwards `torn` may be set."""

    torn: TornLine | None

    def __init__(self, file: File) -> None: ...
    def batches(self) -> Iterator[list[RawMessage]]:
        """Yield the messages in order, those of a chunk together; raise CorruptStore."""
        ...

def parse_line(line: bytes) -> RawMessage:
    """Read one line as a raw message; raises FormatError."""
    ...
