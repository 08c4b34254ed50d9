"""A planned fault hits the call it names, does what it says, and nothing else fails."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection
from contextlib import suppress

import pytest

from penstock.errors import UsageError
from penstock.store.vfs import FileSystem, write_all
from penstock.testing.faults import (
    ALL_OPERATIONS,
    Call,
    Effect,
    FaultPlan,
    FaultyFileSystem,
    Operation,
    every_fault,
)
from penstock.testing.filesystem import MemoryFileSystem

WRITE_ONLY = [Operation.WRITE]


def everything(files: FileSystem) -> None:
    """Make each call that can fail, once, in the order of `Operation`'s names below."""
    files.make_dirs("/x")
    lock = files.lock("/x/lock")
    file = files.open("/x/a", "create")
    file.write_at(0, b"data")
    file.truncate(2)
    file.read_at(0, 2)
    file.sync_data()
    file.close()
    files.rename("/x/a", "/x/b")
    files.list_names("/x")
    files.unlink("/x/b")
    lock.release()
    files.unlink("/x/lock")
    files.sync_dir("/x")
    files.remove_dir("/x")


CALLS = [
    Call(Operation.MAKE_DIRS, "/x"),
    Call(Operation.LOCK, "/x/lock"),
    Call(Operation.OPEN, "/x/a"),
    Call(Operation.WRITE, "/x/a"),
    Call(Operation.TRUNCATE, "/x/a"),
    Call(Operation.READ, "/x/a"),
    Call(Operation.SYNC, "/x/a"),
    Call(Operation.RENAME, "/x/b"),
    Call(Operation.LIST, "/x"),
    Call(Operation.UNLINK, "/x/b"),
    Call(Operation.UNLINK, "/x/lock"),
    Call(Operation.SYNC_DIR, "/x"),
    Call(Operation.REMOVE_DIR, "/x"),
]


def code_of(call: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the code says which
        call()
    return caught.value.errno


def test_without_a_plan_nothing_fails_and_every_call_is_noted() -> None:
    files = FaultyFileSystem(MemoryFileSystem())

    everything(files)

    assert files.audit == CALLS
    assert {call.operation for call in CALLS} == ALL_OPERATIONS


def test_the_loop_over_every_fault_fails_each_call_once_and_ends_after_a_clean_run() -> None:
    failed = []
    plans = []
    for plan in every_fault(error=errno.ENOSPC):
        files = FaultyFileSystem(MemoryFileSystem(), plan)
        plans.append(plan)
        try:
            everything(files)
        except OSError as error:
            failed.append((files.audit[-1], error.errno))

    assert failed == [(call, errno.ENOSPC) for call in CALLS]
    assert [plan.fired for plan in plans] == [1] * len(CALLS) + [0]


@pytest.mark.parametrize("operation", Operation)
def test_a_plan_counts_only_its_own_operations(operation: Operation) -> None:
    plan = FaultPlan(1, [operation], error=errno.EACCES)
    files = FaultyFileSystem(MemoryFileSystem(), plan)

    assert code_of(lambda: everything(files)) == errno.EACCES
    assert files.audit[-1].operation is operation
    assert (plan.calls, plan.fired) == (1, 1)


def test_a_fault_comes_once_or_from_then_on() -> None:
    for forever, expected in ((False, [True, False, True, True]), (True, [True] + [False] * 3)):
        plan = FaultPlan(2, WRITE_ONLY, forever=forever)
        file = FaultyFileSystem(MemoryFileSystem(), plan).open("/a", "create")

        results = []
        for _ in range(4):
            try:
                file.write_at(0, b"x")
                results.append(True)
            except OSError:
                results.append(False)

        assert results == expected
        assert plan.fired == results.count(False)


def test_a_failed_write_writes_nothing_a_torn_one_half_and_a_short_one_says_so() -> None:
    found: dict[Effect, tuple[bytes, int | None]] = {}
    for effect in Effect:
        memory = MemoryFileSystem()
        plan = FaultPlan(1, WRITE_ONLY, effect=effect)
        file = FaultyFileSystem(memory, plan).open("/a", "create")
        written = None
        with suppress(OSError):
            written = file.write_at(0, b"12345")
        found[effect] = (memory.snapshot()["/a"], written)

    assert found == {
        Effect.FAIL: (b"", None),
        Effect.TORN: (b"12", None),
        Effect.SHORT: (b"123", 3),
    }


def test_a_failed_sync_cannot_be_made_good_by_another() -> None:
    memory = MemoryFileSystem()
    files = FaultyFileSystem(memory, FaultPlan(1, [Operation.SYNC]))
    file = files.open("/a", "create")
    files.sync_dir("/")
    write_all(file, 0, b"data")

    assert code_of(file.sync_data) == errno.EIO
    file.sync_data()

    assert memory.snapshot() == {"/a": b"data"}
    assert memory.crash().snapshot() == {"/a": b""}


def test_the_plan_can_be_changed_while_files_are_open() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    file = files.open("/a", "create")
    file.write_at(0, b"fine")

    files.plan = FaultPlan(1, WRITE_ONLY, error=errno.EAGAIN)
    assert code_of(lambda: file.write_at(0, b"bad")) == errno.EAGAIN
    files.plan = None
    file.write_at(0, b"good")

    assert file.read_at(0, 10) == b"good"


@pytest.mark.parametrize(
    ("nth", "operations", "effect"),
    [
        (0, WRITE_ONLY, Effect.FAIL),
        (1, ALL_OPERATIONS, Effect.SHORT),
        (1, [Operation.SYNC], Effect.TORN),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    nth: int, operations: Collection[Operation], effect: Effect
) -> None:
    with pytest.raises(UsageError):
        FaultPlan(nth, operations, effect=effect)
