"""Tracing and what the log says of clients: the same words as the real server's."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from penstock.testing.servers import BOTH, ServerProcess
from tests.security.made_certificates import Authority, rdns
from tests.support.dialogue import Dialogue

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

both = pytest.mark.parametrize("name", BOTH)
USERS = """
authorization {
    users [ { user: ann, password: s3cret, permissions { publish { deny: "no.>" } } } ]
}
"""


def start(name: str, folder: Path, text: str) -> tuple[ServerProcess, Path]:
    file = folder / f"{name}.conf"
    file.write_text(f"listen: 127.0.0.1:-1\n{text}\n")
    return ServerProcess(name, "-c", str(file)), file


def told(server: ServerProcess, *levels: str) -> list[str]:
    """Return the lines of some levels, without addresses and numbers of connections."""
    lines = [line for line in server.messages if line[1:4] in levels]
    return [re.sub(r"127\.0\.0\.1:\d+ - cid:\d+", "CLIENT", line) for line in lines]


def talk(server: ServerProcess) -> None:
    """Say something of every kind, one after the other so that nothing overtakes."""
    with Dialogue(server.port) as client:
        client.login(user="ann", **{"pass": "s3cret"}, name="it", lang="py", version="1.2")
        client.send("SUB a.* 1", "SUB b q 2")
        client.answers()
        client.send("PUB a.b 5", "hello")
        client.answers()
        client.send("PUB no.entry 2", "xy")
        client.answers()
        client.send("UNSUB 2")
        client.answers()
        client.send("NONSENSE")
        assert client.next() == "-ERR 'Unknown Protocol Operation'"
        assert client.next() == "closed"
    server.wait_for("DELSUB 1")


def test_a_trace_reads_the_same(tmp_path: Path) -> None:
    traces = []
    for name in BOTH:
        server, _ = start(name, tmp_path, f"trace: true\n{USERS}")
        with server:
            talk(server)
            traces.append(told(server, "TRC"))
            assert "s3cret" not in "".join(server.lines)

    ours, theirs = traces
    assert ours == theirs
    assert ours[0] == (
        '[TRC] CLIENT - <<- [CONNECT {"verbose": false, "pedantic": false, "protocol": 0, '
        '"user": "ann", "pass": "[REDACTED]", "name": "it", "lang": "py", "version": "1.2"}]'
    )
    assert '[TRC] CLIENT - "v1.2:py:it" - "$G/user:ann" - ->> [MSG a.b 1 5]' in ours


def test_errors_of_clients_are_logged_alike(tmp_path: Path) -> None:
    logs = []
    for name in BOTH:
        server, _ = start(name, tmp_path, f"trace: true\n{USERS}")
        with server:
            talk(server)
            with Dialogue(server.port) as stranger:
                assert stranger.login(user="eve", **{"pass": "x"})[-1] == "closed"
            server.wait_for("authentication error")
            # Of what it was parsing the real server tells in its own numbers.
            logs.append([line.split(", state=")[0] for line in told(server, "ERR")])

    ours, theirs = logs
    assert ours == theirs
    assert ours == [
        '[ERR] CLIENT - "v1.2:py:it" - "$G/user:ann" - Publish Violation - Subject "no.entry"',
        '[ERR] CLIENT - "v1.2:py:it" - "$G/user:ann" - Client parser ERROR',
        '[ERR] CLIENT - authentication error - User "eve"',
    ]


@both
def test_what_is_said_under_tls_is_traced_in_the_clear(name: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    tls = f'tls {{ cert_file: "{made.cert_file}", key_file: "{made.key_file}" }}'
    server, file = start(name, tmp_path, f"trace: true\n{tls}")
    with server, Dialogue(server.port, tls=context) as client:
        client.login()
        client.send("SUB a 1", "PUB a 2", "hi")

        assert client.answers() == ["MSG a 1 2", "hi"]
        server.wait_for('->> MSG_PAYLOAD: ["hi"]')
        file.write_text(f"listen: 127.0.0.1:-1\n{tls}\n")
        server.reload()
        client.send("PUB a 3", "hey")
        assert client.answers() == ["MSG a 1 3", "hey"]
        assert "hey" not in "".join(told(server, "TRC"))


@both
def test_a_reload_turns_tracing_on_and_off_for_clients_that_are_there(
    name: str, tmp_path: Path
) -> None:
    server, file = start(name, tmp_path, "")
    with server, Dialogue(server.port) as client:
        client.login()
        client.send("SUB a 1")
        client.answers()
        assert told(server, "TRC") == []

        file.write_text("listen: 127.0.0.1:-1\ntrace: true\n")
        server.reload()
        client.send("PUB a 2", "hi")
        assert client.answers() == ["MSG a 1 2", "hi"]
        server.wait_for("->> [PONG]")
        file.write_text("listen: 127.0.0.1:-1\n")
        server.reload()
        client.send("PUB a 3", "hey")
        assert client.answers() == ["MSG a 1 3", "hey"]

        assert [line.partition("CLIENT - ")[2] for line in told(server, "TRC")] == [
            "<<- [PUB a 2]",
            '<<- MSG_PAYLOAD: ["hi"]',
            "->> [MSG a 1 2]",
            '->> MSG_PAYLOAD: ["hi"]',
            "<<- [PING]",
            "->> [PONG]",
        ]


def test_the_servers_own_messages_are_traced_when_that_is_asked_for(tmp_path: Path) -> None:
    text = "system_account: S\naccounts { S { users [ { user: s, password: s } ] } }"
    server, _ = start("penstock", tmp_path, f"trace_verbose: true\n{text}")

    with server, Dialogue(server.port) as client:
        client.login(user="s", **{"pass": "s"})
        client.send("SUB reply 1", "PUB $SYS.REQ.SERVER.PING.IDZ reply 0", "")

        server.wait_for("SYSTEM - <<- [PUB reply  ")
        server.wait_for('SYSTEM - <<- MSG_PAYLOAD: ["{')
