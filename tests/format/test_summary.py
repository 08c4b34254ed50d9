"""A directory in numbers: the same that the store itself tells, whatever happened in it."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptStore
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.reader import StreamReader
from penstock.format.summary import find_sealing, summarize, top_subjects
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from penstock.testing.clock import FakeClock

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(1, 60)),
        st.tuples(st.just("remove"), st.integers(1, 400)),
        st.tuples(st.just("skip"), st.integers(1, 9)),
        st.tuples(st.just("purge"), st.integers(1, 400)),
        st.tuples(st.just("erase"), st.integers(1, 400)),
        st.tuples(st.just("reclaim"), st.just(0)),
    ),
    min_size=1,
    max_size=25,
)


def play(store: FileStore, clock: FakeClock, steps: list[tuple[str, int]]) -> None:
    """Do what the steps say."""
    for step, number in steps:
        clock.advance_ms(1)
        if step == "store":
            for place in range(number):
                store.store(b"a.%d" % (place % 7), b"H" * (place % 3), b"p" * (number * 3))
        elif step == "remove":
            store.remove(number)
        elif step == "skip":
            store.skip(number)
        elif step == "purge":
            store.purge(SubjectFilter([b"a.1"]), seq=number)
        elif step == "erase":
            store.erase(number)
        else:
            store.reclaim(thorough=True)
    store.flush()


@settings(max_examples=60)
@given(STEPS)
def test_the_summary_is_what_the_store_itself_tells(steps: list[tuple[str, int]]) -> None:
    clock = FakeClock()
    config = StoreConfig(name="s", block_bytes=4096)
    with (
        tempfile.TemporaryDirectory() as path,
        FileStore.open(path, config, clock=clock, threaded=False) as store,
    ):
        play(store, clock, steps)
        state = store.state()
        totals = store.subjects_totals(SubjectFilter([]))
        summary = summarize(StreamReader(path))

    assert summary.messages == state.messages
    assert summary.bytes == state.bytes
    assert summary.last_seq == state.last_seq
    assert summary.subjects == state.subjects
    assert dict(top_subjects(summary, 100)) == totals
    if state.messages:
        assert summary.first_seq == state.first_seq
        assert summary.first_time_ns == state.first_time_ns
        assert summary.deleted == state.deleted


@pytest.mark.parametrize("cipher", list(Cipher))
@pytest.mark.parametrize("compression", list(Compression))
def test_how_the_newest_records_are_sealed_is_found(
    tmp_path: Path, cipher: Cipher, compression: Compression
) -> None:
    config = StoreConfig(name="s", cipher=cipher, compression=compression)
    with FileStore.open(str(tmp_path), config, key=StoreKey(b"k"), threaded=False) as store:
        store.store(b"a", b"", b"again and again " * 20)
        # Too short to get smaller, so stored as it is.
        store.store(b"a", b"", b"x")

    assert find_sealing(StreamReader(str(tmp_path), stream="s")) == (compression, cipher)


def test_an_empty_directory_is_an_empty_stream(tmp_path: Path) -> None:
    summary = summarize(StreamReader(str(tmp_path)))

    assert (summary.messages, summary.first_seq, summary.last_seq, summary.subjects) == (0, 1, 0, 0)
    assert top_subjects(summary, 5) == []


def test_an_index_that_ends_in_a_garbage_cycle_frees_only_what_it_owns(tmp_path: Path) -> None:
    config = StoreConfig(name="s", block_bytes=4096)
    with FileStore.open(str(tmp_path), config, threaded=False) as store:
        for _ in range(200):
            store.store(b"a", b"", b"x" * 100)
        store.flush()
    reader = StreamReader(str(tmp_path))

    for _ in range(20):
        with contextlib.suppress(CorruptStore):
            cycle: list[object] = [reader.load_index(1)]
            cycle.append(cycle)
            del cycle
        gc.collect()

    assert reader.load_index(1).count > 0
