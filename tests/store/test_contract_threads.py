"""Every store: many threads at once, and what they may rely on."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest

from penstock.errors import RecordNotFound, StoreClosed
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from tests.support.store_kinds import StoreHouse

T = TypeVar("T")

WRITERS = 4
EACH = 400


@pytest.fixture(autouse=True)
def _restless_threads() -> Iterator[None]:
    """Let threads take turns in the middle of everything."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*jobs: Callable[[], T]) -> list[T]:
    """Run jobs at the same time; give what they return, or raise what they raise."""
    barrier = threading.Barrier(len(jobs))

    def run(job: Callable[[], T]) -> T:
        barrier.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [done.result() for done in [pool.submit(run, job) for job in jobs]]


def write(store: FileStore, writer: int) -> list[int]:
    seqs: list[int] = []
    for place in range(EACH):
        if place % 10 == 9:
            first, last = store.store_batch([(b"w.%d" % writer, b"", b"%d" % place * 20)] * 3)
            seqs += range(first, last + 1)
        else:
            seqs.append(store.store(b"w.%d" % writer, b"", b"%d" % place * 20)[0])
        if place % 100 == 50:
            store.flush()
    return seqs


def read(store: FileStore, done: threading.Event) -> int:
    """Read at the tail and everywhere else, until all is written."""
    read = 0
    seq = 1
    while not done.is_set():
        try:
            message = store.load_next(seq, SubjectFilter([b"w.1"]))
            assert message.subject == b"w.1"
            assert message.payload[:1].isdigit()
            seq = message.seq + 1
            read += 1
        except RecordNotFound:
            seq = 1
        state = store.state()
        assert state.messages <= state.last_seq
        assert store.count_pending(None, state.first_seq) >= 0
    return read


def test_writers_and_readers_get_along(house: StoreHouse) -> None:
    store = house.open()
    done = threading.Event()

    def write_all() -> list[list[int]]:
        try:
            return together(*(partial(write, store, writer) for writer in range(WRITERS)))
        finally:
            done.set()

    written, *_ = together(write_all, lambda: read(store, done), lambda: read(store, done))
    assert isinstance(written, list)
    total = WRITERS * (EACH + EACH // 10 * 2)
    assert sorted(seq for seqs in written for seq in seqs) == list(range(1, total + 1))
    for writer, seqs in enumerate(written):
        assert seqs == sorted(seqs)
        assert {store.load(seq).subject for seq in seqs} == {b"w.%d" % writer}
    assert store.flush() == total
    assert house.durable == sorted(house.durable)
    store = house.open_again(store)
    assert store.state().messages == total


def test_removing_and_reclaiming_beside_writers_and_readers(house: StoreHouse) -> None:
    store = house.open(max_msgs_per_subject=200)
    done = threading.Event()

    def remove() -> int:
        removed = 0
        seq = 1
        while not done.is_set():
            removed += store.remove(seq)
            seq = seq + 3 if seq < store.state().last_seq else 1
            if seq % 50 == 0:
                store.erase(seq)
            if seq % 200 == 0:
                store.reclaim()
                store.update_config(
                    StoreConfig(name="orders", block_bytes=4096, max_msgs_per_subject=200)
                )
        return removed

    def write_all() -> None:
        try:
            together(*(partial(write, store, writer) for writer in range(WRITERS)))
        finally:
            done.set()

    together(write_all, remove, lambda: read(store, done))
    state = store.state()
    live = [seq for seq in range(1, state.last_seq + 1) if _is_there(store, seq)]
    assert len(live) == state.messages
    assert max(store.subjects_totals(SubjectFilter([])).values()) <= 200
    assert store.problems == []
    store = house.open_again(store, max_msgs_per_subject=200)
    assert [seq for seq in range(1, state.last_seq + 1) if _is_there(store, seq)] == live


def _is_there(store: FileStore, seq: int) -> bool:
    try:
        return store.load(seq).seq == seq
    except RecordNotFound:
        return False


@pytest.mark.parametrize("attempt", range(5))
def test_what_a_stopping_store_took_it_also_kept(lasting_house: StoreHouse, attempt: int) -> None:
    store = lasting_house.open()
    store.store_batch([(b"a.1", b"", b"x" * 50)] * (attempt + 1))

    def write_until_refused() -> list[int]:
        seqs = []
        with contextlib.suppress(StoreClosed):
            while True:
                seqs.append(store.store(b"a.1", b"", b"x" * 50)[0])
        return seqs

    taken = together(store.stop, *[write_until_refused] * WRITERS)[1:]
    store = lasting_house.open()
    assert store.report.checkpoint_used
    for seqs in taken:
        assert isinstance(seqs, list)
        assert all(_is_there(store, seq) for seq in seqs)


def test_truncating_and_resetting_beside_writers_keeps_the_stream_whole(
    house: StoreHouse,
) -> None:
    store = house.open(block_bytes=16_384)
    done = threading.Event()

    def write_on() -> None:
        for _ in range(3000):
            store.store(b"a.1", b"", b"x" * 100)
            if done.is_set():
                return

    def cut() -> None:
        try:
            for place in range(12):
                if place % 6 == 5:
                    store.reset()
                elif (last := store.state().last_seq) > 1:
                    # A writer may have been cut off, or the stream reset, before it comes to this.
                    with contextlib.suppress(RecordNotFound):
                        store.truncate(last // 2)
                store.flush()
        finally:
            done.set()

    together(cut, write_on, write_on)
    state = store.state()
    assert store.problems == []
    assert store.failure is None
    live = [seq for seq in range(1, state.last_seq + 1) if _is_there(store, seq)]
    assert len(live) == state.messages
    store = house.open_again(store)
    assert [seq for seq in range(1, state.last_seq + 1) if _is_there(store, seq)] == live
