"""How many messages a consumer has still to deliver.

What was counted once is kept right from then on: by what was delivered, by what came in, and, where
messages were removed only before the consumer's place, by nothing at all. Only when messages were
removed behind its place is everything counted again.

What always holds: `count` is what counting the store anew would give.

One thread: the event loop's.
"""

from __future__ import annotations

from penstock.store.filestore import FileStore
from penstock.subjects import SubjectFilter


class PendingCount:
    """The number of wanted messages from a place in the stream on; see the module."""

    __slots__ = ("_deleted", "_place", "_store", "_total", "_up_to", "subjects")

    def __init__(self, store: FileStore, subjects: SubjectFilter | None) -> None:
        self.subjects = subjects
        self._store = store
        self._place = 0
        self._total = 0
        self._up_to = 0
        """The last sequence that was counted; 0 where nothing was."""

        self._deleted = 0

    def forget(self) -> None:
        """Count anew the next time."""
        self._up_to = 0

    def delivered(self, count: int, place: int) -> None:
        """So many of what was counted were delivered, and the place moved on behind them."""
        self._total -= count
        self._place = place

    def count(self, place: int) -> int:
        """Give how many wanted messages there are from a place on."""
        if place > self._store.last_seq:
            self._up_to = 0
            return 0
        state = self._store.state()
        removed_behind = state.deleted != self._deleted or state.first_seq > place
        if self._up_to == 0 or self._place != place or removed_behind:
            self._total = self._store.count_pending(self.subjects, place)
        elif state.last_seq > self._up_to:
            self._total += self._store.count_pending(self.subjects, self._up_to + 1)
        self._place = place
        self._up_to = state.last_seq
        self._deleted = state.deleted
        return self._total
