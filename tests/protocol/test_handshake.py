"""The documents of the handshake, as the reference server reads and writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.protocol.handshake import ConnectOptions, encode_info, parse_connect, parse_object


def test_absent_keys_have_their_defaults() -> None:
    options = parse_connect(b"{}")

    assert (options.verbose, options.pedantic, options.echo) == (True, True, True)
    assert (options.headers, options.no_responders, options.protocol) == (False, False, 0)


def test_keys_are_read_in_any_case_and_unknown_ones_ignored() -> None:
    options = parse_connect(b'{"VERBOSE":false,"Pass":"p","unheard":[{}],"password":"no"}')

    assert options.verbose is False
    assert options.password == "p"


def test_a_second_connect_keeps_what_it_does_not_mention() -> None:
    first = parse_connect(b'{"verbose":false,"name":"n"}')

    second = parse_connect(b'{"name":null,"lang":"l"}', first)

    assert (second.verbose, second.name, second.lang) == (False, "n", "l")
    assert first.lang == ""


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'"x"',
        b'{"verbose":1}',
        b'{"protocol":true}',
        b'{"protocol":1.0}',
        b'{"protocol":9223372036854775808}',
        b'{"user":5}',
        b'{"name":NaN}',
        b'{"x":Infinity}',
        b'{"import":1}',
        b"{} {}",
        b"[" * 100_000,
    ],
)
def test_a_document_that_is_wrong_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        parse_connect(text)


def test_null_is_an_empty_document() -> None:
    assert parse_connect(b"null") == ConnectOptions()
    assert parse_object(b" null ", "INFO") == {}


@pytest.mark.parametrize("text", [b'{"name":"\xff"}', b'{"name":"\\ud800"}'])
def test_what_is_no_character_is_replaced(text: bytes) -> None:
    name = parse_connect(text).name

    assert len(name) == 1
    assert name.encode()


def test_secrets_are_not_shown() -> None:
    options = parse_connect(b'{"user":"u","pass":"s3cret","auth_token":"s3cret","jwt":"s3cret"}')

    assert "s3cret" not in repr(options)


@given(st.binary(max_size=60))
def test_noise_is_refused_or_read_but_never_breaks_the_reader(text: bytes) -> None:
    try:
        options = parse_connect(text)
    except FormatError:
        return
    assert isinstance(options, ConnectOptions)


def test_info_is_one_line_without_what_is_absent() -> None:
    line = encode_info({"a": 1, "b": None, "c": "<&>", "d": True})

    assert line == b'INFO {"a":1,"c":"\\u003c\\u0026\\u003e","d":true} \r\n'
