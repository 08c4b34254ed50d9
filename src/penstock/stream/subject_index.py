"""Many subjects to compare with many others: those that cannot collide are not compared.

Subjects without wildcards collide with their like only, and patterns with the same first token or
one that begins with a wildcard. What is left are pairs, and their number is bounded: it grows with
the square of what a client sends.

Pure; one thread. Only the rules of streams and consumers call it.
"""

from __future__ import annotations

from collections import defaultdict

from penstock.stream.rules import check_pairs
from penstock.subjects import is_literal, patterns_overlap

_Placed = list[tuple[int, bytes]]


class SubjectIndex:
    """Subjects by their place in a list; places are added in ascending order."""

    def __init__(self) -> None:
        self._literals: defaultdict[bytes, list[int]] = defaultdict(list)
        self._literals_by_first: defaultdict[bytes, _Placed] = defaultdict(list)
        self._patterns_by_first: defaultdict[bytes, _Placed] = defaultdict(list)
        self._all: _Placed = []
        self._compared_count = 0

    def add(self, place: int, subject: str) -> None:
        """Put a subject in."""
        raw = subject.encode()
        first = _first(raw)
        self._all.append((place, raw))
        if is_literal(raw):
            self._literals[raw].append(place)
            self._literals_by_first[first].append((place, raw))
        else:
            self._patterns_by_first[first].append((place, raw))

    def find(self, subject: str, *, after: int = -1) -> int | None:
        """Give the lowest place above `after` that has a subject which collides with this one.

        Raises ApiError where that would take too long.
        """
        raw = subject.encode()
        first = _first(raw)
        found: list[int] = []
        if not first:
            candidates = [self._all]
        else:
            candidates = [self._patterns_by_first[first], self._patterns_by_first[b""]]
            if is_literal(raw):
                found += [place for place in self._literals[raw][:2] if place > after]
            else:
                candidates.append(self._literals_by_first[first])
        for placed in candidates:
            hit = self._find_among(placed, raw, after)
            found += [] if hit is None else [hit]
        return min(found, default=None)

    def _find_among(self, placed: _Placed, raw: bytes, after: int) -> int | None:
        self._compared_count += len(placed)
        check_pairs(self._compared_count)
        for place, other in placed:
            if place > after and patterns_overlap(raw, other):
                return place
        return None


def _first(subject: bytes) -> bytes:
    # Empty for a wildcard: nothing that is valid begins with an empty token.
    token = subject.partition(b".")[0]
    return b"" if token in (b"*", b">") else token
