"""WebSocket byte by byte: upgrades, frames and credentials, each with the real server and ours."""

from __future__ import annotations

import itertools
import json
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography import x509

from penstock.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    frame_header,
)
from penstock.testing.servers import ServerProcess
from tests.conformance.conftest import PairWith
from tests.conformance.conftest import pair_with as pair_with  # a fixture of this file too
from tests.conformance.servers import Pair
from tests.interop.node_scripts import websocket_port
from tests.interop.raw_websocket import (
    Heard,
    RawWebSocket,
    converse,
    deflated,
    masked,
    upgrade_request,
)
from tests.security.made_certificates import Authority, Made, rdns
from tests.support.tokens import Operator

pytestmark = pytest.mark.oracle

LAX = 'CONNECT {"verbose":false}\r\n'
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate"
USERS = """
authorization { users: [
  { user: all, password: p }
  { user: owner, password: p, permissions: { publish: "own" } }
] }
"""


def listening(more: str = "") -> str:
    """Return the configuration of a listener in the clear."""
    return f'websocket {{ host: "127.0.0.1", port: -1, no_tls: true\n {more} }}\n'


OPEN = listening('compression: true, headers: { X-One: "1", X-Two: "two words" }')
STRICT = listening('same_origin: true, allowed_origins: ["http://localhost:80", "https://a.b"]')
LISTED = listening('allowed_origins: ["http://app.example", "https://app.example:8443"]')


Fresh = Callable[[str], tuple[ServerProcess, ServerProcess]]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    """Return a function that starts both servers with a configuration that one test needs."""
    with ExitStack() as running:

        def start(config: str) -> tuple[ServerProcess, ServerProcess]:
            pair = running.enter_context(Pair(tmp_path, config))
            return pair.reference, pair.ours

        yield start


def both(pair_with: PairWith, config: str) -> tuple[ServerProcess, ServerProcess]:
    pair = pair_with(config)
    return pair.reference, pair.ours


def assert_same(real: Heard, ours: Heard) -> None:
    if real.close is None:
        # It often closes the socket before what it would say of the end has gone out.
        ours.close = None
    assert ours == real
    assert real.answer, "silence tells nothing"


@pytest.mark.parametrize(
    "request_sent",
    [
        upgrade_request(method="POST"),
        upgrade_request(without="Upgrade"),
        upgrade_request(without="Connection"),
        upgrade_request(without="Sec-WebSocket-Key"),
        upgrade_request("Sec-WebSocket-Key: short", without="Sec-WebSocket-Key"),
        upgrade_request(without="Sec-WebSocket-Version"),
        upgrade_request("Sec-WebSocket-Version: 12", without="Sec-WebSocket-Version"),
        upgrade_request("Sec-WebSocket-Version: 8, 13", without="Sec-WebSocket-Version"),
        upgrade_request(version="HTTP/1.0"),
        upgrade_request(path="/mqtt"),
        upgrade_request(path="/a/mqtt?b=c", method="POST"),
        upgrade_request(path="/some/where?x"),
        upgrade_request(path="http://localhost/x"),
        upgrade_request("Origin: http://elsewhere"),
        upgrade_request(DEFLATE),
        upgrade_request(f"{DEFLATE}; client_max_window_bits"),
        upgrade_request("Sec-WebSocket-Extensions: other, PERMESSAGE-deflate; x"),
        upgrade_request("Sec-WebSocket-Extensions: x-permessage-deflate"),
        upgrade_request("Nats-No-Masking: false"),
        upgrade_request().replace(b"Upgrade: websocket", b"upgrade: WebSocket"),
    ],
)
def test_an_upgrade_is_judged_alike(pair_with: PairWith, request_sent: bytes) -> None:
    real, ours = (
        converse(websocket_port(server), masked(LAX), request=request_sent)
        for server in both(pair_with, OPEN)
    )

    assert_same(real, ours)


@pytest.mark.parametrize(
    "request_sent",
    [
        b"PING\r\n\r\n",
        b"\x00\x01\r\n\r\n",
        b"\r\n\r\n",
        upgrade_request(without="Host"),
        upgrade_request("Host: other"),
        upgrade_request("no colon"),
        upgrade_request("Na me: x"),
        upgrade_request(version="HTTP/2.0"),
        upgrade_request(path="*"),
        upgrade_request(path="x"),
    ],
)
def test_what_is_no_http_has_the_same_status(pair_with: PairWith, request_sent: bytes) -> None:
    real, ours = (
        converse(websocket_port(server), request=request_sent) for server in both(pair_with, OPEN)
    )

    assert ours.answer[0].split()[1] == real.answer[0].split()[1]


@pytest.mark.parametrize("config", [STRICT, LISTED])
@pytest.mark.parametrize(
    "header",
    [
        "X-Nothing: here",
        "Origin: http://localhost",
        "Origin: http://localhost:80",
        "Origin: HTTP://LocalHost:80",
        "Origin: https://localhost",
        "Origin: http://localhost:8080",
        "Origin: https://a.b",
        "Origin: http://app.example",
        "Origin: http://app.example:80",
        "Origin: https://app.example",
        "Origin: https://app.example:8443",
        "Origin: null",
        "Origin: ://",
        "Sec-WebSocket-Origin: http://app.example",
        "Sec-WebSocket-Origin: http://other",
    ],
)
def test_an_origin_is_judged_alike(pair_with: PairWith, config: str, header: str) -> None:
    real, ours = (
        converse(websocket_port(server), masked(LAX), request=upgrade_request(header))
        for server in both(pair_with, config)
    )

    assert_same(real, ours)


@pytest.mark.parametrize(
    "sent",
    [
        masked(LAX),
        masked(LAX, TEXT),
        masked(LAX, mask=bytes(4)),
        masked("PUB a 3\r\nx", final=False)
        + masked(b"hi", PING)
        + masked("", CONTINUATION, final=False)
        + masked("yz\r\nSUB a 1\r\nPUB a 2\r\nhi\r\n", CONTINUATION),
        masked(b"hello", PING) + masked(b"", PING) + masked(b"unasked", PONG),
        masked("") + masked(LAX) + masked(""),
        masked(LAX + "SUB a 1\r\nPUB a 9000\r\n" + "xyz" * 3000 + "\r\n"),
    ],
)
@pytest.mark.parametrize("header", ["X-Nothing: here", DEFLATE, "User-Agent: Mozilla/5.0"])
def test_frames_are_taken_alike(pair_with: PairWith, header: str, sent: bytes) -> None:
    real, ours = (
        converse(websocket_port(server), sent, request=upgrade_request(header))
        for server in both(pair_with, OPEN)
    )

    assert_same(real, ours)


@pytest.mark.parametrize(
    "sent",
    [
        frame_header(2, 6) + b"PING\r\n",
        b"\xa2\x80" + bytes(4),
        b"\xa2",
        b"\xc2\x80" + bytes(4),
        b"\x83\x80" + bytes(4),
        b"\x8b\x80" + bytes(4),
        b"\x09\x80" + bytes(4),
        b"\x89\xfe\x00\x80" + bytes(132),
        b"\x82\xff" + b"\xff" * 8 + bytes(4),
        masked("x", CONTINUATION),
        masked("PIN", final=False) + masked("G\r\n"),
        masked("", CLOSE),
        masked(b"\x03\xe8bye", CLOSE),
        masked(b"\x03\xe8" + b"x" * 123, CLOSE),
        masked(b"\x03", CLOSE),
        masked(b"\x03\xed", CLOSE),
        masked(b"\x03\xe7", CLOSE),
        masked(b"\x03\xf8", CLOSE),
        masked(b"\x0f\xa0mine", CLOSE),
        masked(b"\x13\x88", CLOSE),
        masked(b"\x03\xe8\xff\xfe", CLOSE),
        masked("SUB a 1\r\nPUB a 1\r\nx\r\n") + masked(b"\x03\xe8", CLOSE),
        masked(b"\x03\xe8", CLOSE) + masked("PING\r\n"),
        masked(LAX + "PUB a 2000000\r\n"),
        masked(LAX + "PUB " + "a" * 5000 + " 1\r\n"),
        masked('CONNECT {"protocol":5}\r\n'),
        masked('CONNECT {"no_responders":true,"headers":false}\r\n'),
        masked("CONNECT {x}\r\n"),
    ],
)
def test_a_connection_ends_alike(pair_with: PairWith, sent: bytes) -> None:
    real, ours = (
        converse(websocket_port(server), sent, ends=True) for server in both(pair_with, OPEN)
    )

    assert_same(real, ours)
    assert real.closed


def cut_at_random(text: bytes, random: Random) -> bytes:
    """Yield a text in messages and frames of any size, some compressed, with pings between."""
    sent = b""
    while text:
        size = random.choice((1, 3, 10, 200))
        message, text = text[:size], text[size:]
        compressed = random.random() < 0.3
        payload = deflated(message) if compressed else message
        places = sorted(random.randint(0, len(payload)) for _ in range(random.randint(0, 3)))
        parts = [payload[a:b] for a, b in itertools.pairwise([0, *places, len(payload)])]
        for place, part in enumerate(parts):
            sent += masked(
                part,
                CONTINUATION if place else random.choice((TEXT, BINARY)),
                final=place == len(parts) - 1,
                compressed=compressed and place == 0,
                mask=random.randbytes(4),
            )
            if random.random() < 0.2:
                sent += masked(random.randbytes(random.randint(0, 125)), PING)
    return sent


@pytest.mark.parametrize("seed", range(20))
def test_what_is_cut_at_random_is_put_together_alike(pair_with: PairWith, seed: int) -> None:
    text = LAX + "SUB a.* 1\r\nPUB a.b 3\r\nxyz\r\nPUB a.c r 0\r\n\r\nUNSUB 1\r\n"
    sent = cut_at_random(text.encode(), Random(seed))

    real, ours = (
        converse(websocket_port(server), sent, request=upgrade_request(DEFLATE))
        for server in both(pair_with, OPEN)
    )

    assert_same(real, ours)


def test_a_frame_may_be_larger_than_any_payload(pair_with: PairWith) -> None:
    heard = []
    for server in both(pair_with, OPEN):
        peer = RawWebSocket(websocket_port(server))
        assert peer.upgrade(upgrade_request())
        peer.send(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4) + b"PING\r\n")
        heard.append(peer.read_until(b"PONG\r\n"))
        peer.close()

    assert_same(*heard)


@pytest.mark.parametrize(
    ("sent", "ends"),
    [
        (masked(deflated(LAX + "SUB a 1\r\nPUB a 1\r\nx\r\n"), compressed=True), False),
        (
            masked(deflated(LAX)[:5], compressed=True, final=False)
            + masked(b"between", PING)
            + masked(deflated(LAX)[5:], CONTINUATION),
            False,
        ),
        (masked(deflated(""), compressed=True) + masked(LAX), False),
        (masked(b"", PING, compressed=True), True),
        (masked("P", final=False) + masked(b"", CONTINUATION, compressed=True), True),
        (masked(b"\xff\xff\xff", compressed=True), True),
        (masked(deflated(LAX * 10)[:10], compressed=True), True),
        (masked(deflated("PING\r\n" * 500_000), compressed=True), True),
    ],
)
def test_compressed_messages_are_taken_alike(pair_with: PairWith, sent: bytes, ends: bool) -> None:
    real, ours = (
        converse(websocket_port(server), sent, request=upgrade_request(DEFLATE), ends=ends)
        for server in both(pair_with, OPEN)
    )

    if ends:
        # How many of its answers still go out before the end is a matter of luck.
        real.protocol, ours.protocol = real.protocol[:1], ours.protocol[:1]
    assert_same(real, ours)


def test_frames_need_no_mask_where_that_was_asked_for(pair_with: PairWith) -> None:
    request = upgrade_request("Nats-No-Masking: true")
    heard = []
    for server in both(pair_with, OPEN):
        peer = RawWebSocket(websocket_port(server))
        assert peer.upgrade(request)
        peer.send(frame_header(2, len(LAX) + 6) + LAX.encode() + b"PING\r\n")
        heard.append(peer.read_until(b"PONG\r\n"))
        peer.close()

    assert_same(*heard)


def connect(**options: str) -> bytes:
    """Return the CONNECT of a client that then sends itself something."""
    text = f"CONNECT {json.dumps(options)}\r\nSUB foo 1\r\nPUB foo 1\r\nx\r\n"
    return masked(text)


CREDENTIALS = {
    "nothing": connect(),
    "no CONNECT": masked("SUB foo 1\r\n"),
    "a user": connect(user="all", **{"pass": "p"}),
    "a wrong password": connect(user="all", **{"pass": "wrong"}),
    "a limited user": connect(user="owner", **{"pass": "p"}),
    "the listener's user": connect(user="ws", **{"pass": "wp"}),
    "the listener's user, wrong": connect(user="ws", **{"pass": "p"}),
    "the server's token": connect(auth_token="main"),
    "the listener's token": connect(auth_token="t"),
}


def answer_to(
    server: ServerProcess,
    sent: bytes,
    request: bytes | None = None,
    tls: ssl.SSLContext | None = None,
) -> Heard:
    """Return what a server says up to the answer to a PING, or to the end."""
    peer = RawWebSocket(websocket_port(server), tls)
    try:
        assert peer.upgrade(request or upgrade_request())
        peer.send(sent)
        peer.send(masked("PING\r\n"))
        return peer.read_until(b"PONG\r\n")
    finally:
        peer.close()


@pytest.mark.parametrize(
    "config",
    [
        listening(),
        listening("authorization { username: ws, password: wp }"),
        listening("authorization { token: t }"),
        "authorization { token: main }\n" + listening("authorization { user: ws, pass: wp }"),
        "authorization { user: all, password: p }\n" + listening("authorization { token: t }"),
        "authorization { user: all, password: p }\n" + listening(),
        USERS + listening(),
        USERS + "no_auth_user: owner\n" + listening(),
        USERS + listening("no_auth_user: owner"),
        USERS + "no_auth_user: all\n" + listening("no_auth_user: owner"),
        "accounts { $SYS { users: [ { user: all, password: p } ] } }\n" + listening(),
        "authorization { users: ["
        "{ user: all, password: p, allowed_connection_types: [STANDARD] },"
        "{ user: owner, password: p, allowed_connection_types: [WEBSOCKET] } ] }\n" + listening(),
    ],
)
def test_the_listener_asks_for_its_own_credentials(fresh: Fresh, config: str) -> None:
    reference, server = fresh(config)

    for sent in CREDENTIALS.values():
        assert_same(answer_to(reference, sent), answer_to(server, sent))


@pytest.mark.parametrize(
    "cookies",
    [
        "u=all; p=p",
        "u=all;p=p",
        "u=all; p=wrong",
        "p=p",
        "u=owner; p=p; u=all",
        'u="all"; p="p"',
        "u=all\r\nCookie: p=p",
        "u =all; p= p",
        "x y=1; u=all; p=p",
        "ä=1; u=all; p=p",
        "u=al,l; p=p",
        "; ;=;u=all; p=p; t=unknown",
    ],
)
def test_cookies_say_who_it_is_alike(pair_with: PairWith, cookies: str) -> None:
    config = USERS + listening("user_cookie: u, pass_cookie: p, token_cookie: t")
    reference, server = both(pair_with, config)
    request = upgrade_request(f"Cookie: {cookies}")

    for sent in (connect(), connect(user="owner"), connect(user="owner", **{"pass": "p"})):
        assert_same(answer_to(reference, sent, request), answer_to(server, sent, request))


def test_a_cookie_with_a_token_is_taken_alike(fresh: Fresh) -> None:
    config = listening("authorization { token: t }, token_cookie: c")
    reference, server = fresh(config)

    for value in ("t", "wrong"):
        request = upgrade_request(f"Cookie: c={value}")
        assert_same(answer_to(reference, connect(), request), answer_to(server, connect(), request))


def test_a_cookie_with_a_jwt_is_taken_alike(fresh: Fresh) -> None:
    operator = Operator()
    account = operator.account()
    reference, server = fresh(operator.settings(account) + listening("jwt_cookie: c"))

    for user in (account.user(bearer_token=True), account.user(), Operator().account().user()):
        request = upgrade_request(f"Cookie: c={user.token}")
        assert_same(answer_to(reference, connect(), request), answer_to(server, connect(), request))


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        listening("authorization { token: t, timeout: 0.2 }"),
        USERS + listening("authorization { timeout: 0.2 }, no_auth_user: owner"),
        "authorization { token: t, timeout: 0.2 }\n" + listening(),
    ],
)
def test_who_says_nothing_is_cut_after_the_listeners_own_time(fresh: Fresh, config: str) -> None:
    real, ours = (converse(websocket_port(server), ends=True) for server in fresh(config))

    assert_same(real, ours)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_an_upgrade_must_come_in_time(pair_with: PairWith, sent: bytes) -> None:
    config = listening('handshake_timeout: "200ms"')

    for server in both(pair_with, config):
        peer = RawWebSocket(websocket_port(server))
        # Reads until the server closes, which it does without an answer.
        assert not peer.upgrade(sent)
        assert peer.heard == Heard(closed=True)
        peer.close()


def test_one_client_too_many_is_told_so_after_its_upgrade(fresh: Fresh) -> None:
    heard = []
    # The real server at times says nothing at all to such a client, and is asked again.
    for server, tries in zip(fresh("max_connections: 1\n" + listening()), (5, 1), strict=True):
        first = RawWebSocket(websocket_port(server))
        assert first.upgrade(upgrade_request())
        first.read_until(b"INFO")
        heard.append(first_answer(server, tries))
        first.close()

    assert_same(*heard)


def first_answer(server: ServerProcess, tries: int) -> Heard:
    """Return what a client too many hears; try again while the server says nothing."""
    while True:
        tries -= 1
        try:
            return converse(websocket_port(server), ends=True)
        except AssertionError:
            if not tries:
                raise


@pytest.mark.slow
def test_who_does_not_answer_pings_is_stale(fresh: Fresh) -> None:
    config = "ping_max: 1\n" + listening('ping_interval: "150ms"')

    real, ours = (
        converse(websocket_port(server), masked(LAX), ends=True) for server in fresh(config)
    )

    assert_same(real, ours)
    assert ours.protocol[-1] == b"-ERR 'Stale Connection'\r\n"


def test_the_log_names_a_client_alike(fresh: Fresh) -> None:
    for server in fresh("debug: true\n" + listening()):
        for header in ("X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: nobody"):
            converse(websocket_port(server), request=upgrade_request(header))
        converse(websocket_port(server), request=upgrade_request(method="POST"))

        server.wait_for("websocket handshake error: request method must be GET")
        told = server.wait_for("Client connection created", times=2)
        forwarded = server.wait_for("Client connection created")
        assert re.fullmatch(
            r"\[DBG\] \[2001:db8::1\]/127.0.0.1:\d+ - wid:\d+ - Client connection created",
            forwarded,
        )
        assert re.fullmatch(r"\[DBG\] 127.0.0.1:\d+ - wid:\d+ - Client connection created", told)


def trusting(authority: Authority, client: Made | None = None) -> ssl.SSLContext:
    """Return what a client needs to speak TLS."""
    context = ssl.create_default_context(cafile=authority.ca_file)
    if client is not None:
        context.load_cert_chain(client.cert_file, client.key_file)
    return context


def test_the_end_comes_encrypted_too(fresh: Fresh, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    files = f'cert_file: "{made.cert_file}", key_file: "{made.key_file}"'
    servers = fresh(f'websocket {{ host: "127.0.0.1", port: -1, tls {{ {files} }} }}\n')

    for request, sent in (
        (upgrade_request(method="POST"), b""),
        (upgrade_request(), masked("x", CONTINUATION)),
        (upgrade_request(), masked(b"\x03\xe8bye", CLOSE)),
        (upgrade_request(), masked(LAX + "PUB a 2000000\r\n")),
    ):
        real, ours = (
            converse(
                websocket_port(server), sent, request=request, ends=True, tls=trusting(authority)
            )
            for server in servers
        )
        assert_same(real, ours)


def test_a_certificate_says_who_it_is(fresh: Fresh, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    known, unknown = (authority.make(rdns(f"CN={name}")) for name in ("known", "unknown"))
    config = f"""
    authorization {{ users: [ {{ user: "CN=known" }}, {{ user: other, password: p }} ] }}
    websocket {{ host: "127.0.0.1", port: -1, tls {{
      cert_file: "{made.cert_file}", key_file: "{made.key_file}"
      ca_file: "{authority.ca_file}", verify_and_map: true
    }} }}
    """
    servers = fresh(config)

    for client in (known, unknown):
        for sent in (connect(), connect(user="other", **{"pass": "p"})):
            real, ours = (
                answer_to(server, sent, tls=trusting(authority, client)) for server in servers
            )
            assert_same(real, ours)


def varz(server: ServerProcess) -> dict[str, Any]:
    """Return the part of /varz that tells of the listener, with its port as a type."""
    with urllib.request.urlopen(f"{server.monitor_url}/varz") as page:
        part: dict[str, Any] = json.load(page)["websocket"]
    return part | ({"port": type(part["port"]).__name__} if "port" in part else {})


def test_varz_tells_of_the_listener_alike(fresh: Fresh, tmp_path: Path) -> None:
    made = Authority(tmp_path).make(rdns("CN=localhost"))
    files = f'cert_file: "{made.cert_file}", key_file: "{made.key_file}"'
    secure = f'websocket {{ host: "127.0.0.1", port: -1, tls {{ {files} }} }}\n'
    monitoring = "http: 127.0.0.1:-1\n"
    configs = [
        monitoring,
        monitoring + listening(),
        monitoring
        + USERS
        + listening(
            'advertise: "example.org:443", no_auth_user: all, handshake_timeout: "3s"\n'
            "authorization { timeout: 5 }, same_origin: true, compression: true\n"
            'allowed_origins: ["http://b", "http://a"], user_cookie: u'
        ),
        monitoring + secure,
    ]

    for config in configs:
        real, ours = (varz(server) for server in fresh(config))
        assert ours == real
