"""The lines of the protocol as a link reads them: forms, bounds, and bytes that come in pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.routing.recording import Noted, RecordingLink

UNKNOWN = ("violation", "parse", "Unknown Protocol Operation")
TOO_LONG = ("violation", "control line", "maximum control line exceeded")


def noted_of(data: bytes, *pieces: bytes, control_line_max: int = 4096) -> list[Noted]:
    """Return what a link notes of bytes that come at once or in pieces."""
    link = RecordingLink()
    link.max_control_line = control_line_max
    for piece in (data, *pieces):
        link.feed(piece)
    return link.noted


@pytest.mark.parametrize(
    ("line", "noted"),
    [
        (b"PING\r\n", ("ping",)),
        (b"ping and more\n", ("ping",)),
        (b"pOnG\r\n", ("pong",)),
        (b"CONNECT {}\r\n", ("connect", b"{}")),
        (b"connect{}\n", ("connect", b"{}")),
        (b"CONNECT \t{} \r\n", ("connect", b"{} ")),
        (b"INFO {}\r\n", ("info", b"{}")),
        (b"-ERR 'x y'\r\n", ("error", b"'x y'")),
        (b"SUB foo 1\r\n", ("subscribe", b"foo", None, b"1")),
        (b"sub\tfoo \t q\t 1 \r\n", ("subscribe", b"foo", b"q", b"1")),
        (b"SUB foo\r1\r\n", ("subscribe", b"foo", None, b"1")),
        (b"UNSUB 1\n", ("unsubscribe", b"1", -1)),
        (b"UNSUB 1 5\r\n", ("unsubscribe", b"1", 5)),
        (b"UNSUB 1 x\r\n", ("unsubscribe", b"1", -1)),
    ],
)
def test_operations_have_these_forms(line: bytes, noted: Noted) -> None:
    assert noted_of(line) == [noted]


def test_ok_of_a_client_means_nothing() -> None:
    assert noted_of(b"+OK\r\n+ok whatever\r\n") == []


@pytest.mark.parametrize(
    "data",
    [b"X", b"PX", b"M", b"MSG a 1 0\r\n", b"HM", b"PUBx", b"SUBS", b"CONNEXT", b"-ERR\r", b"\r\n"],
)
def test_what_cannot_become_an_operation_is_refused_at_its_first_wrong_byte(data: bytes) -> None:
    assert noted_of(data) == [UNKNOWN]


@pytest.mark.parametrize("data", [b"P", b"H", b"SU", b"CONNECT", b"CONNECT ", b"PING\r", b"PUB "])
def test_what_may_still_become_an_operation_is_waited_for(data: bytes) -> None:
    assert noted_of(data) == []


@pytest.mark.parametrize("line", [b"SUB a\r\n", b"SUB a b c d\r\n", b"UNSUB \r\n", b"PUB a\r\n"])
def test_a_wrong_number_of_arguments_is_refused_without_a_word(line: bytes) -> None:
    assert noted_of(line) == [("violation", "arguments", "")]


@pytest.mark.parametrize("size", [b"-1", b"x", b"1x", b"+1", b"1.0", b"1000000000", b"\xb2"])
def test_a_size_is_at_most_nine_digits(size: bytes) -> None:
    assert noted_of(b"PUB a " + size + b"\r\n") == [("violation", "size", "")]


def test_a_line_is_as_long_as_allowed_and_no_longer() -> None:
    allowed = b"SUB " + b"x" * 30 + b" 1\r\n"

    assert noted_of(allowed, control_line_max=32) == [("subscribe", b"x" * 30, None, b"1")]
    assert noted_of(allowed, control_line_max=31) == [TOO_LONG]


def test_a_line_that_is_too_long_is_refused_before_its_end() -> None:
    assert noted_of(b"SUB " + b"x" * 32, control_line_max=32) == []
    assert noted_of(b"SUB " + b"x" * 33, control_line_max=32) == [TOO_LONG]


@pytest.mark.parametrize("data", [b"PUB" + b" " * 100, b"PING" + b"x" * 100])
def test_bytes_without_meaning_are_bounded_too(data: bytes) -> None:
    assert noted_of(data, control_line_max=32) == [TOO_LONG]


@pytest.mark.parametrize("end", [b"\n\n", b"\rx", b"xx", b"x"])
def test_a_payload_ends_with_exactly_its_line_end(end: bytes) -> None:
    assert noted_of(b"PUB a 2\r\nhi" + end) == [UNKNOWN]


EVERY_OPERATION = (
    b"CONNECT {}\r\nSUB foo.* 1\r\nsub foo.bar\tq 2\nPUB foo.bar re 5\r\nhello\r\nPING\r\nPONG\r\n"
    b"HPUB foo.x 12 14\r\nNATS/1.0\r\n\r\nhi\r\nUNSUB 2 1\r\n+OK\r\nINFO {}\r\nPUB foo.y 0\r\n\r\n"
)


def outcome(pieces: list[bytes]) -> tuple[list[Noted], bytes]:
    link = RecordingLink()
    for piece in pieces:
        link.feed(piece)
    return link.noted, link.sent


def test_every_operation_may_be_cut_at_every_byte() -> None:
    whole = outcome([EVERY_OPERATION])

    for place in range(1, len(EVERY_OPERATION)):
        assert outcome([EVERY_OPERATION[:place], EVERY_OPERATION[place:]]) == whole, place
    assert outcome([bytes([byte]) for byte in EVERY_OPERATION]) == whole


@given(st.lists(st.integers(0, len(EVERY_OPERATION)), max_size=8).map(sorted))
def test_operations_may_be_cut_anywhere(places: list[int]) -> None:
    bounds = [0, *places, len(EVERY_OPERATION)]
    pieces = [EVERY_OPERATION[a:b] for a, b in itertools.pairwise(bounds)]

    assert outcome(pieces) == outcome([EVERY_OPERATION])


fragments = st.sampled_from(
    [b"PUB", b"SUB", b" ", b"\t", b"\r\n", b"\n", b"\r", b"a", b"1", b"99", b"-", b"HPUB", b"PING"]
)


@given(st.lists(fragments | st.binary(max_size=4), max_size=20).map(b"".join), st.data())
def test_noise_ends_alike_however_it_is_cut(noise: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(noise)))

    assert outcome([noise[:place], noise[place:]]) == outcome([noise])
