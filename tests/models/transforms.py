"""What a transform makes of a subject, written out plainly: token by token, with lists of bytes."""

from __future__ import annotations

from penstock.routing.transform_functions import Function, Piece, RandomBelow, read_destination


def transformed(
    source: str, destination: str, subject: bytes, random_below: RandomBelow
) -> bytes | None:
    """Return the new subject; None if the source does not match a literal `subject`."""
    wanted, pieces = read_destination(source, destination, reversible=False)
    tokens = subject.split(b".")
    if {b"", b"*", b">"} & set(tokens) or not _selects(wanted, tokens):
        return None
    parts = [_rendered(piece, tokens, random_below) for piece in pieces]
    if wanted[-1] == b">":
        parts += tokens[len(wanted) - 1 :]
    return b".".join(parts)


def _selects(wanted: list[bytes], tokens: list[bytes]) -> bool:
    if wanted[-1] == b">":
        wanted = wanted[:-1]
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(tokens) == len(wanted) and all(
        one in (b"*", other) for one, other in zip(wanted, tokens, strict=True)
    )


def _rendered(piece: Piece, tokens: list[bytes], random_below: RandomBelow) -> bytes:
    function = piece.function
    if function is Function.LITERAL:
        return piece.text
    if function is Function.RANDOM:
        return b"%d" % (random_below(abs(piece.number)) if piece.number else 0)
    if function is Function.PARTITION:
        chosen = [tokens[place] for place in piece.places]
        key = b"".join(chosen) if chosen else b".".join(tokens)
        return b"%d" % (_fnv1a(key) % (piece.number & 0xFFFFFFFF) if piece.number else 0)
    token = tokens[piece.places[0]]
    if function is Function.WILDCARD:
        return token
    if function is Function.SPLIT:
        return _split(token, piece.text)
    if not 0 < piece.number < len(token):
        return token
    return b".".join(_cut(function, token, piece.number))


def _fnv1a(data: bytes) -> int:
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def _cut(function: Function, token: bytes, size: int) -> list[bytes]:
    if function is Function.LEFT:
        return [token[:size]]
    if function is Function.RIGHT:
        return [token[-size:]]
    if function is Function.SPLIT_FROM_LEFT:
        return [token[:size], token[size:]]
    if function is Function.SPLIT_FROM_RIGHT:
        return [token[:-size], token[-size:]]
    first = len(token) % size if function is Function.SLICE_FROM_RIGHT else 0
    pieces = [token[place : place + size] for place in range(first, len(token), size)]
    return [token[:first], *pieces] if first else pieces


def _split(token: bytes, separator: bytes) -> bytes:
    if not separator:
        characters = token.decode("utf-8", "surrogateescape")
        return b".".join(each.encode("utf-8", "surrogateescape") for each in characters)
    parts = token.split(separator)
    text = b""
    for place, part in enumerate(parts):
        text += part
        following = parts[place + 1] if place + 1 < len(parts) else b""
        if following and not (place == 0 and not part):
            text += b"."
    return text
