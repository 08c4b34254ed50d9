"""Node.js clients: each script runs against the real server and ours and must end the same way."""

from __future__ import annotations

import ipaddress
import json
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from cryptography import x509

from penstock.testing.servers import PENSTOCK, REFERENCE, ServerProcess, server_process
from tests.conformance.conftest import PairWith
from tests.conformance.conftest import pair_with as pair_with  # a fixture of this file too
from tests.interop.node_scripts import run_scripts, websocket_port
from tests.security.made_certificates import Authority, rdns

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

LISTENING = 'host: "127.0.0.1", port: -1'
OPEN = f"websocket {{ {LISTENING}, no_tls: true, compression: true }}\n"
USERS = """
authorization {
  users = [
    { user: all, password: p }
    { user: some, password: p, permissions: {
      publish: { allow: ["foo.>"] }
      subscribe: { allow: ["foo.>"], deny: ["foo.hidden"] }
    } }
    { nkey: UB5G7LQTIUT3PSBRZYCZXHAYTFQ24KSSNOHQ7HYKKCDFD6FOS7PT5BLG }
  ]
}
"""
TOKEN = "authorization { token: s3cret }\n"

MESSAGES = [
    "publishAndSubscribe",
    "ownMessagesComeUnlessEchoIsOff",
    "queueGroup",
    "requestAndReply",
    "requestWithManyReplies",
    "nobodyAnswers",
    "headersOfAllKinds",
    "autoUnsubscribe",
    "anyBytes",
    "largePayloads",
    "tenThousandInOrder",
    "flushAndRoundTrip",
    "drainOfAClient",
    "drainOfASubscription",
    "subjectsThatAreNone",
    "manySubscriptions",
    "whatTheServerSays",
    "closing",
]
COMPRESSED = ["publishAndSubscribe", "anyBytes", "compressiblePayloads", "tenThousandInOrder"]
ENCRYPTED = ["requestAndReply", "largePayloads", "whatTheServerSays"]
REFUSALS = [
    (USERS, ["connectingAsUsers", "connectingWithAnNkey", "notAllowed", "heldBackAtDelivery"]),
    (TOKEN, ["connectingWithAToken"]),
    ("", ["credentialsThatNobodyAskedFor"]),
    ("max_payload: 1024\n", ["tooLarge"]),
]


def settings_of(server: ServerProcess, transport: str, **more: Any) -> dict[str, Any]:
    """Return the arguments that tell scripts how to reach a server."""
    port = websocket_port(server) if transport.startswith("ws") else server.port
    return {"transport": transport, "port": port, **more}


class Ends:
    """How scripts end with the real server and with ours; each group of scripts runs once."""

    def __init__(self, pair_with: PairWith) -> None:
        self._pair_with = pair_with
        self._known: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    def assert_same(
        self, script: str, group: Sequence[str], config: str, transport: str, **more: Any
    ) -> None:
        """Compare the ends of a script that belongs to a group."""
        key = json.dumps([group, config, transport, more])
        if key not in self._known:
            pair = self._pair_with(config)
            self._known[key] = (
                run_scripts(group, settings_of(pair.reference, transport, **more)),
                run_scripts(group, settings_of(pair.ours, transport, **more)),
            )
        expected, found = self._known[key]
        assert expected.get(script, {}).get("result"), f"no result: {expected.get(script)}"
        assert found.get(script) == expected[script]


@pytest.fixture(scope="session")
def ends(pair_with: PairWith) -> Ends:
    """Return how scripts end."""
    return Ends(pair_with)


@pytest.mark.parametrize("script", MESSAGES)
@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_messages_come_as_from_the_real_server(ends: Ends, transport: str, script: str) -> None:
    ends.assert_same(script, MESSAGES, OPEN, transport)


@pytest.mark.parametrize("script", COMPRESSED)
def test_compressed_messages_come_as_from_the_real_server(ends: Ends, script: str) -> None:
    ends.assert_same(script, COMPRESSED, OPEN, "ws", compression={"threshold": 0})


@pytest.mark.parametrize(("config", "group"), REFUSALS)
@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_what_is_refused_is_refused_alike(
    ends: Ends, transport: str, config: str, group: list[str]
) -> None:
    for script in group:
        ends.assert_same(script, group, OPEN + config, transport)


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return a configuration of TLS on both listeners, and the authority's certificate."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    made = authority.make(rdns("CN=server"), names)
    tls = f'tls {{ cert_file: "{made.cert_file}", key_file: "{made.key_file}" }}'
    return f"{tls}\nwebsocket {{ {LISTENING}, {tls} }}\n", str(authority.ca_file)


@pytest.mark.parametrize("transport", ["tls", "wss"])
def test_messages_come_under_tls(ends: Ends, certified: tuple[str, str], transport: str) -> None:
    config, ca_file = certified

    for script in ENCRYPTED:
        ends.assert_same(script, ENCRYPTED, config, transport, caFile=ca_file)


def end_of(kind: str, script: str, transport: str, interrupt: str) -> Any:
    """Return how a script ends whose server something happens to."""
    with ExitStack() as running:
        server = running.enter_context(server_process(kind, settings=OPEN))

        def when_ready() -> None:
            if interrupt == "goes lame":
                server.signal(signal.SIGUSR2)
                return
            port = server.port
            server.stop()
            if interrupt == "starts again":
                running.enter_context(server_process(kind, settings=OPEN, port=port))

        ends = run_scripts([script], settings_of(server, transport), when_ready=when_ready)
        return ends[script]["result"]


@pytest.mark.parametrize(
    ("script", "transport", "interrupt"),
    [
        ("reconnecting", "tcp", "starts again"),
        ("lameDuck", "tcp", "goes lame"),
        ("lameDuck", "ws", "goes lame"),
        ("serverGoes", "tcp", "stops"),
        ("serverGoes", "ws", "stops"),
    ],
)
def test_a_client_sees_its_server_go_alike(script: str, transport: str, interrupt: str) -> None:
    expected = end_of(REFERENCE, script, transport, interrupt)

    assert end_of(PENSTOCK, script, transport, interrupt) == expected
    assert expected, "a script without a result tells nothing"
