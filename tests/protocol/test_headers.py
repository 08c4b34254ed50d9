"""Values in a block of headers: found, taken out and changed as by a slow reader of lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.headers import (
    stream_headers,
    value_of,
    with_added,
    with_value,
    without,
    without_prefix,
    without_status,
)

NAMES = (b"Nats-Msg-Id", b"Nats-Msg-Id2", b"Nats-TTL", b"X-Nats-TTL", b"nats-ttl", b"Own")
VALUES = (b"", b"1", b" 1", b"a b ", b"Nats-TTL: 5", b"x:y", b"a\rb", b"a\nNats-TTL: 1")

lines = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.sampled_from((b":", b": ", b" : ")), st.sampled_from(VALUES)
    )
)
blocks = lines.map(
    lambda each: b"NATS/1.0\r\n" + b"".join(b"%b%b%b\r\n" % line for line in each) + b"\r\n"
)
noise = st.lists(
    st.sampled_from((b"NATS/1.0", b"\r\n", b"\r", b"\n", b":", b" ", b"Nats-TTL", b"1")),
    max_size=12,
).map(b"".join)


def found_by_lines(headers: bytes, name: bytes) -> bytes | None:
    """Find a value line by line; a line ends with both of its characters."""
    _, *rest = headers.split(b"\r\n")
    for line in rest:
        if line.startswith(name + b":"):
            return line[len(name) + 1 :].lstrip(b" ")
    return None


@given(blocks, st.sampled_from(NAMES))
def test_a_value_is_the_rest_of_the_first_line_with_its_name(headers: bytes, name: bytes) -> None:
    assert value_of(headers, name) == found_by_lines(headers, name)


STREAM_NAMES = tuple(
    b"Nats-" + name
    for name in (
        b"Msg-Id",
        b"Expected-Stream",
        b"Expected-Last-Sequence",
        b"Expected-Last-Subject-Sequence",
        b"Expected-Last-Subject-Sequence-Subject",
        b"Expected-Last-Msg-Id",
        b"Rollup",
        b"TTL",
        b"Incr",
        b"Counter-Sources",
        b"Stream-Source",
        b"Request-Info",
        b"Required-Api-Level",
        b"Batch-Id",
        b"Batch-Sequence",
        b"Batch-Commit",
    )
)
stream_lines = st.lists(
    st.tuples(
        st.sampled_from((*STREAM_NAMES, b"Nats-Schedule", b"Nats-Other", b"Nats-", b"Own")),
        st.sampled_from((b":", b": ", b" : ", b"", b"-Subject: ", b"x: ")),
        st.sampled_from((*VALUES, b"Nats-Rollup: sub")),
        st.sampled_from((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"")),
    )
)
stream_blocks = stream_lines.map(
    lambda each: b"NATS/1.0\r\n" + b"".join(b"".join(line) for line in each)
)


@given(stream_blocks | blocks | noise)
def test_one_pass_finds_what_a_search_for_each_name_finds(headers: bytes) -> None:
    found = stream_headers(headers)

    assert found == {
        name: value for name in STREAM_NAMES if (value := value_of(headers, name)) is not None
    }


@given(blocks, st.sampled_from(NAMES))
def test_a_header_that_was_taken_out_is_not_there(headers: bytes, name: bytes) -> None:
    left = without(headers, name)

    assert value_of(left, name) is None
    for other in NAMES:
        if other != name:
            assert value_of(left, other) == value_of(headers, other)


@given(blocks, st.sampled_from(NAMES))
def test_only_lines_with_the_name_are_taken_out(headers: bytes, name: bytes) -> None:
    lines = headers.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(name + b":")]
    expected = b"\r\n".join(kept)

    emptied = kept != lines and len(kept) == 3
    assert without(headers, name) == (b"" if emptied else expected)


@given(blocks, st.sampled_from(NAMES))
def test_a_header_that_was_given_a_value_has_it(headers: bytes, name: bytes) -> None:
    assert value_of(with_value(headers, name, b"new"), name) == b"new"


@given(blocks)
def test_an_added_header_leaves_the_others_alone(headers: bytes) -> None:
    added = with_added(headers, b"Added", b"value")

    assert value_of(added, b"Added") == b"value"
    assert added.startswith(headers[:-2])


@given(blocks)
def test_a_prefix_takes_out_all_that_begin_with_it(headers: bytes) -> None:
    left = without_prefix(headers, b"Nats-Msg")

    assert b"\r\nNats-Msg" not in left
    assert value_of(left, b"Own") == value_of(headers, b"Own")


@given(noise, noise, noise)
def test_no_bytes_do_harm(headers: bytes, name: bytes, value: bytes) -> None:
    name = name or b"Nats-TTL"
    value_of(headers, name)
    without(headers, name)
    without_prefix(headers, name)
    without_status(headers)
    with_value(headers, name, value)
    with_added(headers, name, value)


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        (b"NATS/1.0 503\r\n\r\n", b""),
        (b"NATS/1.0 503 No Responders\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\n\r\n"),
        (b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"", b""),
    ],
)
def test_a_status_is_no_header(headers: bytes, left: bytes) -> None:
    assert without_status(headers) == left
