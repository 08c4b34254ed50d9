"""What comes from a consumer is read: reply subjects of either form, and statuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.jetstream import (
    Delivered,
    flow_reply,
    is_delivered,
    read_delivered,
    status_of,
)
from penstock.client.wire import ReceivedMessage
from penstock.errors import FormatError, RefusedByServer


def message(reply: bytes = b"", headers: bytes = b"") -> ReceivedMessage:
    return ReceivedMessage(b"orders.eu", b"1", reply, headers, b"")


@pytest.mark.parametrize(
    "reply",
    [
        b"$JS.ACK.ORDERS.billing.2.17.9.1600000000000000000.4",
        b"$JS.ACK._.hash.ORDERS.billing.2.17.9.1600000000000000000.4",
        b"$JS.ACK.hub.hash.ORDERS.billing.2.17.9.1600000000000000000.4.random",
    ],
)
def test_a_reply_subject_tells_where_a_message_stands(reply: bytes) -> None:
    told = read_delivered(message(reply))

    assert is_delivered(message(reply))
    assert told == Delivered(2, 17, 9, 1_600_000_000_000_000_000, 4)


@given(st.binary(max_size=80))
def test_any_other_reply_subject_is_refused(reply: bytes) -> None:
    with pytest.raises(FormatError):
        read_delivered(message(b"$JS.ACK." + reply))


def test_a_status_is_told_from_a_message_with_headers() -> None:
    assert status_of(message(headers=b"NATS/1.0 408 Request Timeout\r\n\r\n")) == (
        "408 Request Timeout"
    )
    assert status_of(message(headers=b"NATS/1.0\r\nA: b\r\n\r\n")) == ""


def test_flow_control_is_answered_where_it_asks_or_says_that_it_waits() -> None:
    asking = message(b"fc.1", b"NATS/1.0 100 FlowControl Request\r\n\r\n")
    waiting = message(headers=b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: fc.2\r\n\r\n")
    idle = message(headers=b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")

    assert [flow_reply(each) for each in (asking, waiting, idle)] == [b"fc.1", b"fc.2", b""]


def test_a_status_that_ends_a_delivery_is_raised() -> None:
    with pytest.raises(RefusedByServer) as refused:
        flow_reply(message(headers=b"NATS/1.0 409 Consumer Deleted\r\n\r\n"))

    assert refused.value.reason == "409 Consumer Deleted"
