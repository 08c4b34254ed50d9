"""Every store: what expires and when, whatever the clock does."""

from __future__ import annotations

import itertools

import pytest

from penstock.errors import RecordNotFound
from penstock.store.filestore import FileStore
from penstock.subjects import SubjectFilter
from tests.support.store_kinds import StoreHouse

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS
JUMPS_NS = {
    "an hour ahead": HOUR_NS,
    "an hour back": -HOUR_NS,
    "a day ahead": DAY_NS,
    "a day back": -DAY_NS,
    "to 1970": -1_700_000_000 * SECOND_NS,
    "a leap second back": -SECOND_NS,
}


def is_there(store: FileStore, seq: int) -> bool:
    store.expire()
    try:
        store.load(seq)
    except RecordNotFound:
        return False
    return True


def test_a_message_expires_at_its_time_and_not_before(house: StoreHouse) -> None:
    store = house.open()
    expires_ns = house.clock.now_ns() + 10 * SECOND_NS
    store.store(b"a.1", b"", b"for ever")
    store.store(b"a.1", b"", b"for a while", expires_ns=expires_ns)
    store.store_raw(b"a.1", b"", b"raw", seq=7, timestamp_ns=5, expires_ns=expires_ns)
    assert store.load(2).expires_ns == expires_ns
    assert store.next_expiry_ns() == expires_ns
    house.clock.advance_ns(10 * SECOND_NS - 1)
    assert store.expire() == 0
    house.clock.advance_ns(1)
    assert store.expire() == 2
    assert store.next_expiry_ns() is None
    assert store.subjects_totals(SubjectFilter([])) == {b"a.1": 1}


@pytest.mark.parametrize("lost", [(), (".idx",), (".state",), (".idx", ".state")])
def test_times_to_live_outlast_a_reopen(lasting_house: StoreHouse, lost: tuple[str, ...]) -> None:
    house = lasting_house
    store = house.open()
    start_ns = house.clock.now_ns()
    for place in range(60):
        # In many blocks, sealed ones and the one being written, mixed with others.
        expires_ns = start_ns + (place + 1) * SECOND_NS if place % 3 else 0
        store.store(b"a.1", b"", b"x" * 300, expires_ns=expires_ns)
    store.remove(2)

    def meanwhile() -> None:
        house.clock.advance_seconds(30)
        house.lose_files(*lost)

    store = house.open_again(store, meanwhile)
    alive = [seq for seq in range(1, 61) if (seq - 1) % 3 == 0 or seq > 30]
    assert [seq for seq in range(1, 61) if is_there(store, seq)] == alive
    assert store.next_expiry_ns() == start_ns + 32 * SECOND_NS
    house.clock.advance_seconds(40)
    store.expire()
    assert store.state().messages == 20
    assert store.next_expiry_ns() is None


def test_messages_older_than_the_maximum_age_expire(house: StoreHouse) -> None:
    store = house.open(max_age_ns=10 * SECOND_NS)
    for _ in range(30):
        store.store(b"a.1", b"", b"x" * 300)
        house.clock.advance_seconds(1)
    assert store.expire() == 21
    assert store.state().first_seq == 22
    assert store.next_expiry_ns() == house.clock.now_ns() + SECOND_NS
    store = house.open_again(store, lambda: house.clock.advance_seconds(4), max_age_ns=10**10)
    assert store.state().first_seq == 26
    house.clock.advance_seconds(100)
    assert store.expire() == 5
    assert (store.state().first_seq, store.state().last_seq) == (31, 30)


def test_a_message_that_is_gone_leaves_no_timer_behind(house: StoreHouse) -> None:
    store = house.open(max_msgs_per_subject=1)
    later_ns = house.clock.now_ns() + DAY_NS

    def keep(count: int) -> None:
        for place in range(count):
            store.store(b"a.%d" % (place % 3), b"", b"x" * 200, expires_ns=later_ns + place)

    keep(60)
    assert store.next_expiry_ns() == later_ns + 57
    store.remove(58)
    store.erase(59)
    assert store.next_expiry_ns() == later_ns + 59
    store.truncate(60)
    store.purge(SubjectFilter([b"a.2"]))
    assert store.next_expiry_ns() is None
    keep(3)
    store.compact(10**6)
    assert store.next_expiry_ns() is None
    keep(3)
    store.reset()
    assert store.next_expiry_ns() is None


def test_a_sequence_that_is_given_again_does_not_inherit_a_time_to_live(
    house: StoreHouse,
) -> None:
    store = house.open()
    for _ in range(40):
        store.store(b"a.1", b"", b"x" * 300, expires_ns=house.clock.now_ns() + 5 * SECOND_NS)
    store.truncate(1)
    for _ in range(40):
        store.store(b"a.1", b"", b"y" * 300)
    house.clock.advance_seconds(60)
    assert store.expire() == 1
    assert store.state().messages == 40


@pytest.mark.parametrize("jump_ns", JUMPS_NS.values(), ids=JUMPS_NS)
def test_a_jump_of_the_clock_makes_nothing_expire_early_or_late(
    house: StoreHouse, jump_ns: int
) -> None:
    """Messages of before and after the jump live as long as they were to, to the second."""
    age_s, ttl_s = 100, 60
    store = house.open(max_age_ns=age_s * SECOND_NS)
    stored: dict[int, tuple[int, int]] = {}

    def keep() -> None:
        now_ns = house.clock.now_ns()
        for lifetime_s in (age_s, ttl_s):
            ttl_ns = 0 if lifetime_s == age_s else now_ns + ttl_s * SECOND_NS
            seq, _ = store.store(b"a.1", b"", b"x" * 200, expires_ns=ttl_ns)
            stored[seq] = (house.clock.monotonic_ns(), lifetime_s * SECOND_NS)

    for _ in range(5):
        keep()
        house.clock.advance_seconds(7)
    house.clock.jump_ns(jump_ns)
    for _ in range(200):
        keep()
        house.clock.advance_ms(900)
        store.expire()
        for seq, (born_ns, lifetime_ns) in list(stored.items()):
            age_ns = house.clock.monotonic_ns() - born_ns
            if is_there(store, seq):
                assert age_ns < lifetime_ns + SECOND_NS, "it is late"
            else:
                assert age_ns >= lifetime_ns, "it went early"
                del stored[seq]
    assert stored


@pytest.mark.parametrize("jump_ns", JUMPS_NS.values(), ids=JUMPS_NS)
def test_stamps_never_go_back_within_a_stream(house: StoreHouse, jump_ns: int) -> None:
    store = house.open()
    stamps = []
    for _ in range(3):
        for _ in range(3):
            stamps.append(store.store(b"a.1", b"", b"")[1])
            house.clock.advance_ms(3)
        house.clock.jump_ns(jump_ns)
        stamps.append(store.store(b"a.1", b"", b"")[1])
        store = house.open_again(store)
    assert stamps == sorted(stamps)
    assert all(after >= before for before, after in itertools.pairwise(stamps))


def test_stamps_follow_a_clock_that_was_set_forward(house: StoreHouse) -> None:
    store = house.open()
    store.store(b"a.1", b"", b"")
    house.clock.jump_ns(DAY_NS)
    assert store.store(b"a.1", b"", b"")[1] == house.clock.now_ns()


def test_the_next_expiry_is_told_in_the_time_of_the_clock_on_the_wall(house: StoreHouse) -> None:
    store = house.open(max_age_ns=60 * SECOND_NS)
    store.store(b"a.1", b"", b"", expires_ns=house.clock.now_ns() + 10 * SECOND_NS)
    house.clock.jump_ns(DAY_NS)
    assert store.next_expiry_ns() == house.clock.now_ns() + 10 * SECOND_NS
    house.clock.advance_seconds(10)
    assert store.expire() == 1


def test_expiring_costs_only_what_expires(house: StoreHouse) -> None:
    store = house.open()
    now_ns = house.clock.now_ns()
    for place in range(300):
        store.store(b"a.1", b"", b"", expires_ns=now_ns + (1 + place % 3) * DAY_NS)
    assert [store.expire() for _ in range(3)] == [0, 0, 0]
    for _ in range(3):
        house.clock.advance_ns(DAY_NS)
        assert store.expire() == 100
