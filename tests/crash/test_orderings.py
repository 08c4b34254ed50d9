"""Single orderings on which durability hangs, one test each: what reaches the disk before what."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from penstock.errors import RecordNotFound, StoreError
from penstock.format.block import HEADER_BYTES, decode_block_header
from penstock.format.block_walker import BlockWalker
from penstock.format.envelope import Cipher, StoreKey
from penstock.format.layout import HIGH_WATER_NAME
from penstock.format.record import decode
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultPlan, FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem
from tests.crash.power_cuts import PowerCut

PATH = "/data/stream"
CONFIG = StoreConfig(block_bytes=4096)
LATEST_ONLY = StoreConfig(block_bytes=4096, max_msgs_per_subject=1)
SECRET = StoreConfig(block_bytes=4096, cipher=Cipher.CHACHA20_POLY1305)
KEY = StoreKey(b"key")


def open_store(
    disk: MemoryFileSystem | FaultyFileSystem,
    config: StoreConfig = CONFIG,
    clock: FakeClock | None = None,
    seed: int = 1,
) -> FileStore:
    return FileStore.open(
        PATH,
        config,
        files=disk,
        clock=clock or FakeClock(),
        random_bytes=Random(seed).randbytes,
        key=KEY,
        threaded=False,
    )


class Watched(FaultyFileSystem):
    """A file system that keeps what a power cut before each call would leave."""

    def __init__(self, disk: MemoryFileSystem) -> None:
        super().__init__(disk)
        self.survivors: list[MemoryFileSystem] = []
        self._disk = disk

    def note(self, operation: Operation, path: str) -> FaultPlan | None:
        self.survivors.append(self._disk.survivor(Random(1)))
        return super().note(operation, path)


def fill(store: FileStore, count: int, payload_bytes: int = 600) -> None:
    for _ in range(count):
        seq = store.state().last_seq + 1
        store.store(b"s.%d" % seq, b"", Random(seq).randbytes(payload_bytes))
    store.flush()


def live(store: FileStore) -> list[int]:
    state = store.state()
    gone = store.deleted()
    return [seq for seq in range(state.first_seq, state.last_seq + 1) if seq not in gone]


def forget_mark(disk: MemoryFileSystem) -> None:
    """The mark is not synced with each commit: a power cut may take it."""
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(f"{PATH}/{HIGH_WATER_NAME}")


def test_the_folder_of_a_new_store_is_synced_in_its_parent() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    fill(store, 1)

    assert live(open_store(disk.survivor())) == [1]


def test_a_message_that_gave_way_stays_until_its_successor_is_durable() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk, LATEST_ONLY)
    fill(store, 12)
    for seq in (1, 2, 3, 4, 5):
        store.store(b"s.%d" % seq, b"", b"newer")

    store.engine.compaction.reclaim()

    # Nobody flushed: after a cut each subject has its old message or its new one.
    left = open_store(disk.survivor(), LATEST_ONLY)
    for seq in range(1, 13):
        assert left.load_last(b"s.%d" % seq)


def test_a_removal_does_not_outlive_the_message_that_caused_it() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk, LATEST_ONLY)
    store.store(b"key", b"", b"old")
    fill(store, 1, payload_bytes=2)
    before = len(disk.snapshot()[f"{PATH}/000001.blk"])
    store.store(b"key", b"", b"new" * 400)
    store.engine.durability.committer.commit()
    data = disk.snapshot()[f"{PATH}/000001.blk"]
    # The sectors of the new message were lost, and that of the tombstone behind it was not.
    torn = disk.survivor()
    file = torn.open(f"{PATH}/000001.blk", "update")
    file.write_at(before, bytes(1024))
    assert file.size() == len(data)
    forget_mark(torn)

    left = open_store(torn, LATEST_ONLY)

    assert left.load_last(b"key").payload == b"old"
    assert left.report.damage == []
    assert left.report.torn_bytes == len(data) - before


def test_the_same_gap_in_what_was_acknowledged_is_damage_and_its_neighbours_are_kept() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk, LATEST_ONLY)
    store.store(b"key", b"", b"old")
    fill(store, 1, payload_bytes=2)
    before = len(disk.snapshot()[f"{PATH}/000001.blk"])
    store.store(b"key", b"", b"new" * 400)
    store.store(b"other", b"", b"neighbour")
    store.checkpoint()
    torn = disk.survivor()
    file = torn.open(f"{PATH}/000001.blk", "update")
    file.write_at(before, bytes(1024))

    left = open_store(torn, LATEST_ONLY)

    assert [(each.first_seq, each.last_seq) for each in left.report.damage] == [(3, 3)]
    assert left.load_last(b"other").payload == b"neighbour"
    assert left.state().last_seq == 4


def test_a_truncation_that_is_cut_off_anywhere_brings_nothing_back() -> None:
    survivor, calls = _truncate_and_cut(10**6)
    assert calls > 20
    assert live(open_store(survivor)) == [1, 4, 5, 6, 7, 8]
    for at_call in range(1, calls + 1):
        survivor, _ = _truncate_and_cut(at_call)
        left = open_store(survivor)
        assert not {2, 3, 9} & set(live(left))
        assert {1, 4, 5, 6, 7, 8} <= set(live(left))
        assert left.report.damage == []


def _truncate_and_cut(at_call: int) -> tuple[MemoryFileSystem, int]:
    """Truncate a stream whose tombstones lie in the part that goes; cut the power at a call."""
    disk = MemoryFileSystem()
    store = open_store(disk)
    fill(store, 16)
    for seq in (2, 3, 9):
        store.remove(seq)
    store.flush()
    store.checkpoint()
    fill(store, 8)
    files = PowerCut(disk, at_call, None)
    store.engine.log.directory.files = files
    with contextlib.suppress(OSError, StoreError):
        store.truncate(8)
    calls = files.calls
    return files.cut(), calls


def test_blocks_that_others_fill_during_a_truncation_leave_nothing_behind() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    fill(store, 8)

    def store_more(durable_seq: int) -> None:
        for _ in range(20):
            store.store(b"late", b"", bytes(600))

    store.engine.durability.commits.on_durable = store_more
    store.truncate(8 - 3)
    store.engine.durability.commits.on_durable = None
    store.store(b"after", b"", b"the truncation")
    store.stop()

    again = open_store(disk)
    assert again.report.clean, again.report
    assert again.load_last(b"after").payload == b"the truncation"
    assert again.state().messages == len(live(again))


def test_a_time_to_live_does_not_outlive_a_truncation() -> None:
    clock = FakeClock()
    store = open_store(MemoryFileSystem(), clock=clock)
    fill(store, 2)
    store.store(b"a", b"", b"short-lived", expires_ns=clock.now_ns() + 10**9)
    store.truncate(2)
    seq, _ = store.store(b"a", b"", b"for good")
    assert seq == 3

    clock.advance_seconds(60)
    store.expire()

    assert store.load(3).payload == b"for good"


def test_a_time_to_live_survives_a_crash_without_any_index() -> None:
    clock = FakeClock()
    disk = MemoryFileSystem()
    store = open_store(disk, clock=clock)
    store.store(b"a", b"", b"short-lived", expires_ns=clock.now_ns() + 10**9)
    store.flush()

    left = open_store(disk.survivor(), clock=clock)
    assert left.load(1).expires_ns == clock.now_ns() + 10**9
    clock.advance_seconds(60)

    assert left.expire() == 1


def test_an_erasure_finds_its_message_in_a_block_that_was_rewritten_meanwhile() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    fill(store, 12)
    secret = store.load(5).payload
    for seq in (1, 2, 3):
        store.remove(seq)

    # The flush in it makes the block sparse, and without threads it is rewritten at once.
    assert store.erase(5)

    assert not any(secret[:64] in data for data in disk.snapshot().values())
    assert store.load(6).payload == Random(6).randbytes(600)
    with pytest.raises(RecordNotFound):
        store.load(5)


def test_a_reset_that_is_cut_off_does_not_call_the_stream_lost() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk)
    fill(store, 12)
    store.checkpoint()
    store.purge()
    watched = Watched(disk)
    store.engine.log.directory.files = watched
    store.reset()

    assert len(watched.survivors) > 5
    for survivor in watched.survivors:
        left = open_store(survivor)
        assert left.state().messages == 0
        assert left.report.damage == []


def sealed_records(disk: MemoryFileSystem) -> dict[tuple[bytes, int], bytes]:
    """Return {(wrapped key, sequence): envelope} of every record on a disk, torn ones too."""
    found = {}
    for path, data in disk.snapshot().items():
        if not path.endswith(".blk") or len(data) < HEADER_BYTES:
            continue
        header = decode_block_header(data[:HEADER_BYTES], path)
        walker = BlockWalker(data, block=header.number, seed=header.seed, base_seq=header.base_seq)
        offset = HEADER_BYTES
        while data[offset:].strip(b"\0"):
            record = decode(data, offset, seed=(walker.seed + offset) % 2**64)
            if record.payload.startswith(b"FSV2"):
                found[header.wrapped_key, record.seq] = record.payload
            offset += record.length
    return found


def test_no_key_ever_seals_two_messages_of_one_sequence() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk, SECRET)
    fill(store, 3)
    # Messages 4 and 5 reach the disk and are lost in the cut; others take their sequences.
    store.store(b"s", b"", b"the one")
    store.store(b"s", b"", b"the other")
    store.engine.durability.committer.commit()
    seen = sealed_records(disk)
    assert {seq for _, seq in seen} == {1, 2, 3, 4, 5}
    cut = disk.survivor()
    file = cut.open(f"{PATH}/000001.blk", "update")
    file.truncate(len(file.read_at(0, file.size()).rstrip(b"\0")) - 100)
    forget_mark(cut)

    after = open_store(cut, SECRET, seed=2)
    fill(after, 6)
    for seq in (1, 2, 3):
        after.remove(seq)
    after.reclaim()
    after.flush()

    again = sealed_records(cut)
    assert {seq for _, seq in again} == set(range(4, 10))
    for place, envelope in again.items():
        assert seen.get(place, envelope) == envelope
