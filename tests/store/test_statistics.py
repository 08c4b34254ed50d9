"""Commits are counted by size and by time, from any thread."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.filestore import FileStore
from penstock.store.interface import (
    MESSAGES_BOUNDS,
    SECONDS_BOUNDS,
    CommitStatistics,
    Histogram,
)
from penstock.testing.clock import FakeClock
from penstock.testing.filesystem import MemoryFileSystem


def at_most(histogram: Histogram, bound: float) -> int:
    return sum(histogram.counts[: histogram.bounds.index(bound) + 1])


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100))))
def test_every_commit_is_in_the_first_bucket_that_it_fits_in(
    commits: list[tuple[int, float]],
) -> None:
    counted = CommitStatistics()
    for messages, seconds in commits:
        counted.note(messages, seconds)

    for bound in MESSAGES_BOUNDS:
        assert at_most(counted.messages(), bound) == sum(size <= bound for size, _ in commits)
    for limit in SECONDS_BOUNDS:
        assert at_most(counted.seconds(), limit) == sum(taken <= limit for _, taken in commits)
    assert sum(counted.messages().counts) == sum(counted.seconds().counts) == len(commits)
    assert counted.messages().total == sum(size for size, _ in commits)
    assert counted.seconds().total == pytest.approx(sum(taken for _, taken in commits))


def test_threads_lose_no_count() -> None:
    counted = CommitStatistics()

    def note_many() -> None:
        for _ in range(5_000):
            counted.note(1, 1.0)

    threads = [threading.Thread(target=note_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(counted.messages().counts) == counted.messages().total == 20_000


def test_a_store_tells_the_messages_of_each_commit() -> None:
    told: list[int] = []
    store = FileStore.open(
        "/stream",
        files=MemoryFileSystem(),
        clock=FakeClock(),
        threaded=False,
        on_commit=lambda messages, _seconds: told.append(messages),
    )
    for count in (1, 5):
        for _ in range(count):
            store.store(b"a", b"", b"x")
        store.flush()
    store.stop()

    assert told[:2] == [1, 5]
    assert sum(told) == 6
