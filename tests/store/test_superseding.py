"""Messages that stand for those before them: stored and the others removed, in one go."""

from __future__ import annotations

import pytest

from penstock.errors import LimitReached
from penstock.store.interface import Discard
from penstock.subjects import SubjectFilter
from tests.support.store_kinds import StoreHouse


def test_a_message_leaves_as_many_of_its_subject_as_it_says(house: StoreHouse) -> None:
    store = house.open()
    for subject in (b"a", b"b", b"a", b"a"):
        store.store(subject, b"", b"x")
    store.store(b"a", b"", b"y", keep=2)

    assert store.subjects_totals(SubjectFilter([b">"])) == {b"a": 2, b"b": 1}
    assert store.load_last(b"a").payload == b"y"


def test_what_was_superseded_is_gone_after_a_restart(lasting_house: StoreHouse) -> None:
    store = lasting_house.open()
    for _ in range(3):
        store.store(b"a", b"", b"x")
    store.store(b"a", b"", b"y", keep=1)
    store = lasting_house.open_again(store)

    assert store.state().messages == 1


def test_a_full_subject_has_room_for_what_supersedes_it(house: StoreHouse) -> None:
    store = house.open(discard=Discard.NEW, discard_new_per_subject=True, max_msgs_per_subject=1)
    store.store(b"a", b"", b"x")
    with pytest.raises(LimitReached):
        store.store(b"a", b"", b"y")
    store.store(b"a", b"", b"y", keep=1)

    assert store.load_last(b"a").payload == b"y"


def test_members_of_a_batch_expire_and_supersede_each_by_itself(house: StoreHouse) -> None:
    store = house.open()
    now_ns = house.clock.now_ns()
    store.store(b"a", b"", b"old")
    store.store(b"b", b"", b"old")
    messages = [(b"a", b"", b"new"), (b"b", b"", b"new"), (b"b", b"", b"newer")]
    store.store_batch(messages, expires_ns=[0, now_ns + 1, 0], keep=[1, 0, 0])
    before = store.subjects_totals(SubjectFilter([b">"]))
    house.clock.advance_seconds(2)
    store.expire()

    assert before == {b"a": 1, b"b": 3}
    assert store.subjects_totals(SubjectFilter([b">"])) == {b"a": 1, b"b": 2}


def test_a_purge_without_a_wait_is_durable_with_the_next_commit(
    simulated_house: StoreHouse,
) -> None:
    store = simulated_house.open()
    store.store(b"a", b"", b"x")
    store.flush()
    store.store(b"b", b"", b"y")
    store.purge(seq=2, durable=False)
    before = store.durable_seq
    store.flush()
    store = simulated_house.open_again(store)

    assert before == 1
    assert store.state().messages == 1
