"""Snapshots and restores: what was live at the call comes back and nothing else, whatever fails."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import (
    CorruptStore,
    FormatError,
    PenstockError,
    StoreError,
    UnsupportedVersion,
    UsageError,
)
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.hashing import xxh64
from penstock.format.record import measure
from penstock.limits import SNAPSHOT_CHUNK_BYTES_MAX
from penstock.store.filestore import FileStore
from penstock.store.imports.restore import restore
from penstock.store.interface import StoreConfig
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultyFileSystem, every_fault
from penstock.testing.filesystem import MemoryFileSystem

KEY = StoreKey(b"the store's secret")
SMALL_BLOCKS = 4096
Row = tuple[int, int, bytes, bytes, bytes, int]


def open_store(
    files: MemoryFileSystem, path: str = "/old/orders", config: StoreConfig | None = None
) -> FileStore:
    config = config or StoreConfig(name="orders", block_bytes=SMALL_BLOCKS)
    return FileStore.open(
        path,
        config,
        files=files,
        clock=FakeClock(),
        random_bytes=Random(1).randbytes,
        key=KEY,
        threaded=False,
    )


def bring_back(
    files: FaultyFileSystem | MemoryFileSystem,
    chunks: Iterable[bytes],
    config: StoreConfig | None = None,
) -> FileStore:
    return restore(
        "/new/orders",
        chunks,
        config,
        files=files,
        clock=FakeClock(),
        random_bytes=Random(2).randbytes,
        key=KEY,
        threaded=False,
    )


def rows(store: FileStore) -> list[Row]:
    found = []
    seq = store.state().first_seq
    with contextlib.suppress(LookupError):
        while True:
            message = store.load_next(seq)
            found.append(
                (
                    message.seq,
                    message.timestamp_ns,
                    message.subject,
                    message.headers,
                    message.payload,
                    message.expires_ns,
                )
            )
            seq = message.seq + 1
    return found


def numbers(store: FileStore) -> tuple[int, ...]:
    state = store.state()
    return (
        state.messages,
        state.first_seq,
        state.first_time_ns,
        state.last_seq,
        state.last_time_ns,
        state.deleted,
        state.subjects,
    )


def fill(store: FileStore, count: int, size: int = 50) -> None:
    for place in range(count):
        store.store(b"orders.%d" % (place % 5), b"", b"%d " % place + b"x" * size)


def cut(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


changes = st.one_of(
    st.tuples(st.just("store"), st.integers(0, 3), st.binary(max_size=200), st.booleans()),
    st.tuples(st.just("raw"), st.integers(1, 5), st.binary(max_size=20), st.booleans()),
    st.tuples(st.just("skip"), st.integers(1, 4)),
    st.tuples(st.just("remove"), st.integers(1, 40)),
    st.tuples(st.just("erase"), st.integers(1, 40)),
    st.tuples(st.just("purge"), st.integers(0, 3)),
    st.tuples(st.just("compact"), st.integers(1, 60)),
)


def apply(store: FileStore, change: tuple) -> None:  # type: ignore[type-arg]  # of any shape
    last_seq = store.state().last_seq
    match change:
        case ("store", topic, payload, expires):
            headers = b"NATS/1.0\r\nA: b\r\n\r\n" if topic else b""
            store.store(b"t.%d" % topic, headers, payload, expires_ns=2**62 if expires else 0)
        case ("raw", gap, payload, expires):
            store.store_raw(
                b"raw",
                b"",
                payload,
                seq=last_seq + gap,
                timestamp_ns=FakeClock().now_ns() + gap,
                expires_ns=2**62 if expires else 0,
            )
        case ("skip", count):
            store.skip(count)
        case ("remove", seq):
            store.remove(seq)
        case ("erase", seq):
            store.erase(seq)
        case ("purge", topic):
            store.purge(SubjectFilter([b"t.%d" % topic]))
        case ("compact", seq):
            store.compact(seq)
        case _:
            raise AssertionError(change)


@given(st.lists(changes, max_size=40), st.integers(1, 400))
def test_what_was_live_comes_back_whatever_was_done_before(
    done: list[tuple],  # type: ignore[type-arg]  # of any shape
    chunk_bytes: int,
) -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    for change in done:
        apply(store, change)

    restored = bring_back(files, cut(b"".join(store.snapshot()), chunk_bytes))

    assert rows(restored) == rows(store)
    assert numbers(restored) == numbers(store)
    restored.stop()
    again = open_store(files, "/new/orders")
    assert again.report.clean
    assert numbers(again) == numbers(store)


@pytest.mark.parametrize("cipher", list(Cipher))
@pytest.mark.parametrize("compression", list(Compression))
def test_sealed_and_plain_stores_are_restored_from_each_other(
    cipher: Cipher, compression: Compression
) -> None:
    files = MemoryFileSystem()
    sealed = StoreConfig(
        name="orders", block_bytes=SMALL_BLOCKS, cipher=cipher, compression=compression
    )
    store = open_store(files, config=sealed)
    fill(store, 100)
    store.remove(50)

    plain = bring_back(files, store.snapshot())
    there = rows(plain)
    chunks = list(plain.snapshot())
    plain.delete()
    back = bring_back(files, chunks, sealed)

    assert there == rows(store)
    assert rows(back) == rows(store)
    assert b"".join(store.snapshot()) == b"".join(back.snapshot())


def test_a_stream_in_memory_is_restored_to_a_directory() -> None:
    memory = MemoryStore.create(StoreConfig(name="orders"), clock=FakeClock())
    fill(memory, 30)
    memory.remove(30)

    restored = bring_back(MemoryFileSystem(), memory.snapshot())

    assert restored.config.name == "orders"
    assert rows(restored) == rows(memory)
    assert restored.state().last_seq == 30


def test_a_snapshot_shows_the_moment_of_its_call_while_the_stream_goes_on() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    fill(store, 300)
    store.remove(7)
    before = rows(store), numbers(store)

    pieces = store.snapshot()
    taken = [next(pieces), next(pieces)]
    fill(store, 100)
    for seq in range(1, 200):
        store.remove(seq)
    store.flush()
    store.reclaim()
    taken += [next(pieces)]
    store.purge()
    store.flush()
    restored = bring_back(files, [*taken, *pieces])

    assert (rows(restored), numbers(restored)) == before
    assert store.state().messages == 0


def test_a_snapshot_is_consistent_while_other_threads_write_and_remove(tmp_path: Path) -> None:
    config = StoreConfig(name="orders", block_bytes=8 * SMALL_BLOCKS)
    done = threading.Event()
    with FileStore.open(str(tmp_path / "old"), config) as store:
        fill(store, 500)

        def go_on() -> None:
            while not done.is_set():
                first_seq, _ = store.store_batch([(b"more", b"", b"y" * 100)] * 20)
                for seq in range(store.state().first_seq, first_seq - 400):
                    store.remove(seq)
                store.flush()

        writer = threading.Thread(target=go_on)
        writer.start()
        try:
            for turn in range(2):
                with restore(str(tmp_path / f"new{turn}"), store.snapshot()) as restored:
                    state = restored.state()
                    seqs = [row[0] for row in rows(restored)]
                    assert seqs == list(range(state.first_seq, state.last_seq + 1))
                    assert len(seqs) == state.messages >= 400
        finally:
            done.set()
            writer.join()


def block_files(files: MemoryFileSystem) -> int:
    return sum(name.endswith(".blk") for name in files.list_names("/old/orders"))


def test_space_is_given_back_when_the_snapshot_is_over() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    fill(store, 300)

    pieces = store.snapshot()
    store.purge()
    held = block_files(files)
    for _ in pieces:
        pass

    assert held > 3
    assert block_files(files) <= 1


def test_a_snapshot_that_is_not_read_to_its_end_holds_nothing() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    fill(store, 300)

    for pieces_taken in (0, 2):
        pieces = store.snapshot()
        list(itertools.islice(pieces, pieces_taken))
        del pieces
    gc.collect()
    store.purge()

    assert block_files(files) <= 1


def test_what_is_erased_during_a_snapshot_is_left_out() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    fill(store, 100)

    pieces = store.snapshot()
    store.erase(90)
    restored = bring_back(files, pieces)

    assert [row[0] for row in rows(restored)] == [seq for seq in range(1, 101) if seq != 90]


def test_truncating_or_resetting_ends_a_snapshot_with_an_error() -> None:
    for reset in (False, True):
        files = MemoryFileSystem()
        store = open_store(files)
        fill(store, 300)
        pieces = store.snapshot()
        head = next(pieces)

        if reset:
            store.reset()
        else:
            store.truncate(10)

        with pytest.raises(StoreError):
            bring_back(files, itertools.chain([head], pieces))
        assert files.list_names("/new") == []


def test_a_damaged_message_ends_a_snapshot_and_is_reported() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    fill(store, 300)
    store.flush()
    data = files.snapshot()["/old/orders/000001.blk"]
    files.flip_bit("/old/orders/000001.blk", 8 * data.index(b"20 xxx") + 3)

    with pytest.raises(CorruptStore) as caught:
        list(store.snapshot())

    assert caught.value.seq == 21
    assert [(each.first_seq, each.last_seq) for each in store.state().lost] == [(21, 21)]


def test_no_piece_is_larger_than_promised() -> None:
    store = open_store(MemoryFileSystem(), config=StoreConfig(name="orders"))
    store.store(b"large", b"", b"x" * 1_000_000)
    fill(store, 5000)

    sizes = [len(piece) for piece in store.snapshot()]

    assert max(sizes) <= SNAPSHOT_CHUNK_BYTES_MAX
    assert sum(sizes) > 1_000_000


@pytest.fixture(scope="module")
def small_snapshot() -> bytes:
    store = open_store(MemoryFileSystem())
    fill(store, 4, size=10)
    store.store(b"orders.5", b"NATS/1.0\r\n\r\n", b"last", expires_ns=2**62)
    store.remove(2)
    store.skip(3)
    return b"".join(store.snapshot())


def assert_refused(data: bytes) -> None:
    files = MemoryFileSystem()
    with pytest.raises((FormatError, UnsupportedVersion)):
        bring_back(files, cut(data, 64))
    assert not files.exists("/new") or files.list_names("/new") == []


def test_every_truncation_is_refused_and_leaves_nothing_behind(small_snapshot: bytes) -> None:
    for size in range(len(small_snapshot)):
        assert_refused(small_snapshot[:size])


def test_every_flipped_bit_is_refused_and_leaves_nothing_behind(small_snapshot: bytes) -> None:
    for bit in range(8 * len(small_snapshot)):
        damaged = bytearray(small_snapshot)
        damaged[bit // 8] ^= 1 << bit % 8
        assert_refused(bytes(damaged))


def test_bytes_after_the_end_are_refused(small_snapshot: bytes) -> None:
    assert_refused(small_snapshot + b"\0")
    assert_refused(small_snapshot + small_snapshot)
    with pytest.raises(FormatError):
        bring_back(MemoryFileSystem(), [small_snapshot, b"\0"])


def test_a_record_that_is_lost_or_doubled_is_noticed_by_the_end() -> None:
    store = open_store(MemoryFileSystem())
    for _ in range(3):
        store.store(b"same", b"", b"length")
    data = b"".join(store.snapshot())
    end_bytes = 17
    record_bytes = 1 + 5 + 1 + 7 + 24
    first = len(data) - end_bytes - 3 * record_bytes

    for kept in ((0, 1), (0, 2), (1, 2), (0, 0, 1, 2), (1, 0, 2)):
        records = [data[first + place * record_bytes :][:record_bytes] for place in kept]
        assert_refused(data[:first] + b"".join(records) + data[-end_bytes:])
    records = [data[first + place * record_bytes :][:record_bytes] for place in (0, 1, 2)]
    assert len(rows(bring_back(MemoryFileSystem(), [data[:first], *records, data[-17:]]))) == 3


def test_an_end_that_counts_wrongly_is_refused(small_snapshot: bytes) -> None:
    head_bytes = small_snapshot.index(b"orders") + len(b"orders") + 8
    end = b"\xff" + (4).to_bytes(8, "little")
    chain = int.from_bytes(small_snapshot[head_bytes - 8 : head_bytes], "little")
    offset = head_bytes
    while small_snapshot[offset] != 0xFF:
        size = measure(small_snapshot, offset)
        chain = xxh64(small_snapshot[offset : offset + size], chain)
        offset += size
    assert small_snapshot[offset:] == end + xxh64(end, chain).to_bytes(8, "little")

    wrong = b"\xff" + (5).to_bytes(8, "little")

    assert_refused(small_snapshot[:offset] + wrong + xxh64(wrong, chain).to_bytes(8, "little"))


def test_a_snapshot_of_a_newer_version_is_refused_by_its_version(small_snapshot: bytes) -> None:
    data = bytearray(small_snapshot)
    data[8] = 2
    name_end = len(data) - len(bytes(data).partition(b"orders")[2])
    data[name_end : name_end + 8] = xxh64(bytes(data[:name_end])).to_bytes(8, "little")

    with pytest.raises(UnsupportedVersion) as caught:
        bring_back(MemoryFileSystem(), [bytes(data)])

    assert (caught.value.found, caught.value.supported) == (2, 1)


def test_a_place_that_is_taken_is_refused_and_left_alone(small_snapshot: bytes) -> None:
    files = MemoryFileSystem()
    store = open_store(files, "/new/orders")
    fill(store, 3)
    store.stop()
    before = files.snapshot()

    with pytest.raises(UsageError):
        bring_back(files, [small_snapshot])

    assert files.snapshot() == before


def test_an_empty_folder_is_a_place_for_a_restore(small_snapshot: bytes) -> None:
    files = MemoryFileSystem()
    files.make_dirs("/new/orders")

    restored = bring_back(files, [small_snapshot])

    assert restored.state().last_seq == 8
    assert files.list_names("/new") == ["orders"]


def test_a_real_disk_takes_a_restore(tmp_path: Path, small_snapshot: bytes) -> None:
    with restore(f"{tmp_path}/deep/orders", [small_snapshot]) as restored:
        assert [row[0] for row in rows(restored)] == [1, 3, 4, 5]
        assert restored.state().last_seq == 8
        assert restored.store(b"orders.6", b"", b"next")[0] == 9


def test_the_limits_of_the_new_configuration_apply_to_what_is_restored() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    fill(store, 20)

    restored = bring_back(files, store.snapshot(), StoreConfig(name="orders", max_msgs=5))

    assert [row[0] for row in rows(restored)] == [16, 17, 18, 19, 20]


def test_gaps_wider_than_a_block_can_span_are_kept() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    store.store(b"near", b"", b"1")
    store.store_raw(b"far", b"", b"2", seq=2**40, timestamp_ns=5)
    store.store(b"next", b"", b"3")
    store.skip(2**41)

    restored = bring_back(files, store.snapshot())

    for each in (store, restored):
        assert [row[0] for row in rows(each)] == [1, 2**40, 2**40 + 1]
        assert each.state().last_seq == 2**40 + 1 + 2**41
        each.stop()
    for path in ("/old/orders", "/new/orders"):
        again = open_store(files, path)
        assert again.report.clean
        assert [row[0] for row in rows(again)] == [1, 2**40, 2**40 + 1]
        assert again.store(b"on", b"", b"4")[0] == 2**40 + 2 + 2**41


def test_a_crash_at_any_call_leaves_the_whole_store_or_none() -> None:
    store = open_store(MemoryFileSystem())
    fill(store, 120)
    store.remove(60)
    chunks = list(store.snapshot())
    expected = rows(store)
    outcomes = set()

    for plan in every_fault(forever=True):
        disk = MemoryFileSystem()
        with contextlib.suppress(OSError, PenstockError):
            bring_back(FaultyFileSystem(disk, plan), chunks)
        for keep in (None, Random(plan.nth), Random(-plan.nth)):
            found = disk.survivor(keep)
            there = found.exists("/new/orders") and found.list_names("/new/orders") != []
            if there:
                survivor = open_store(found, "/new/orders")
                assert rows(survivor) == expected
            else:
                assert rows(bring_back(found, chunks)) == expected
                assert found.list_names("/new") == ["orders"]
            outcomes.add(there)
    assert outcomes == {True, False}


def test_a_power_cut_after_a_restore_takes_nothing_of_it(small_snapshot: bytes) -> None:
    disk = MemoryFileSystem()
    expected = rows(bring_back(disk, [small_snapshot]))

    survivor = open_store(disk.crash(), "/new/orders")

    assert rows(survivor) == expected
    assert survivor.state().last_seq == 8


def test_a_failed_call_leaves_nothing_behind() -> None:
    store = open_store(MemoryFileSystem())
    fill(store, 120)
    chunks = list(store.snapshot())

    for plan in every_fault():
        disk = MemoryFileSystem()
        try:
            bring_back(FaultyFileSystem(disk, plan), chunks)
        except (OSError, StoreError):
            names = disk.list_names("/new") if disk.exists("/new") else []
            # Where the last step failed the store is whole and in its place.
            assert names in ([], ["orders"])
