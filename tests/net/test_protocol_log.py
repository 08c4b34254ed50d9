"""The protocol told to the log: what is masked, what is shown, and that no byte is touched."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.options.server import ServerOptions
from penstock.net.channel import Channel
from penstock.net.protocol_log import Tracer, without_secrets


@dataclass
class Told:
    """What a tracer needs of a connection and of its host; it keeps what was told."""

    limits: ServerOptions = field(default_factory=ServerOptions)
    max_control_line: int = 4096
    lines: list[str] = field(default_factory=list)

    @property
    def host(self) -> Told:
        return self

    def log(self, level: str, text: str) -> None:
        assert level == "TRC"
        self.lines.append(text)

    def __str__(self) -> str:
        return "cid:5"


def tracer(**options: Any) -> tuple[Told, Tracer]:
    told = Told(limits=ServerOptions(**options))
    return told, Tracer(cast("Channel", told))  # it asks for no more than these


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b'{"user":"a","pass":"s3cret"}', b'{"user":"a","pass":"[REDACTED]"}'),
        (b'{"pass" : "s3cret", "x":1}', b'{"pass" : "[REDACTED]", "x":1}'),
        (b'{"password":"s3cret"}', b'{"password":"[REDACTED]"}'),
        (b'{"auth_token":"s3cret","verbose":true}', b'{"auth_token":"[REDACTED]","verbose":true}'),
        (b'{"nkey":"UABC","sig":"xyz"}', b'{"nkey":"[REDACTED]","sig":"[REDACTED]"}'),
        (b'{"proxy_sig":"xyz"}', b'{"proxy_sig":"[REDACTED]"}'),
        (b'{"jwt":"eyJ","name":"n"}', b'{"jwt":"[REDACTED]","name":"n"}'),
        (b'{"pass":"s3cret', b'{"pass":"[REDACTED]'),
    ],
)
def test_what_authenticates_a_client_is_masked(sent: bytes, shown: bytes) -> None:
    assert without_secrets(sent) == shown


STORY = (
    b'CONNECT {"pass":"x"}\r\nping\r\nSUB a.*  q 1\r\nPUB a  b 5\r\nhello\r\n'
    b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPUB a 0\r\n\r\nUNSUB 1 5\r\n"
)
TOLD = [
    'cid:5 - <<- [CONNECT {"pass":"[REDACTED]"}]',
    "cid:5 - <<- [PING]",
    "cid:5 - <<- [SUB a.*  q 1]",
    "cid:5 - <<- [PUB a  b 5]",
    'cid:5 - <<- MSG_PAYLOAD: ["hello"]',
    "cid:5 - <<- [HPUB a 12 14]",
    r'cid:5 - <<- MSG_PAYLOAD: ["NATS/1.0\r\n\r\nhi"]',
    "cid:5 - <<- [PUB a 0]",
    "cid:5 - <<- [UNSUB 1 5]",
]


@given(cuts=st.lists(st.integers(0, len(STORY)), max_size=8))
def test_operations_are_told_however_their_bytes_arrive(cuts: list[int]) -> None:
    told, traced = tracer()
    edges = [0, *sorted(cuts), len(STORY)]

    for start, end in itertools.pairwise(edges):
        assert b"".join(traced.incoming(STORY[start:end])) == STORY[start:end]

    assert told.lines == TOLD


@given(pieces=st.lists(st.binary(max_size=80) | st.sampled_from([b"PUB a 3\r\n", b"\r\n"])))
def test_no_byte_is_changed_or_kept_back(pieces: list[bytes]) -> None:
    _, traced = tracer()

    for piece in pieces:
        assert b"".join(traced.incoming(piece)) == piece


def test_what_an_operation_causes_can_be_told_before_the_next_one() -> None:
    told, traced = tracer()
    parts = traced.incoming(b"PING\r\nPING\r\n")

    next(parts)
    traced.outgoing(b"PONG\r\n")
    next(parts)

    assert [line.rpartition(" - ")[2] for line in told.lines] == [
        "<<- [PING]",
        "->> [PONG]",
        "<<- [PING]",
    ]


def test_what_the_server_says_is_told_but_for_info() -> None:
    told, traced = tracer()

    traced.outgoing(
        b"INFO {} \r\n+OK\r\nPING\r\n-ERR 'Invalid Subject'\r\nMSG a 1 2\r\n\r\n\r\n"
        b"HMSG a 1 r 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    )

    assert [line.removeprefix("cid:5 - ") for line in told.lines] == [
        "->> [OK]",
        "->> [PING]",
        "->> [-ERR Invalid Subject]",
        "->> [MSG a 1 2]",
        r'->> MSG_PAYLOAD: ["\r\n"]',
        "->> [HMSG a 1 r 12 12]",
        r'->> MSG_PAYLOAD: ["NATS/1.0\r\n\r\n"]',
    ]


def test_a_long_payload_is_cut() -> None:
    told, traced = tracer(max_traced_msg_len=3)

    list(traced.incoming(b"PUB a 5\r\nhello\r\nPUB a 3\r\nhey\r\n"))

    assert told.lines[1] == 'cid:5 - <<- MSG_PAYLOAD: ["hel..."]'
    assert told.lines[3] == 'cid:5 - <<- MSG_PAYLOAD: ["hey"]'


def test_headers_can_be_all_that_is_shown() -> None:
    told, traced = tracer(trace_headers=True)

    list(traced.incoming(b"HPUB a 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\nPUB a 2\r\nhi\r\n"))

    assert told.lines[1:] == [
        r'cid:5 - <<- MSG_PAYLOAD: ["NATS/1.0\r\nA: b"]',
        "cid:5 - <<- [PUB a 2]",
    ]


def test_a_line_without_an_end_is_not_gathered() -> None:
    told, traced = tracer()

    for _ in range(1000):
        list(traced.incoming(b"x" * 1000))

    assert told.lines == []
    assert len(traced._held) < 8192
