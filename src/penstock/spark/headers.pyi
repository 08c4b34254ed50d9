"""Headers between messages and Arrow: blocks as they are sent, and map<string, list<string>>."""

from array import array
from typing import final

import msgspec
from typing_extensions import Buffer, disjoint_base

class HeaderMaps(msgspec.Struct, frozen=True):
    """The buffers of a map column; each `*_offsets` holds one int32 more than there are items."""

    count: int
    null_count: int
    validity: bytes
    map_offsets: bytes
    key_offsets: bytes
    keys: bytes
    list_offsets: bytes
    value_offsets: bytes
    values: bytes

@disjoint_base
class HeaderMapBuilder:
    """A builder of header maps; `build` is its only method."""

    def __new__(cls) -> HeaderMapBuilder: ...
    def build(self, offsets: bytes, headers: bytes, count: int) -> HeaderMaps:
        """Return the maps of `count` blocks; `offsets` are count + 1 int32 into `headers`."""
        ...

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
