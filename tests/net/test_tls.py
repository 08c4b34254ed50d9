"""Connections under TLS, with real handshakes, on both servers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import bcrypt
import nats
import pytest
from cryptography import x509

from penstock.testing.servers import BOTH, ServerProcess
from tests.security.made_certificates import Authority, Made, rdns
from tests.support.dialogue import Dialogue

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

both = pytest.mark.parametrize("name", BOTH)


class Keys:
    """An authority, the server's certificate, and a client's context that trusts them."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])

    def context(self, own: Made | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        if own is not None:
            context.load_cert_chain(str(own.cert_file), str(own.key_file))
        return context

    def block(self, more: str = "") -> str:
        return (
            f'tls {{ cert_file: "{self.server.cert_file}", key_file: "{self.server.key_file}"\n'
            f'ca_file: "{self.authority.ca_file}"\n{more} }}\n'
        )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


def run(name: str, folder: Path, text: str) -> ServerProcess:
    file = folder / "server.conf"
    file.write_text(f"listen: 127.0.0.1:-1\ndebug: true\n{text}\n")
    return ServerProcess(name, "-c", str(file))


@both
def test_the_handshake_follows_info(name: str, keys: Keys, tmp_path: Path) -> None:
    with run(name, tmp_path, keys.block()) as server:
        with Dialogue(server.port, tls=keys.context()) as client:
            assert client.info["tls_required"] is True
            client.login()
            client.send("SUB foo 1", "PUB foo 2", "hi")
            assert client.answers() == ["MSG foo 1 2", "hi"]
        server.wait_for("TLS version 1.3, cipher suite TLS_AES_")
        server.wait_for("Client connection closed: Client Closed")


@both
def test_a_client_that_ends_tls_hears_the_same_and_is_let_go(
    name: str, keys: Keys, tmp_path: Path
) -> None:
    with (
        run(name, tmp_path, keys.block()) as server,
        Dialogue(server.port, tls=keys.context()) as client,
    ):
        client.login()

        client.end_tls()

        assert client.next() == "closed"
        server.wait_for("Client connection closed: Client Closed")


@both
def test_large_messages_pass_in_both_directions(name: str, keys: Keys, tmp_path: Path) -> None:
    body = "x" * 1_000_000
    with (
        run(name, tmp_path, keys.block()) as server,
        Dialogue(server.port, tls=keys.context()) as client,
    ):
        client.login()
        client.send("SUB foo 1")
        for _ in range(5):
            client.send("PUB foo 1000000", body)
        assert client.answers() == 5 * ["MSG foo 1 1000000", body]


@both
def test_a_client_that_speaks_no_tls_is_let_go_without_a_word(
    name: str, keys: Keys, tmp_path: Path
) -> None:
    with run(name, tmp_path, keys.block()) as server, Dialogue(server.port) as client:
        client.send("CONNECT {}", "PING")

        assert client.next() == "closed"
        server.wait_for("first record does not look like a TLS handshake")
        server.wait_for("Client connection closed: TLS Handshake Failure")


@both
def test_a_client_that_says_nothing_is_given_up(name: str, keys: Keys, tmp_path: Path) -> None:
    with (
        run(name, tmp_path, keys.block("timeout: 0.1")) as server,
        Dialogue(server.port) as client,
    ):
        assert client.next() == "closed"
        # The error itself the real one words in two ways.
        server.wait_for("Client connection closed: TLS Handshake Failure")


@both
def test_a_client_that_leaves_in_the_middle_is_a_failed_handshake(
    name: str, keys: Keys, tmp_path: Path
) -> None:
    with run(name, tmp_path, keys.block()) as server:
        Dialogue(server.port).close()

        server.wait_for("TLS handshake error: EOF")
        server.wait_for("Client connection closed: TLS Handshake Failure")


@both
def test_bytes_that_only_begin_like_tls_are_a_failed_handshake(
    name: str, keys: Keys, tmp_path: Path
) -> None:
    with run(name, tmp_path, keys.block()) as server, server.connect() as client:
        client.sendall(b"\x16\x03\x01\x00\x05garbage" * 100)

        server.wait_for("TLS handshake error: ")
        server.wait_for("Client connection closed: TLS Handshake Failure")


@both
def test_the_handshake_may_be_asked_for_first(name: str, keys: Keys, tmp_path: Path) -> None:
    with (
        run(name, tmp_path, keys.block("handshake_first: true")) as server,
        Dialogue(server.port, tls=keys.context(), is_first=True) as client,
    ):
        assert client.info["tls_required"] is True
        client.login()
        assert client.answers() == []


@both
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "after INFO"])
def test_with_a_delay_both_kinds_of_clients_come_in(
    name: str, is_first: bool, keys: Keys, tmp_path: Path
) -> None:
    # Long enough that a busy machine does not make a client late.
    delay = "30s" if is_first else "1ms"
    with (
        run(name, tmp_path, keys.block(f'handshake_first: "{delay}"')) as server,
        Dialogue(server.port, tls=keys.context(), is_first=is_first) as client,
    ):
        client.login()
        assert client.answers() == []


@both
def test_where_tls_is_optional_the_first_byte_decides(
    name: str, keys: Keys, tmp_path: Path
) -> None:
    with (
        run(name, tmp_path, f"allow_non_tls: true\n{keys.block()}") as server,
        Dialogue(server.port, tls=keys.context()) as secure,
        Dialogue(server.port) as plain,
    ):
        for client in (secure, plain):
            assert "tls_required" not in client.info
            assert client.info["tls_available"] is True
            client.login()
        plain.send("SUB foo 1")
        assert plain.answers() == []
        secure.send("PUB foo 2", "hi")
        assert secure.answers() == []
        assert plain.answers() == ["MSG foo 1 2", "hi"]


@both
def test_where_tls_is_optional_a_silent_client_must_still_log_in(
    name: str, keys: Keys, tmp_path: Path
) -> None:
    users = "authorization { user: ann, password: a, timeout: 0.2 }"
    text = f"allow_non_tls: true\n{keys.block('timeout: 0.1')}{users}"
    with run(name, tmp_path, text) as server, Dialogue(server.port) as client:
        assert [client.next(), client.next()] == ["-ERR 'Authentication Timeout'", "closed"]


@both
def test_a_certificate_may_be_demanded(name: str, keys: Keys, tmp_path: Path) -> None:
    own = keys.authority.make(rdns("CN=client"))
    stranger = Authority(tmp_path).make(rdns("CN=client"))
    with run(name, tmp_path, keys.block("verify: true")) as server:
        with Dialogue(server.port, tls=keys.context(own)) as client:
            assert client.info["tls_verify"] is True
            client.login()
            assert client.answers() == []
        for refused in (keys.context(), keys.context(stranger)):
            before = len(server.lines)
            # The client learns of it in the handshake, or when it reads next: both end it.
            with contextlib.suppress(OSError), Dialogue(server.port, tls=refused) as client:
                assert client.login()[-1] == "closed"
            server.wait_for("TLS handshake error: tls: ", after=before)


@both
def test_the_certificate_may_say_who_it_is(name: str, keys: Keys, tmp_path: Path) -> None:
    ann = keys.authority.make(rdns("CN=ann"), [x509.RFC822Name("ann@example.com")])
    bob = keys.authority.make(rdns("CN=bob"), [x509.RFC822Name("bob@example.com")])
    permissions = 'permissions: { publish: "hers" }'
    users = f'authorization {{ users [ {{ user: "ann@example.com", {permissions} }} ] }}'
    text = f"{keys.block('verify_and_map: true')}{users}"
    with run(name, tmp_path, text) as server:
        with Dialogue(server.port, tls=keys.context(ann)) as client:
            client.login()
            client.send("PUB hers 0", "", "PUB other 0", "")
            assert client.answers() == ["-ERR 'Permissions Violation for Publish to \"other\"'"]
        with Dialogue(server.port, tls=keys.context(bob)) as client:
            assert client.login() == ["-ERR 'Authorization Violation'", "closed"]


@both
def test_keys_may_be_pinned(name: str, keys: Keys, tmp_path: Path) -> None:
    own, other = (keys.authority.make(rdns("CN=client")) for _ in range(2))
    pinned = keys.block(f'verify: true\npinned_certs: ["{own.key_sha256}"]')
    with run(name, tmp_path, pinned) as server:
        with Dialogue(server.port, tls=keys.context(own)) as client:
            client.login()
            assert client.answers() == []
        with Dialogue(server.port, tls=keys.context(other)) as client:
            assert client.login()[-1] == "closed"
        server.wait_for("Client connection closed: TLS Handshake Failure")


@both
@pytest.mark.parametrize("is_first", [False, True], ids=["after INFO", "first"])
def test_a_real_client_talks_under_tls(
    name: str, is_first: bool, keys: Keys, tmp_path: Path
) -> None:
    async def scenario(port: int) -> bytes:
        client = await nats.connect(
            f"tls://localhost:{port}", tls=keys.context(), tls_handshake_first=is_first
        )
        subscription = await client.subscribe("foo")
        await client.publish("foo", b"x" * 100_000)
        message = await subscription.next_msg(30)
        await client.close()
        return message.data

    with run(name, tmp_path, keys.block(f"handshake_first: {str(is_first).lower()}")) as server:
        assert asyncio.run(scenario(server.port)) == b"x" * 100_000


@pytest.fixture(scope="module")
def slow_hash() -> str:
    """A hash of "secret" that takes long enough to see what happens meanwhile."""
    return bcrypt.hashpw(b"secret", bcrypt.gensalt(13, prefix=b"2a")).decode()


def test_others_are_served_while_a_password_is_verified(slow_hash: str, tmp_path: Path) -> None:
    users = f'users [ {{ user: ann, password: "{slow_hash}" }}, {{ user: bob, password: b }} ]'
    with (
        run("penstock", tmp_path, f"authorization {{ timeout: 30, {users} }}") as server,
        Dialogue(server.port) as ann,
        Dialogue(server.port) as bob,
    ):
        assert bob.login(user="bob", **{"pass": "b"}) == []
        bob.send("SUB foo 1")
        assert bob.answers() == []

        connect = '{"user":"ann","pass":"secret","verbose":false,"pedantic":false}'
        # All in one go: what follows CONNECT waits until it is known who it is from.
        ann.send(f"CONNECT {connect}", "PUB foo 2", "hi", "PING")

        assert bob.answers() == []
        assert ann.has_nothing()
        assert ann.next() == "PONG"
        assert bob.answers() == ["MSG foo 1 2", "hi"]


def test_a_wrong_password_is_refused_when_it_was_verified(slow_hash: str, tmp_path: Path) -> None:
    text = f'authorization {{ timeout: 30, user: ann, password: "{slow_hash}" }}'
    with run("penstock", tmp_path, text) as server, Dialogue(server.port) as client:
        assert client.login(user="ann", **{"pass": "wrong"}) == [
            "-ERR 'Authorization Violation'",
            "closed",
        ]


def test_a_client_that_leaves_while_its_password_is_verified_leaves_nothing_behind(
    slow_hash: str, tmp_path: Path
) -> None:
    text = f'authorization {{ timeout: 30, user: ann, password: "{slow_hash}" }}'
    with run("penstock", tmp_path, text) as server:
        client = Dialogue(server.port)
        client.send('CONNECT {"user":"ann","pass":"secret"}')
        client.close()

        server.wait_for("Client connection closed: Client Closed")
        assert not any("[ERR]" in line for line in server.lines)


@both
def test_what_came_before_the_end_of_tls_counts(
    name: str, slow_hash: str, keys: Keys, tmp_path: Path
) -> None:
    users = f'users [ {{ user: ann, password: "{slow_hash}" }}, {{ user: bob, password: b }} ]'
    with (
        run(name, tmp_path, f"{keys.block()}\nauthorization {{ timeout: 30, {users} }}") as server,
        Dialogue(server.port, tls=keys.context()) as ann,
        Dialogue(server.port, tls=keys.context()) as bob,
    ):
        bob.login(user="bob", **{"pass": "b"})
        bob.send("SUB foo 1")
        bob.answers()

        connect = '{"user":"ann","pass":"secret","verbose":false,"pedantic":false}'
        ann.end_tls(f"CONNECT {connect}", "PUB foo 2", "hi")

        assert [bob.next(), bob.next()] == ["MSG foo 1 2", "hi"]


def test_a_flood_of_half_handshakes_keeps_nobody_out(keys: Keys, tmp_path: Path) -> None:
    with run("penstock", tmp_path, keys.block("timeout: 60")) as server:
        port = server.port
        halves = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        for half in halves:
            half.sendall(b"\x16\x03\x01")

        with Dialogue(port, tls=keys.context()) as client:
            client.login()
            assert client.answers() == []

        for half in halves:
            half.close()
        assert not any("Internal error" in line for line in server.lines)


@both
def test_a_receiver_that_reads_nothing_is_cut_off_under_tls_too(
    name: str, keys: Keys, tmp_path: Path
) -> None:
    text = f"allow_non_tls: true\nmax_pending: 1MB\n{keys.block()}"
    body = "x" * 500_000
    with (
        run(name, tmp_path, text) as server,
        Dialogue(server.port, tls=keys.context()) as receiver,
        Dialogue(server.port) as sender,
    ):
        receiver.login()
        receiver.send("SUB foo 1")
        assert receiver.answers() == []
        sender.login()

        # More than the buffers of both sockets hold and the server keeps.
        for _ in range(60):
            sender.send("PUB foo 500000", body)
        assert sender.answers() == []

        server.wait_for("Slow Consumer")
        server.wait_for("Client connection closed: Slow Consumer (Pending Bytes)")


@both
def test_handshakes_beyond_the_rate_are_put_off(name: str, keys: Keys, tmp_path: Path) -> None:
    with run(name, tmp_path, keys.block("connection_rate_limit: 2")) as server:
        port = server.port
        greeted = [Dialogue(port) for _ in range(20)]

        # Some seconds may begin while they come, but not one for every two of them.
        server.wait_for("Client connection closed: Maximum Connections Exceeded")
        for client in greeted:
            client.send("no handshake")
        heard = {client.next() for client in greeted}

        throttled = "-ERR 'Connection throttling is active. Please try again later.'"
        assert heard == {throttled, "closed"}
        for client in greeted:
            client.close()
