"""The destination of a transform as text: the functions that it may use, one token each.

`transforms` says what they mean; `subject_transform` applies them.

Invariant: a piece that was parsed can be applied to every subject that has the source's tokens.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from penstock.errors import UsageError
from penstock.subjects import is_valid_subject

RandomBelow = Callable[[int], int]
"""Returns a random number from 0 to below its argument."""

_FUNCTION = re.compile(
    r"\{\{[\t\n\f\r ]*([pP]artition|[wW]ildcard|[sS]plit[fF]rom[lL]eft|[sS]plit[fF]rom[rR]ight"
    r"|[sS]lice[fF]rom[lL]eft|[sS]lice[fF]rom[rR]ight|[sS]plit|[lL]eft|[rR]ight|[rR]andom)"
    r"[\t\n\f\r ]*\((.*)\)[\t\n\f\r ]*\}\}"
)
_COMMA = re.compile(r",[\t\n\f\r ]*")
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_WHITE = frozenset("\t\n\f\r ")


class Function(Enum):
    """What a token of a destination does; the value is its name in lower case."""

    LITERAL = ""
    WILDCARD = "wildcard"
    PARTITION = "partition"
    SPLIT = "split"
    SPLIT_FROM_LEFT = "splitfromleft"
    SPLIT_FROM_RIGHT = "splitfromright"
    SLICE_FROM_LEFT = "slicefromleft"
    SLICE_FROM_RIGHT = "slicefromright"
    LEFT = "left"
    RIGHT = "right"
    RANDOM = "random"


class Piece(msgspec.Struct, frozen=True):
    """One token of a destination: `text` is it, or the separator of a split."""

    function: Function
    text: bytes = b""
    # Places of tokens in the source.
    places: tuple[int, ...] = msgspec.field(default=())
    number: int = 0


def read_destination(
    source: str, destination: str, *, reversible: bool
) -> tuple[list[bytes], list[Piece]]:
    """Return the tokens of a source and the pieces of a destination that fits it.

    A last `>` is no piece: it stands for the rest of the subject. A `reversible` destination may
    use nothing but wildcards, and must use them all. Raises UsageError.
    """
    wanted = encoded(source).split(b".")
    takes_rest = wanted[-1] == b">"
    tokens = destination.split(".")
    _check_destination(tokens)
    fits = "*" not in tokens and (tokens[-1] == ">") == takes_rest
    if not fits or not is_valid_subject(encoded(source)):
        raise UsageError("invalid subject")
    places = [place for place, token in enumerate(wanted) if token == b"*"]
    wildcards = places if places or takes_rest else None
    pieces = [parse_token(token, wildcards) for token in tokens]
    if reversible:
        _check_reversible(tokens, pieces, len(places))
    return wanted, pieces[:-1] if takes_rest else pieces


def _check_destination(tokens: Sequence[str]) -> None:
    for token in tokens:
        if not token or (not is_function(token) and not _WHITE.isdisjoint(token)):
            raise UsageError("invalid mapping destination: invalid transform")
    if ">" in tokens[:-1]:
        after = tokens[tokens.index(">") + 1]
        raise UsageError(f"invalid mapping destination: invalid transform in {after}")


def _check_reversible(tokens: Sequence[str], pieces: Sequence[Piece], wildcard_count: int) -> None:
    for token, piece in zip(tokens, pieces, strict=True):
        if piece.function not in (Function.LITERAL, Function.WILDCARD):
            raise UsageError(
                "invalid mapping destination: the only mapping function allowed for import "
                f"transforms is {{{{Wildcard()}}}} in {token}"
            )
    if sum(len(piece.places) for piece in pieces) < wildcard_count:
        raise UsageError(
            "invalid mapping destination: not using all of the token wildcard(s) in "
            + ".".join(tokens)
        )


def parse_token(token: str, wildcards: Sequence[int] | None) -> Piece:
    """Read one token of a destination.

    `wildcards` are the places of `*` in the source, None for a source without any wildcard. Raises
    UsageError.
    """
    if len(token) > 1 and token.startswith("$"):
        number = _find_number(token[1:], _INT64_MAX)
        if number is None:
            return Piece(Function.LITERAL, encoded(token))
        return Piece(Function.WILDCARD, places=_places(token, [number], wildcards))
    if not is_function(token):
        return Piece(Function.LITERAL, encoded(token))
    found = _FUNCTION.search(token)
    if found is None:
        raise _bad(token, "unknown function")
    function = Function(found[1].lower())
    arguments = _COMMA.split(found[2])
    if function in (Function.PARTITION, Function.RANDOM):
        return _parse_counted(token, function, arguments, wildcards)
    return _parse_indexed(token, function, arguments, wildcards)


def is_function(token: str) -> bool:
    """Return True if a token is meant to be a function."""
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def encoded(text: str) -> bytes:
    """Return configured text as bytes of the wire, including bytes that are no text."""
    return text.encode("utf-8", "surrogateescape")


def _parse_counted(
    token: str, function: Function, arguments: list[str], wildcards: Sequence[int] | None
) -> Piece:
    if function is Function.RANDOM and len(arguments) != 1:
        raise _bad(token, "not enough arguments passed to the function")
    numbers = [_find_number(argument, _INT64_MAX) for argument in arguments]
    given = [number for number in numbers if number is not None]
    if len(given) != len(numbers) or given[0] > _INT32_MAX:
        raise _bad(token, "function argument is invalid or in the wrong format")
    # For a source without a wildcard, a partition is always one of the whole subject.
    indexes = [] if wildcards is None else given[1:]
    return Piece(function, places=_places(token, indexes, wildcards), number=_as_int32(given[0]))


def _parse_indexed(
    token: str, function: Function, arguments: list[str], wildcards: Sequence[int] | None
) -> Piece:
    wanted = 1 if function is Function.WILDCARD else 2
    if len(arguments) < wanted or arguments == [""]:
        raise _bad(token, "not enough arguments passed to the function")
    if len(arguments) > wanted:
        raise _bad(token, "too many arguments passed to the function")
    index = _find_number(arguments[0], _INT64_MAX)
    number: int | None = 0
    text = b""
    if function is Function.SPLIT:
        text = encoded(arguments[1])
        number = None if " " in arguments[1] else 0
    elif wanted == 2:
        number = _find_number(arguments[1], _INT32_MAX)
    if index is None or number is None:
        raise _bad(token, "function argument is invalid or in the wrong format")
    return Piece(function, text, _places(token, [index], wildcards), number)


def _places(token: str, indexes: list[int], wildcards: Sequence[int] | None) -> tuple[int, ...]:
    if not indexes:
        return ()
    if wildcards is None:
        raise _bad(token, "wildcard index out of range")
    for index in indexes:
        if index > len(wildcards):
            raise _bad(f"{token}: [{index}]", "wildcard index out of range")
    # Numbers below 1 stand for the first token: so they do in the reference server.
    return tuple(wildcards[index - 1] if index > 0 else 0 for index in indexes)


def _find_number(text: str, number_max: int) -> int | None:
    found = _NUMBER.fullmatch(text.strip(" "))
    if found is None or len(found[0]) > 20:
        return None
    number = int(found[0])
    return number if -number_max - 1 <= number <= number_max else None


def _as_int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _bad(token: str, reason: str) -> UsageError:
    return UsageError(f"invalid mapping destination: {reason} in {token}")
