"""`o.dat` in both versions, and whatever else may stand there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.golang.metadata import (
    GoConsumerState,
    PendingAck,
    decode_consumer_state,
)
from tests.format.golang.go_records import uvarint, varint

SECOND_NS = 1_000_000_000


def test_version_two_counts_from_the_ack_floor() -> None:
    numbers = b"".join(map(uvarint, (10, 100, 14, 104, 1)))
    pending = varint(5000) + uvarint(3) + uvarint(2) + varint(40)
    redelivered = uvarint(1) + uvarint(3) + uvarint(7)

    state = decode_consumer_state(b"\x16\x02" + numbers + pending + redelivered)

    assert state == GoConsumerState(
        10, 100, 14, 104, {103: PendingAck(12, 4960 * SECOND_NS)}, {103: 7}
    )


def test_version_one_keeps_delivered_relative_and_as_the_next_to_come() -> None:
    numbers = b"".join(map(uvarint, (10, 100, 4, 5, 1)))
    pending = varint(5000) + uvarint(3) + varint(-40)

    state = decode_consumer_state(b"\x16\x01" + numbers + pending + uvarint(0))

    assert (state.delivered_consumer_seq, state.delivered_stream_seq) == (13, 104)
    assert state.pending == {103: PendingAck(0, 4960 * SECOND_NS)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x15\x02\0\0\0\0\0\0",
        b"\x16\x03\0\0\0\0\0\0",
        b"\x16\x02\0\0\0\0",
        b"\x16\x02" + uvarint(2**63) + b"\0\0\0\0\0",
        b"\x16\x02\0\0\0\0" + uvarint(2**60) + b"\0\x01\x01\0",
        b"\x16\x02\0\0\0\0\x01\0\0\0\0",
        b"\x16\x02" + b"\xff" * 11,
    ],
)
def test_what_cannot_be_a_state_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_consumer_state(data)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_state_or_an_error(tail: bytes) -> None:
    for version in (b"\x16\x01", b"\x16\x02"):
        try:
            decode_consumer_state(version + tail)
        except FormatError as error:
            assert error.offset <= len(tail) + 2  # noqa: PT017  # either outcome is right
