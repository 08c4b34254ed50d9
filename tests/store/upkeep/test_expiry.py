"""What lasts for ever, and what is left for the owner to remove when its time has come."""

from __future__ import annotations

from random import Random

from penstock.store.filestore import FileStore
from penstock.store.interface import NEVER_NS
from penstock.subjects import SubjectFilter
from tests.support.store_kinds import StoreHouse

SECOND_NS = 1_000_000_000


def sequences(store: FileStore) -> list[int]:
    return [
        seq
        for seq in range(1, store.last_seq + 1)
        if store.filtered_state(None, seq).first_seq == seq
    ]


def test_what_lasts_outlives_the_maximum_age(house: StoreHouse) -> None:
    store = house.open(max_age_ns=10 * SECOND_NS)
    for number in range(6):
        expires_ns = NEVER_NS if number in (0, 1, 3) else 0
        store.store(b"a", b"", b"x", expires_ns=expires_ns)
    house.clock.advance_seconds(11)

    assert store.expire() == 3
    assert sequences(store) == [1, 2, 4]
    assert store.next_expiry_ns() is None


def test_what_comes_after_what_lasts_expires_in_its_time(house: StoreHouse) -> None:
    store = house.open(max_age_ns=10 * SECOND_NS)
    store.store(b"a", b"", b"x", expires_ns=NEVER_NS)
    house.clock.advance_seconds(5)
    store.store(b"a", b"", b"x")

    assert store.next_expiry_ns() == house.clock.now_ns() + 10 * SECOND_NS


def test_what_lasts_is_known_after_a_restart(lasting_house: StoreHouse) -> None:
    store = lasting_house.open(max_age_ns=10 * SECOND_NS)
    # Enough for several blocks.
    for _ in range(100):
        store.store(b"a", b"", Random(1).randbytes(100), expires_ns=NEVER_NS)
        store.store(b"b", b"", Random(2).randbytes(100))
    store = lasting_house.open_again(store)
    lasting_house.clock.advance_seconds(11)
    store.expire()

    assert store.subjects_totals(SubjectFilter([b">"])) == {b"a": 100}


def test_a_removed_message_lasts_no_longer(house: StoreHouse) -> None:
    store = house.open(max_age_ns=10 * SECOND_NS)
    store.store(b"a", b"", b"x", expires_ns=NEVER_NS)
    store.remove(1)
    store.store(b"a", b"", b"x")
    house.clock.advance_seconds(11)

    assert store.expire() == 1


def test_what_has_expired_stays_for_an_owner_who_removes_it(house: StoreHouse) -> None:
    store = house.open(max_age_ns=60 * SECOND_NS, hands_over_expired=True)
    now_ns = house.clock.now_ns()
    store.store(b"a", b"", b"old")
    store.store(b"b", b"", b"short", expires_ns=now_ns + 30 * SECOND_NS)
    house.clock.advance_seconds(31)
    store.store(b"c", b"", b"new")
    early = store.due(10)
    house.clock.advance_seconds(31)

    assert early == [2]
    assert store.expire() == 0
    assert store.due(10) == [1, 2]
    assert store.state().messages == 3


def test_no_more_is_handed_over_than_was_asked_for(house: StoreHouse) -> None:
    store = house.open(max_age_ns=SECOND_NS, hands_over_expired=True)
    for _ in range(5):
        store.store(b"a", b"", b"x")
    house.clock.advance_seconds(2)

    assert store.due(3) == [1, 2, 3]


def test_a_restart_removes_nothing_of_what_is_handed_over(lasting_house: StoreHouse) -> None:
    store = lasting_house.open(max_age_ns=SECOND_NS, hands_over_expired=True)
    store.store(b"a", b"", b"x")
    lasting_house.clock.advance_seconds(2)
    store = lasting_house.open_again(store)

    assert store.due(10) == [1]
