"""The command line, against the real server's own flags."""

from __future__ import annotations

import pytest

from penstock.config.flags import FLAGS, Action, FlagValue, SignalRequest, help_text, parse_flags
from penstock.config.flags import tls_help_text as tls_help
from penstock.errors import ConfigError, UsageError
from tests.config.reference import ask


@pytest.mark.parametrize(
    ("arguments", "target", "value"),
    [
        (["-p", "4333"], "port", 4333),
        (["--port=-1"], "port", -1),
        (["-port", "0x10"], "port", 16),
        (["--p", "010"], "port", 8),
        (["-a", "x"], "host", "x"),
        (["--addr=x"], "host", "x"),
        (["-net", "x"], "host", "x"),
        (["-n", "s"], "server_name", "s"),
        (["--name", "s"], "server_name", "s"),
        (["--server_name=s"], "server_name", "s"),
        (["-c", "f"], "config_file", "f"),
        (["--config", "f"], "config_file", "f"),
        (["-js"], "jetstream.enabled", True),
        (["--jetstream=false"], "jetstream.enabled", False),
        (["-sd=DIR"], "jetstream.store_dir", "DIR"),
        (["--store_dir", "DIR"], "jetstream.store_dir", "DIR"),
        (["-l", "f"], "log_file", "f"),
        (["-m", "8222"], "http_port", 8222),
        (["-ms", "8222"], "https_port", 8222),
        (["--user", "u"], "authorization.user", "u"),
        (["--pass", "p"], "authorization.password", "p"),
        (["--auth", "t"], "authorization.token", "t"),
        (["-P", "f"], "pid_file", "f"),
        (["--cluster_name", "c"], "cluster.name", "c"),
        (["--routes", "a,b"], "cluster.routes", "a,b"),
        (["--cluster", "u"], "cluster_listen", "u"),
        (["--cluster_listen", "u"], "cluster_listen", "u"),
        (["--no_advertise=true"], "cluster.no_advertise", True),
        (["--connect_retries", "3"], "cluster.connect_retries", 3),
        (["--tls"], "tls", True),
        (["--tlscert", "f"], "tls.cert_file", "f"),
        (["--tlskey", "f"], "tls.key_file", "f"),
        (["--tlscacert", "f"], "tls.ca_file", "f"),
        (["--tlsverify"], "tls.verify", True),
        (["-DV"], "DV", True),
        (["--debug"], "debug", True),
        (["-V"], "trace", True),
        (["-T=0"], "logtime", False),
        (["--logtime_utc"], "logtime_utc", True),
        (["-s"], "syslog", True),
        (["-r", "udp://x"], "remote_syslog", "udp://x"),
        (["--log_size_limit", "5"], "log_size_limit", 5),
        (["--max_traced_msg_len", "5"], "max_traced_msg_len", 5),
        (["--client_advertise", "x"], "client_advertise", "x"),
        (["--ports_file_dir", "x"], "ports_file_dir", "x"),
        (["--profile", "5"], "prof_port", 5),
        (["-p", "1", "-p", "2"], "port", 2),
    ],
)
def test_a_flag_sets_its_option(arguments: list[str], target: str, value: FlagValue) -> None:
    found = parse_flags(arguments)

    assert found.action is Action.RUN
    assert found.values == {target: value}


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ([], Action.RUN),
        (["-h"], Action.HELP),
        (["--help"], Action.HELP),
        (["help"], Action.HELP),
        (["HELP"], Action.HELP),
        (["-v"], Action.VERSION),
        (["--version"], Action.VERSION),
        (["version"], Action.VERSION),
        (["-v", "-h"], Action.VERSION),
        (["--help_tls"], Action.HELP_TLS),
        (["-t", "-c", "f"], Action.CHECK),
        (["-t=false"], Action.RUN),
        (["--", "help"], Action.HELP),
        (["-js", "version", "-p"], Action.VERSION),
    ],
)
def test_a_command_line_asks_for_an_action(arguments: list[str], action: Action) -> None:
    assert parse_flags(arguments).action is action


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["--signal", "ldm=123"], SignalRequest("ldm", "123")),
        (["-sl", "reload=/run/x.pid"], SignalRequest("reload", "/run/x.pid")),
        (["--signal=quit"], SignalRequest("quit", "")),
    ],
)
def test_a_signal_may_name_a_process(arguments: list[str], request_: SignalRequest) -> None:
    found = parse_flags(arguments)

    assert found.action is Action.SIGNAL
    assert found.signal == request_


@pytest.mark.oracle
@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus"], ["-p"], ["-p", "x"], ["-p="], ["-D=foo"], ["---x"], ["-=3"], ["--=3"],
        ["-p", "99999999999999999999"], ["-js", "-bogus=1"], ["-p", "1_0_"], ["-p", "08"],
        ["-p", "0x"], ["-m", "1.5"],
    ],
)  # fmt: skip
def test_a_wrong_flag_is_told_of_in_the_words_of_the_real_server(arguments: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_flags(arguments)

    assert ask(*arguments).errors == f"{caught.value}\n"


def test_a_word_that_is_no_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match='unrecognized command: "foo"'):
        parse_flags(["foo"])


@pytest.mark.oracle
def test_every_flag_of_the_real_server_is_known() -> None:
    shown = ask("--help").output.replace(",", " ").split()
    names = {word.lstrip("-") for word in shown if word.startswith("-")} - {""}

    assert names == {name.lstrip("-") for flag in FLAGS for name in flag.names}


def test_the_help_tells_of_every_flag() -> None:
    shown = help_text()

    assert all(name in shown for flag in FLAGS for name in flag.names)
    assert all(flag.doc in shown for flag in FLAGS)
    assert max(map(len, shown.splitlines())) <= 132


def test_the_help_of_tls_tells_of_ciphers_and_keys() -> None:
    shown = tls_help()

    assert "TLS_AES_128_GCM_SHA256" in shown
    assert "handshake_first" in shown
