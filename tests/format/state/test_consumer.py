"""A consumer's state survives its bytes, stays small, and is never believed unchecked."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError, UnsupportedVersion, UsageError
from penstock.format.hashing import xxh64
from penstock.format.state.consumer import (
    ConsumerState,
    DeadLetter,
    PendingDelivery,
    SequencePair,
    decode_consumer_state,
    encode_consumer_state,
)
from penstock.limits import TERM_REASON_BYTES_MAX

TOP = 2**64 - 1
NOW_NS = 1_790_000_000_000_000_000


@st.composite
def consumer_states(draw: st.DrawFn) -> ConsumerState:
    size = draw(st.sampled_from([50, 10_000, TOP]))
    floor = SequencePair(draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1)))
    top = SequencePair(
        draw(st.integers(floor.consumer_seq + 1, size)),
        draw(st.integers(floor.stream_seq + 1, size)),
    )
    deliveries = st.builds(
        PendingDelivery,
        st.integers(floor.consumer_seq + 1, top.consumer_seq),
        st.integers(-(2**63), 2**63 - 1) | st.integers(NOW_NS, NOW_NS + 10**9),
    )
    pending = st.dictionaries(
        st.integers(floor.stream_seq + 1, top.stream_seq), deliveries, max_size=30
    )
    redelivered = st.dictionaries(
        st.integers(1, top.stream_seq), st.integers(1, 5) | st.integers(1, TOP), max_size=30
    )
    state = ConsumerState(top, floor, draw(pending), draw(redelivered))
    held = st.sets(st.integers(floor.stream_seq + 1, top.stream_seq), max_size=30)
    state.held = draw(st.just(set[int]()) | held) - state.pending.keys()
    letters = st.builds(
        DeadLetter,
        st.integers(1, TOP),
        st.integers(-(2**63), 2**63 - 1),
        st.booleans(),
        st.binary(max_size=TERM_REASON_BYTES_MAX),
    )
    if state.pending:
        owed = st.sets(st.sampled_from(sorted(state.pending)))
        state.letters = {seq: draw(letters) for seq in draw(st.just(set[int]()) | owed)}
    return state


def with_checksum(body: bytes) -> bytes:
    return body + struct.pack("<Q", xxh64(body))


def a_state() -> ConsumerState:
    return ConsumerState(
        delivered=SequencePair(9, 300),
        ack_floor=SequencePair(4, 100),
        pending={
            150: PendingDelivery(6, NOW_NS),
            101: PendingDelivery(5, NOW_NS + 50),
            300: PendingDelivery(9, NOW_NS + 20),
        },
        redelivered={101: 1, 300: 4},
    )


def a_further_state() -> ConsumerState:
    state = a_state()
    state.held = {102, 103, 290}
    state.letters = {150: DeadLetter(3, NOW_NS, is_terminated=True, text=b"why")}
    return state


@given(consumer_states())
def test_every_state_survives_its_encoding(state: ConsumerState) -> None:
    encoded = encode_consumer_state(state)

    assert decode_consumer_state(memoryview(bytearray(encoded))) == state
    assert encode_consumer_state(decode_consumer_state(encoded)) == encoded


def test_an_untouched_consumer_survives_its_encoding() -> None:
    state = ConsumerState()

    assert decode_consumer_state(encode_consumer_state(state)) == state


def test_the_encoding_is_the_documented_one() -> None:
    state = ConsumerState(
        delivered=SequencePair(9, 200),
        ack_floor=SequencePair(4, 100),
        pending={102: PendingDelivery(6, 70), 103: PendingDelivery(5, 69)},
        redelivered={103: 2},
    )

    body = bytes([9, 200, 1, 4, 100])
    # Two pending: steps 1 and 0, turns +2 and -1, times +70 and -1 (zigzag).
    body += bytes([2, 1, 4, 140, 1, 0, 1, 1])
    # One redelivered: step 102, one time more than once.
    body += bytes([1, 102, 1])
    assert encode_consumer_state(state) == with_checksum(b"PNSTKCON\x01\x00" + body)


def test_what_is_held_and_the_letters_follow_as_documented() -> None:
    state = ConsumerState(
        delivered=SequencePair(9, 200),
        ack_floor=SequencePair(4, 100),
        pending={102: PendingDelivery(6, 70)},
        held={101, 105},
        letters={102: DeadLetter(3, 80, is_terminated=True, text=b"\xffo")},
    )

    body = bytes([9, 200, 1, 4, 100, 1, 1, 4, 140, 1, 0])
    # Two held: steps 0 and 3.
    body += bytes([2, 0, 3])
    # One letter: step 1, three deliveries, time +80, terminated, a text of two bytes.
    body += bytes([1, 1, 2, 160, 1, 1, 2, 255, 1, 111])
    assert encode_consumer_state(state) == with_checksum(b"PNSTKCON\x02\x00" + body)


@pytest.mark.slow
def test_a_hundred_thousand_dense_pending_deliveries_take_at_most_eight_bytes_each() -> None:
    chance = random.Random(3)
    state = ConsumerState(SequencePair(150_000, 150_000), SequencePair(50_000, 50_000))
    timestamp_ns = NOW_NS
    for seq in range(50_001, 150_001):
        timestamp_ns += chance.randrange(10_000_000)
        state.pending[seq] = PendingDelivery(seq, timestamp_ns)

    encoded = encode_consumer_state(state)

    assert len(encoded) / 100_000 < 8
    assert decode_consumer_state(encoded) == state


@pytest.mark.parametrize("state", [a_state(), a_further_state()])
def test_every_flipped_bit_is_refused(state: ConsumerState) -> None:
    encoded = encode_consumer_state(state)

    for bit in range(len(encoded) * 8):
        damaged = bytearray(encoded)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((FormatError, UnsupportedVersion)):
            decode_consumer_state(bytes(damaged))


@pytest.mark.parametrize("state", [a_state(), a_further_state()])
def test_every_truncation_is_refused(state: ConsumerState) -> None:
    encoded = encode_consumer_state(state)

    for size in range(len(encoded)):
        with pytest.raises(FormatError):
            decode_consumer_state(encoded[:size])


def test_a_later_version_is_named_and_refused() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        decode_consumer_state(with_checksum(b"PNSTKCON\x03\x00whatever"), path="o.dat")

    assert (caught.value.path, caught.value.found, caught.value.supported) == ("o.dat", 3, 2)


@given(version=st.sampled_from([b"\x01", b"\x02"]), body=st.binary(max_size=40))
def test_whatever_decodes_is_exactly_what_would_be_encoded(version: bytes, body: bytes) -> None:
    data = with_checksum(b"PNSTKCON" + version + b"\x00" + body)
    try:
        state = decode_consumer_state(data)
    except FormatError:
        return

    assert encode_consumer_state(state) == data


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="nothing"),
        pytest.param([1, 1, 0, 0, 0], id="no redelivered count"),
        pytest.param([1, 1, 2, 0, 0, 0], id="consumer floor above delivered"),
        pytest.param([1, 1, 0, 2, 0, 0], id="stream floor above delivered"),
        pytest.param([9, 9, 4, 4, 1, 5, 2, 0, 0], id="pending above delivered"),
        pytest.param([9, 9, 4, 4, 1, 0, 0, 0, 0], id="pending delivery at the floor"),
        pytest.param([9, 9, 4, 4, 1, 0, 1, 0, 0], id="pending delivery below the floor"),
        pytest.param([9, 9, 4, 4, 1, 0, 12, 0, 0], id="pending delivery above delivered"),
        pytest.param([9, 9, 4, 4, 0, 1, 9, 0], id="redelivered above delivered"),
        pytest.param([9, 9, 4, 4, 100, 0, 2, 0, 0], id="more pending than bytes"),
        pytest.param([9, 9, 4, 4, 0, 100, 1, 0], id="more redelivered than bytes"),
        pytest.param([9, 9, 4, 4, 0, 0, 0], id="numbers after the last entry"),
        pytest.param([0x89, 0x00, 9, 4, 4, 0, 0], id="a varint longer than it need be"),
        pytest.param([9, 9, 4, 4, 0, 0x80], id="a varint that does not end"),
    ],
)
def test_a_body_that_cannot_be_is_refused_though_its_checksum_is_right(body: list[int]) -> None:
    with pytest.raises(FormatError):
        decode_consumer_state(with_checksum(b"PNSTKCON\x01\x00" + bytes(body)))


@pytest.mark.parametrize(
    "further",
    [
        pytest.param([], id="nothing"),
        pytest.param([0], id="no letter count"),
        pytest.param([0, 0], id="nothing that is new"),
        pytest.param([5, 0, 0], id="more held than bytes"),
        pytest.param([1, 0, 0], id="held and pending"),
        pytest.param([1, 9, 0], id="held above delivered"),
        pytest.param([0, 1, 1, 0, 0, 0, 0], id="a letter of what is not pending"),
        pytest.param([0, 2, 0, 0, 0, 0, 0], id="more letters than bytes"),
        pytest.param([0, 1, 0, 0, 0, 2, 0], id="neither terminated nor not"),
        pytest.param([0, 1, 0, 0, 0, 0, 3, 1], id="a text that is not there"),
        pytest.param([0, 1, 0, 0, 0, 0, 1, 0x80, 2], id="a text of more than bytes"),
        pytest.param([0, 1, 0, 0, 0, 0, 0, 7], id="numbers after the last letter"),
    ],
)
def test_a_further_body_that_cannot_be_is_refused(further: list[int]) -> None:
    plain = [9, 9, 4, 4, 1, 0, 2, 0, 0]
    right = [0, 1, 0, 0, 0, 0, 0]

    decode_consumer_state(with_checksum(b"PNSTKCON\x02\x00" + bytes(plain + right)))
    with pytest.raises(FormatError):
        decode_consumer_state(with_checksum(b"PNSTKCON\x02\x00" + bytes(plain + further)))


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(ConsumerState(SequencePair(1, 1), SequencePair(2, 0)), id="floor"),
        pytest.param(ConsumerState(SequencePair(1, 1), held={2}), id="held"),
        pytest.param(
            ConsumerState(
                SequencePair(1, 1),
                letters={1: DeadLetter(1, 0, is_terminated=False, text=b"")},
            ),
            id="letter",
        ),
        pytest.param(
            ConsumerState(
                SequencePair(1, 1),
                pending={1: PendingDelivery(1, 0)},
                letters={1: DeadLetter(1, 0, is_terminated=True, text=b"x" * 257)},
            ),
            id="text",
        ),
        pytest.param(
            ConsumerState(SequencePair(1, 1), pending={2: PendingDelivery(1, 0)}), id="pending"
        ),
        pytest.param(
            ConsumerState(SequencePair(1, 1), pending={1: PendingDelivery(0, 0)}), id="delivery"
        ),
        pytest.param(
            ConsumerState(SequencePair(1, 1), pending={1: PendingDelivery(1, 2**63)}), id="time"
        ),
        pytest.param(ConsumerState(SequencePair(1, 1), redelivered={1: 0}), id="count"),
        pytest.param(ConsumerState(SequencePair(2**64, 1)), id="beyond 64 bits"),
    ],
)
def test_a_state_that_could_not_be_read_back_is_not_written(state: ConsumerState) -> None:
    with pytest.raises(UsageError):
        encode_consumer_state(state)
