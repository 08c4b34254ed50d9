"""What is read in one pass is what the careful way reads, and all else is left to that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.consumer.config.config import CreateConsumerRequest
from penstock.errors import InvalidDocument
from penstock.stream.config.config import StreamConfigRequest
from penstock.text.json.codec import decode, decode_carefully, encode
from penstock.text.json.shapes import shape_of
from tests.text.json.test_codec import Whole
from tests.text.json.test_encode import WHOLES

WHITE = st.text(alphabet=" \t\r\n", max_size=2)


def quickly(body: bytes) -> Any:
    return shape_of(Whole).quick.read(body)


@given(WHOLES, st.data())
def test_what_is_read_quickly_is_what_is_read_carefully(whole: Whole, data: st.DataObject) -> None:
    body = bytearray(encode(whole))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(body)))
        taken = data.draw(st.integers(0, 2))
        body[place : place + taken] = data.draw(
            st.sampled_from(
                [b"", b" ", b'"', b"\\", b"{", b"}", b",", b":", b"0", b"-", b"9", b"."]
            )
            | st.binary(max_size=2)
            | st.sampled_from([b"null", b"true", b'"number":1,', b'"Number":1,', b'"bogus":1,'])
        )
    found = quickly(bytes(body))

    if found is not None:
        assert found == decode_carefully(Whole, bytes(body))


@given(st.binary(max_size=40))
@example(b"")
@example(b"null")
@example(b"{}\x00")
@example(b'{"number":1}{"number":2}')
@example(b'{"number":01}')
@example(b'{"number":1.0}')
@example(b'{"number":1e2}')
@example(b'{"number":-}')
@example(b'{"is_open":tru')
@example(b'{"is_open":true')
@example(b'{"title":"\xff"}')
@example(b'{"title":"\xed\xa0\x80"}')
@example(b'{"labels":{"a":"1","a":"2"}}')
def test_bytes_that_are_anything_are_never_read_wrongly(body: bytes) -> None:
    found = quickly(body)

    if found is not None:
        assert found == decode_carefully(Whole, body)


@given(WHITE, WHITE, WHITE)
def test_white_space_may_stand_between_all(one: str, other: str, third: str) -> None:
    text = f'{one}{{{other}"number"{third}:{one}-12{other},{third}"parts":{one}[{other}{{{third}}}'
    text += f'{one},{other}{{"name":{third}"n"{one}}}{other}]{third},"is_open":{one}false{other}}}'
    body = (text + third).encode()

    assert quickly(body) == decode_carefully(Whole, body) != Whole()


@pytest.mark.parametrize(
    ("made", "document"),
    [
        (
            StreamConfigRequest,
            {
                "name": "S",
                "subjects": ["a.>", "b"],
                "retention": "limits",
                "max_msgs": -1,
                "discard": "new",
                "storage": "file",
                "sources": [{"name": "T", "filter_subject": "t"}],
                "consumer_limits": {},
                "metadata": {"a": "b"},
            },
        ),
        (
            CreateConsumerRequest,
            {
                "stream_name": "S",
                "config": {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 5},
                "action": "",
            },
        ),
    ],
)
def test_what_clients_send_is_read_quickly(made: Any, document: dict[str, Any]) -> None:
    body = json.dumps(document).encode()

    assert shape_of(made).quick.read(body) == decode_carefully(made, body)


def test_what_is_wrong_is_said_by_the_careful_way() -> None:
    with pytest.raises(InvalidDocument, match="unknown field"):
        decode(Whole, b'{"bogus":1}')
