"""Every store: what is found by sequence, by subject and by time."""

from __future__ import annotations

import pytest

from penstock.errors import LimitReached, RecordNotFound
from penstock.store.filestore import FileStore
from penstock.subjects import SubjectFilter
from tests.models.store import Message, StoreModel
from tests.support.store_kinds import StoreHouse
from tests.support.stores import (
    FILTERS,
    as_message,
    assert_same,
    assert_same_answers,
    assert_same_times,
)

SUBJECTS = (b"a.1", b"a.2", b"b.1", b"b.2.x", b"c")


def fill(house: StoreHouse, store: FileStore, model: StoreModel, count: int = 120) -> None:
    """Store messages over many blocks, and remove a third of them."""
    for place in range(count):
        house.clock.advance_ms(10)
        body = (SUBJECTS[place * place % 5], b"", b"%d " % place * (place % 60))
        store.store(*body)
        model.store(*body, now_ns=house.clock.now_ns())
    for seq in (*range(1, 15), *range(20, count, 5), *range(60, 90)):
        assert store.remove(seq) == model.remove(seq)


@pytest.mark.parametrize("seq", [0, 1, 14, 15, 16, 59, 60, 75, 90, 119, 120, 121, 500])
def test_every_filter_finds_the_same_from_any_sequence_on(house: StoreHouse, seq: int) -> None:
    store, model = house.open(), house.model()
    fill(house, store, model)
    for patterns in FILTERS:
        assert_same_answers(store, model, patterns, seq)
    store = house.open_again(store)
    for patterns in FILTERS:
        assert_same_answers(store, model, patterns, seq)


def test_a_store_tells_which_messages_it_has(house: StoreHouse) -> None:
    store, model = house.open(), house.model()
    fill(house, store, model)

    assert [seq for seq in range(200) if store.has(seq)] == sorted(model.messages)


def test_a_missing_message_is_not_found(house: StoreHouse) -> None:
    store = house.open()
    for missing in (0, 1, 2, 2**40):
        with pytest.raises(RecordNotFound):
            store.load(missing)
    store.store(b"a.1", b"", b"")
    store.skip(2)
    store.store(b"a.1", b"", b"")
    store.remove(4)
    for missing in (0, 2, 3, 4, 5, 2**63):
        with pytest.raises(RecordNotFound) as error:
            store.load(missing)
        assert error.value.seq == missing


def test_the_newest_message_of_a_subject_is_found_after_newer_ones_are_removed(
    house: StoreHouse,
) -> None:
    store = house.open()
    for place in range(60):
        store.store(b"a.%d" % (place % 2), b"", b"x" * 300)
    for seq in range(60, 1, -2):
        assert store.load_last(b"a.1").seq == seq
        store.remove(seq)
    with pytest.raises(RecordNotFound):
        store.load_last(b"a.1")
    assert store.load_last(b"a.0").seq == 59


def test_messages_are_found_by_time_also_where_times_go_back(house: StoreHouse) -> None:
    store, model = house.open(), house.model()
    times = [100, 100, 50, 200, 150, 300, 250, 10, 400] * 8
    for seq, time_ns in enumerate(times, 1):
        store.store_raw(b"a.%d" % (seq % 3), b"", b"x" * 200, seq=seq, timestamp_ns=time_ns)
        model.store_raw(Message(seq, time_ns, b"a.%d" % (seq % 3), b"", b"x" * 200))
    for removed in (1, 2, 6, 9):
        assert store.remove(removed) == model.remove(removed)
    for time_ns in (0, 1, 10, 50, 51, 100, 101, 199, 200, 300, 301, 400, 401, 2**62):
        assert_same_times(store, model, time_ns)
    # The years 1 and 9999: a client may name them, and no record can have them.
    for time_ns in (-62_135_596_800 * 10**9, 253_402_300_799 * 10**9):
        assert_same_times(store, model, time_ns)
    store = house.open_again(store)
    for time_ns in (1, 50, 101, 300, 400, 401):
        assert_same_times(store, model, time_ns)


def test_a_time_after_everything_gives_the_sequence_to_come(house: StoreHouse) -> None:
    store = house.open()
    assert store.seq_from_time(1) == 1
    store.store(b"a.1", b"", b"")
    assert store.seq_from_time(house.clock.now_ns()) == 1
    assert store.seq_from_time(house.clock.now_ns() + 1) == 2


@pytest.mark.parametrize("up_to_seq", [1, 15, 33, 60, 100, 120, 10_000])
def test_the_newest_of_each_subject_is_found_as_of_any_sequence(
    house: StoreHouse, up_to_seq: int
) -> None:
    store, model = house.open(), house.model()
    fill(house, store, model)
    for patterns in (None, [b"a.*"], [b"a.1", b"c"], [b"nobody"]):
        wanted = SubjectFilter(patterns or [])
        expected = model.multi_last(patterns, up_to_seq=up_to_seq)
        assert store.multi_last(wanted, up_to_seq=up_to_seq) == expected


def test_more_subjects_than_were_asked_for_are_refused(house: StoreHouse) -> None:
    store = house.open()
    store.store_batch([(subject, b"", b"") for subject in SUBJECTS])
    assert store.multi_last(SubjectFilter([]), count_max=5) == [1, 2, 3, 4, 5]
    with pytest.raises(LimitReached):
        store.multi_last(SubjectFilter([]), count_max=4)
    assert store.multi_last(SubjectFilter([b"a.*"]), count_max=4) == [1, 2]


def test_a_message_can_be_read_long_after_its_block_is_gone(house: StoreHouse) -> None:
    store = house.open()
    for place in range(40):
        store.store(b"a.1", b"NATS/1.0\r\n\r\n", b"%d" % place * 100)
    store.flush()
    message = store.load(3)
    store.purge()
    store.reclaim()
    assert as_message(message).payload == b"2" * 100
    assert message.headers == b"NATS/1.0\r\n\r\n"


def test_previous_and_next_walk_over_everything_in_both_directions(house: StoreHouse) -> None:
    store, model = house.open(), house.model()
    fill(house, store, model)
    seq, backwards = model.last_seq, []
    while True:
        try:
            seq = store.load_previous(seq).seq - 1
        except RecordNotFound:
            break
        backwards.append(seq + 1)
    assert backwards == sorted(model.messages, reverse=True)
    assert_same(store, model)
