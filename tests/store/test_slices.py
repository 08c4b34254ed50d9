"""Every store: long removals in slices leave what they leave in one go, while messages come in."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limits import REMOVED_BEHIND_MAX
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter
from tests.support.store_kinds import StoreHouse
from tests.support.stores import assert_same

SECOND_NS = 1_000_000_000
AT_ONCE = 5
SUBJECTS = (b"a.1", b"a.2", b"b.1", b"c")


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("limits", "removal"):
        monkeypatch.setattr(f"penstock.store.upkeep.{module}.REMOVED_AT_ONCE", AT_ONCE)


def body(place: int) -> tuple[bytes, bytes, bytes]:
    return (SUBJECTS[place * place % 4], b"", b"x" * (place * 37 % 400))


def counts(store: FileStore, slices: Generator[None, None, Any]) -> tuple[list[int], Any]:
    """Return how many messages each slice removed, and the result."""
    removed: list[int] = []
    before = store.state().messages
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return removed, end.value
        removed.append(before - store.state().messages)
        before = store.state().messages


@pytest.mark.parametrize(
    "limits",
    [
        {"max_msgs": 17},
        {"max_bytes": 3_000},
        {"max_msgs_per_subject": 3},
        {"max_msgs": 9, "max_msgs_per_subject": 4},
        {"max_age_ns": 20 * SECOND_NS},
        {"max_age_ns": 50 * SECOND_NS, "max_msgs_per_subject": 6, "max_bytes": 2_000},
    ],
)
def test_lowered_limits_are_applied_in_slices(house: StoreHouse, limits: dict[str, Any]) -> None:
    store, model = house.open(), house.model()
    for place in range(70):
        house.clock.advance_seconds(1)
        store.store(*body(place))
        model.store(*body(place), now_ns=house.clock.now_ns())
    model.config = config = StoreConfig(name="orders", block_bytes=4096, **limits)
    removed, _ = counts(store, store.in_slices.update_config(config))
    model.enforce_all(house.clock.now_ns())
    assert_same(store, model)
    assert max(removed) <= AT_ONCE
    assert len(removed) > 5
    assert_same(house.open_again(store, **limits), model)


def test_what_comes_while_limits_are_applied_counts_and_removes_only_a_few(
    house: StoreHouse,
) -> None:
    store = house.open()
    for _ in range(200):
        store.store(b"a", b"", b"")
    config = StoreConfig(name="orders", block_bytes=4096, max_msgs_per_subject=2, max_msgs=3)
    slices = store.in_slices.update_config(config)
    next(slices)
    before = store.state().messages
    store.store(b"a", b"", b"")
    # Of its subject, and of the stream.
    assert before + 1 - store.state().messages <= 2 * REMOVED_BEHIND_MAX
    assert store.state().messages > 100
    for _ in slices:
        pass
    assert [store.load(seq).seq for seq in (200, 201)] == [200, 201]
    assert store.state().messages == 2
    store.store(b"a", b"", b"")
    assert (store.state().messages, store.state().first_seq) == (2, 201)


@pytest.mark.parametrize(
    "wanted",
    [
        {"subjects": None, "keep": 7},
        {"subjects": SubjectFilter([b"a.*"])},
        {"subjects": SubjectFilter([b"a.*"]), "keep": 3},
        {"subjects": SubjectFilter([b"b.1"]), "seq": 40},
        {"subjects": None, "seq": 51},
    ],
)
def test_a_purge_in_slices_removes_what_a_purge_does(
    house: StoreHouse, wanted: dict[str, Any]
) -> None:
    store, model = house.open(), house.model()
    for place in range(70):
        store.store(*body(place))
        model.store(*body(place), now_ns=house.clock.now_ns())
    patterns = wanted["subjects"] and list(wanted["subjects"].patterns)
    rest = {key: value for key, value in wanted.items() if key != "subjects"}
    removed, purged = counts(store, store.in_slices.purge(**wanted))
    assert purged == sum(removed) == model.purge(patterns, **rest)
    assert max(removed) <= AT_ONCE
    assert_same(store, model)
    assert_same(house.open_again(store), model)


def test_what_comes_while_a_purge_is_under_way_stays(house: StoreHouse) -> None:
    store = house.open()
    for place in range(70):
        store.store(*body(place))
    for removed, _ in enumerate(store.in_slices.purge(SubjectFilter([b"a.1"])), 1):
        assert store.store(b"a.1", b"", b"new")[0] == 70 + removed
    assert store.filtered_state(SubjectFilter([b"a.1"])).messages == removed
    assert store.filtered_state(SubjectFilter([b"a.1"])).first_seq == 71


@given(st.lists(st.integers(1, 40), max_size=10), st.integers(1, 20), st.booleans())
def test_a_purge_keeps_the_newest_whatever_others_do_meanwhile(
    others: list[int], keep: int, grows: bool
) -> None:
    left = list(others)
    with MemoryStore.create(StoreConfig(block_bytes=4096)) as store:
        for _ in range(40):
            store.store(b"a", b"", b"")
        for _ in store.in_slices.purge(keep=keep):
            if left:
                store.remove(left.pop())
            if grows:
                store.store(b"a", b"", b"")
        kept = {seq for seq in range(1, 41) if store.has(seq)}
    assert len(kept) <= keep
    assert kept >= set(range(41 - keep, 41)).difference(others)


@pytest.mark.parametrize("seq", [0, 1, 40, 70, 71, 90])
def test_compacting_in_slices_ends_where_compacting_does(house: StoreHouse, seq: int) -> None:
    store, model = house.open(), house.model()
    for place in range(70):
        store.store(*body(place))
        model.store(*body(place), now_ns=house.clock.now_ns())
    removed, compacted = counts(store, store.in_slices.compact(seq))
    assert compacted == sum(removed) == model.compact(seq)
    assert_same(store, model)


def test_so_many_messages_expire_at_once_as_are_asked_for(house: StoreHouse) -> None:
    store = house.open(max_age_ns=10 * SECOND_NS)
    for place in range(12):
        expires_ns = house.clock.now_ns() + 5 * SECOND_NS if place % 2 else 0
        store.store(b"a", b"", b"", expires_ns=expires_ns)
    house.clock.advance_seconds(6)
    assert [store.expire(4) for _ in range(3)] == [4, 2, 0]
    house.clock.advance_seconds(6)
    assert [store.expire(4) for _ in range(3)] == [4, 2, 0]
