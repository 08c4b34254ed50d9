"""Threads that write and sync without the interpreter, for all stores of a process."""

from collections.abc import Callable

from typing_extensions import disjoint_base

from penstock.store.log.active_block import Chunk
from penstock.store.vfs import File, Root

@disjoint_base
class DoneJobs:
    """Jobs that are done and wait for their owner."""

    def __init__(self) -> None: ...
    def fileno(self) -> int:
        """Return the descriptor that is readable when `reap` has something to do."""
        ...

    def wait(self) -> None:
        """Wait until `reap` has something to do."""
        ...

    def reap(self) -> None:
        """Finish every job that is done."""
        ...

@disjoint_base
class DiskJob:
    """What one commit writes and syncs."""

    @property
    def room(self) -> int:
        """How many zeros are to be written; once it is done, how many were."""
        ...

    @property
    def syncs(self) -> bool:
        """Whether it is a sync too."""
        ...

    @property
    def seconds(self) -> float:
        """How long it took, once it is done."""
        ...

    def __init__(self, *, syncs: bool) -> None:
        """Sync what is written if `syncs`."""
        ...

    def write(self, file: File, chunk: Chunk) -> None:
        """Write a chunk to an open file, after what was added before."""
        ...

    def create(self, root: Root, path: str, chunk: Chunk) -> None:
        """Make a file in the same folder as others, and write a chunk to it."""
        ...

    def created(self) -> list[File | None]:
        """Return the open file of each part that has made one, once it is done; else None.

        They are the caller's from now on: it asks once.
        """
        ...

    def mark(self, file: File, offset: int, data: bytes) -> None:
        """Write something short to another file too, after the sync."""
        ...

    def leave_room(self, size: int) -> None:
        """Write zeros behind the chunk too, as many as the disk takes."""
        ...

    def check(self) -> None:
        """Raise OSError where the job, which is done, has failed."""
        ...

    def do(self) -> None:
        """Do it here and now."""
        ...

    def submit(self, finish: Callable[[DiskJob], None], done_jobs: DoneJobs) -> None:
        """Have a disk thread do it; `finish(job)` is called when `done_jobs` are reaped."""
        ...

    def wait(self) -> None:
        """Wait until it is done, or do it."""
        ...
