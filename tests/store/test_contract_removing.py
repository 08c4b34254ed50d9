"""Every store: removing on request, and what becomes of the disk space."""

from __future__ import annotations

import pytest

from penstock.errors import RecordNotFound
from penstock.store.filestore import FileStore
from penstock.subjects import SubjectFilter
from tests.models.store import StoreModel
from tests.support.store_kinds import StoreHouse
from tests.support.stores import FILTERS, assert_same, filter_of


def fill(house: StoreHouse, count: int = 80, **config: object) -> tuple[FileStore, StoreModel]:
    """Return a store with messages over many blocks, and its model."""
    store, model = house.open(**config), house.model(**config)
    for place in range(count):
        house.clock.advance_ms(1)
        body = ((b"a.1", b"a.2", b"b.1", b"b.2.x", b"c")[place % 5], b"", b"%03d" % place * 80)
        store.store(*body)
        model.store(*body, now_ns=house.clock.now_ns())
    return store, model


def test_a_removed_message_is_gone_for_good(house: StoreHouse) -> None:
    store, model = fill(house)
    for seq in (1, 2, 40, 79, 80):
        assert store.remove(seq) is True
        assert store.remove(seq) is False
        model.remove(seq)
    for missing in (0, 81, 10_000):
        assert store.remove(missing) is False
    assert_same(store, model)
    assert_same(house.open_again(store), model)


def test_an_erased_message_leaves_no_byte_in_any_file(lasting_house: StoreHouse) -> None:
    store, model = fill(lasting_house)
    secrets = {5: b"\x00SECRET-sealed\x00", 81: b"\x00SECRET-active\x00"}
    store.erase(5)
    model.remove(5)
    store.store(b"a.1", b"NATS/1.0\r\nA: SECRET-header\r\n\r\n", secrets[81] * 9)
    model.store(
        b"a.1",
        b"NATS/1.0\r\nA: SECRET-header\r\n\r\n",
        secrets[81] * 9,
        now_ns=lasting_house.clock.now_ns(),
    )
    store.flush()
    assert any(b"SECRET" in data for data in lasting_house.file_bytes().values())
    assert store.erase(81) is True
    model.remove(81)
    assert store.erase(81) is False
    assert not any(
        secret in data
        for data in lasting_house.file_bytes().values()
        for secret in (b"SECRET", b"004" * 80)
    )
    assert_same(store, model)
    assert_same(lasting_house.open_again(store), model)


@pytest.mark.parametrize("lost", [(), (".idx",), (".state",), (".idx", ".state")])
def test_an_erased_message_stays_away_however_the_store_is_opened(
    lasting_house: StoreHouse, lost: tuple[str, ...]
) -> None:
    house = lasting_house
    store, model = fill(house)
    for seq in (1, 7, 8, 33, 79):
        assert store.erase(seq) == model.remove(seq)
    store = house.open_again(store, lambda: house.lose_files(*lost))
    assert store.report.damage == []
    assert_same(store, model)


@pytest.mark.parametrize("patterns", FILTERS)
@pytest.mark.parametrize(("seq", "keep"), [(0, 0), (40, 0), (61, 0), (0, 7)])
def test_a_purge_removes_what_is_wanted_below_a_sequence_but_the_newest(
    house: StoreHouse, patterns: list[bytes] | None, seq: int, keep: int
) -> None:
    store, model = fill(house, 60)
    store.remove(33)
    model.remove(33)
    removed = model.purge(patterns, seq=seq, keep=keep)
    assert store.purge(filter_of(patterns), seq=seq, keep=keep) == removed
    assert_same(store, model)


def test_after_a_purge_the_stream_goes_on_with_the_next_sequence(house: StoreHouse) -> None:
    store, model = fill(house)
    assert store.purge() == model.purge() == 80
    state = store.state()
    assert (state.first_seq, state.last_seq, state.messages, state.deleted) == (81, 80, 0, 0)
    store = house.open_again(store)
    assert_same(store, model)
    assert store.store(b"a.1", b"", b"")[0] == 81


def test_purging_again_and_again_changes_nothing(house: StoreHouse) -> None:
    store, model = fill(house)
    for _ in range(3):
        store.purge()
        model.purge()
        assert_same(store, model)
        store = house.open_again(store)
    store.store(b"a.1", b"", b"x")
    model.store(b"a.1", b"", b"x", now_ns=house.clock.now_ns())
    assert_same(house.open_again(store), model)


@pytest.mark.parametrize("seq", [0, 1, 2, 40, 80, 81, 82, 500, 2**33])
def test_compacting_makes_a_sequence_the_first(house: StoreHouse, seq: int) -> None:
    store, model = fill(house)
    store.remove(40)
    model.remove(40)
    assert store.compact(seq) == model.compact(seq)
    assert_same(store, model)
    store = house.open_again(store)
    assert_same(store, model)
    body = (b"a.1", b"", b"next")
    assert store.store(*body) == model.store(*body, now_ns=house.clock.now_ns())
    assert_same(store, model)


@pytest.mark.parametrize("seq", [1, 2, 15, 16, 17, 40, 79, 80])
def test_truncating_goes_back_to_a_message_and_on_from_it(house: StoreHouse, seq: int) -> None:
    store, model = fill(house)
    for gone in (10, 16 if seq != 16 else 18, 60):
        store.remove(gone)
        model.remove(gone)
    store.flush()
    store.truncate(seq)
    model.truncate(seq)
    assert_same(store, model)
    for place in range(20):
        body = (b"d.%d" % (place % 2), b"", b"again" * 50)
        assert store.store(*body) == model.store(*body, now_ns=house.clock.now_ns())
    assert_same(store, model)
    assert_same(house.open_again(store), model)


def test_truncating_to_a_message_that_is_not_there_is_refused(house: StoreHouse) -> None:
    store, model = fill(house)
    store.remove(40)
    model.remove(40)
    for seq in (0, 40, 81, 500):
        with pytest.raises(RecordNotFound):
            store.truncate(seq)
    assert_same(store, model)


def test_a_reset_stream_begins_with_sequence_one(house: StoreHouse) -> None:
    store, model = fill(house)
    store.reset()
    model.reset()
    assert_same(store, model)
    store = house.open_again(store)
    assert_same(store, model)
    assert store.store(b"a.1", b"", b"x")[0] == 1
    store.reset()
    assert store.store_batch([(b"a.1", b"", b"x" * 500)] * 20) == (1, 20)


def test_a_purge_gives_the_disk_space_back(lasting_house: StoreHouse) -> None:
    store, _ = fill(lasting_house)
    store.flush()
    assert lasting_house.disk_bytes() > 15_000
    store.purge()
    store.reclaim()
    assert lasting_house.disk_bytes() < 1_000
    names = [name for name in lasting_house.file_bytes() if name.endswith((".blk", ".idx"))]
    assert len(names) == 1


def test_removing_inside_blocks_gives_the_disk_space_back(lasting_house: StoreHouse) -> None:
    store, model = fill(lasting_house, 200)
    store.flush()
    before = lasting_house.disk_bytes()
    for seq in range(1, 201):
        if seq % 10:
            assert store.remove(seq) == model.remove(seq)
    store.flush()
    store.reclaim()
    assert lasting_house.disk_bytes() < before // 4
    assert_same(store, model)
    assert_same(lasting_house.open_again(store), model)


def test_a_stream_that_is_only_passed_through_does_not_grow(lasting_house: StoreHouse) -> None:
    store = lasting_house.open(max_msgs=10)
    sizes = []
    for _ in range(12):
        store.store_batch([(b"a.1", b"", b"x" * 200)] * 50)
        store.flush()
        store.reclaim()
        sizes.append(lasting_house.disk_bytes())
    assert max(sizes) < 25_000


def test_reclaiming_twice_rewrites_nothing_the_second_time(lasting_house: StoreHouse) -> None:
    store, model = fill(lasting_house, 200)
    for seq in range(1, 201):
        if seq % 4:
            assert store.remove(seq) == model.remove(seq)
    store.flush()
    for thorough in (False, True):
        store.reclaim(thorough=thorough)
        before = lasting_house.file_bytes()
        assert store.reclaim(thorough=thorough) == 0
        after = lasting_house.file_bytes()
        assert {k: v for k, v in after.items() if ".blk" in k} == {
            k: v for k, v in before.items() if ".blk" in k
        }
    assert_same(store, model)


def test_messages_removed_in_old_blocks_stay_away_while_the_tombstones_move(
    lasting_house: StoreHouse,
) -> None:
    house = lasting_house
    store, model = fill(house, 40)
    for round_ in range(3):
        # Tombstones of old blocks lie in newer ones, which become empty and are removed.
        for seq in range(2 + round_, 40, 12):
            assert store.remove(seq) == model.remove(seq)
        for _ in range(12):
            body = (b"c", b"", b"z" * 400)
            store.store(*body)
            model.store(*body, now_ns=house.clock.now_ns())
        assert store.purge(SubjectFilter([b"c"])) == model.purge([b"c"])
        store.reclaim()
        assert_same(store, model)
        store = house.open_again(store, lambda: house.lose_files(".idx", ".state"))
        assert_same(store, model)


def test_damage_free_stores_have_no_problems_to_tell_of(house: StoreHouse) -> None:
    store, _ = fill(house)
    store.purge(keep=3)
    store.reclaim()
    assert store.problems == []
    assert store.failure is None
