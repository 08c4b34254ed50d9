"""The way to a server, ours and the real one: TLS, keys, and errors that say what is the matter."""

from __future__ import annotations

import socket
from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # it has no types
import pytest
from cryptography import x509

from penstock.client.client import Client
from penstock.client.connect import ClientTls
from penstock.client.credentials import Credentials
from penstock.errors import AuthorizationError, CannotConnect, UsageError
from penstock.testing.servers import BOTH, server_process, start_server
from tests.security.made_certificates import Authority, rdns

pytestmark = pytest.mark.oracle

SEED = bytes(range(32))
USER_KEY = nkeys.from_seed(nkeys.encode_seed(SEED, nkeys.PREFIX_BYTE_USER)).public_key.decode()

both = pytest.mark.parametrize("kind", BOTH)


class Keys:
    """An authority, a server's certificate and a client's."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
        self.client = self.authority.make(rdns("CN=client"))
        self.trusting = ClientTls(ca_file=str(self.authority.ca_file))
        self.showing = ClientTls(
            str(self.authority.ca_file), str(self.client.cert_file), str(self.client.key_file)
        )

    def settings(self, more: str = "") -> str:
        return (
            f'tls {{ cert_file: "{self.server.cert_file}", key_file: "{self.server.key_file}"\n'
            f'ca_file: "{self.authority.ca_file}"\n{more} }}\n'
        )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


def assert_carries(client: Client, payload: bytes) -> None:
    sid = client.subscribe(b"a")
    client.publish(b"a", payload)
    assert client.next_message(sid).payload == payload
    client.flush()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@both
@pytest.mark.parametrize("compression", ["false", "true"])
def test_everything_goes_through_websocket(kind: str, compression: str) -> None:
    port = free_port()
    settings = f"websocket {{ port: {port}, no_tls: true, compression: {compression} }}"
    with (
        server_process(kind, settings=settings),
        Client.connect(f"ws://127.0.0.1:{port}") as client,
    ):
        assert_carries(client, b"x" * 500_000)
        assert_carries(client, b"y")


@both
def test_everything_goes_through_websocket_under_tls(kind: str, keys: Keys) -> None:
    port = free_port()
    settings = f"websocket {{ port: {port}\n{keys.settings()} }}"
    with (
        server_process(kind, settings=settings),
        Client.connect(f"wss://localhost:{port}", tls=keys.trusting) as client,
    ):
        assert_carries(client, b"x" * 500_000)


@both
def test_everything_goes_through_tls_where_the_server_wants_it(kind: str, keys: Keys) -> None:
    with server_process(kind, settings=keys.settings("verify: true")) as server:
        url = f"nats://localhost:{server.port}"
        with Client.connect(url, tls=keys.showing) as client:
            assert_carries(client, b"x" * 900_000)
        with pytest.raises(CannotConnect, match=r"certificate required|bad certificate"):
            Client.connect(url, tls=keys.trusting)


@both
def test_a_server_that_nobody_vouches_for_is_left(kind: str, keys: Keys) -> None:
    with server_process(kind, settings=keys.settings()) as server:
        with pytest.raises(CannotConnect, match="its certificate is not trusted"):
            Client.connect(f"nats://localhost:{server.port}")
        with pytest.raises(CannotConnect, match="its certificate is not trusted"):
            Client.connect(f"nats://127.0.0.1:{server.port}", tls=keys.trusting)


@both
def test_tls_may_come_before_info_and_may_be_optional(kind: str, keys: Keys) -> None:
    first = ClientTls(keys.trusting.ca_file, is_first=True)
    with (
        server_process(kind, settings=keys.settings("handshake_first: true")) as server,
        Client.connect(f"tls://localhost:{server.port}", tls=first) as client,
    ):
        assert_carries(client, b"hello")
    with server_process(kind, settings=f"allow_non_tls: true\n{keys.settings()}") as server:
        Client.connect(server.url).close()
        Client.connect(f"tls://localhost:{server.port}", tls=keys.trusting).close()


def test_a_silent_server_under_tls_is_not_waited_for_forever(keys: Keys) -> None:
    with start_server(settings=keys.settings()) as server:
        url = f"tls://localhost:{server.port}"
        with Client.connect(url, tls=keys.trusting, timeout_s=30) as client:
            sid = client.subscribe(b"a")
            client.set_timeout(0.05)
            with pytest.raises(TimeoutError):
                client.next_message(sid)


def test_tls_is_not_given_up_silently() -> None:
    with start_server() as server, pytest.raises(UsageError, match="does not speak TLS"):
        Client.connect(server.url.replace("nats://", "tls://"))


def test_files_that_cannot_be_used_are_named(keys: Keys, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nonsense")
    with start_server(settings=keys.settings()) as server:
        for tls in (ClientTls(str(broken)), ClientTls(cert_file=str(broken))):
            with pytest.raises(UsageError, match=r"broken\.pem"):
                Client.connect(server.url, tls=tls)


@both
def test_an_nkey_logs_in_and_another_one_does_not(kind: str) -> None:
    settings = f"authorization {{ users: [ {{ nkey: {USER_KEY} }} ] }}"
    with server_process(kind, settings=settings) as server:
        with Client.connect(server.url, credentials=Credentials(seed=SEED)) as client:
            assert_carries(client, b"hello")
        with pytest.raises(AuthorizationError, match="Authorization Violation"):
            Client.connect(server.url, credentials=Credentials(seed=bytes(32)))


@both
def test_a_signature_that_nobody_asks_for_is_told(kind: str) -> None:
    with (
        server_process(kind, settings="authorization { token: t }") as server,
        pytest.raises(UsageError, match="asks for no signature"),
    ):
        Client.connect(server.url, credentials=Credentials(seed=SEED))


@both
def test_credentials_that_are_given_count_over_those_of_the_url(kind: str) -> None:
    with server_process(kind, settings="authorization { user: u, password: p }") as server:
        url = server.url.replace("://", "://u:wrong@")
        Client.connect(url, credentials=Credentials("u", "p")).close()
        with pytest.raises(AuthorizationError):
            Client.connect(url)


def test_where_nothing_listens_the_address_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(CannotConnect) as refused:
        Client.connect(f"127.0.0.1:{port}")
    assert (refused.value.port, refused.value.reason) == (port, "connection refused")
    with pytest.raises(CannotConnect, match="no such host"):
        Client.connect("nats://no-such-host.invalid")
