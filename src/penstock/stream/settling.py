"""New streams on their way to stable storage: those that wait are synced together.

A new stream takes messages as soon as its folder is there, and acknowledges none before the folder
is on stable storage (`Stream.settle`). All that were created while the last ones were synced come
next: each folder is synced, and the folder of all streams once for all of them.

Invariant: a client hears of a stream after its folder, and the entry of that, are on stable
storage. Nothing is tried again after a failure.

Thread: the event loop's; `_sync` runs in another.
"""

from __future__ import annotations

from penstock.store.threads import COMMITS
from penstock.stream.changes import Change
from penstock.stream.storage import StreamFolder
from penstock.stream.stream import Stream, StreamHost

_Waiting = list[tuple[Stream, Change]]


class Settling:
    """The new streams of one account; see the module."""

    def __init__(self, host: StreamHost, path: str) -> None:
        """`path` is the folder of all streams."""
        self._host = host
        self._path = path
        self._waiting: _Waiting = []
        self._is_under_way = False
        self._is_due = False

    def add(self, stream: Stream) -> Change:
        """Put a new stream on stable storage soon; return what to wait for."""
        change = stream.unsettled = Change()
        self._waiting.append((stream, change))
        if not (self._is_due or self._is_under_way):
            self._is_due = True
            self._host.loop.call_soon(self._begin)
        return change

    def _begin(self) -> None:
        self._is_due = False
        if self._is_under_way or not self._waiting:
            return
        self._is_under_way = True
        some, self._waiting = self._waiting, []
        loop = self._host.loop
        syncing = COMMITS.submit(self._sync, [stream.folder for stream, _ in some])
        syncing.add_done_callback(
            lambda done: loop.call_soon_threadsafe(self._end, some, done.result())
        )

    def _sync(self, folders: list[StreamFolder]) -> list[OSError | None]:
        """Sync folders; return why it failed, or None, for each."""
        errors: list[OSError | None] = []
        for folder in folders:
            try:
                folder.settle()
            except OSError as error:
                errors.append(error)
            else:
                errors.append(None)
        try:
            self._host.files.sync_dir(self._path)
        except OSError as error:
            return [error] * len(folders)
        return errors

    def _end(self, some: _Waiting, errors: list[OSError | None]) -> None:
        self._is_under_way = False
        self._begin()
        for (stream, change), error in zip(some, errors, strict=True):
            if error is None:
                stream.settle()
            change.end(error)
