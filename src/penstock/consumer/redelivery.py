"""Messages that wait to be delivered again, in order.

Most consumers never have any: an empty queue costs next to nothing. One thread: the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable


class Redelivery:
    """The stream sequences that are to be delivered again, the first of them first."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[int] | None = None

    def __len__(self) -> int:
        return 0 if self._queue is None else len(self._queue)

    @property
    def first(self) -> int:
        """The one whose turn it is; there must be one."""
        assert self._queue is not None, "nothing waits"
        return self._queue[0]

    def add(self, stream_seqs: Iterable[int]) -> None:
        """Put some behind the others."""
        if self._queue is None:
            self._queue = deque()
        self._queue.extend(stream_seqs)

    def drop_first(self) -> None:
        """Take the first one out."""
        if self._queue is not None:
            self._queue.popleft()
            if not self._queue:
                self._queue = None

    def remove(self, stream_seq: int) -> None:
        """Take one out, wherever it is."""
        if self._queue is not None and stream_seq in self._queue:
            self._queue.remove(stream_seq)

    def keep(self, is_wanted: Callable[[int], bool]) -> int:
        """Take out those that are not wanted any more; give how many are left."""
        if self._queue is not None:
            self._queue = deque(filter(is_wanted, self._queue)) or None
        return len(self)

    def clear(self) -> None:
        """Take all out."""
        self._queue = None
