"""Files and flags to options, against the verdicts of the real server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.config.flags import Action, parse_flags
from penstock.config.load import check_config, load_options
from penstock.config.options.server import MappingDestination, ResponsesOptions, ServerOptions
from penstock.errors import ConfigError, InvalidConfiguration
from tests.config.corpus import ACCEPTED, REJECTED
from tests.config.reference import ask

PLACED_AT_RANDOM = {
    "two store_dirs",
    "an export of both",
    "a duplicate user over accounts",
    "an nkey with a password",
    "a bad nkey",
    "token and accounts",
    "user and users",
    "token and users",
}
"""Faults of two things, of which the real server names now this one, now that one."""

PLACED_BETTER = {"tags of numbers"}
"""Faults within an array, of which we name the value and the real server the array."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(text: str, *arguments: str, environ: dict[str, str] | None = None) -> ServerOptions:
    Path("server.conf").write_text(text)
    return load_options(["-c", "server.conf", *arguments], environ or {})[0]


def run(arguments: Sequence[str]) -> None:
    """Do what comes before a server would start."""
    flags = parse_flags(arguments)
    if flags.action is Action.CHECK:
        check_config(flags, {})
    load_options(arguments, {})


def verdict(text: str) -> str:
    """Return what `-t` prints of a file."""
    Path("server.conf").write_text(text)
    flags = parse_flags(["-t", "-c", "server.conf"])
    return f"nats-server: {check_config(flags, os.environ)}\n"


@pytest.mark.oracle
@pytest.mark.parametrize("name", ACCEPTED)
def test_a_good_file_is_accepted_with_the_digest_of_the_real_server(name: str) -> None:
    ours = verdict(ACCEPTED[name])

    assert ours == ask("-t", "-c", "server.conf").errors


@pytest.mark.oracle
@pytest.mark.parametrize("name", REJECTED)
def test_a_bad_file_is_rejected_where_the_real_server_rejects_it(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        verdict(REJECTED[name])

    theirs = ask("-t", "-c", "server.conf")
    assert theirs.exit_code == 1
    if theirs.places and name not in PLACED_AT_RANDOM | PLACED_BETTER:
        places = {f"{caught.value.file}:{caught.value.line}:{caught.value.column}"}
        if isinstance(caught.value, InvalidConfiguration):
            places = {f"{one.file}:{one.line}:{one.column}" for one in caught.value.errors} or {
                warning.split(": ")[0] for warning in caught.value.warnings
            }
        assert places == theirs.places


@pytest.mark.oracle
@pytest.mark.parametrize(
    "text",
    [
        "port: 1\n\nfoo: 1\n  bar 2\n",
        "ping_interval: 5\nfoo: 1\n",
        "port: 4222\nauthorization {\n user: a\n",
        "port =\n1",
        "port: $NOT_SET\n",
        "include 'none.conf'\n",
        "",
        "port",
        "authorization { users = [{user: a, pass: b}, {user: a, pass: c}] }",
    ],
)
def test_a_bad_file_is_told_of_in_the_words_of_the_real_server(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        verdict(text)

    # The real server tells of several wrong keys in an order of chance.
    told = ask("-t", "-c", "server.conf").errors.removeprefix("nats-server: ")
    assert sorted(f"{caught.value}\n".splitlines()) == sorted(told.splitlines())


@pytest.mark.oracle
@pytest.mark.parametrize(
    "text",
    [
        "no_auth_user: x",
        "no_auth_user: x\nauthorization { users = [{user: a, password: b}] }",
        "lame_duck_duration: '30s'\nlame_duck_grace_period: '31s'",
        "max_payload: 2kb\nmax_pending: 1kb",
        "websocket { port: -1 }",
        "websocket { port: -1, no_tls: true, no_auth_user: x }",
        "websocket { port: -1, no_tls: true, headers { Upgrade: x } }",
        "websocket { port: -1, no_tls: true, headers { Sec-WebSocket-Key: x } }",
        "websocket { port: -1, no_tls: true, jwt_cookie: x }",
        "websocket { port: -1, no_tls: true, allowed_origins: ['ftp://x'] }",
        "jetstream { domain: 'a.b' }",
        "jetstream: true\ncluster { port: -1, name: C }",
        "jetstream: true\nserver_name: S\ncluster { port: -1 }",
        "mqtt { port: -1 }",
        "default_sentinel: x",
        "gateway { port: -1 }",
        "gateway { name: G }",
        "default_js_domain { A: d }",
        "cluster { name: C, port: -1, compression: zip }",
        "leafnodes { remotes: [ {url: 'nats://a:1', account: Z} ] }",
        "leafnodes { port: -1, authorization { account: Z } }",
    ],
)
def test_options_that_do_not_go_together_are_refused_as_by_the_real_server(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, "-p", "-1")

    theirs = ask("-c", "server.conf", "-p", "-1")
    assert theirs.exit_code == 1
    assert theirs.errors == f"nats-server: {caught.value}\n"


@pytest.mark.oracle
@pytest.mark.parametrize(
    "arguments",
    [
        ("-t",),
        ("foo",),
        ("-c", "none.conf"),
        ("--routes", "nats://a:1"),
        ("--tls",),
        ("--tls", "--tlscert", "a"),
        ("--tls", "--tlscert", "none.pem", "--tlskey", "none.key"),
        ("--cluster", "nats://u@h:1"),
        ("--signal", "ldm=a=b"),
    ],
)
def test_a_wrong_command_line_is_told_of_in_the_words_of_the_real_server(
    arguments: tuple[str, ...],
) -> None:
    with pytest.raises(ConfigError) as caught:
        run(arguments)

    theirs = ask(*arguments)
    assert theirs.exit_code == 1
    assert theirs.errors == f"nats-server: {caught.value}\n"


def test_nothing_said_means_a_server_for_clients_alone() -> None:
    options, warnings = load_options([], {})

    assert (options.host, options.port, options.http_host) == ("0.0.0.0", 4222, "0.0.0.0")
    assert (options.max_payload, options.max_pending) == (1024 * 1024, 64 * 1024 * 1024)
    assert (options.ping_interval_ns, options.ping_max) == (120_000_000_000, 2)
    assert options.authorization.timeout_s == 2.0
    assert options.jetstream is None
    assert options.cluster is None
    assert warnings == []


def test_flags_count_more_than_the_file() -> None:
    options = load(
        "port: 1111\nhost: 127.0.0.1\ndebug: true\nhttp_port: 5\n"
        "authorization { user: a, pass: b }",
        *("-p", "2222", "--addr=localhost", "-D=false", "-m", "-1", "--pass", "c"),
    )

    assert (options.port, options.host, options.http_port) == (2222, "localhost", -1)
    assert options.debug is False
    assert (options.authorization.user, options.authorization.password) == ("a", "c")


def test_a_store_dir_alone_does_not_turn_streams_on() -> None:
    options, _ = load_options(["-sd=/data"], {})

    assert options.jetstream is not None
    assert (options.jetstream.enabled, options.jetstream.store_dir) == (False, "/data")


def test_js_and_store_dir_flags_add_to_the_block_of_the_file() -> None:
    options = load("jetstream { max_mem: 1mb, store_dir: '/a' }", "-js", "-sd", "/b")

    assert options.jetstream is not None
    assert options.jetstream.enabled
    assert (options.jetstream.store_dir, options.jetstream.max_memory) == ("/b", 1024 * 1024)


def test_a_store_dir_on_top_is_the_one_of_jetstream() -> None:
    options = load("store_dir: '/top'\njetstream: true")

    assert options.jetstream is not None
    assert options.jetstream.store_dir == "/top"


def test_cluster_flags_make_a_cluster() -> None:
    options, _ = load_options(
        [
            *("--cluster", "nats://u:p@127.0.0.1:-1", "--cluster_name", "C", "-n", "S"),
            *("--routes", "nats://u:p@a:1, nats-route://b:2"),
        ],
        {},
    )

    assert options.cluster is not None
    assert (options.cluster.host, options.cluster.port) == ("127.0.0.1", -1)
    assert (options.cluster.authorization.user, options.cluster.name) == ("u", "C")
    assert options.cluster.routes == ("nats://u:p@a:1", "nats-route://b:2")


def test_an_empty_cluster_flag_turns_the_cluster_of_the_file_off() -> None:
    options = load("cluster { port: 6222, name: C }", "--cluster", "")

    assert options.cluster is not None
    assert options.cluster.port == 0


def test_log_levels_come_in_bundles() -> None:
    both, _ = load_options(["-DV"], {})
    all_three, _ = load_options(["-DVV"], {})
    off = load("debug: true\ntrace: true", "-DV=false")

    assert (both.debug, both.trace, both.trace_verbose) == (True, True, False)
    assert (all_three.debug, all_three.trace, all_three.trace_verbose) == (True, True, True)
    assert (off.debug, off.trace) == (False, False)


def test_tls_of_flags_keeps_the_timeout_of_the_file(folder: Path) -> None:
    for name in ("a.pem", "a.key", "b.pem", "b.key"):
        (folder / name).write_text("")
    text = "tls { cert_file: a.pem, key_file: a.key, timeout: 5, verify: true }"

    options = load(text, "--tls", "--tlscert", "b.pem", "--tlskey", "b.key")
    without = load(text, "--tls=false")

    assert options.tls is not None
    assert (options.tls.cert_file, options.tls.timeout_s) == ("b.pem", 5.0)
    assert not options.tls.verify
    assert options.authorization.timeout_s == 6.0
    assert without.tls is None


def test_a_payload_that_no_stream_could_keep_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be higher than 67108864"):
        load("max_payload: 100mb\nmax_pending: 200mb")


def test_a_duration_without_a_unit_means_seconds_and_is_warned_of() -> None:
    Path("server.conf").write_text("ping_interval: 5")

    options, warnings = load_options(["-c", "server.conf"], {})

    assert options.ping_interval_ns == 5_000_000_000
    reason = "ping_interval should be converted to a duration"
    assert warnings == [f'server.conf:1:0: invalid use of field "ping_interval": {reason}']


def test_nothing_in_a_file_means_the_default() -> None:
    options = load('port: 0\nmax_payload: 0\nping_interval: "0s"\nmax_connections: 0\nhost: ""')

    assert (options.port, options.max_payload, options.host) == (4222, 1024 * 1024, "0.0.0.0")
    assert options.ping_interval_ns == 120_000_000_000
    assert options.max_connections == -1


def test_users_have_their_permissions_or_the_default_ones() -> None:
    options = load(ACCEPTED["users"])

    first, second, third, fourth = options.authorization.users
    assert first.permissions is options.authorization.default_permissions
    assert first.permissions is not None
    assert second.permissions is not None
    assert third.permissions is not None
    assert first.permissions.publish_allow == ("x.>",)
    assert second.permissions.publish_allow == ("a", "b.*")
    assert second.permissions.subscribe_allow == ("x q",)
    assert second.permissions.subscribe_deny == ("y",)
    assert second.permissions.responses == ResponsesOptions(1, 120_000_000_000)
    assert third.permissions.responses == ResponsesOptions(5, 60_000_000_000)
    # The right to answer takes the right to publish anything away.
    assert third.permissions.publish_allow == ()
    assert third.allowed_connection_types == {"STANDARD", "WEBSOCKET"}
    assert fourth.nkey.startswith("U")


def test_accounts_are_read_with_all_that_they_share() -> None:
    options = load(ACCEPTED["accounts"])

    a, b = options.accounts["A"], options.accounts["B"]
    assert a.limits.max_connections == 5
    assert a.jetstream is not None
    assert b.jetstream is not None
    assert (a.jetstream.max_memory, b.jetstream.max_memory) == (-1, 1024 * 1024)
    assert b.jetstream.max_bytes_required
    assert a.mappings["x"] == (MappingDestination("y", 50), MappingDestination("z", 20, "C"))
    assert [(one.kind, one.subject) for one in a.exports] == [
        ("stream", "pub.>"),
        ("service", "req"),
        ("service", "p"),
    ]
    assert a.exports[1].response_type == "stream"
    assert a.exports[2].accounts == ("B",)
    assert (b.imports[0].account, b.imports[0].prefix) == ("A", "from")
    assert (b.imports[1].subject, b.imports[1].to) == ("req", "a.req")
    assert options.system_account_name == "SYS"


def test_handshake_first_is_off_on_or_a_delay(folder: Path) -> None:
    def handshake(word: str) -> int | None:
        tls = load(f"tls {{ handshake_first: {word} }}").tls
        assert tls is not None
        return tls.handshake_first_ns

    assert handshake("false") is None
    assert handshake("true") == 0
    assert handshake("auto") == 50_000_000
    assert handshake("'300ms'") == 300_000_000


def test_no_secret_shows_in_a_repr() -> None:
    options = load(
        "authorization { users = [{user: a, password: hidden1}] }\n"
        "jetstream { key: hidden2, prev_key: hidden3 }\n"
        "cluster { port: -1, name: C, authorization { user: u, password: hidden4 }\n"
        " routes = ['nats://u:hidden5@a:1'] }\nserver_name: S\n"
        "websocket { authorization { token: hidden6 } }\n"
        "leafnodes { remotes = [ {url: 'nats://u:hidden7@b:1'} ] }\n"
    )
    token, _ = load_options(["--auth", "hidden8"], {})

    assert "hidden" not in repr(options)
    assert "hidden" not in repr(token)
