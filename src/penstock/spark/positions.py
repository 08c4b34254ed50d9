"""How far a streaming query has come: for each stream the next sequence, and which stream it is.

    {"v": 1, "streams": {"ORDERS": {"created": "5eed…", "next": 1001}}}

`next` is the first sequence that was not read yet, so that nothing is ever read twice to find out
where one was. `created` tells a stream from another that was made under its name later. Spark
compares positions as texts, so their keys always come in the same order. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import FormatError, PenstockError

VERSION = 1


class DataLoss(PenstockError):
    """Messages that a query had still to read are gone, or the stream is another one."""


class Position(msgspec.Struct, frozen=True):
    """Where a query is in one stream."""

    created: str
    next: int


def encode(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Give positions as Spark keeps them."""
    streams = {
        name: {"created": positions[name].created, "next": positions[name].next}
        for name in sorted(positions)
    }
    return {"streams": streams, "v": VERSION}


def decode(given: Mapping[str, Any]) -> dict[str, Position]:
    """Read positions that Spark kept; raises FormatError."""
    if given.get("v") != VERSION:
        raise FormatError(f"no positions of version {VERSION}: {given!r}")
    try:
        return msgspec.convert(given.get("streams"), dict[str, Position])
    except msgspec.ValidationError as error:
        raise FormatError(f"no positions: {given!r}: {error}") from None


def check_stream(
    stream: str, at: Position, created: str, first_seq: int, *, fail_on_data_loss: bool
) -> int:
    """Give from where a query goes on; raises DataLoss where it must not."""
    # A stream that had no block yet could not be told from another.
    if at.created not in ("", created):
        raise DataLoss(
            f"stream {stream} was made anew since the query read it: start the query afresh, "
            "with another checkpoint"
        )
    if at.next < first_seq and fail_on_data_loss:
        raise DataLoss(
            f"stream {stream}: the query had come to sequence {at.next}, and the first that is "
            f"left is {first_seq}: retention or a purge overtook it. With failOnDataLoss=false "
            "it goes on there"
        )
    return max(at.next, first_seq)
