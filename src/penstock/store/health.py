"""Whether a store can be written, and what is wrong with it: failure, damage, problems.

A failure ends all writing: what reached the disk is not known. A full disk ends the storing of
messages alone, so that others can be removed. Damage costs messages and is reported once for each
position. A problem costs nothing: derived data can be made again.

Invariant: a failure is never taken back; only another opening of the store begins without one.

Thread: any.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from penstock.errors import StoreClosed, StoreReadOnly
from penstock.format.damage import Damage

_PROBLEMS_KEPT = 100
"""Enough to see what goes on; a disk that is full makes one for each index."""


class StoreHealth:
    """What is wrong with one store; see the module."""

    def __init__(
        self,
        path: str,
        lock: threading.RLock,
        on_damage: Callable[[Damage], None] | None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`on_failure` hears of a failure once, in whichever thread and with the store's lock."""
        self.failure: str | None = None
        """Why the store takes no writes, or None."""

        self.shortage: str | None = None
        """Why the store takes no messages though it can be written, or None."""

        self.closed = False
        self.problems: list[str] = []
        self.damage: list[Damage] = []
        self._path = path
        self._lock = lock
        self._on_damage = on_damage
        self._on_failure = on_failure

    def check_writable(self) -> None:
        """Raise StoreReadOnly or StoreClosed if the store takes no writes."""
        self.check_not_failed()
        if self.closed:
            raise StoreClosed(f"{self._path}: the store was stopped")

    def check_takes_messages(self) -> None:
        """Raise StoreReadOnly or StoreClosed if the store takes no messages."""
        self.check_writable()
        if self.shortage is not None:
            raise StoreReadOnly(self._path, self.shortage)

    def refuse_messages(self, reason: str | None) -> None:
        """Take no messages for a reason, while others can be removed; None: take them again."""
        self.shortage = reason

    def check_not_failed(self) -> None:
        """Raise StoreReadOnly after a failure."""
        if self.failure is not None:
            raise StoreReadOnly(self._path, self.failure)

    def fail(self, error: BaseException) -> None:
        """Refuse writes from now on: what reached the disk is not known."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = str(error) or repr(error)
            if self._on_failure is not None:
                self._on_failure(error)

    def close(self) -> None:
        """Refuse writes from now on: the store is being stopped."""
        self.closed = True

    @contextlib.contextmanager
    def changing_blocks(self) -> Iterator[None]:
        """Refuse writes from now on if a change of block files fails half-way."""
        try:
            yield
        except OSError as error:
            self.fail(error)
            raise

    def report_damage(self, damage: Damage) -> None:
        """Keep damage and report it to the owner; once for each position."""
        if any(damage.is_at(each) for each in self.damage):
            return
        self.damage.append(damage)
        if self._on_damage is not None:
            self._on_damage(damage)

    def forget_damage(self, block: int) -> None:
        """Drop the damage of a block that was rewritten or removed."""
        self.damage = [each for each in self.damage if each.block != block]

    def forget_all_damage(self) -> None:
        """Drop all damage: it was mended, or is looked for again."""
        self.damage.clear()

    def note_problem(self, error: Exception) -> None:
        """Keep a problem that cost no data; only the last ones are kept."""
        with self._lock:
            self.problems.append(str(error))
            del self.problems[:-_PROBLEMS_KEPT]
