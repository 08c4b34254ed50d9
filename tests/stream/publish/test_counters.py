"""Counters: sums of any length, and what streams take over from counters of other streams."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ApiError
from penstock.protocol.headers import value_of
from penstock.store.memstore import MemoryStore
from penstock.stream.config.config import StreamConfig
from penstock.stream.publish import counters
from penstock.stream.publish.message import IncomingMessage
from penstock.stream.publish.message_ids import MessageIds
from penstock.stream.publish.message_rules import MessageRules
from tests.stream.published import block

RULES = MessageRules(
    StreamConfig(name="S", allow_msg_counter=True),
    MemoryStore.create(),
    MessageIds(),
    read_ids=lambda: None,
    payload_bytes_max=lambda: 2**20,
)


def incremented(value: str, total: counters.Total) -> IncomingMessage:
    message = IncomingMessage(b"s.a", block({"Nats-Incr": value}), b"")
    RULES.check_member(message)
    counters.apply(message, total)
    return message


def sourced(value: str, origin: str, total: counters.Total) -> IncomingMessage:
    headers = {"Nats-Incr": "1", "Nats-Stream-Source": f"{origin} 7 > > s.origin"}
    message = IncomingMessage(
        b"s.a", block(headers), b'{"val":"%b"}' % value.encode(), is_sourced=True
    )
    RULES.check_member(message)
    counters.apply(message, total)
    return message


@given(st.lists(st.integers(-(10**60), 10**60), min_size=1))
def test_a_counter_is_the_sum_of_what_was_added(increments: list[int]) -> None:
    total = counters.Total()
    *_, message = [incremented(str(increment), total) for increment in increments]

    assert json.loads(message.body) == {"val": str(sum(increments))}
    assert counters.ack_value(message) == b',"val":"%d"' % sum(increments)


def test_numbers_of_many_thousand_digits_are_added_exactly() -> None:
    total = counters.Total()
    incremented("9" * 60_000, total)

    assert incremented("1", total).body == b'{"val":"1' + b"0" * 60_000 + b'"}'


@pytest.mark.parametrize(
    "value", ["x", "1.5", "1e3", "0x1", "1_000", "--1", "+", "1 2", "Infinity"]
)
def test_what_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(ApiError) as refusal:
        incremented(value, counters.Total())

    assert refusal.value.err_code == 10171


def test_origins_are_added_by_how_much_they_have_grown() -> None:
    total = counters.Total()
    incremented("5", total)
    sourced("10", "EU", total)
    sourced("3", "US", total)
    message = sourced("17", "EU", total)

    assert message.body == b'{"val":"25"}'
    assert value_of(message.headers, b"Nats-Incr") == b"7"
    told = value_of(message.headers, b"Nats-Counter-Sources")
    assert told == b'{"EU":{"s.origin":"17"},"US":{"s.origin":"3"}}'


def test_a_counter_goes_on_with_what_is_stored() -> None:
    store = MemoryStore.create()
    total = counters.Total()
    sourced("10", "EU", total)
    message = sourced("12", "EU", total)
    store.store(message.subject, message.headers, message.body)

    kept = counters.total_of(store, b"s.a")

    assert (str(kept.value), kept.sources) == ("12", {"EU": {"s.origin": "12"}})


@pytest.mark.parametrize("body", [b"", b"5", b"[]", b'{"val":5}', b'{"val"'])
def test_a_message_that_is_no_counter_is_told_of(body: bytes) -> None:
    store = MemoryStore.create()
    store.store(b"s.a", b"", body)

    with pytest.raises(ApiError) as refusal:
        counters.total_of(store, b"s.a")

    assert refusal.value.err_code == 10172
