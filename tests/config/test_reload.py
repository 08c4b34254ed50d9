"""What a reload may change, against the real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.load import load_options
from penstock.config.options.server import ServerOptions
from penstock.config.reload import changes, with_ports_kept
from penstock.errors import ConfigError
from tests.config.reference import running

BASE = "host: 127.0.0.1\nport: -1\n"


def load(folder: Path, text: str) -> ServerOptions:
    path = folder / "server.conf"
    path.write_text(BASE + text)
    return load_options(["-c", str(path)], {})[0]


CHANGES = [
    ("max_payload: 1kb", "max_payload: 2kb"),
    ("", "max_connections: 5"),
    ("", "max_subscriptions: 5"),
    ("", "max_pending: 10mb"),
    ("", "max_control_line: 1024"),
    ("", "ping_interval: '5s'\nping_max: 3"),
    ("", "write_deadline: '5s'"),
    ("", "debug: true\ntrace: true"),
    ("", "server_name: other"),
    ("", "host: 127.0.0.2"),
    ("", "port: 14777"),
    ("", "http_port: 18777"),
    ("", "authorization { user: a, password: b }"),
    ("authorization { token: a }", "authorization { token: b }"),
    ("", "accounts { A { users = [{user: a, password: b}] } }"),
    ("", "lame_duck_duration: '31s'"),
    ("", "no_header_support: true"),
    ("", "no_fast_producer_stall: true"),
    ("", "server_tags: ['a']"),
    ("", "allow_non_tls: true"),
    ("", "client_advertise: 'x:1'"),
    ("", "max_traced_msg_len: 5"),
    ("", "http: '127.0.0.1:-1'"),
    ("", "http_base_path: '/x'"),
    ("", "proxy_protocol: true"),
    ("", "trace: true"),
    ("", "ping_max: 7"),
    ("", "write_deadline: '7s'"),
    ("", "max_closed_clients: 7"),
    ("", "prof_port: 7"),
    ("", "server_metadata: { a: b }"),
    ("", "max_sub_tokens: 5"),
    ("", "connect_error_reports: 5"),
    ("", "disable_sublist_cache: true"),
    (
        "websocket { port: -1, no_tls: true }",
        "websocket { port: -1, no_tls: true, compression: on }",
    ),
    ("", "websocket { port: -1, no_tls: true }"),
    ("cluster { port: -1, name: C }", "cluster { port: 16777, name: C }"),
    ("cluster { port: -1, name: C }", "cluster { port: -1, name: C, no_advertise: true }"),
    (
        "no_auth_user: a\nauthorization { users = [{user: a, password: b}] }",
        "authorization { users = [{user: a, password: b}] }",
    ),
    (
        "no_auth_user: a\nauthorization { users = [{user: a, password: b}] }",
        "authorization { users = [{user: c, password: b}] }",
    ),
]


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_reload_changes_what_it_changes_in_the_real_server(
    before: str, after: str, tmp_path: Path
) -> None:
    old = load(tmp_path, before)

    with running(tmp_path / "server.conf") as reference:
        new = with_ports_kept(old, load(tmp_path, after))
        try:
            changes(old, new)
            refusal = ""
        except ConfigError as error:
            refusal = str(error)
        answer = reference.reload()

    assert bool(refusal) == answer.startswith("Failed")
    # Where values are whole blocks or ports that were made up, the words before them are the same.
    theirs = answer.removeprefix("Failed to reload server configuration: ")
    assert refusal.split(":")[0] == (theirs.split(":")[0] if refusal else "")


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ("max_payload: 1kb", "max_payload: 2kb", ["Reloaded: max_payload = 2048"]),
        ("", "ping_interval: '5s'", ["Reloaded: ping_interval = 5s"]),
        ("", "debug: true", ["Reloaded: debug = true"]),
        ("", "server_tags: [a, b ]", ["Reloaded: tags"]),
        ("", "no_fast_producer_stall: true", ["Reloaded: fast producers will not be stalled"]),
        (
            "authorization { user: a, password: b }",
            "authorization { user: c, password: d, timeout: 5 }",
            [
                "Reloaded: authorization username",
                "Reloaded: authorization password",
                "Reloaded: authorization timeout = 5",
            ],
        ),
        ("", "accounts { A { } }", ["Reloaded: accounts"]),
        ("", "jetstream: true", ["Reloaded: JetStream"]),
        (
            "jetstream { max_mem: 1mb }",
            "jetstream { max_mem: 2mb }",
            ["Reloaded: JetStream max_mem_store = 2097152"],
        ),
        (
            "",
            "tls { handshake_first: true }",
            ["Reloaded: authorization timeout = 3", "Reloaded: tls = enabled"],
        ),
        ("debug: true", "debug: true", []),
    ],
)
def test_a_change_is_told_of(before: str, after: str, texts: list[str], tmp_path: Path) -> None:
    found = changes(load(tmp_path, before), load(tmp_path, after))

    assert [change.text for change in found] == texts


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("", "max_pending: 1mb\nmax_payload: 1k", "MaxPending: old=67108864, new=1048576"),
        ("", "lame_duck_duration: '31s'", "LameDuckDuration: old=2m0s, new=31s"),
        ("", "server_name: x", "ServerName: old=, new=x"),
        ("jetstream { store_dir: a }", "jetstream { store_dir: b }", "jetstream storage directory"),
        (
            "jetstream { max_mem: 2mb }",
            "jetstream { max_mem: 1mb }",
            "decreasing jetstream max memory and store",
        ),
        ("jetstream {}", "jetstream { max_mem: 1mb }", "jetstream dynamic max memory and store"),
        ("jetstream {}", "jetstream { domain: x }", "JetStreamDomain: old=, new=x"),
        (
            "websocket { port: 8080, no_tls: true }",
            "websocket { port: 8081, no_tls: true }",
            'Websocket: field "port": old=8080, new=8081',
        ),
        ("leafnodes { port: 1 }", "leafnodes { port: 2 }", 'LeafNode: field "port": old=1, new=2'),
        ("cluster { port: 1 }", "cluster { port: 2 }", "cluster port: old=1, new=2"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_by_name(
    before: str, after: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        changes(load(tmp_path, before), load(tmp_path, after))

    assert str(caught.value) == f"config reload not supported for {reason}"


def test_a_change_of_secrets_does_not_show_them(tmp_path: Path) -> None:
    old = load(tmp_path, "authorization { token: hidden1 }\njetstream { key: hidden2 }")
    new = load(tmp_path, "authorization { token: hidden3 }\njetstream { key: hidden2 }")
    other_key = load(tmp_path, "authorization { token: hidden1 }\njetstream { key: hidden4 }")

    assert "hidden" not in repr(changes(old, new))
    with pytest.raises(ConfigError) as caught:
        changes(old, other_key)
    assert "hidden" not in str(caught.value)


def test_any_free_port_is_the_one_in_use(tmp_path: Path) -> None:
    running_on = load(tmp_path, "port: 4999\nwebsocket { port: 4998, no_tls: true }")
    wanted = load(tmp_path, "port: -1\nwebsocket { port: -1, no_tls: true }")

    kept = with_ports_kept(running_on, wanted)

    assert kept.port == 4999
    assert kept.websocket is not None
    assert kept.websocket.port == 4998
    assert changes(running_on, kept) == []
