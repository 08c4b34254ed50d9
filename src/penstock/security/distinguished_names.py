"""Distinguished names: the subject of a certificate, and a user name that is written as one.

A name is a sequence of relative names, the most specific first, as RFC 4514 writes it:
`CN=app,OU=billing+L=Graz,O=Acme`. In a certificate they are in the opposite order. A relative name
is a set of attributes, each a type (any case) and a value (as it is).

Pure; any thread. Every start loads it, so it does not import the library that reads certificates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

Attribute = tuple[str, str]
"""Type, in upper case, and value."""

RelativeName = frozenset[Attribute]

ATTRIBUTE_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.17": "POSTALCODE",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attribute types that have a short name, by object identifier."""

# A type, its value and what ends it. BER in hex, which starts with "#", is not read.
_ATTRIBUTE = re.compile(
    r" *([^=,+\\ ][^=,+\\]*?) *= *(?!#)"
    r"((?:\\[ \"#+,;<=>\\]|\\[0-9a-fA-F]{2}|[^,+\\])*)"
    r"(?:([,+])|\Z)"
)
_SPECIAL = re.compile(r"\\([ \"#+,;<=>\\])")
_OCTETS = re.compile(r"(?:\\[0-9a-fA-F]{2})+")
_ESCAPED = ',+"\\<>;'

# How the types follow one another when a subject is written as text, last first.
_TEXT_ORDER = ("C", "O", "OU", "L", "ST", "STREET", "POSTALCODE", "CN", "SERIALNUMBER")
_SINGLE = ("CN", "SERIALNUMBER")


class DistinguishedName:
    """A sequence of relative names, the most specific first."""

    __slots__ = ("_names", "_unordered")

    def __init__(self, names: Sequence[RelativeName]) -> None:
        self._names = tuple(names)
        self._unordered = Counter(self._names)

    def equals(self, other: DistinguishedName) -> bool:
        """Return True if both have the same relative names in the same order."""
        return self._names == other._names

    def equals_in_any_order(self, other: DistinguishedName) -> bool:
        """Return True if both have the same relative names, in any order."""
        return self._unordered == other._unordered


def find_name(text: str) -> DistinguishedName | None:
    """Read a name as RFC 4514 writes it; None where `text` is something else."""
    names: list[RelativeName] = []
    attributes: list[Attribute] = []
    place = 0
    while found := _ATTRIBUTE.match(text, place):
        kind, value, end = found.groups()
        attributes.append((kind.upper(), _unescape(value)))
        if end != "+":
            names.append(frozenset(attributes))
            attributes = []
        place = found.end()
        if not end:
            return DistinguishedName(names)
    return None


def _unescape(value: str) -> str:
    """Take the escapes out, and the spaces at the end that are not escaped."""
    bare = value.rstrip(" ")
    if bare != value and (len(bare) - len(bare.rstrip("\\"))) % 2:
        bare += " "
    # Neighbouring octets may make one character together.
    return _OCTETS.sub(
        lambda found: bytes.fromhex(found[0].replace("\\", "")).decode("utf-8", "surrogateescape"),
        _SPECIAL.sub(lambda found: f"\\{ord(found[1]):02x}", bare),
    )


def subject_text(names: Sequence[Sequence[Attribute]]) -> str:
    """Write a subject, given as it lies in the certificate, as the reference server writes it.

    Only types that have a place in its order are written, values of one type joined by a plus sign.
    """
    values: dict[str, list[str]] = {}
    for kind, value in (attribute for name in names for attribute in name):
        values.setdefault(kind, []).append(value)
    parts = []
    for kind in reversed(_TEXT_ORDER):
        found = values.get(kind, [])
        if kind in _SINGLE:
            found = [value for value in found[-1:] if value]
        if found:
            parts.append("+".join(f"{kind}={_escape(value)}" for value in found))
    return ",".join(parts)


def _escape(value: str) -> str:
    last = len(value) - 1
    return "".join(
        f"\\{character}"
        if character in _ESCAPED
        or (character == " " and place in (0, last))
        or (character == "#" and place == 0)
        else character
        for place, character in enumerate(value)
    )
