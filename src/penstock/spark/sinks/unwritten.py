"""The rows of a task that no stream has confirmed yet, kept so that they can be sent again.

Rows are numbered from 0 in the order in which the task gets them, whichever way they come divided.
Reads its input only as far as it is asked to. One thread; called by the exactly-once sink.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from penstock.client.rows import Rows
from penstock.errors import ApiError, NoAnswer, PenstockError


class InputFailed(PenstockError):
    """Rows could not be read: nothing that the sink's own server did, and not the end of them."""


class UnwrittenRows:
    """See the module."""

    def __init__(self, given: Iterator[Rows]) -> None:
        self._given = given
        self._parts: deque[tuple[int, Rows]] = deque()
        self._end = 0

    def has(self, row: int) -> bool:
        """Tell whether there is such a row, for which the input is read up to there.

        Raises InputFailed where another error could be taken for one of the sink's connection.
        """
        while self._end <= row:
            try:
                part = next(self._given, None)
            except (OSError, ApiError, NoAnswer) as error:
                raise InputFailed(f"rows to be written cannot be read: {error}") from error
            if part is None:
                return False
            if part.count:
                self._parts.append((self._end, part))
                self._end += part.count
        return True

    def parts(self, first: int, end: int) -> Iterator[tuple[Rows, int, int]]:
        """Give the columns that hold these rows, each with its own first and end."""
        for start, part in self._parts:
            low, high = max(first - start, 0), min(end - start, part.count)
            if low < high:
                yield part, low, high

    def end_of(self, first: int, *, rows_max: int, bytes_max: int) -> int:
        """Tell where a batch ends that begins at `first`; it is as large as it may be."""
        end, size = first, 0
        while end - first < rows_max and size < bytes_max and self.has(end):
            start, part = next(each for each in self._parts if end < each[0] + each[1].count)
            till, more = part.end_of(end - start, rows_max - (end - first), bytes_max - size)
            end, size = start + till, size + more
        return end

    def hashed(self, first: int, end: int, seed: int) -> int:
        """Go on with a hash over rows."""
        for part, low, high in self.parts(first, end):
            seed = part.hashed(low, high, seed)
        return seed

    def forget(self, row: int) -> None:
        """Keep what comes before a row no longer."""
        while self._parts and self._parts[0][0] + self._parts[0][1].count <= row:
            self._parts.popleft()
