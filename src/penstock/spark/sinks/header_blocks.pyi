"""Headers as they are sent, built from the buffers of Arrow columns."""

from array import array
from typing import final

from typing_extensions import Buffer

@final
class MapColumn:
    """The buffers of an Arrow map<string, list<string>> column that begins at its first row."""

    @property
    def count(self) -> int: ...
    def __init__(
        self,
        validity: Buffer,
        offsets: Buffer,
        key_offsets: Buffer,
        keys: Buffer,
        list_validity: Buffer,
        list_offsets: Buffer,
        value_offsets: Buffer,
        values: Buffer,
    ) -> None:
        """Take the buffers; a validity without bytes is of a column without nulls."""
        ...

def header_blocks(
    rows: int,
    maps: MapColumn | None = None,
    ids: tuple[Buffer, Buffer] | None = None,
    id_start: bytes | None = None,
    first_row: int = 0,
    lines: tuple[Buffer, Buffer] | None = None,
) -> tuple[array[int], bytes]:
    """Return the offsets and bytes of header blocks; raise UsageError or FormatError."""
    ...
