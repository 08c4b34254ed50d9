"""Every single call that fails: an honest error or a success, and nothing acknowledged is lost.

Each operation is tried with its first call to the file system failing, then the second, and so on
until it meets no fault any more, so that no path after an error is left untried.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from random import Random

import pytest

from penstock.errors import StoreError, StoreReadOnly
from penstock.format.envelope import Cipher
from penstock.format.layout import BLOCK_SUFFIX
from penstock.store.interface import StoreConfig
from penstock.testing.faults import (
    ALL_OPERATIONS,
    Effect,
    FaultPlan,
    FaultyFileSystem,
    Operation,
    every_fault,
)
from penstock.testing.filesystem import MemoryFileSystem
from tests.crash.power_cuts import Life, check_numbers, content_of, open_store

PLAIN = StoreConfig(name="crash", block_bytes=4096)
ENCRYPTED = StoreConfig(name="crash", block_bytes=4096, cipher=Cipher.CHACHA20_POLY1305)


class FailingLife(Life):
    """A life whose file system fails by plan instead of losing power."""

    files: FaultyFileSystem  # type: ignore[assignment]  # a plan instead of a cut

    def __post_init__(self) -> None:
        super().__post_init__()
        self.files = FaultyFileSystem(self.disk)

    def check_reads(self) -> None:
        """What was durable can still be read from a store that failed."""
        content = content_of(self.store)
        check_numbers(self.store, content)
        for seq in self.durable.keys() - self.removed:
            assert content[seq] == self.durable[seq]


def fill(life: Life, messages: int = 12) -> None:
    """Store some, among them large ones, so that blocks are filled."""
    for number in range(messages):
        life.added[life._next_seq()] = message = (
            b"b.%d" % (number % 3),
            b"",
            life.random.randbytes(700 if number % 2 else 20),
        )
        life.store.store(*message)


def store_and_flush(life: Life) -> None:
    for _ in range(3):
        life.do_store()
        life.do_flush()


def rotate(life: Life) -> None:
    fill(life, 20)
    life.do_flush()


def remove(life: Life) -> None:
    for seq in (2, 3, 5, 6, 7):
        life.removed.add(seq)
        life.store.remove(seq)
    life.do_flush()


def erase(life: Life) -> None:
    for seq in (4, life.store.state().last_seq):
        life.removed.add(seq)
        life.store.erase(seq)
        life._settle()


def purge(life: Life) -> None:
    life.removed.update(range(1, 9))
    life.store.purge(seq=9)
    life._settle()


def reclaim(life: Life) -> None:
    remove(life)
    life.do_reclaim()


def checkpoint(life: Life) -> None:
    fill(life, 2)
    life.do_checkpoint()


def truncate(life: Life) -> None:
    life.removed.update(range(5, 100))
    life.may_forget = True
    life.store.truncate(4)
    life._settle()


def reset(life: Life) -> None:
    life.do_reset()
    fill(life, 2)
    life.do_flush()


def stop(life: Life) -> None:
    fill(life, 2)
    life.store.stop()
    life.durable |= life.added


ACTIONS: dict[str, Callable[[Life], None]] = {
    action.__name__: action
    for action in (
        store_and_flush,
        rotate,
        remove,
        erase,
        purge,
        reclaim,
        checkpoint,
        truncate,
        reset,
        stop,
    )
}

FAULTS: dict[str, Callable[[], Iterator[FaultPlan]]] = {
    "any call fails": lambda: every_fault(ALL_OPERATIONS),
    "the disk is full": lambda: every_fault(
        {Operation.WRITE, Operation.OPEN, Operation.SYNC, Operation.RENAME}, error=errno.ENOSPC
    ),
    "writes fail from then on": lambda: every_fault({Operation.WRITE}, forever=True),
    "syncs fail from then on": lambda: every_fault({Operation.SYNC}, forever=True),
    "a write is interrupted": lambda: every_fault({Operation.WRITE}, error=errno.EINTR),
    "a write is torn": lambda: every_fault({Operation.WRITE}, effect=Effect.TORN),
    "a write is short": lambda: every_fault({Operation.WRITE}, effect=Effect.SHORT),
}


def begin(config: StoreConfig) -> FailingLife:
    """Return a stream of some blocks with a checkpoint, and something removed."""
    life = FailingLife(Random(1), MemoryFileSystem(), config)
    life.store = life.open()
    fill(life)
    life.do_flush()
    life.do_checkpoint()
    fill(life, 3)
    life.removed.add(1)
    life.store.remove(1)
    life.do_flush()
    return life


def attempt(life: FailingLife, action: Callable[[Life], None], plan: FaultPlan) -> bool:
    """Run an action under a plan; tell whether it went through."""
    life.files.plan = plan
    life.files.audit.clear()
    try:
        action(life)
    except (OSError, StoreError):
        assert plan.fired, "nothing else may fail"
        return False
    finally:
        life.files.plan = None
    return True


def check_what_is_left(life: FailingLife) -> None:
    """Reopened in place, and after a power cut, everything acknowledged is there."""
    survivors = [life.disk.survivor(), life.disk.survivor(Random(7)), life.disk.survivor(Random(8))]
    if life.store.engine.log.health.closed:
        life.store = life.open()
    else:
        life.check_reads()
        life.store.reopen()
    content = life.check(life.store)
    seq, _ = life.store.store(b"b.1", b"", b"goes on")
    life.store.flush()
    assert seq > max(content, default=0)
    survivors.append(life.disk.survivor())
    for survivor in survivors[:-1]:
        life.check(open_store(survivor, life.config, life.clock, life.random))
    after = open_store(survivors[-1], life.config, life.clock, life.random)
    assert content_of(after) == {**content, seq: (b"b.1", b"", b"goes on")}


@pytest.mark.slow
@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("action", ACTIONS)
def test_any_failing_call_gives_an_honest_error_and_loses_nothing(action: str, faults: str) -> None:
    for plan in FAULTS[faults]():
        life = begin(PLAIN)
        went_through = attempt(life, ACTIONS[action], plan)
        is_harmless = plan.effect is Effect.SHORT or plan.error == errno.EINTR
        assert went_through or not is_harmless
        check_what_is_left(life)


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_any_failing_call_loses_nothing_of_an_encrypted_stream(action: str) -> None:
    for plan in every_fault():
        life = begin(ENCRYPTED)
        attempt(life, ACTIONS[action], plan)
        check_what_is_left(life)


def leave_in_the_middle(seed: int) -> FailingLife:
    """Return a machine after a power cut: a torn tail, no checkpoint, an index missing."""
    life = begin(PLAIN)
    fill(life, 14)
    life.do_flush()
    life.store.remove(4)
    life.removed.add(4)
    fill(life, 4)
    life.store.engine.durability.committer.commit()
    life.disk = life.disk.survivor(Random(seed))
    life.files = FaultyFileSystem(life.disk)
    if seed % 2:
        life.disk.unlink("/data/stream/000001.idx")
    return life


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("faults", FAULTS)
def test_any_failing_call_of_a_recovery_leaves_what_the_next_one_needs(
    seed: int, faults: str
) -> None:
    def reopen(life: Life) -> None:
        life.store = life.open()

    for plan in FAULTS[faults]():
        life = leave_in_the_middle(seed)
        went_through = attempt(life, reopen, plan)

        store = life.store if went_through else life.open()
        life.check(store)
        life.check(open_store(life.disk.survivor(), life.config, life.clock, life.random))


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.SYNC, Operation.SYNC_DIR])
def test_a_store_is_read_only_after_a_write_or_a_sync_of_a_block_failed(
    operation: Operation,
) -> None:
    life = begin(PLAIN)
    fill(life, 20)

    assert not attempt(life, Life.do_flush, FaultPlan(1, {operation}))

    with pytest.raises(StoreReadOnly):
        life.store.store(b"a", b"", b"")
    with pytest.raises(StoreReadOnly):
        life.store.flush()
    assert life.store.failure is not None
    life.check_reads()


def test_a_failing_index_or_checkpoint_does_not_stop_the_store() -> None:
    life = begin(PLAIN)
    fill(life, 20)
    blocks = sum(call.path.endswith(BLOCK_SUFFIX) for call in life.files.audit)
    assert blocks
    for plan in every_fault({Operation.RENAME}):
        life.files.plan = plan
        life.store.flush()
        fill(life, 10)
        life.store.flush()
        life.files.plan = None
        assert life.store.failure is None
