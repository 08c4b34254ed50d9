"""Every store: the stream in numbers, whole and filtered."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.format.envelope import Cipher, Compression
from penstock.store.interface import FilteredState, StoreConfig, SubjectState
from penstock.subjects import SubjectFilter
from tests.support.store_kinds import StoreHouse
from tests.support.stores import FILTERS, assert_same, assert_same_answers

EVERYTHING = SubjectFilter([])


def test_an_empty_stream_begins_where_its_next_message_will_be(house: StoreHouse) -> None:
    state = house.open().state()
    assert (state.messages, state.bytes, state.deleted, state.subjects) == (0, 0, 0, 0)
    assert (state.first_seq, state.last_seq) == (1, 0)
    assert (state.first_time_ns, state.last_time_ns) == (0, 0)


@pytest.mark.parametrize(
    ("body", "in_files", "in_memory"),
    [
        ((b"abc", b"", b""), 30 + 3, 16 + 3),
        ((b"abc", b"", b"12345"), 30 + 3 + 5, 16 + 3 + 5),
        ((b"abc", b"NATS/1.0", b"12345"), 30 + 3 + 5 + 4 + 8, 16 + 3 + 5 + 8),
    ],
)
def test_a_message_counts_for_what_the_reference_server_counts(
    house: StoreHouse, body: tuple[bytes, bytes, bytes], in_files: int, in_memory: int
) -> None:
    store = house.open()
    store.store(*body)
    assert store.state().bytes == (in_files if house.is_lasting else in_memory)
    store.store_batch([body] * 3)
    assert store.state().bytes == 4 * (in_files if house.is_lasting else in_memory)
    store.remove(2)
    assert store.state().bytes == 3 * (in_files if house.is_lasting else in_memory)


def test_bytes_do_not_depend_on_compression_or_encryption(lasting_house: StoreHouse) -> None:
    body = (b"abc", b"NATS/1.0\r\n\r\n", b"x" * 1000)
    plain = lasting_house.open()
    plain.store(*body)
    size = plain.state().bytes
    for compression in Compression:
        for cipher in Cipher:
            plain = lasting_house.open_again(plain, compression=compression, cipher=cipher)
            plain.store(*body)
            size += 30 + 3 + 1000 + 4 + 12
            assert plain.state().bytes == size
    assert lasting_house.open_again(plain).state().bytes == size


def test_removing_the_first_message_moves_the_first_sequence_to_the_next_live_one(
    house: StoreHouse,
) -> None:
    store = house.open()
    times = []
    for _ in range(6):
        house.clock.advance_ms(1)
        times.append(store.store(b"a.1", b"", b"")[1])
    store.remove(3)
    store.remove(2)
    assert (store.state().first_seq, store.state().deleted) == (1, 2)
    store.remove(1)
    state = store.state()
    assert (state.first_seq, state.first_time_ns, state.deleted) == (4, times[3], 0)
    store.remove(6)
    state = store.state()
    assert (state.last_seq, state.last_time_ns, state.deleted) == (6, times[5], 1)


def test_filtered_states_count_from_a_sequence_on(house: StoreHouse) -> None:
    store = house.open()
    for place in range(90):
        store.store(b"a.%d" % (place % 3), b"", b"x" * 200)
    wanted = SubjectFilter([b"a.1"])
    assert store.filtered_state(wanted) == FilteredState(30, 2, 89)
    assert store.filtered_state(wanted, 3) == FilteredState(29, 5, 89)
    assert store.filtered_state(wanted, 90) == FilteredState(0, 0, 0)
    assert store.filtered_state(None, 41) == FilteredState(50, 41, 90)
    assert store.filtered_state(SubjectFilter([b"b"])) == FilteredState(0, 0, 0)


def test_subjects_are_told_with_their_counts_and_ends(house: StoreHouse) -> None:
    store = house.open()
    for place in range(90):
        store.store(b"a.%d" % (place % 3), b"", b"x" * 200)
    for seq in (1, 4, 89, 86):
        store.remove(seq)
    assert store.subjects_totals(SubjectFilter([b"a.*"])) == {b"a.0": 28, b"a.1": 28, b"a.2": 30}
    assert store.subjects_state(SubjectFilter([b"a.0", b"a.1"])) == {
        b"a.0": SubjectState(28, 7, 88),
        b"a.1": SubjectState(28, 2, 83),
    }
    assert store.subjects_state(SubjectFilter([b"b"])) == {}
    assert store.state().subjects == 3
    store.purge(SubjectFilter([b"a.2"]))
    assert store.state().subjects == 2
    assert store.subjects_totals(EVERYTHING) == {b"a.0": 28, b"a.1": 28}


def test_pending_messages_are_counted_for_one_filter_many_and_the_newest_only(
    house: StoreHouse,
) -> None:
    store, model = house.open(), house.model()
    for place in range(100):
        body = ((b"a.1", b"a.2", b"b.1", b"c")[place % 4], b"", b"x" * 150)
        store.store(*body)
        model.store(*body, now_ns=house.clock.now_ns())
    for seq in range(1, 100, 9):
        assert store.remove(seq) == model.remove(seq)
    for patterns in FILTERS:
        for seq in (0, 1, 2, 30, 50, 97, 98, 100, 101):
            assert_same_answers(store, model, patterns, seq)
    assert store.count_pending(SubjectFilter([b"a.*", b"c"]), 98, last_per_subject=True) == 2


def test_state_is_the_same_after_each_way_of_opening(lasting_house: StoreHouse) -> None:
    house = lasting_house
    store, model = house.open(), house.model()
    for place in range(80):
        house.clock.advance_ms(1)
        body = (b"a.%d" % (place % 5), b"", b"x" * (place * 7))
        store.store(*body)
        model.store(*body, now_ns=house.clock.now_ns())
    for seq in (1, 2, 3, *range(10, 40), 80):
        assert store.remove(seq) == model.remove(seq)
    for lost in ((), (".state",), (".idx",), (".idx", ".state"), (".state", ".water")):
        store = house.open_again(store, partial(house.lose_files, *lost))
        assert store.report.damage == []
        if ".water" not in lost:
            assert_same(store, model)


def test_the_last_time_outlives_the_last_message(lasting_house: StoreHouse) -> None:
    house = lasting_house
    store = house.open()
    last_ns = 0
    for _ in range(30):
        house.clock.advance_ms(1)
        last_ns = store.store(b"a.1", b"", b"x" * 500)[1]
    house.clock.advance_ms(5)
    store.purge()
    store.reclaim()
    store = house.open_again(store, lambda: house.files.unlink(f"{house.path}/stream.state"))
    assert (store.state().last_seq, store.state().last_time_ns) == (30, last_ns)
    house.clock.jump_ns(-3600 * 10**9)
    assert store.store(b"a.1", b"", b"")[1] >= last_ns


def test_the_last_time_outlives_an_erased_message_and_a_power_cut(
    simulated_house: StoreHouse,
) -> None:
    store = simulated_house.open()
    store.store(b"a.1", b"", b"x")
    simulated_house.clock.advance_ms(1)
    last_ns = store.store(b"a.1", b"", b"x")[1]
    store.erase(2)
    simulated_house.lose_power()
    store = simulated_house.open()
    assert (store.state().messages, store.state().last_time_ns) == (1, last_ns)


@pytest.mark.parametrize("with_a_cut", [False, True])
def test_the_last_time_outlives_a_power_cut_after_its_message_was_given_back(
    simulated_house: StoreHouse, with_a_cut: bool
) -> None:
    house = simulated_house
    store = house.open()
    _, last_ns = store.store(b"a.1", b"", b"x" * 5000)
    store.remove(1)
    store.flush()
    # A first cut takes the mark along; without one it is there and was never synced.
    if with_a_cut:
        house.lose_power()
        store = house.open()
    else:
        store.reopen()
    assert store.reclaim() > 5000
    house.lose_power()
    state = house.open().state()
    assert (state.last_seq, state.last_time_ns) == (1, last_ns)


def test_a_block_with_nothing_in_it_does_not_cost_the_checkpoint(
    simulated_house: StoreHouse,
) -> None:
    store = simulated_house.open()
    store.store_batch([(b"a.1", b"", b"x" * 300)] * 30)
    store.remove(3)
    store.truncate(20)
    # Rewriting needs a block behind the sealed ones; the change of cipher seals it as it is.
    store.reclaim(thorough=True)
    store.update_config(StoreConfig(name="orders", cipher=Cipher.AES_256_GCM))
    store.store(b"a.1", b"", b"")
    store = simulated_house.open_again(store)
    assert store.report.checkpoint_used
    assert store.report.clean
