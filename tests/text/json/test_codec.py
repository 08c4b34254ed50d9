"""Bodies into documents: keys, nulls, repeated keys and what is told of errors."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from penstock import error_codes
from penstock.errors import ApiError, InternalError, InvalidDocument
from penstock.text.json.codec import decode, decode_plain, decode_request, decode_text
from penstock.text.json.shapes import OMIT_EMPTY, POINTER, Int, Int32, Uint64, Word, shape_of
from penstock.text.times import Instant


class Colour(Word):
    RED = "red"
    BLUE = "blue"


class Part(msgspec.Struct, frozen=True):
    name: str = ""
    count: Int32 = 0


class Whole(msgspec.Struct, frozen=True):
    title: Annotated[str, OMIT_EMPTY] = ""
    number: Int = 0
    seq: Annotated[Uint64, OMIT_EMPTY] = 0
    is_open: bool = False
    colour: Colour = Colour.RED
    part: Annotated[Part | None, OMIT_EMPTY] = None
    inner: Part = Part()
    parts: Annotated[tuple[Annotated[Part, POINTER], ...], OMIT_EMPTY] = ()
    labels: Annotated[dict[str, str], OMIT_EMPTY] = msgspec.field(default_factory=dict)
    since: Annotated[Instant | None, OMIT_EMPTY] = None


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b"null", b"null {} null"])
def test_nothing_said_is_the_document_of_defaults(body: bytes) -> None:
    assert decode(Whole, body) == Whole()


@pytest.mark.parametrize("key", [b"title", b"TITLE", b"Title", b"\\u0074itle"])
def test_a_key_matches_whatever_its_case(key: bytes) -> None:
    assert decode(Whole, b'{"' + key + b'":"x"}').title == "x"


def test_a_null_leaves_scalars_and_empties_the_rest() -> None:
    body = b"""{"title":"a","number":1,"part":{"name":"b"},"parts":[{}],"labels":{"c":"d"},
        "inner":{"count":2},"title":null,"number":null,"part":null,"parts":null,"labels":null,
        "inner":null,"is_open":null,"since":null}"""

    assert decode(Whole, body) == Whole(title="a", number=1, inner=Part(count=2))


def test_a_repeated_key_goes_on_with_what_was_there() -> None:
    body = b"""{"part":{"name":"a"},"labels":{"x":"1"},"parts":[{"name":"b"},{"name":"c"}]}
        {"part":{"count":1},"labels":{"y":"2"},"parts":[{"count":3}]}"""

    assert decode(Whole, body) == Whole(
        part=Part("a", 1), labels={"x": "1", "y": "2"}, parts=(Part("b", 3),)
    )


def test_a_null_in_an_array_is_an_empty_item() -> None:
    assert decode(Whole, b'{"parts":[null,{"count":1}]}').parts == (Part(), Part(count=1))


def test_an_unknown_key_is_refused_only_when_strict() -> None:
    body = b'{"bogus":[{}],"number":3}'

    with pytest.raises(InvalidDocument) as caught:
        decode(Whole, body)

    assert caught.value.reason == 'json: unknown field "bogus"'
    assert decode(Whole, body, strict=False).number == 3


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"number":"1"}', "string into Go struct field Whole.number of type int"),
        (b'{"number":1.0}', "number 1.0 into Go struct field Whole.number of type int"),
        (b'{"seq":-1}', "number -1 into Go struct field Whole.seq of type uint64"),
        (
            b'{"inner":{"COUNT":2147483648}}',
            "number 2147483648 into Go struct field Whole.inner.COUNT of type int32",
        ),
        (b'{"parts":{}}', "object into Go struct field Whole.parts of type []*server.Part"),
        (b'{"parts":[5]}', "number into Whole.parts.0 of type server.Part"),
        (b'{"since":5}', "number into Go struct field Whole.since of type time.Time"),
        (b'{"is_open":"no"}', "string into Go struct field Whole.is_open of type bool"),
        (b'{"labels":[]}', "array into Go struct field Whole.labels of type map[string]string"),
        (b"[]", "array into Go value of type server.Whole"),
    ],
)
def test_a_value_of_another_type_is_told_by_its_place(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode(Whole, body, strict=False)

    assert caught.value.reason == f"json: cannot unmarshal {reason}"


def test_a_very_long_number_is_refused_unread() -> None:
    with pytest.raises(InvalidDocument):
        decode(Whole, b'{"number":' + b"9" * 100_000 + b"}")


@pytest.mark.parametrize("raw", [b'"RED"', b'"r\\u0065d"', b"null", b"5", b'{"a": 1}'])
def test_a_word_is_taken_literally(raw: bytes) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode(Whole, b'{"colour":' + raw + b"}")

    assert caught.value.reason.startswith("can not unmarshal ")


def test_a_request_is_refused_with_a_code() -> None:
    with pytest.raises(ApiError) as caught:
        decode_request(Whole, b'{"a"')

    assert caught.value.err_code == error_codes.INVALID_JSON.err_code
    assert caught.value.description == "invalid JSON: unexpected EOF"


@pytest.mark.parametrize(("raw", "text"), [(b'"a\\n"', "a\n"), (b"null", "")])
def test_a_single_text_is_read(raw: bytes, text: str) -> None:
    assert decode_text(raw) == text


def test_a_type_that_json_does_not_have_is_our_own_mistake() -> None:
    class Odd(msgspec.Struct, frozen=True):
        held: bytes = b""

    with pytest.raises(InternalError):
        shape_of(Odd)


def test_a_plain_document_may_say_more_than_is_known() -> None:
    assert decode_plain(Part, b'{"name":"a","bogus":1}') == Part("a")
    assert decode_plain(Part, b" null ") == Part()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "unexpected end of JSON input"),
        (b" ", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b"{}{}", "invalid character '{' after top-level value"),
        (b"x", "invalid character 'x' looking for beginning of value"),
        (b"[]", "json: cannot unmarshal array into Go value of type server.Part"),
    ],
)
def test_a_plain_document_is_a_single_one(body: bytes, reason: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_plain(Part, body)

    assert caught.value.description == f"invalid JSON: {reason}"
