"""What one account's subjects are called in another that imports them.

    orders.>   there is called   from_a.>       here
    calc.*.*   there is called   sums.$2.$1     here

In the name here `$1` or `{{wildcard(1)}}` stands for what the first `*` there matched, and so does
the first `*`; a last `>` for the rest.

What always holds: a subject that is imported has one name here, and that name leads back to it.
Errors carry the reference server's words. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import UsageError
from penstock.routing.transforms import SubjectTransform

_PLACEHOLDER: Final = re.compile(r"\$(\d+)|\{\{\s*wildcard\s*\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)


class Naming:
    """The names of what is imported; see the module.

    `there` is the pattern that is imported, `here` what it is called, empty for the same. Raises
    UsageError where one does not fit the other.
    """

    def __init__(self, there: str, here: str = "") -> None:
        self.is_same = here in ("", there)
        forward = _numbered(here or there)
        tokens = [_as_wildcard(token) for token in forward]
        self.pattern = ".".join(tokens).encode()
        """What is imported, as it is called here."""

        self._tokens = [token.encode() for token in tokens]
        self._forward = SubjectTransform(there, ".".join(forward), reversible=True)
        self._backward = SubjectTransform(self.pattern.decode(), _reversed(there, forward))

    def here(self, subject: bytes) -> bytes:
        """Give the name here of a subject there; one that is not imported keeps its own."""
        tokens = subject.split(b".")
        if self.is_same or not self._forward.selects(tokens):
            return subject
        return self._forward.apply(tokens, _no_chance)

    def there(self, subject: bytes) -> bytes:
        """Give the name there of a subject that is imported."""
        return subject if self.is_same else self._backward.apply(subject.split(b"."), _no_chance)

    def overlap(self, pattern: bytes) -> bytes | None:
        """Give those subjects there that a pattern here takes, as a pattern; None for none."""
        tokens = _intersection(pattern.split(b"."), self._tokens)
        return None if tokens is None else self.there(b".".join(tokens))


def _intersection(one: list[bytes], other: list[bytes]) -> list[bytes] | None:
    common: list[bytes] = []
    for place in range(max(len(one), len(other))):
        a = one[place] if place < len(one) else b""
        b = other[place] if place < len(other) else b""
        if not a or not b:
            return None
        if a == b">" or b == b">":
            return common + (other if a == b">" else one)[place:]
        if a != b and b"*" not in (a, b):
            return None
        common.append(b if a == b"*" else a)
    return common


def _numbered(pattern: str) -> list[str]:
    tokens = pattern.split(".")
    count = 0
    for place, token in enumerate(tokens):
        if token == "*":
            count += 1
            tokens[place] = f"${count}"
    return tokens


def _as_wildcard(token: str) -> str:
    return "*" if _PLACEHOLDER.fullmatch(token) else token


def _reversed(there: str, forward: list[str]) -> str:
    """Give `there` with each `*` as the number of the wildcard that stands for it here."""
    found = [match for token in forward if (match := _PLACEHOLDER.fullmatch(token))]
    numbers = {int(match[1] or match[2]): n for n, match in enumerate(found, start=1)}
    tokens = there.split(".")
    count = 0
    for place, token in enumerate(tokens):
        if token == "*":
            count += 1
            if count not in numbers:
                raise UsageError("invalid mapping destination: not using all wildcards")
            tokens[place] = f"${numbers[count]}"
    return ".".join(tokens)


def _no_chance(bound: int) -> int:
    raise AssertionError("a name is not left to chance")
