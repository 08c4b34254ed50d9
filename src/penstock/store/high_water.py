"""The file `high.water`: how far the log is durable, told apart from the log itself.

It guards against damage, not against a power cut: after one it may tell less than is durable, and
what a power cut spares is what the blocks' own syncs made durable. It is synced when somebody is
about to rely on it.

What always holds: it is written after the sync of what it tells of; two slots are written in turn,
so that one is whole.

Written by one commit at a time.
"""

from __future__ import annotations

from penstock.format.state import HIGH_WATER_SLOT_BYTES, HighWater, encode_high_water
from penstock.store.vfs import File, FileSystem, write_all


class HighWaterMark:
    """The mark of one stream; see the module."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.turn = 0
        self.place = (0, 0)
        """The block that was written to last, and how many of its bytes are durable."""

        self._files = files
        self._path = path
        self.file: File | None = None
        """The file, once a mark was written or synced."""

    def next_slot(
        self, last_seq: int, last_time_ns: int, salt: int, place: tuple[int, int]
    ) -> tuple[int, bytes]:
        """Give the next mark and where in the file it is to be written: by whoever asks for it."""
        self.turn += 1
        mark = HighWater(self.turn, last_seq, last_time_ns, salt, *place)
        return self.turn % 2 * HIGH_WATER_SLOT_BYTES, encode_high_water(mark)

    def write(self, last_seq: int, last_time_ns: int, salt: int) -> None:
        """Note what is durable; the system syncs it in its own time."""
        self.file = self._opened() or self._files.open(self._path, "create")
        write_all(self.file, *self.next_slot(last_seq, last_time_ns, salt, self.place))

    def sync(self) -> None:
        """Put the mark on stable storage, also one that was written before the store was opened."""
        self.file = self._opened()
        if self.file is not None:
            self.file.sync_data()

    def _opened(self) -> File | None:
        if self.file is None and self._files.exists(self._path):
            return self._files.open(self._path, "update")
        return self.file

    def close(self) -> None:
        """Close the file; the next mark opens it again."""
        if self.file is not None:
            self.file.close()
            self.file = None
