"""Expiry as a set that is searched from end to end: the oracle for `ExpiryWheel`."""

from __future__ import annotations


class ExpirySet:
    """The pairs of (expiry time, sequence) that are held."""

    def __init__(self) -> None:
        self.pairs: set[tuple[int, int]] = set()

    def add(self, seq: int, expires_ns: int) -> None:
        """Hold the pair."""
        self.pairs.add((expires_ns, seq))

    def remove(self, seq: int, expires_ns: int) -> bool:
        """Forget the pair; return whether it was held."""
        held = (expires_ns, seq) in self.pairs
        self.pairs.discard((expires_ns, seq))
        return held

    def due(self, now_ns: int) -> list[tuple[int, int]]:
        """List the pairs whose time is not after `now_ns`, earliest first."""
        return sorted(pair for pair in self.pairs if pair[0] <= now_ns)

    def next_due_ns(self) -> int | None:
        """Return the earliest time, or None."""
        return min(self.pairs)[0] if self.pairs else None
