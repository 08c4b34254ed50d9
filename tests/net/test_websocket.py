"""WebSocket clients: a real one against a real server, and frames that are none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import zlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.options import ServerOptions, TlsOptions, WebsocketOptions
from penstock.errors import FormatError
from penstock.net.filters import FilterFailed
from penstock.net.websocket import WebSocketFilter, WebSocketRules
from penstock.protocol.websocket import BINARY, CONTINUATION, PING, frame_header, read_frame
from penstock.server.server import Server
from tests.security.made_certificates import Authority, rdns

RULES = WebSocketRules(payload_max=4096, compression=True)
KEY = base64.b64encode(bytes(16)).decode()


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 20))


def request(*more: str, method: str = "GET", key: str = KEY) -> bytes:
    lines = [
        f"{method} / HTTP/1.1",
        "Host: localhost:80",
        "Upgrade: websocket",
        "Connection: keep-alive, Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def upgraded(rules: WebSocketRules = RULES, *more: str) -> WebSocketFilter:
    made = WebSocketFilter(rules)
    plain, answer = made.incoming(request(*more))
    assert plain == b""
    assert answer.startswith(b"HTTP/1.1 101 ")
    return made


def masked(opcode: int, payload: bytes, *, final: bool = True, compressed: bool = False) -> bytes:
    header = bytearray(frame_header(opcode, len(payload), final=final, compressed=compressed))
    header[1] |= 0x80
    mask = b"\x11\x22\x33\x44"
    return bytes(header) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


async def talk(server: Server, **connecting: Any) -> None:
    websocket = server.options.websocket
    assert websocket is not None
    scheme = "ws" if websocket.no_tls else "wss"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{scheme}://127.0.0.1:{websocket.port}/", **connecting) as socket,
    ):
        info = await socket.receive_bytes()
        await socket.send_bytes(b'CONNECT {"verbose":false,"protocol":1}\r\nSUB a 1\r\nPING\r\n')
        received = b""
        while b"PONG\r\n" not in received:
            received += await socket.receive_bytes()
        await socket.send_bytes(b"PUB a 3000\r\n" + b"x" * 3000 + b"\r\n")
        while not received.endswith(b"x" * 3000 + b"\r\n"):
            received += await socket.receive_bytes()

    assert info.startswith(b"INFO {")
    assert b"MSG a 1 3000\r\n" in received


@pytest.mark.parametrize("compression", [False, True])
def test_a_websocket_client_talks_nats(compression: bool) -> None:
    async def story() -> None:
        websocket = WebsocketOptions(
            host="127.0.0.1", port=-1, no_tls=True, compression=compression
        )
        options = ServerOptions(host="127.0.0.1", port=-1, websocket=websocket)
        async with Server(options) as server:
            await talk(server, compress=15 if compression else 0)

    run(story())


def test_a_websocket_client_talks_nats_under_tls(tmp_path: Path) -> None:
    made = Authority(tmp_path).make(rdns("CN=localhost"))
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE

    async def story() -> None:
        tls = TlsOptions(cert_file=str(made.cert_file), key_file=str(made.key_file))
        websocket = WebsocketOptions(host="127.0.0.1", port=-1, tls=tls)
        options = ServerOptions(host="127.0.0.1", port=-1, websocket=websocket)
        async with Server(options) as server:
            await talk(server, ssl=trusting)

    run(story())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(method="POST"), b"405"),
        (request(key="short"), b"400"),
        (request().replace(b"Version: 13", b"Version: 12"), b"400"),
        (request().replace(b"Upgrade: websocket", b"Upgrade: h2c"), b"400"),
        (request("Origin: http://elsewhere"), b"403"),
        (request() + b"PING\r\n", b"400"),
        (b"PING\r\n\r\n", b"400"),
        (request().replace(b"GET / ", b"GET /mqtt "), b"404"),
    ],
)
def test_a_bad_upgrade_is_refused_with_its_status(sent: bytes, status: bytes) -> None:
    rules = WebSocketRules(payload_max=4096, same_origin=True)

    with pytest.raises(FilterFailed) as refused:
        WebSocketFilter(rules).incoming(sent)

    assert refused.value.farewell.startswith(b"HTTP/1.1 " + status)


@given(payloads=st.lists(st.binary(max_size=300), max_size=5), cut=st.integers(1, 50))
def test_messages_come_through_whatever_the_cuts(payloads: list[bytes], cut: int) -> None:
    made = upgraded()
    wire = b"".join(masked(BINARY, payload) for payload in payloads)

    plain = b"".join(made.incoming(wire[at : at + cut])[0] for at in range(0, len(wire), cut))

    assert plain == b"".join(payloads)


def test_a_message_in_parts_and_compressed_is_put_together() -> None:
    made = upgraded(RULES, "Sec-WebSocket-Extensions: permessage-deflate")
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(b"PING\r\n" * 50) + packer.flush(zlib.Z_SYNC_FLUSH)

    first = masked(BINARY, packed[:5], final=False, compressed=True)
    plain, _ = made.incoming(first + masked(CONTINUATION, packed[5:-4]))

    assert plain == b"PING\r\n" * 50


def test_a_bomb_is_refused_before_it_expands() -> None:
    made = upgraded(RULES, "Sec-WebSocket-Extensions: permessage-deflate")
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(bytes(10_000_000)) + packer.flush(zlib.Z_SYNC_FLUSH)
    parts = [packed[at : at + 100] for at in range(0, len(packed), 100)]

    frames = [
        masked(
            BINARY if place == 0 else CONTINUATION,
            part,
            final=place == len(parts) - 1,
            compressed=place == 0,
        )
        for place, part in enumerate(parts)
    ]

    with pytest.raises(FilterFailed, match="too"):
        made.incoming(b"".join(frames))


def test_a_ping_is_answered_and_a_close_ends_it() -> None:
    made = upgraded()

    assert made.incoming(masked(PING, b"hi"))[1] == frame_header(10, 2) + b"hi"
    with pytest.raises(FilterFailed) as ended:
        made.incoming(masked(8, (1000).to_bytes(2, "big")))
    assert ended.value.farewell == frame_header(8, 2) + b"\x03\xe8"


@pytest.mark.parametrize(
    "frame",
    [
        frame_header(BINARY, 3) + b"abc",
        b"\xf2\x80" + bytes(4),
        b"\x83\x80" + bytes(4),
        b"\x09\x80" + bytes(4),
        b"\x89\xfe\x00\x80" + bytes(132),
        b"\x82\xff" + b"\xff" * 8,
        masked(CONTINUATION, b"x"),
    ],
)
def test_what_is_no_frame_of_a_client_ends_the_connection(frame: bytes) -> None:
    with pytest.raises(FilterFailed):
        upgraded().incoming(frame)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_more_is_needed_or_refused(data: bytes) -> None:
    frame = None
    with contextlib.suppress(FormatError):
        frame = read_frame(data, 0, payload_max=1000, masked=True)

    assert frame is None or frame[4] <= len(data)
