"""The client over a server's WebSocket port."""

from __future__ import annotations

import random
import socket

import pytest

from penstock.client.credentials import Address, parse_url
from penstock.client.websocket import WebSocketStream
from penstock.errors import FormatError
from penstock.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    FrameReader,
    frame_header,
    masked_frame,
)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://h", Address("h", 80, is_websocket=True)),
        ("wss://h:1", Address("h", 1, is_tls=True, is_websocket=True)),
    ],
)
def test_addresses_of_websocket_ports_are_read(url: str, address: Address) -> None:
    assert parse_url(url) == address


def test_a_frame_is_masked_and_reads_as_it_was() -> None:
    chance = random.Random(1)
    for size in (0, 1, 7, 8, 9, 125, 126, 65_535, 65_536):
        payload = chance.randbytes(size)

        frame = masked_frame(BINARY, payload, chance.randbytes(4))

        assert frame[1] & 0x80
        pieces = FrameReader(masked=True, compressing=False).feed(frame)
        assert b"".join(each[1] for each in pieces) == payload


def test_bytes_come_out_of_frames_however_they_are_asked_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = WebSocketStream(ours, compressing=False, early=frame_header(BINARY, 5) + b"early")
        theirs.sendall(frame_header(PING, 2) + b"hi" + frame_header(BINARY, 4) + b"late")
        buffer = bytearray(3)
        got = b""
        while len(got) < 9:
            size = stream.recv_into(memoryview(buffer))
            got += buffer[:size]
        theirs.sendall(frame_header(CLOSE, 0))

        assert got == b"earlylate"
        assert stream.recv_into(memoryview(buffer)) == 0
        pong = FrameReader(masked=True, compressing=False).feed(theirs.recv(100))
        assert [each[1] for each in pong] == [b"hi"]


def test_a_server_that_refuses_is_told() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

        with pytest.raises(FormatError, match="403 Forbidden"):
            WebSocketStream.upgrade(ours, Address("h", 80))
