"""Room behind the records of the block that is being written: made, written into, given back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

import pytest

from penstock.errors import StoreError
from penstock.format.block import HEADER_BYTES
from penstock.format.layout import QUARANTINE_NAME
from penstock.format.reader import StreamReader
from penstock.limits import ROOM_BYTES_MAX
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.recovery.block_scan import StoreFolder
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultPlan, FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem
from tests.crash.power_cuts import PowerCut, content_of

PATH = "/stream"
BLOCK = f"{PATH}/000001.blk"
PAGE = 4096


def open_store(
    files: MemoryFileSystem | FaultyFileSystem, *, block_bytes: int = 1 << 20, interval_ns: int = 0
) -> FileStore:
    config = StoreConfig(name="room", block_bytes=block_bytes, sync_interval_ns=interval_ns)
    return FileStore.open(
        PATH,
        config,
        files=files,
        clock=FakeClock(),
        random_bytes=Random(1).randbytes,
        threaded=False,
    )


def commit_each(store: FileStore, count: int, size: int = 20) -> None:
    """Store messages with a commit for each."""
    for number in range(count):
        store.store(b"a", b"", bytes([number % 251 + 1]) * size)
        store.flush()


def block_of(files: MemoryFileSystem, path: str = BLOCK) -> bytes:
    return files.snapshot()[path]


def used_bytes(files: MemoryFileSystem) -> int:
    """Return where the records of the block end, by another reader than the store."""
    return StreamReader(StoreFolder(files, PATH)).blocks[-1].bytes


def put(files: MemoryFileSystem, offset: int, data: bytes) -> None:
    """Change bytes of the block on the medium."""
    file = files.open(BLOCK, "update")
    file.write_at(offset, data)
    file.sync_data()
    file.close()


def kept_aside(files: MemoryFileSystem) -> list[bytes]:
    return [
        data
        for path, data in files.snapshot().items()
        if path.startswith(f"{PATH}/{QUARANTINE_NAME}/")
    ]


# Making room


def test_small_commits_write_into_room_that_one_of_them_has_made() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    sizes = []
    for _ in range(400):
        commit_each(store, 1)
        sizes.append(len(block_of(files)))

    grown = [size for size, before in itertools.pairwise(reversed(sizes)) if size != before]
    assert len(grown) <= 8
    assert sizes[-1] <= 2 * used_bytes(files) + PAGE
    assert not block_of(files)[used_bytes(files) :].strip(b"\0")


def test_the_room_is_bounded_and_ends_with_the_block() -> None:
    files = MemoryFileSystem()
    store = open_store(files, block_bytes=1 << 20)
    store.store(b"a", b"", b"x" * 700_000)
    store.flush()
    commit_each(store, 3)

    assert (
        ROOM_BYTES_MAX - PAGE <= len(block_of(files)) - used_bytes(files) <= ROOM_BYTES_MAX + PAGE
    )

    store.store(b"a", b"", b"x" * 300_000)
    store.flush()
    commit_each(store, 3)

    assert len(block_of(files)) == 1 << 20


def test_a_commit_that_few_others_would_find_room_behind_makes_none() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    commit_each(store, 20, size=40_000)

    assert len(block_of(files)) == used_bytes(files)


def test_commits_that_are_synced_at_an_interval_make_none() -> None:
    files = MemoryFileSystem()
    store = open_store(files, interval_ns=10**9)
    commit_each(store, 20)

    assert len(block_of(files)) == used_bytes(files)


def test_a_disk_that_is_too_full_for_room_takes_the_commit() -> None:
    disk = MemoryFileSystem()
    files = FaultyFileSystem(disk)
    store = open_store(files)
    commit_each(store, 1)
    # The first write of the next commit is that of its record, the second that of the room.
    files.plan = FaultPlan(2, {Operation.WRITE})
    commit_each(store, 1)

    assert files.plan.fired == 1
    assert store.failure is None
    assert store.durable_seq == 2
    files.plan = None
    commit_each(store, 50)
    assert len(content_of(open_store(disk.crash()))) == 52


# Giving it back


def test_a_stop_leaves_no_room() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    commit_each(store, 50)
    assert len(block_of(files)) > used_bytes(files)
    store.stop()

    found = files.crash()
    assert len(block_of(found)) == used_bytes(found)
    again = open_store(found)
    assert again.report.clean
    assert len(content_of(again)) == 50


def test_a_full_block_has_no_room_when_a_later_one_has_bytes() -> None:
    """Whenever the power goes, whatever arrived: only the last block may end in zeros."""
    calls = _calls_over_three_blocks()
    seen_rooms = 0
    for at_call, seed in itertools.product(range(1, calls + 1), (None, 1)):
        files = PowerCut(MemoryFileSystem(), at_call, None if seed is None else Random(seed))
        durable = _fill_three_blocks(files)
        found = files.cut()
        *full, _ = [
            data
            for path, data in sorted(found.snapshot().items())
            if path.endswith(".blk") and data
        ] or [b""]
        assert all(data[-8:].strip(b"\0") for data in full)
        store = open_store(found, block_bytes=PAGE)
        assert store.report.damage == []
        assert len(content_of(store)) >= durable
        seen_rooms += store.report.torn_bytes == 0 and durable > 0
    assert seen_rooms


def _fill_three_blocks(files: FaultyFileSystem) -> int:
    durable = 0
    try:
        store = open_store(files, block_bytes=PAGE)
        for _ in range(30):
            commit_each(store, 1, size=300)
            durable = store.durable_seq
    except (OSError, StoreError):
        pass
    return durable


def _calls_over_three_blocks() -> int:
    files = PowerCut(MemoryFileSystem(), 0, None)
    assert _fill_three_blocks(files) == 30
    assert files.exists(f"{PATH}/000003.blk")
    return files.calls


def test_a_block_that_is_full_without_a_commit_of_its_own_gives_its_room_back() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    commit_each(store, 50)
    # Nothing of the first block is pending when it is sealed.
    store.purge()
    commit_each(store, 1)

    assert BLOCK not in files.snapshot() or block_of(files)[-8:].strip(b"\0")
    assert len(content_of(open_store(files.crash()))) == 1


# What a crash leaves


def crashed(*, with_checkpoint: bool = False) -> tuple[MemoryFileSystem, int]:
    """Return a disk after a power cut, and where the block's records end; room follows."""
    files = MemoryFileSystem()
    store = open_store(files)
    commit_each(store, 50)
    if with_checkpoint:
        store.checkpoint()
    found = files.crash()
    end = used_bytes(found)
    assert len(block_of(found)) > end + 600
    return found, end


def test_room_that_a_crash_left_is_cut_off_and_is_no_finding() -> None:
    found, end = crashed()
    store = open_store(found)

    assert store.report.clean
    assert len(content_of(store)) == 50
    assert len(block_of(found)) == end
    assert kept_aside(found) == []


def _tails() -> Iterator[tuple[str, bytes]]:
    random = Random(3)
    yield "garbage", random.randbytes(40)
    yield "garbage behind zeros", bytes(100) + random.randbytes(40)
    yield "garbage of many sectors", random.randbytes(600)


@pytest.mark.parametrize("tail", [tail for _, tail in _tails()], ids=[name for name, _ in _tails()])
def test_garbage_behind_the_last_record_is_torn_and_kept_aside(tail: bytes) -> None:
    found, end = crashed()
    tail = tail.rstrip(b"\0")
    put(found, end, tail)
    store = open_store(found)

    assert store.report.damage == []
    assert store.report.torn_bytes == len(tail)
    assert kept_aside(found) == [tail]
    assert len(content_of(store)) == 50
    assert len(block_of(found)) == end


def test_old_records_behind_the_last_one_are_not_taken_for_messages() -> None:
    found, end = crashed()
    old = block_of(found)[HEADER_BYTES:end]
    put(found, end, old[:500])
    store = open_store(found)

    assert store.report.damage == []
    assert store.report.torn_bytes > 0
    assert len(content_of(store)) == 50


def test_a_commit_whose_first_sector_did_not_arrive_in_the_room_is_left_out() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    commit_each(store, 50)
    end = used_bytes(files)
    store.store_batch([(b"a", b"", bytes([number]) * 30) for number in range(1, 30)])
    store.flush()
    found = files.crash()
    assert used_bytes(found) > end + 1024
    # As if the power had gone in the middle of the last commit.
    put(found, end, bytes(512))

    assert StreamReader(StoreFolder(found, PATH)).damage == []
    again = open_store(found)
    assert again.report.damage == []
    assert len(content_of(again)) == 50


def test_zeros_where_records_were_durable_are_damage_and_not_room() -> None:
    found, end = crashed(with_checkpoint=True)
    put(found, end - 60, bytes(60))

    reader = StreamReader(StoreFolder(found, PATH))
    assert [(each.offset + each.length, each.last_seq) for each in reader.damage] == [(end, 50)]
    store = open_store(found)
    assert store.report.damage == reader.damage
    assert len(block_of(found)) == end


def test_a_reader_beside_the_store_takes_room_for_nothing() -> None:
    files = MemoryFileSystem()
    commit_each(open_store(files), 50)

    reader = StreamReader(StoreFolder(files, PATH))
    assert sum(batch.count for batch in reader.batches()) == 50
    assert reader.damage == []
    (check,) = reader.verify()
    assert (check.messages, check.tail_bytes, check.damage, check.notes) == (50, 0, [], [])
