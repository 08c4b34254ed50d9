"""Lines of the old layout: what is read of them, and what is refused."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptStore, FormatError
from penstock.limits import JSON_LINE_BYTES_MAX, READ_CHUNK_BYTES
from penstock.store.imports.json_lines import JsonLines, TornLine, parse_line
from penstock.store.interface import RawMessage
from penstock.store.system_calls import SYSTEM_CALLS
from penstock.store.vfs import Buffer

GOOD: dict[str, Any] = {
    "sequence": 7,
    "subject": "orders.new",
    "payload": "aGVsbG8=",
    "timestamp": 1_700_000_000_000_000_005,
}


class Text:
    """A file of text that can only be read, in the chunks that are asked for."""

    path = "/old/messages.jsonl"

    def __init__(self, data: bytes) -> None:
        self._data = data

    calls = SYSTEM_CALLS

    def call_fd(self) -> int:
        return -1

    def fileno(self) -> int:
        return -1

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def write_at(self, offset: int, data: Buffer) -> int:
        raise NotImplementedError

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        raise NotImplementedError

    def sync_data(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


def line(**changes: object) -> bytes:
    """Return the good line with some fields changed, or left out where the value is `...`."""
    fields = {**GOOD, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def read_all(data: bytes) -> list[RawMessage]:
    return [message for batch in JsonLines(Text(data)).batches() for message in batch]


def test_a_line_is_read_with_either_spelling_of_its_fields() -> None:
    expected = (7, 1_700_000_000_000_000_005, b"orders.new", b"", b"hello", 0)
    other = {"seq": 7, "subject": "orders.new", "data": "aGVsbG8=", "time": GOOD["timestamp"]}

    assert parse_line(line()) == expected
    assert parse_line(json.dumps(other).encode()) == expected
    assert parse_line(b" " + line(extra=[1, {"deep": None}]) + b" \r") == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, b""),
        ({}, b""),
        ("", b""),
        ({"A": "b"}, b"NATS/1.0\r\nA: b\r\n\r\n"),
        ({"A": ["b", "c"], "D": ""}, b"NATS/1.0\r\nA: b\r\nA: c\r\nD: \r\n\r\n"),
        ("NATS/1.0\r\nÄ: ö\r\n\r\n", "NATS/1.0\r\nÄ: ö\r\n\r\n".encode()),
    ],
)
def test_headers_come_as_an_object_or_as_they_are(headers: object, expected: bytes) -> None:
    assert parse_line(line(headers=headers))[3] == expected


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01t00:00:01.5z", 1_500_000_000),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999999-00:00", -1),
        ("2024-02-29T12:30:45.123456-07:30", 1_709_236_845_123_456_000),
        ("2262-04-11T23:47:16.854775807Z", 2**63 - 1),
    ],
)
def test_times_are_read_to_the_nanosecond(text: str, expected_ns: int) -> None:
    assert parse_line(line(timestamp=text))[1] == expected_ns


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_time_as_text_and_as_a_number_are_the_same(time_ns: int) -> None:
    second, fraction = divmod(time_ns, 1_000_000_000)
    text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")

    assert parse_line(line(timestamp=f"{text}.{fraction:09d}Z"))[1] == time_ns
    assert parse_line(line(timestamp=time_ns))[1] == time_ns


@given(st.binary(max_size=300), st.text(min_size=1, max_size=30), st.integers(1, 2**63 - 1))
def test_what_was_written_is_read_back(payload: bytes, subject: str, seq: int) -> None:
    data = line(sequence=seq, subject=subject, payload=base64.b64encode(payload).decode())

    assert parse_line(data) == (seq, GOOD["timestamp"], subject.encode(), b"", payload, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"7",
        b"nonsense",
        b"\xff" + line(),
        line() + line(),
        b"[" * 100_000,
        line(sequence=...),
        line(sequence=0),
        line(sequence=-1),
        line(sequence=2**63),
        line(sequence=True),
        line(sequence="7"),
        line(sequence=7.0),
        line(seq=7),
        line(subject=...),
        line(subject=""),
        line(subject=None),
        line(subject="\ud800"),
        line(subject="x" * 70_000),
        line(payload=...),
        line(payload="aGVsbG8"),
        line(payload="aGVs!bG8="),
        line(payload="aGVsbG8=\n"),
        line(payload=5),
        line(payload=["aGVsbG8="]),
        line(data="aGVsbG8="),
        line(headers=5),
        line(headers=False),
        line(headers=["A: b"]),
        line(headers={"A": 5}),
        line(headers={"A": ["b", None]}),
        line(headers={"A": "b\r\nC: d"}),
        line(headers={"A\n": "b"}),
        line(headers={"A:": "b"}),
        line(headers={"": "b"}),
        line(headers={"A": "x" * 1_100_000}),
        line(timestamp=...),
        line(timestamp=None),
        line(timestamp=1.5),
        line(timestamp=True),
        line(timestamp=2**63),
        line(timestamp=""),
        line(timestamp="Z"),
        line(timestamp="2024-05-06"),
        line(timestamp="2024-05-06T07:08:09"),
        line(timestamp="2024-05-06T07:08Z"),
        line(timestamp="2024-13-06T07:08:09Z"),
        line(timestamp="2024-05-06T07:08:09.Z"),
        line(timestamp="2024-05-06T07:08:09.1234567890Z"),
        line(timestamp="2024-05-06T07:08:09.12a4Z"),
        line(timestamp="2024-05-06T07:08:09.٣Z"),
        line(timestamp="2024-05-06T07:08:09,5Z"),
        line(timestamp="2024-05-06T07:08:09+0100"),
        line(timestamp="2300-01-01T00:00:00Z"),
        line(timestamp="0001-01-01T00:00:00Z"),
        line(timestamp="0001-01-01T00:00:00+23:59"),
        line(time=5),
    ],
    ids=lambda data: data[:70].decode("ascii", "replace"),
)
def test_a_line_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_line(data)


def test_an_unreadable_line_is_named_with_its_file_line_and_offset() -> None:
    data = line(sequence=1) + b"\n\n" + line(sequence=2) + b"\n{broken\n" + line(sequence=9)

    with pytest.raises(CorruptStore) as caught:
        read_all(data)

    assert caught.value.path == Text.path
    assert caught.value.offset == data.index(b"{broken")
    assert caught.value.reason.startswith("line 4: ")


@pytest.mark.parametrize("second", [7, 6])
def test_sequences_must_rise(second: int) -> None:
    with pytest.raises(CorruptStore) as caught:
        read_all(line() + b"\n" + line(sequence=second) + b"\n")

    assert caught.value.reason.startswith("line 2: ")


def test_the_last_line_may_lack_its_end() -> None:
    data = line(sequence=1) + b"\n" + line(sequence=2)
    lines = JsonLines(Text(data))

    assert [message[0] for batch in lines.batches() for message in batch] == [1, 2]
    assert lines.torn is None


def test_a_torn_last_line_is_told_and_not_taken() -> None:
    whole = line(sequence=1) + b"\n"
    for size in range(1, len(line(sequence=2))):
        torn = line(sequence=2)[:size]
        lines = JsonLines(Text(whole + torn))

        assert [message[0] for batch in lines.batches() for message in batch] == [1]
        assert lines.torn == TornLine(len(whole), torn)


def test_lines_longer_than_a_chunk_are_read_whole() -> None:
    payload = base64.b64encode(b"x" * (READ_CHUNK_BYTES * 2)).decode()
    data = b"\n".join([line(sequence=1), line(sequence=2, payload=payload), line(sequence=3), b""])

    assert [(message[0], len(message[4])) for message in read_all(data)] == [
        (1, 5),
        (2, READ_CHUNK_BYTES * 2),
        (3, 5),
    ]


def test_a_line_without_end_is_given_up_before_it_is_gathered() -> None:
    class Endless(Text):
        def read_at(self, offset: int, size: int) -> bytes:
            assert offset <= JSON_LINE_BYTES_MAX + 2 * READ_CHUNK_BYTES
            return b"x" * size

    with pytest.raises(CorruptStore) as caught:
        list(JsonLines(Endless(b"")).batches())

    assert caught.value.reason.startswith("line 1: ")
