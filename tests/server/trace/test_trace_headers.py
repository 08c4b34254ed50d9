"""What headers ask about tracing their message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.trace.trace_headers import (
    read_request,
    stored_without_trace,
    with_destination,
    without_trace,
)

WORDS = st.text("abcXYZ-09", min_size=1, max_size=8)
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=8)


def block(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("NATS/1.0", *lines, "")).encode()


@given(PAIRS, st.integers(0, 8))
def test_all_headers_are_shown_in_order(pairs: list[tuple[str, str]], place: int) -> None:
    lines = [f"{name}: {value}" for name, value in pairs]
    lines.insert(place, "Nats-Trace-Dest: there")

    request = read_request(block(*lines))

    assert request is not None
    assert request.destination == "there"
    expected: dict[str, list[str]] = {"Nats-Trace-Dest": ["there"]}
    for name, value in pairs:
        expected.setdefault(name, []).append(value)
    assert request.headers == expected
    assert list(request.headers) == sorted(expected)


@given(st.binary(max_size=200))
def test_any_bytes_are_read(tail: bytes) -> None:
    read_request(b"NATS/1.0\r\n" + tail)
    read_request(b"NATS/1.0\r\nNats-Trace-Dest: x\r\n" + tail)
    read_request(tail)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Nats-Trace-Only: true",),
        ("Nats-Trace-Dest:",),
        ("Nats-Trace-Dest: trace disabled", "traceparent: 00-a-b-01"),
        ("traceparent: 00-a-b-00",),
        ("traceparent: 00-a-b-81",),
        ("traceparent: 00-a-01",),
    ],
)
def test_others_do_not_ask(lines: tuple[str, ...]) -> None:
    assert read_request(block(*lines)) is None


@pytest.mark.parametrize("name", ["traceparent", "TraceParent"])
def test_a_parent_asks_without_a_destination(name: str) -> None:
    request = read_request(block(f"{name}: 00-a-b-01", "Nats-Trace-Only: true"))

    assert request is not None
    assert request.destination == ""
    assert not request.is_only


def test_a_message_says_that_it_is_not_to_be_traced_further() -> None:
    asking = block("Nats-Trace-Dest: x", "Key: v")

    assert without_trace(asking) == block("Key: v", "Nats-Trace-Dest: trace disabled")
    assert stored_without_trace(asking) == block("Nats-Trace-Dest: trace disabled", "Key: v")
    assert with_destination(asking, b"y") == block("Key: v", "Nats-Trace-Dest: y")
    assert read_request(without_trace(asking)) is None
    assert read_request(stored_without_trace(asking)) is None
