"""WebSocket clients: a real one against a real server, and frames that are none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import random
import re
import ssl
import zlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.load import settled
from penstock.config.options.server import ServerOptions, TlsOptions, WebsocketOptions
from penstock.limits import (
    WEBSOCKET_BROWSER_FRAME_BYTES_MAX,
    WEBSOCKET_EXPANDED_BYTES_PER_TURN,
    WEBSOCKET_PACKED_PAYLOADS_MAX,
    WEBSOCKET_REQUEST_BYTES_MAX,
)
from penstock.net.host import ClosedReason
from penstock.net.tls import FilterFailed
from penstock.net.websocket import WebSocketFilter
from penstock.net.websocket_deflate import Packer
from penstock.net.websocket_upgrade import WebSocketRules
from penstock.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    FrameReader,
    frame_header,
)
from penstock.server.reload import take_options
from penstock.server.server import Server
from tests.interop.raw_websocket import deflated, masked
from tests.security.made_certificates import Authority, rdns

RULES = WebSocketRules(payload_max=4096, compression=True)
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate"
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


def test_a_renewed_certificate_is_shown_to_new_clients(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = []

    async def look(server: Server) -> None:
        assert server.options.websocket is not None
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        port = server.options.websocket.port
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        shown.append(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.close()

    async def story() -> None:
        made = [authority.make(rdns(f"CN={name}")) for name in ("old", "new")]
        options = [
            ServerOptions(
                host="127.0.0.1",
                port=-1,
                websocket=WebsocketOptions(
                    host="127.0.0.1",
                    port=-1,
                    tls=TlsOptions(cert_file=str(each.cert_file), key_file=str(each.key_file)),
                ),
            )
            for each in made
        ]
        async with Server(options[0]) as server:
            await look(server)
            await take_options(server, settled(options[1]))
            await look(server)
        assert shown == [each.der for each in made]

    run(story())


def test_who_has_not_upgraded_is_sent_away_when_the_server_stops() -> None:
    async def story() -> None:
        websocket = WebsocketOptions(host="127.0.0.1", port=-1, no_tls=True)
        async with Server(ServerOptions(host="127.0.0.1", port=-1, websocket=websocket)) as server:
            assert server.options.websocket is not None
            port = server.options.websocket.port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            other, closing = await asyncio.open_connection("127.0.0.1", port)
            closing.write(b"nonsense\r\n\r\n")
            assert (await other.read()).startswith(b"HTTP/1.1 400 ")
            closing.close()
            assert server.clients.total_connections == 0
        assert await reader.read() == b""
        writer.close()

    run(story())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(method="POST"), b"405"),
        (request(key="short"), b"400"),
        (request().replace(b"Version: 13", b"Version: 12"), b"400"),
        (request().replace(b"Upgrade: websocket", b"Upgrade: h2c"), b"400"),
        (request("Origin: http://elsewhere"), b"403"),
        (b"PING\r\n\r\n", b"400"),
        (request().replace(b"GET / ", b"GET /mqtt "), b"404"),
        (request().replace(b"HTTP/1.1", b"HTTP/2.0"), b"505"),
        (b"GET / HTTP/1.1\r\nHost: " + b"x" * WEBSOCKET_REQUEST_BYTES_MAX, b"431"),
        (request("Cookie: " + "x" * WEBSOCKET_REQUEST_BYTES_MAX), b"431"),
    ],
)
def test_a_bad_upgrade_is_refused_with_its_status(sent: bytes, status: bytes) -> None:
    rules = WebSocketRules(payload_max=4096, same_origin=True)

    with pytest.raises(FilterFailed) as refused:
        WebSocketFilter(rules).incoming(sent)

    assert refused.value.farewell.startswith(b"HTTP/1.1 " + status)


@given(cut=st.integers(1, 60))
def test_an_upgrade_may_come_in_pieces(cut: int) -> None:
    made = WebSocketFilter(RULES)
    sent = request()

    answers = [made.incoming(sent[at : at + cut])[1] for at in range(0, len(sent), cut)]

    assert answers[-1].startswith(b"HTTP/1.1 101 ")
    assert not any(answers[:-1])


def test_who_does_not_wait_for_the_answer_is_told_nothing() -> None:
    with pytest.raises(FilterFailed) as refused:
        WebSocketFilter(RULES).incoming(request() + b"PING\r\n")

    assert refused.value.farewell == b""


@given(payloads=st.lists(st.binary(max_size=300), max_size=5), cut=st.integers(1, 50))
def test_messages_come_through_whatever_the_cuts(payloads: list[bytes], cut: int) -> None:
    made = upgraded()
    wire = b"".join(masked(payload) for payload in payloads)

    plain = b"".join(made.incoming(wire[at : at + cut])[0] for at in range(0, len(wire), cut))

    assert plain == b"".join(payloads)


@given(
    payload=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 300), max_size=4),
    pings=st.lists(st.binary(max_size=125), max_size=2),
)
def test_a_message_in_parts_comes_through_with_pings_between(
    payload: bytes, cuts: list[int], pings: list[bytes]
) -> None:
    places = [0, *sorted(min(cut, len(payload)) for cut in cuts), len(payload)]
    parts = [payload[start:end] for start, end in itertools.pairwise(places)]
    frames = [
        masked(part, CONTINUATION if place else BINARY, final=place == len(parts) - 1)
        for place, part in enumerate(parts)
    ]
    between = b"".join(masked(ping, PING) for ping in pings)

    plain, answer = upgraded().incoming(between.join(frames))

    assert plain == payload
    pongs = b"".join(frame_header(PONG, len(ping)) + ping for ping in pings)
    assert answer == pongs * len(cuts)


def test_a_frame_is_handed_on_as_it_comes_whatever_its_size() -> None:
    made = upgraded()
    huge = b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4)

    assert made.incoming(huge + b"PUB a")[0] == b"PUB a"
    assert made.incoming(b" 1\r\nx")[0] == b" 1\r\nx"


def test_a_message_in_parts_and_compressed_is_put_together() -> None:
    made = upgraded(RULES, DEFLATE)
    packed = deflated(b"PING\r\n" * 50)

    first = masked(packed[:5], final=False, compressed=True)
    plain, _ = made.incoming(first + masked(packed[5:], CONTINUATION))

    assert plain == b"PING\r\n" * 50


def test_a_bomb_gives_no_more_than_the_largest_payload() -> None:
    made = upgraded(RULES, DEFLATE)

    with pytest.raises(FilterFailed, match="maximum payload exceeded") as failed:
        made.incoming(masked(deflated(bytes(10_000_000)), compressed=True))

    assert failed.value.before == bytes(RULES.payload_max)


def test_what_many_small_messages_expand_to_is_handed_on_a_part_at_a_time() -> None:
    rules = WebSocketRules(payload_max=400_000, compression=True)
    made = upgraded(rules, DEFLATE)
    messages = [bytes([65 + place]) * rules.payload_max for place in range(8)]
    sent = b"".join(masked(deflated(each), compressed=True) for each in messages)

    parts = [made.incoming(sent)[0]]
    while made.has_more:
        parts.append(made.incoming(b"")[0])

    assert b"".join(parts) == b"".join(messages)
    most = rules.payload_max + WEBSOCKET_EXPANDED_BYTES_PER_TURN
    assert max(len(part) for part in parts) <= most


def test_very_many_frames_are_looked_at_in_several_turns() -> None:
    made = upgraded()

    turns = [made.incoming(masked(b"hi", PING) * 1000)[1]]
    while made.has_more:
        turns.append(made.incoming(b"")[1])

    assert b"".join(turns) == (frame_header(PONG, 2) + b"hi") * 1000
    assert len(turns) > 2


def test_a_violation_behind_much_is_told_when_its_turn_comes() -> None:
    made = upgraded()
    made.incoming(masked(b"hi", PING) * 1000 + b"\x83\x80")

    def go_on() -> None:
        for _ in range(1000):
            made.incoming(b"")

    with pytest.raises(FilterFailed, match="unknown opcode 3"):
        go_on()


@given(st.lists(st.binary(max_size=2000) | st.text("ab ", max_size=9000).map(str.encode)))
def test_what_was_compressed_before_does_not_show(payloads: list[bytes]) -> None:
    packer = Packer()

    for payload in payloads:
        fresh = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        expected = fresh.compress(payload) + fresh.flush(zlib.Z_SYNC_FLUSH)
        assert packer.pack(payload) + b"\x00\x00\xff\xff" == expected


def test_messages_that_take_many_turns_arrive_whole_and_in_order() -> None:
    count, size = 30, 500

    async def story() -> None:
        websocket = WebsocketOptions(host="127.0.0.1", port=-1, no_tls=True, compression=True)
        options = ServerOptions(host="127.0.0.1", port=-1, websocket=websocket)
        async with Server(options) as server:
            assert server.options.websocket is not None
            url = f"ws://127.0.0.1:{server.options.websocket.port}/"
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(url, compress=15) as socket,
            ):
                await socket.send_bytes(b'CONNECT {"verbose":false}\r\nSUB a.> 1\r\n')
                for number in range(count):
                    subjects = [b"a.%d.%d" % (number, place) for place in range(size)]
                    pubs = [b"PUB %b 1000\r\n%b\r\n" % (each, b"x" * 1000) for each in subjects]
                    await socket.send_bytes(b"".join(pubs))
                await socket.send_bytes(b"PING\r\n")
                received = b""
                while b"PONG\r\n" not in received[-2000:]:
                    received += await socket.receive_bytes()
        lines = re.findall(rb"MSG a\.(\d+)\.(\d+) 1 1000\r\n", received)
        assert lines == [(b"%d" % m, b"%d" % n) for m in range(count) for n in range(size)]

    run(story())


def test_compressed_data_without_an_end_is_not_gathered_for_ever() -> None:
    made = upgraded(RULES, DEFLATE)
    part = bytes(RULES.payload_max)
    made.incoming(masked(part, final=False, compressed=True))
    for _ in range(WEBSOCKET_PACKED_PAYLOADS_MAX - 1):
        made.incoming(masked(part, CONTINUATION, final=False))

    with pytest.raises(FilterFailed, match="maximum payload exceeded"):
        made.incoming(masked(b"x", CONTINUATION, final=False))


@pytest.mark.parametrize("packed", [b"\xff\xff\xff", deflated(b"PING\r\n" * 10)[:5]])
def test_compressed_data_that_is_none_ends_the_connection(packed: bytes) -> None:
    with pytest.raises(FilterFailed, match="compressed data"):
        upgraded(RULES, DEFLATE).incoming(masked(packed, compressed=True))


def test_what_came_before_a_violation_counts() -> None:
    with pytest.raises(FilterFailed) as failed:
        upgraded().incoming(masked("PING\r\n") + masked(b"hi", PING) + b"\x83\x80")

    assert failed.value.before == b"PING\r\n"
    assert failed.value.farewell.startswith(frame_header(PONG, 2) + b"hi" + b"\x88")


def test_a_ping_is_answered_and_a_close_ends_it() -> None:
    made = upgraded()

    assert made.incoming(masked(b"hi", PING))[1] == frame_header(PONG, 2) + b"hi"
    with pytest.raises(FilterFailed) as ended:
        made.incoming(masked((1000).to_bytes(2, "big"), CLOSE))
    assert ended.value.farewell == frame_header(CLOSE, 2) + b"\x03\xe8"
    assert ended.value.closed is ClosedReason.CLIENT_CLOSED
    assert made.farewell(ClosedReason.CLIENT_CLOSED) == b""


@pytest.mark.parametrize("reason", ClosedReason)
def test_the_end_is_told_with_a_status_that_may_be_sent(reason: ClosedReason) -> None:
    frame = upgraded().farewell(reason)

    assert frame[:2] == frame_header(CLOSE, 2 + len(reason.value))
    assert int.from_bytes(frame[2:4], "big") in {1000, 1001, 1002, 1008, 1009, 1011}
    assert frame[4:] == reason.value.encode()


@pytest.mark.parametrize(
    ("frame", "violation"),
    [
        (frame_header(BINARY, 3) + b"abc", "mask bit missing"),
        (b"\xa2", "RSV2 and RSV3"),
        (b"\xc2\x80", "without negotiated"),
        (b"\x83\x80", "unknown opcode 3"),
        (b"\x8b\x80", "unknown opcode 11"),
        (b"\x09\x80", "final bit"),
        (b"\x89\xfe", "control frame length"),
        (b"\x82\xff" + b"\xff" * 8, "64-bit"),
        (masked(b"x", CONTINUATION), "invalid continuation"),
        (masked(b"x", final=False) + masked(b"x"), "new message"),
        (masked(b"\x03", CLOSE), "1 byte"),
        (masked(b"\x03\xed", CLOSE), "close status code 1005"),
    ],
)
def test_what_is_no_frame_of_a_client_ends_the_connection(frame: bytes, violation: str) -> None:
    with pytest.raises(FilterFailed, match=violation):
        upgraded().incoming(frame)


def test_a_browser_gets_small_frames() -> None:
    made = upgraded(RULES, "User-Agent: Mozilla/5.0")

    frames = made.outgoing(b"x" * 10_000)

    largest = WEBSOCKET_BROWSER_FRAME_BYTES_MAX
    parts = [largest, largest, 10_000 - 2 * largest]
    assert frames == b"".join(frame_header(BINARY, size) + b"x" * size for size in parts)


@pytest.mark.parametrize(
    ("agent", "is_in_parts"),
    [("Mozilla/5.0 Chrome/156.0 Safari/537", True), ("Mozilla/5.0 Version/17 Safari/605", False)],
)
def test_only_safari_gets_a_compressed_message_whole(agent: str, is_in_parts: bool) -> None:
    made = upgraded(RULES, f"User-Agent: {agent}", DEFLATE)

    frames = made.outgoing(random.Random(1).randbytes(10_000))

    assert frames[:1] == (b"\x42" if is_in_parts else b"\xc2")


@given(data=st.binary(max_size=200), cut=st.integers(1, 200))
def test_any_bytes_are_read_alike_whatever_the_cuts(data: bytes, cut: int) -> None:
    whole, cutting = (FrameReader(masked=True, compressing=True) for _ in range(2))

    at_once = whole.feed(data)
    piecewise = cutting.feed(data[:cut]) + cutting.feed(data[cut:])

    assert cutting.violation == whole.violation
    assert b"".join(each[1] for each in piecewise) == b"".join(each[1] for each in at_once)
    assert len(b"".join(each[1] for each in at_once)) <= len(data)


@given(data=st.binary(max_size=200))
def test_any_bytes_after_an_upgrade_are_taken_or_end_the_connection(data: bytes) -> None:
    made = upgraded(RULES, DEFLATE)

    with contextlib.suppress(FilterFailed):
        made.incoming(data)

    assert made.ready


@given(
    words=st.lists(st.sampled_from([b"GET", b" ", b"/", b"HTTP/1.1", b"\r\n", b":", b"Host"])),
    data=st.binary(max_size=50),
)
def test_any_bytes_instead_of_an_upgrade_are_refused(words: list[bytes], data: bytes) -> None:
    made = WebSocketFilter(RULES)

    with pytest.raises(FilterFailed):
        made.incoming(b"".join(words) + data + b"\r\n\r\n")

    assert not made.ready


@given(value=st.text(), name=st.sampled_from(["Origin", "Cookie", "X-Forwarded-For"]))
def test_any_value_of_a_header_is_taken_or_refused(name: str, value: str) -> None:
    rules = WebSocketRules(payload_max=10, same_origin=True, allowed_origins=("http://a",))
    sent = request(f"{name}: {value.translate({10: None, 13: None})}")
    made = WebSocketFilter(rules)

    with contextlib.suppress(FilterFailed):
        made.incoming(sent)

    assert made.request is None or len(made.request.cookies) <= value.count(";") + 1
