"""A file system that fails on purpose, at the call that a plan names.

A `FaultPlan` counts the calls of the operations it is about and spoils the n-th of them, once or
from then on. `every_fault` runs through n = 1, 2, … until an attempt goes through without meeting
the fault, so that a test of "whatever fails, this holds" is a loop of a few lines:

    for plan in every_fault():
        files = FaultyFileSystem(MemoryFileSystem(), plan)
        with contextlib.suppress(OSError):
            do_it(files)
        assert what_must_hold(files)

Invariant: a call that fails has changed nothing, except a torn write, which has written a
prefix, and a sync, after whose failure the unsynced bytes cannot be relied on.

Safe from any thread.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from penstock.errors import UsageError
from penstock.store.system_calls import read_file_starts
from penstock.store.vfs import (
    Buffer,
    File,
    FileStart,
    FileSystem,
    Lock,
    Mode,
)
from penstock.testing.filesystem import MemoryFile, SimulatedFolder, SimulatedRoot
from penstock.testing.simulated_calls import SIMULATED_CALLS, new_descriptor


class Operation(Enum):
    """The calls that can fail."""

    OPEN = auto()
    READ = auto()
    WRITE = auto()
    TRUNCATE = auto()
    SYNC = auto()
    RENAME = auto()
    UNLINK = auto()
    SYNC_DIR = auto()
    LIST = auto()
    MAKE_DIRS = auto()
    REMOVE_DIR = auto()
    LOCK = auto()


class Effect(Enum):
    """What becomes of the call."""

    FAIL = auto()
    """It does nothing and raises."""
    SHORT = auto()
    """A write takes the first half and says so."""
    TORN = auto()
    """A write takes the first half and raises."""


ALL_OPERATIONS = frozenset(Operation)


class FaultPlan:
    """Which call is spoiled, and how; and what has come of it so far.

    `calls` tells how many calls of those operations were made, `fired` how many were spoiled.
    """

    def __init__(
        self,
        nth: int,
        operations: Collection[Operation] = ALL_OPERATIONS,
        *,
        error: int = errno.EIO,
        effect: Effect = Effect.FAIL,
        forever: bool = False,
    ) -> None:
        if nth < 1:
            raise UsageError(f"calls are counted from 1, not from {nth}")
        if effect is not Effect.FAIL and set(operations) != {Operation.WRITE}:
            raise UsageError("only writes can be short or torn")
        if error == errno.EINTR and forever:
            raise UsageError("a call that is interrupted each time never ends")
        self.nth = nth
        self.operations = frozenset(operations)
        self.error = error
        self.effect = effect
        self.forever = forever
        self.calls = 0
        self.fired = 0
        self._guard = threading.Lock()

    def meets(self, operation: Operation) -> bool:
        """Count a call; return True if it is to be spoiled."""
        if operation not in self.operations:
            return False
        with self._guard:
            self.calls += 1
            spoiled = self.calls == self.nth or (self.forever and self.calls > self.nth)
            self.fired += spoiled
            return spoiled


def every_fault(
    operations: Collection[Operation] = ALL_OPERATIONS,
    *,
    error: int = errno.EIO,
    effect: Effect = Effect.FAIL,
    forever: bool = False,
) -> Iterator[FaultPlan]:
    """Yield plans for the first call, the second, … and stop after a plan that did not fire."""
    for nth in itertools.count(1):
        plan = FaultPlan(nth, operations, error=error, effect=effect, forever=forever)
        yield plan
        if not plan.fired:
            return


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was made, spoiled or not; a rename is noted under its new path."""

    operation: Operation
    path: str


class _FaultyFile:
    """An open file of a FaultyFileSystem."""

    calls = SIMULATED_CALLS

    def __init__(self, files: FaultyFileSystem, file: File) -> None:
        self.path = file.path
        self._files = files
        self._file = file
        self._fd = new_descriptor(self)

    def call_fd(self) -> int:
        return self._fd

    def fileno(self) -> int:
        return -1

    # Python calls again after a signal: only compiled code sees EINTR.

    def read_at(self, offset: int, size: int) -> bytes:
        while True:
            with contextlib.suppress(InterruptedError):
                return self.call_read(offset, size)

    def write_at(self, offset: int, data: Buffer) -> int:
        while True:
            with contextlib.suppress(InterruptedError):
                return self.call_write(offset, data)

    def sync_data(self) -> None:
        self.call_sync()

    # What compiled code calls through the descriptor.

    def call_read(self, offset: int, size: int) -> bytes:
        self._files.meet(Operation.READ, self.path)
        return self._file.read_at(offset, size)

    def call_write(self, offset: int, data: Buffer) -> int:
        plan = self._files.note(Operation.WRITE, self.path)
        if plan is None:
            return self._file.write_at(offset, data)
        view = memoryview(data).cast("B")
        if plan.effect is Effect.SHORT:
            # At least one byte, so that a writer who goes on comes to an end.
            return self._file.write_at(offset, view[: (len(view) + 1) // 2])
        if plan.effect is Effect.TORN:
            self._file.write_at(offset, view[: len(view) // 2])
        raise _planned_error(plan, self.path)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._files.meet(Operation.TRUNCATE, self.path)
        self._file.truncate(size)

    def call_sync(self) -> None:
        plan = self._files.note(Operation.SYNC, self.path)
        if plan is None:
            self._file.sync_data()
            return
        if isinstance(self._file, MemoryFile):
            self._file.lose_unsynced()
        raise _planned_error(plan, self.path)

    def close(self) -> None:
        self._file.close()


def _planned_error(plan: FaultPlan, path: str) -> OSError:
    return OSError(plan.error, f"{os.strerror(plan.error)} (planned)", path)


class FaultyFileSystem:
    """Any file system, with the faults of `plan`; `audit` lists the calls in order.

    The plan may be changed at any time; with None nothing fails.
    """

    def __init__(self, files: FileSystem, plan: FaultPlan | None = None) -> None:
        self.plan = plan
        self.audit: list[Call] = []
        self.root = SimulatedRoot(self)
        self._files = files

    def open(self, path: str, mode: Mode) -> File:
        """Open a file; its calls are spoiled by the same plan."""
        self.meet(Operation.OPEN, path)
        return _FaultyFile(self, self._files.open(path, mode))

    def list_names(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        self.meet(Operation.LIST, path)
        return self._files.list_names(path)

    def read_starts(self, folder: str, names: Sequence[str], size: int) -> list[FileStart]:
        """Return the length and first bytes of each file."""
        self.meet(Operation.OPEN, folder)
        return read_file_starts(SimulatedFolder(self, folder), names, size)

    def exists(self, path: str) -> bool:
        """Return True if a file or folder exists; never fails."""
        return self._files.exists(path)

    def is_dir(self, path: str) -> bool:
        """Return True if a folder exists; never fails."""
        return self._files.is_dir(path)

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents."""
        self.meet(Operation.MAKE_DIRS, path)
        self._files.make_dirs(path)

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        self.meet(Operation.RENAME, new)
        self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self.meet(Operation.UNLINK, path)
        self._files.unlink(path)

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder."""
        self.meet(Operation.REMOVE_DIR, path)
        self._files.remove_dir(path)

    def sync_dir(self, path: str) -> None:
        """Put a folder's entries on stable storage."""
        self.meet(Operation.SYNC_DIR, path)
        self._files.sync_dir(path)

    def free_bytes(self, path: str) -> int:
        """Return how much more a folder's disk takes; never fails."""
        return self._files.free_bytes(path)

    def lock(self, path: str) -> Lock:
        """Take a lock."""
        self.meet(Operation.LOCK, path)
        return self._files.lock(path)

    def note(self, operation: Operation, path: str) -> FaultPlan | None:
        """Note a call; give the plan if it spoils it."""
        self.audit.append(Call(operation, path))
        plan = self.plan
        return plan if plan is not None and plan.meets(operation) else None

    def meet(self, operation: Operation, path: str) -> None:
        """Note a call; raise what the plan says if it spoils it."""
        plan = self.note(operation, path)
        if plan is not None:
            raise _planned_error(plan, path)
