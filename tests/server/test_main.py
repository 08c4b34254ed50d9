"""The command line: what is printed where, and the exit code, beside the real server's."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from penstock.testing.servers import BOTH, ask, without_prefix
from tests.security.made_certificates import Authority, rdns

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@pytest.mark.parametrize("arguments", [["-v"], ["--version"], ["version"]], ids=" ".join)
def test_the_version_is_that_of_the_server_it_stands_for(arguments: list[str]) -> None:
    ours, theirs = (ask(name, *arguments) for name in BOTH)

    assert (ours.returncode, ours.stdout, ours.stderr) == (0, theirs.stdout, theirs.stderr)


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["help"], ["--help_tls"]], ids=" ".join)
def test_help_goes_to_standard_output(arguments: list[str]) -> None:
    ours, theirs = (ask(name, *arguments) for name in BOTH)

    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr) == (0, "")
    assert ours.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["-foo"],
        ["--port"],
        ["-p", "abc"],
        ["-js=maybe"],
        ["-t"],
        ["bla"],
        ["-c", "/no/such/file.conf"],
        ["--signal", "nonsense=1"],
        ["--signal", "reload=99999999"],
        ["--signal", "reload=/no/such/file.pid"],
        ["--signal", "reload=1=2"],
        ["--tls"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_refused_in_the_same_words(arguments: list[str]) -> None:
    ours, theirs = (ask(name, *arguments) for name in BOTH)

    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    assert bool(ours.stdout) == bool(theirs.stdout)


@pytest.mark.parametrize("mode", ["check", "run"])
@pytest.mark.parametrize(
    "text",
    [
        "port: 4222\nnonsense: 1\n",
        "port: {",
        "accounts { A { users [ { user: a, password: b }, { user: a, password: c } ] } }\n",
        'tls { cert_file: "/no/such/cert.pem", key_file: "/no/such/key.pem" }\n',
    ],
    ids=["unknown field", "no end", "twice the same user", "no certificate"],
)
def test_a_wrong_file_is_refused_in_the_same_words(mode: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.conf"
    file.write_text(text)
    arguments = ["-t", "-c", str(file)] if mode == "check" else ["-p", "-1", "-c", str(file)]

    ours, theirs = (ask(name, *arguments) for name in BOTH)

    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    assert ours.returncode == 1


def test_a_user_that_does_not_exist_is_found_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "wrong.conf"
    file.write_text("authorization { users [ { user: a } ] }\nno_auth_user: nobody\n")

    ours, theirs = (ask(name, "-p", "-1", "-c", str(file)) for name in BOTH)

    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    assert ours.returncode == 1


def test_a_good_file_is_valid_and_has_the_same_digest(tmp_path: Path) -> None:
    file = tmp_path / "good.conf"
    file.write_text('port: -1\nauthorization { user: "a", password: "b" }\n')

    ours, theirs = (ask(name, "-t", "-c", str(file)) for name in BOTH)

    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    assert ours.returncode == 0


def test_a_port_that_is_taken_ends_the_server_with_a_fatal_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ours, theirs = (ask(name, "-a", "127.0.0.1", "-p", port) for name in BOTH)

    assert ours.returncode == theirs.returncode == 1
    last = without_prefix(ours.stderr.splitlines()[-1])
    assert last == without_prefix(theirs.stderr.splitlines()[-1])
    assert last.startswith("[FTL] Error listening on port:")


def test_an_address_that_is_not_here_ends_the_server_with_a_fatal_line() -> None:
    ours, theirs = (ask(name, "-a", "192.0.2.200", "-p", "4222") for name in BOTH)

    assert ours.returncode == theirs.returncode == 1
    last = without_prefix(ours.stderr.splitlines()[-1])
    assert last == without_prefix(theirs.stderr.splitlines()[-1])


def test_a_monitoring_port_that_is_taken_ends_the_server_with_a_fatal_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ours, theirs = (ask(name, "-a", "127.0.0.1", "-p", "-1", "-m", port) for name in BOTH)

    assert ours.returncode == theirs.returncode == 1
    last = without_prefix(ours.stderr.splitlines()[-1])
    assert last == without_prefix(theirs.stderr.splitlines()[-1])


def test_a_name_that_nobody_knows_ends_the_server_with_a_fatal_line() -> None:
    answer = ask("penstock", "-a", "nobody.invalid", "-p", "4222")

    assert answer.returncode == 1
    assert re.search(
        r"\[FTL\] Error listening on port: nobody.invalid:4222, .*no such", answer.stderr
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "99999"],
        ["-p", "-1", "-m", "99999"],
        ["-p", "-1", "-ms", "-1"],
        ["-p", "-1", "-ms", "8443", "-m", "8222"],
        ["-p", "-1", "--client_advertise", "a:b:c"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_listened_to_ends_the_server_with_the_same_fatal_line(
    arguments: list[str],
) -> None:
    ours, theirs = (ask(name, "-a", "127.0.0.1", *arguments) for name in BOTH)

    assert ours.returncode == theirs.returncode == 1
    last = without_prefix(ours.stderr.splitlines()[-1])
    assert last == without_prefix(theirs.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    "arguments",
    [["-l", "/no/such/folder/log"], ["-r", "nowhere"], ["-r", "ftp://127.0.0.1:514"]],
    ids=" ".join,
)
def test_a_log_that_cannot_be_opened_ends_the_server_with_the_same_words(
    arguments: list[str],
) -> None:
    ours, theirs = (ask(name, "-p", "-1", *arguments) for name in BOTH)

    assert ours.returncode == theirs.returncode == 1
    # Each begins with the time.
    assert ours.stderr[20:] == theirs.stderr[20:]
    assert re.match(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d error ", ours.stderr)


@pytest.mark.parametrize(
    "text",
    [
        "authorization { users [ { user: a, password: b, proxy_required: true } ] }",
        "authorization { user: a, password: b, proxy_required: true }",
    ],
)
def test_a_server_that_could_not_tell_who_may_connect_does_not_start(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "server.conf"
    file.write_text(f"listen: 127.0.0.1:-1\n{text}\n")

    answer = ask("penstock", "-c", str(file))

    assert answer.returncode == 1
    assert re.fullmatch(r"nats-server: .* not available yet\n", answer.stderr)


@pytest.mark.parametrize("block", ["{tls}", "websocket {{ port: -1, {tls} }}"])
def test_a_server_that_could_not_tell_who_was_revoked_does_not_start(
    block: str, tmp_path: Path
) -> None:
    made = Authority(tmp_path).make(rdns("CN=localhost"))
    tls = f'tls {{ cert_file: "{made.cert_file}", key_file: "{made.key_file}", ocsp_peer: true }}'
    file = tmp_path / "server.conf"
    file.write_text(f"listen: 127.0.0.1:-1\n{block.format(tls=tls)}\n")

    answer = ask("penstock", "-c", str(file))

    assert answer.returncode == 1
    assert answer.stderr == "nats-server: ocsp_peer is not available yet\n"
