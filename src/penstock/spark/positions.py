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


class Here(msgspec.Struct, frozen=True):
    """A stream as it is: which one, its first message that is left, and what is behind its last."""

    created: str
    first_seq: int
    end: int


class Rules(msgspec.Struct, frozen=True):
    """What a query puts up with."""

    fail_on_data_loss: bool = True
    allow_recreated_stream: bool = False


def check_stream(stream: str, at: Position, now: Here, rules: Rules) -> int:
    """Give from where a query goes on; raises DataLoss where it must not."""
    first_seq = now.first_seq
    # A stream that had no block yet could not be told from another. One that was restored from an
    # older copy has the same birth, and ends before the query's place.
    if at.created not in ("", now.created) or at.next > now.end:
        if rules.allow_recreated_stream:
            return first_seq
        raise DataLoss(
            f"stream {stream} was made anew since the query read it: start the query afresh, "
            "with another checkpoint, or with allowRecreatedStream=true from its beginning"
        )
    if at.next < first_seq and rules.fail_on_data_loss:
        raise DataLoss(
            f"stream {stream}: the query had come to sequence {at.next}, and the first that is "
            f"left is {first_seq}: retention or a purge overtook it. With failOnDataLoss=false "
            "it goes on there"
        )
    return max(at.next, first_seq)
