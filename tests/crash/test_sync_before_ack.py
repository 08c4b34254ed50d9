"""No acknowledgement before its bytes are synced, checked on every single one.

The file system under the store keeps, for each file, what a power cut at this moment would leave.
Each time the store calls something durable, the message must be in that.
"""

from __future__ import annotations

from random import Random

import pytest

from penstock.errors import StoreReadOnly
from penstock.format.envelope import Cipher, StoreKey
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultPlan, FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem

PATH = "/stream"
KEY = StoreKey(b"key")
CONFIG = StoreConfig(block_bytes=4096)


def open_store(
    disk: MemoryFileSystem | FaultyFileSystem, config: StoreConfig, **more: object
) -> FileStore:
    return FileStore.open(
        PATH,
        config,
        files=disk,
        clock=FakeClock(),
        random_bytes=Random(1).randbytes,
        key=KEY,
        threaded=False,
        **more,  # type: ignore[arg-type]  # callbacks only
    )


def payload(seq: int) -> bytes:
    return Random(seq).randbytes(seq * 37 % 900)


@pytest.mark.slow
@pytest.mark.parametrize("cipher", [Cipher.NONE, Cipher.AES_256_GCM])
def test_each_durable_callback_comes_after_a_sync_that_covers_its_bytes(cipher: Cipher) -> None:
    config = StoreConfig(block_bytes=4096, cipher=cipher)
    disk = MemoryFileSystem()
    acknowledged: list[int] = []

    def check(durable_seq: int) -> None:
        after_a_cut = open_store(disk.survivor(), config)
        for seq in range(len(acknowledged) + 1, durable_seq + 1):
            assert after_a_cut.load(seq).payload == payload(seq)
            acknowledged.append(seq)

    store = open_store(disk, config, on_durable=check)
    for seq in range(1, 151):
        store.store(b"s.%d" % (seq % 3), b"", payload(seq))
        if seq % 7 == 0:
            store.flush()
    store.stop()

    assert acknowledged == list(range(1, 151))


def test_removals_are_synced_before_flush_returns() -> None:
    disk = MemoryFileSystem()
    store = open_store(disk, CONFIG)
    for seq in range(1, 41):
        store.store(b"s", b"", payload(seq))
    store.flush()

    for seq in range(1, 41):
        assert store.remove(seq)
        store.flush()
        left = open_store(disk.survivor(), CONFIG).state()
        assert (left.messages, left.last_seq) == (40 - seq, 40)


def test_a_new_block_is_in_its_synced_directory_before_its_messages_are_acknowledged() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    calls_at_ack: list[int] = []
    store = open_store(files, CONFIG, on_durable=lambda _: calls_at_ack.append(len(files.audit)))
    for seq in range(1, 30):
        store.store(b"s", b"", payload(seq))
        store.flush()

    for at in calls_at_ack:
        before = files.audit[:at]
        for place, call in enumerate(before):
            if call.operation is Operation.WRITE and call.path.endswith(".blk"):
                later = before[place + 1 :]
                assert any(
                    other.operation is Operation.SYNC and other.path == call.path for other in later
                )
        made = [place for place, call in enumerate(before) if _makes_a_block(before, place)]
        synced = [
            place for place, call in enumerate(before) if call.operation is Operation.SYNC_DIR
        ]
        assert not made or made[-1] < synced[-1]


def _makes_a_block(calls: list, place: int) -> bool:  # type: ignore[type-arg]  # of Call
    call = calls[place]
    return (
        call.operation is Operation.OPEN
        and call.path.endswith(".blk")
        and not any(other.path == call.path for other in calls[:place])
    )


def test_a_failed_sync_is_never_tried_again_and_nothing_more_is_acknowledged() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    durable: list[int] = []
    store = open_store(files, CONFIG, on_durable=durable.append)
    store.store(b"s", b"", b"one")
    store.flush()
    files.plan = FaultPlan(1, {Operation.SYNC})
    store.store(b"s", b"", b"two")

    with pytest.raises(StoreReadOnly):
        store.flush()

    files.audit.clear()
    for _ in range(3):
        with pytest.raises(StoreReadOnly):
            store.flush()
        with pytest.raises(StoreReadOnly):
            store.store(b"s", b"", b"three")
    assert files.audit == []
    assert durable == [1]
    assert store.durable_seq == 1
    assert store.load(1).payload == b"one"
    assert store.load(2).payload == b"two"


def test_what_a_failed_sync_left_in_memory_is_written_again_before_it_counts() -> None:
    disk = MemoryFileSystem()
    files = FaultyFileSystem(disk)
    store = open_store(files, CONFIG)
    store.store(b"s", b"", b"one")
    store.flush()
    files.plan = FaultPlan(1, {Operation.SYNC})
    store.store(b"s", b"", b"two")
    with pytest.raises(StoreReadOnly):
        store.flush()
    files.plan = None

    store.reopen()

    # The bytes could be read back from the system's memory. If they count now, they are synced.
    after_a_cut = open_store(disk.survivor(), CONFIG)
    assert after_a_cut.state().last_seq == store.durable_seq
    for seq in range(1, store.durable_seq + 1):
        assert after_a_cut.load(seq).payload == store.load(seq).payload


def test_a_full_disk_refuses_writes_until_there_is_room_and_a_reopening() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    store = open_store(files, CONFIG)
    store.store(b"s", b"", b"one")
    store.flush()
    files.plan = FaultPlan(1, {Operation.WRITE}, error=28, forever=True)
    store.store(b"s", b"", b"two")
    with pytest.raises(StoreReadOnly, match="No space left"):
        store.flush()
    files.plan = None

    report = store.reopen()

    assert report.damage == []
    assert store.load(1).payload == b"one"
    seq, _ = store.store(b"s", b"", b"three")
    assert store.flush() == seq


def test_with_an_interval_flush_and_stop_sync_all_the_same() -> None:
    config = StoreConfig(block_bytes=4096, sync_interval_ns=10**12)
    for end in (FileStore.flush, FileStore.stop):
        disk = MemoryFileSystem()
        store = open_store(disk, config)
        for seq in range(1, 21):
            store.store(b"s", b"", payload(seq))
            store.engine.durability.committer.commit()

        end(store)

        left = open_store(disk.survivor(), config)
        assert left.state().messages == 20
        assert left.report.damage == []
