"""The client's side of the protocol over a real socket whose other end is the test."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.loops import count_messages, publish_many
from penstock.client.wire import ReceivedMessage, Wire
from penstock.errors import FormatError


@pytest.fixture
def ends() -> Iterator[tuple[Wire, socket.socket]]:
    """Return a wire and the server's end of its connection."""
    here, there = socket.socketpair()
    there.settimeout(20)
    with here, there:
        yield Wire(here.fileno()), there


def test_publishes_gather_until_they_are_sent(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends

    wire.publish(b"a", b"hi")
    wire.publish(b"b", b"", b"re")
    wire.publish(b"c", b"hi", None, b"NATS/1.0\r\n\r\n")
    publish_many(wire, b"d", b"x", 2)
    wire.send()

    assert server.recv(1000) == (
        b"PUB a 2\r\nhi\r\nPUB b re 0\r\n\r\nHPUB c 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
        b"PUB d 1\r\nx\r\nPUB d 1\r\nx\r\n"
    )


RECEIVED = (
    b'INFO {"a":1} \r\nPING\r\nMSG a 1 2\r\nhi\r\n+OK\r\n'
    b"MSG b 2 re 0\r\n\r\n-ERR 'oh'\r\nPONG\r\n"
    b"HMSG c 3 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHMSG d 4 re 12 12\r\nNATS/1.0\r\n\r\n\r\n"
)
MESSAGES = [
    ReceivedMessage(b"a", b"1", b"", b"", b"hi"),
    ReceivedMessage(b"b", b"2", b"re", b"", b""),
    ReceivedMessage(b"c", b"3", b"", b"NATS/1.0\r\n\r\n", b"hi"),
    ReceivedMessage(b"d", b"4", b"re", b"NATS/1.0\r\n\r\n", b""),
]


@given(st.lists(st.integers(0, len(RECEIVED)), max_size=5).map(sorted))
def test_messages_are_read_however_they_are_cut(places: list[int]) -> None:
    # Packets are read one at a time, as they were sent.
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        wire = Wire(here.fileno())
        bounds = [0, *places, len(RECEIVED)]
        for start, end in itertools.pairwise(bounds):
            if start < end:
                there.sendall(RECEIVED[start:end])

        assert [wire.next_message() for _ in MESSAGES] == MESSAGES
        assert (wire.pongs, wire.errors) == (1, [b"oh"])
        assert wire.wait_info() == b'{"a":1} '
        assert there.recv(100) == b"PONG\r\n"


def test_messages_can_be_counted_without_being_made(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends
    server.sendall(RECEIVED)

    assert count_messages(wire, 4) == 4


def test_messages_before_a_pong_are_given_to_who_waits_for_it(
    ends: tuple[Wire, socket.socket],
) -> None:
    wire, server = ends
    server.sendall(RECEIVED)

    assert wire.wait_pong(1) == MESSAGES[:2]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400\r\n",
        b"MSG a\r\n",
        b"MSG a 1 x\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a b c d e f\r\n",
        b"HMSG a 1 9 2\r\nhi\r\n",
    ],
)
def test_a_server_that_speaks_something_else_is_refused(
    ends: tuple[Wire, socket.socket], data: bytes
) -> None:
    wire, server = ends
    server.sendall(data)

    with pytest.raises(FormatError):
        wire.next_message()


def test_the_end_of_a_connection_tells_the_servers_last_words(
    ends: tuple[Wire, socket.socket],
) -> None:
    wire, server = ends
    server.sendall(b"-ERR 'Authorization Violation'\r\n")
    server.close()

    with pytest.raises(ConnectionResetError, match="Authorization Violation"):
        wire.next_message()


def test_sending_to_a_closed_connection_raises(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends
    server.close()
    wire.write(b"PING\r\n")

    with pytest.raises(ConnectionError):
        wire.send()
