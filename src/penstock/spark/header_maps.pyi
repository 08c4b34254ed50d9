"""Blocks of headers, parsed into the buffers of an Arrow map<string, list<string>>."""

import msgspec
from typing_extensions import disjoint_base

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
