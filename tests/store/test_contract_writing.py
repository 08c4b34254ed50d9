"""Every store: what goes in, under which sequence and time, and what is refused."""

from __future__ import annotations

import pytest

from penstock.errors import (
    FormatError,
    LimitReached,
    RecordNotFound,
    SequenceOutOfOrder,
    UsageError,
)
from penstock.limits import PAYLOAD_BYTES_MAX, SEQUENCE_MAX, SUBJECT_BYTES_MAX
from penstock.store.interface import Discard
from tests.models.store import Message
from tests.support.store_kinds import StoreHouse
from tests.support.stores import as_message, assert_same


def test_messages_get_the_next_sequence_and_the_clock_time(house: StoreHouse) -> None:
    store = house.open()
    first = store.store(b"a.1", b"", b"one")
    house.clock.advance_ns(5)
    second = store.store(b"a.2", b"", b"two")
    now_ns = house.clock.now_ns()
    assert (first, second) == ((1, now_ns - 5), (2, now_ns))


def test_what_was_stored_comes_back_before_and_after_a_flush_and_a_reopen(
    house: StoreHouse,
) -> None:
    store, model = house.open(), house.model()
    bodies = [
        (b"a.1", b"", b""),
        (b"a.2", b"NATS/1.0\r\n\r\n", b""),
        (b"b.1", b"NATS/1.0\r\nA: 1\r\n\r\n", b"payload"),
        (b"b.2.x", b"", bytes(range(256)) * 3),
        (b"c", b"", b"\xff" * 20_000),
        (b"", b"", b"no subject"),
    ]
    for body in bodies:
        house.clock.advance_ms(1)
        store.store(*body)
        model.store(*body, now_ns=house.clock.now_ns())
    assert_same(store, model)
    store.flush()
    assert_same(store, model)
    assert_same(house.open_again(store), model)


def test_a_message_much_larger_than_a_block_is_kept(house: StoreHouse) -> None:
    store = house.open()
    payload = bytes(range(256)) * 40_000
    store.store_batch([(b"a.1", b"", b"small"), (b"a.2", b"", payload), (b"a.3", b"", b"small")])
    store.flush()
    assert [store.load(seq).payload for seq in (1, 2, 3)] == [b"small", payload, b"small"]
    assert house.open_again(store).load(2).payload == payload


def test_a_message_keeps_a_given_sequence_and_time(house: StoreHouse) -> None:
    store, model = house.open(), house.model()
    for seq, time_ns in ((3, 1_000), (4, 900), (10, 950), (500, -5)):
        store.store_raw(b"a.1", b"", b"%d" % seq, seq=seq, timestamp_ns=time_ns)
        model.store_raw(Message(seq, time_ns, b"a.1", b"", b"%d" % seq))
    assert_same(store, model)
    assert_same(house.open_again(store), model)


@pytest.mark.parametrize("gap", [2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**50])
def test_a_gap_of_any_width_is_kept(house: StoreHouse, gap: int) -> None:
    store, model = house.open(), house.model()
    for seq in (gap, gap + 1, 2 * gap, 3 * gap):
        store.store_raw(b"a.1", b"", b"x", seq=seq, timestamp_ns=seq)
        model.store_raw(Message(seq, seq, b"a.1", b"", b"x"))
    assert_same(store, model)
    assert_same(house.open_again(store), model)


@pytest.mark.parametrize("count", [2**32 - 2, 2**32 - 1, 2**32, 2**40])
def test_a_batch_after_skipping_any_number_of_sequences_is_kept(
    house: StoreHouse, count: int
) -> None:
    store, model = house.open(), house.model()
    batch = [(b"a.1", b"", b"x"), (b"a.2", b"", b"y")]
    for _ in range(2):
        store.skip(count)
        model.skip(count)
        assert store.store_batch(batch) == model.store_batch(batch, now_ns=house.clock.now_ns())
    assert_same(store, model)
    assert_same(house.open_again(store), model)


def test_a_sequence_that_was_passed_is_refused_and_changes_nothing(house: StoreHouse) -> None:
    store, model = house.open(), house.model()
    store.store(b"a.1", b"", b"one")
    model.store(b"a.1", b"", b"one", now_ns=house.clock.now_ns())
    store.skip(4)
    model.skip(4)
    for seq in (0, 1, 3, 5):
        with pytest.raises(SequenceOutOfOrder) as refused:
            store.store_raw(b"a.1", b"", b"", seq=seq, timestamp_ns=1)
        assert (refused.value.seq, refused.value.last_seq) == (seq, 5)
    assert_same(store, model)


def test_no_sequence_goes_beyond_what_a_signed_column_holds(house: StoreHouse) -> None:
    store = house.open()
    store.store_raw(b"a.1", b"", b"last", seq=SEQUENCE_MAX, timestamp_ns=1)
    for too_far in (
        lambda: store.store_raw(b"a.1", b"", b"", seq=SEQUENCE_MAX + 1, timestamp_ns=1),
        lambda: store.skip(1),
        lambda: store.compact(SEQUENCE_MAX + 1),
    ):
        with pytest.raises(UsageError):
            too_far()
    assert as_message(store.load(SEQUENCE_MAX)).payload == b"last"
    assert house.open_again(store).state().last_seq == SEQUENCE_MAX


def test_a_batch_gets_consecutive_sequences_and_one_time(house: StoreHouse) -> None:
    store, model = house.open(), house.model()
    batch = [(b"a.%d" % place, b"", b"x" * 500) for place in range(50)]
    assert store.store_batch(batch) == (1, 50)
    model.store_batch(batch, now_ns=house.clock.now_ns())
    assert_same(store, model)
    assert_same(house.open_again(store), model)


def test_an_empty_batch_is_refused(house: StoreHouse) -> None:
    with pytest.raises(UsageError):
        house.open().store_batch([])


@pytest.mark.parametrize(
    ("limits", "last"),
    [
        ({"max_msg_bytes": 10}, (b"a.1", b"", b"x" * 11)),
        ({"discard": Discard.NEW, "max_msgs": 3}, (b"a.9", b"", b"x")),
        ({"discard": Discard.NEW, "max_bytes": 130}, (b"a.9", b"", b"x" * 50)),
        (
            {
                "discard": Discard.NEW,
                "max_msgs_per_subject": 1,
                "discard_new_per_subject": True,
            },
            (b"a.1", b"", b"x"),
        ),
        ({}, (b"x" * (SUBJECT_BYTES_MAX + 1), b"", b"")),
    ],
)
def test_a_batch_with_one_refused_message_stores_none(
    house: StoreHouse, limits: dict[str, object], last: tuple[bytes, bytes, bytes]
) -> None:
    store = house.open(**limits)
    store.store(b"a.1", b"", b"there")
    before = store.state()
    with pytest.raises((LimitReached, FormatError)):
        store.store_batch([(b"a.2", b"", b"x"), (b"a.3", b"", b"x"), last])
    assert store.state() == before
    assert store.flush() == 1
    with pytest.raises(RecordNotFound):
        store.load(2)


def test_a_batch_into_full_subjects_is_let_in_where_each_message_would_be(
    house: StoreHouse,
) -> None:
    limits = {"discard": Discard.NEW, "max_msgs": 2, "max_msgs_per_subject": 1}
    store, model = house.open(**limits), house.model(**limits)
    now_ns = house.clock.now_ns()
    for batch in ([(b"a.1", b"", b"1"), (b"a.2", b"", b"2")], [(b"a.2", b"", b"3")] * 3):
        assert store.store_batch(batch) == model.store_batch(batch, now_ns=now_ns)
    with pytest.raises(LimitReached):
        store.store_batch([(b"a.1", b"", b"4"), (b"b.1", b"", b"5")])
    assert_same(store, model)


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_what_no_record_can_hold_is_refused_and_changes_nothing(
    house: StoreHouse, in_a_batch: bool
) -> None:
    store = house.open()
    store.store(b"a.1", b"", b"there")
    for body in (
        (b"x" * (SUBJECT_BYTES_MAX + 1), b"", b""),
        (b"a.1", b"h" * 2**21, b""),
        (b"a.1", b"", bytes(PAYLOAD_BYTES_MAX + 1)),
    ):
        with pytest.raises(FormatError):
            store.store_batch([body]) if in_a_batch else store.store(*body)
    assert (store.state().last_seq, store.state().messages) == (1, 1)
    assert store.store(b"a.1", b"", b"next")[0] == 2
    assert house.open_again(store).load(2).payload == b"next"


def test_skipped_sequences_count_as_deleted_between_messages(house: StoreHouse) -> None:
    store, model = house.open(), house.model()
    assert store.skip() == model.skip(1)
    assert (store.state().first_seq, store.state().deleted) == (2, 0)
    store.store(b"a.1", b"", b"")
    model.store(b"a.1", b"", b"", now_ns=house.clock.now_ns())
    assert store.skip(7) == model.skip(7)
    store.store(b"a.1", b"", b"")
    model.store(b"a.1", b"", b"", now_ns=house.clock.now_ns())
    assert store.state().deleted == 7
    assert_same(store, model)
    assert_same(house.open_again(store), model)


def test_skipping_nothing_is_refused(house: StoreHouse) -> None:
    store = house.open()
    for count in (0, -1):
        with pytest.raises(UsageError):
            store.skip(count)


def test_blocks_are_sealed_at_their_size_and_all_of_them_are_read(
    lasting_house: StoreHouse,
) -> None:
    store, model = lasting_house.open(), lasting_house.model()
    for place in range(100):
        body = (b"a.%d" % (place % 7), b"", b"x" * 200)
        store.store(*body)
        model.store(*body, now_ns=lasting_house.clock.now_ns())
    store.flush()
    blocks = {name: data for name, data in lasting_house.file_bytes().items() if ".blk" in name}
    assert len(blocks) >= 6
    assert all(len(data) <= 4096 for data in blocks.values())
    assert_same(store, model)
    assert_same(lasting_house.open_again(store), model)


def test_a_short_block_that_was_being_written_is_gone_on_with(lasting_house: StoreHouse) -> None:
    store, model = lasting_house.open(), lasting_house.model()
    for place in range(8):
        store.store(b"a.1", b"", b"%d" % place)
        model.store(b"a.1", b"", b"%d" % place, now_ns=lasting_house.clock.now_ns())
        store = lasting_house.open_again(store)
    assert [name for name in lasting_house.file_bytes() if ".blk" in name] == ["000001.blk"]
    assert_same(store, model)


@pytest.mark.parametrize("blocks", range(1, 8))
def test_a_subject_keeps_its_name_when_block_numbers_are_given_again(
    simulated_house: StoreHouse, blocks: int
) -> None:
    house = simulated_house
    store, model = house.open(), house.model()

    def keep(subject: bytes) -> None:
        store.store(subject, b"", b"x" * 500)
        model.store(subject, b"", b"x" * 500, now_ns=house.clock.now_ns())

    for place in range(40):
        keep(b"a.%d" % (place % 4))
    store.truncate(8)
    model.truncate(8)
    # Without the mark only the blocks that are left tell which numbers were given, and the
    # checkpoint still tells of the subjects' newest messages in blocks that are gone.
    store = house.open_again(store, lambda: house.lose_files("high.water"))
    for _ in range(blocks * 7 - 3):
        keep(b"filler")
    for place in range(4):
        keep(b"a.%d" % (3 - place))
    assert store.report.checkpoint_used
    assert_same(store, model)
    assert_same(house.open_again(store, lambda: house.lose_files(".state")), model)
