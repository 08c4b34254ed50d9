"""Every store: which message gives way when a limit is reached, and which is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import LimitReached
from penstock.store.interface import Discard, StoreConfig
from tests.models.store import Message
from tests.support.store_kinds import StoreHouse
from tests.support.stores import assert_same

SECOND_NS = 1_000_000_000

LIMITS: list[dict[str, Any]] = [
    {"max_msgs": 1},
    {"max_msgs": 17},
    {"max_bytes": 100},
    {"max_bytes": 3_000},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 3},
    {"max_msgs": 9, "max_msgs_per_subject": 2},
    {"max_age_ns": 50 * SECOND_NS},
    {"max_age_ns": 50 * SECOND_NS, "max_msgs_per_subject": 4, "max_bytes": 2_000},
]


def body(place: int) -> tuple[bytes, bytes, bytes]:
    return ((b"a.1", b"a.2", b"b.1", b"c")[place * place % 4], b"", b"x" * (place * 37 % 400))


@pytest.mark.parametrize("limits", LIMITS)
def test_the_oldest_messages_give_way(house: StoreHouse, limits: dict[str, Any]) -> None:
    store, model = house.open(**limits), house.model(**limits)
    for place in range(70):
        house.clock.advance_seconds(1)
        now_ns = house.clock.now_ns()
        store.store(*body(place))
        model.store(*body(place), now_ns=now_ns)
        assert store.expire() == model.expire(now_ns)
        assert store.state().messages == len(model.messages)
    assert_same(store, model)
    batch = [body(place) for place in range(40)]
    assert store.store_batch(batch) == model.store_batch(batch, now_ns=house.clock.now_ns())
    assert_same(store, model)
    assert_same(house.open_again(store, **limits), model)


@pytest.mark.parametrize("limits", LIMITS)
def test_limits_are_applied_to_what_is_there_when_a_store_is_opened(
    house: StoreHouse, limits: dict[str, Any]
) -> None:
    store, model = house.open(), house.model()
    for place in range(70):
        house.clock.advance_seconds(1)
        store.store(*body(place))
        model.store(*body(place), now_ns=house.clock.now_ns())
    store = house.open_again(store, **limits)
    model.config = StoreConfig(**limits)
    model.enforce_all(house.clock.now_ns())
    assert_same(store, model)
    store = house.open_again(store)
    model.config = StoreConfig()
    assert_same(store, model)


@pytest.mark.parametrize("limits", LIMITS)
def test_limits_are_applied_when_the_configuration_changes(
    house: StoreHouse, limits: dict[str, Any]
) -> None:
    store, model = house.open(), house.model()
    for place in range(70):
        house.clock.advance_seconds(1)
        store.store(*body(place))
        model.store(*body(place), now_ns=house.clock.now_ns())
    store.update_config(StoreConfig(name="orders", block_bytes=4096, **limits))
    model.config = StoreConfig(**limits)
    model.enforce_all(house.clock.now_ns())
    assert_same(store, model)
    assert_same(house.open_again(store, **limits), model)


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"max_msgs": 3}, "maximum messages"),
        ({"max_bytes": 3 * 40}, "maximum bytes"),
        (
            {"max_msgs_per_subject": 2, "discard_new_per_subject": True},
            "maximum messages per subject",
        ),
    ],
)
def test_with_discard_new_a_full_stream_refuses_and_stays_as_it_is(
    house: StoreHouse, limits: dict[str, Any], limit: str
) -> None:
    limits = {**limits, "discard": Discard.NEW}
    store, model = house.open(**limits), house.model(**limits)
    refused = 0
    for place in range(8):
        message = (b"a.1", b"", b"x" * 3)
        try:
            stored = model.store(*message, now_ns=house.clock.now_ns())
        except LimitReached:
            with pytest.raises(LimitReached) as refusal:
                store.store(*message)
            assert refusal.value.limit == limit
            refused += 1
        else:
            assert store.store(*message) == stored
        if place == 5:
            assert store.remove(2) == model.remove(2)
    assert refused
    assert_same(store, model)


def test_with_discard_new_a_full_subject_still_replaces_its_oldest(house: StoreHouse) -> None:
    limits = {"max_msgs": 2, "max_msgs_per_subject": 1, "discard": Discard.NEW}
    store = house.open(**limits)
    store.store(b"a.1", b"", b"1")
    store.store(b"a.2", b"", b"2")
    assert store.store(b"a.1", b"", b"3")[0] == 3
    with pytest.raises(LimitReached):
        store.store(b"a.3", b"", b"4")
    assert [store.load_last(subject).payload for subject in (b"a.1", b"a.2")] == [b"3", b"2"]


def test_with_discard_new_a_full_subject_makes_room_for_what_is_not_larger(
    house: StoreHouse,
) -> None:
    limits = {"max_bytes": 100, "max_msgs_per_subject": 1, "discard": Discard.NEW}
    store = house.open(**limits)
    store.store(b"a.1", b"", b"x" * 20)
    with pytest.raises(LimitReached):
        store.store(b"a.2", b"", b"x" * 50)
    with pytest.raises(LimitReached):
        store.store(b"a.1", b"", b"x" * 60)
    store.store(b"a.2", b"", b"y" * 5)
    assert store.store(b"a.1", b"", b"z" * 20)[0] == 3
    assert store.load_last(b"a.1").payload == b"z" * 20


@pytest.mark.parametrize("limits", [{"max_msgs": 1}, {"max_bytes": 50}])
def test_with_discard_new_lower_limits_cost_nothing_that_is_there(
    house: StoreHouse, limits: dict[str, Any]
) -> None:
    store = house.open(discard=Discard.NEW)
    for place in range(4):
        store.store(b"a.%d" % place, b"", b"x")
    store.update_config(StoreConfig(name="orders", discard=Discard.NEW, **limits))
    assert store.state().messages == 4
    with pytest.raises(LimitReached):
        store.store(b"a.9", b"", b"x")


def test_a_message_above_the_size_limit_is_refused_headers_counted(house: StoreHouse) -> None:
    store = house.open(max_msg_bytes=10)
    store.store(b"a.1" * 50, b"12345", b"12345")
    with pytest.raises(LimitReached) as refused:
        store.store(b"a.1", b"12345", b"123456")
    assert (refused.value.limit, refused.value.value) == ("message size", 10)
    assert store.state().last_seq == 1


def test_limits_of_nothing_or_less_mean_none(house: StoreHouse) -> None:
    store = house.open(
        max_msgs=-1, max_bytes=-1, max_age_ns=-1, max_msgs_per_subject=-1, max_msg_bytes=-1
    )
    store.store_batch([(b"a.1", b"", b"x" * 100)] * 50)
    house.clock.advance_seconds(10**6)
    assert store.expire() == 0
    assert store.state().messages == 50


def test_replicated_messages_push_out_the_oldest_too(house: StoreHouse) -> None:
    limits: dict[str, Any] = {"max_msgs": 5, "max_msgs_per_subject": 2}
    store, model = house.open(**limits), house.model(**limits)
    for seq in range(3, 90, 3):
        subject = b"a.%d" % (seq % 4)
        store.store_raw(subject, b"", b"x" * 200, seq=seq, timestamp_ns=seq)
        model.store_raw(Message(seq, seq, subject, b"", b"x" * 200))
    assert_same(store, model)
    assert_same(house.open_again(store, **limits), model)


def test_a_subject_kept_to_one_message_holds_its_newest_over_many_blocks(
    house: StoreHouse,
) -> None:
    store, model = house.open(max_msgs_per_subject=1), house.model(max_msgs_per_subject=1)
    for place in range(400):
        message = (b"key.%d" % (place * 7 % 23), b"", b"%d" % place * 30)
        store.store(*message)
        model.store(*message, now_ns=house.clock.now_ns())
    assert store.state().messages == 23
    assert_same(store, model)
    assert_same(house.open_again(store, max_msgs_per_subject=1), model)
