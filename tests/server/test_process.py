"""A running server as a process: log lines, files and signals, beside the real server's."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.net.listener import ListeningSockets
from penstock.server.command_line import obey
from penstock.server.process_files import write_pid_file
from penstock.testing.servers import BOTH, WAIT_S, ServerProcess, ask

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

both = pytest.mark.parametrize("name", BOTH)


def wait_for_file(path: Path) -> str:
    """Wait until a file is there and has something in it; give its text."""
    give_up_s = time.monotonic() + WAIT_S
    while not path.exists() or not path.read_text():
        assert time.monotonic() < give_up_s, f"{path} did not come"
        os.sched_yield()
    return path.read_text()


def shape(message: str) -> str:
    """Return a line of the log without what is each server's own."""
    message = re.sub(r"(Name: +|ID: +)N[A-Z0-9]{55}", r"\1N", message)
    message = re.sub(r"Git: +\[\w+\]", "Git:", message)
    return re.sub(r":\d{4,5}$", ":PORT", message)


def test_the_log_of_a_start_and_an_end_reads_the_same(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        'listen: 127.0.0.1:-1\nhttp: "127.0.0.1:-1"\nauthorization { user: a, password: b }\n'
    )
    logs = []
    for name in BOTH:
        with ServerProcess(name, "-c", str(config)) as server:
            server.wait_for("Server is ready")
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
            logs.append([shape(message) for message in server.messages])

    ours, theirs = logs
    assert ours == theirs
    assert ours[-1] == "[INF] Server Exiting.."


@both
@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "interrupt"), (signal.SIGTERM, "terminated")]
)
def test_a_signal_to_end_is_obeyed(name: str, number: signal.Signals, word: str) -> None:
    with ServerProcess(name, "-a", "127.0.0.1", "-p", "-1") as server, server.connect() as client:
        assert client.recv(5) == b"INFO "

        server.signal(number, f'Trapped "{word}" signal')

        assert server.wait() == 0
        assert server.messages[-2:] == ["[INF] Initiating Shutdown...", "[INF] Server Exiting.."]
        while client.recv(65_536):
            pass


@both
def test_the_pid_file_holds_the_number_and_nothing_else(name: str, tmp_path: Path) -> None:
    file = tmp_path / "server.pid"

    with ServerProcess(name, "-a", "127.0.0.1", "-p", "-1", "-P", str(file)) as server:
        server.wait_for("Server is ready")

        assert file.read_text() == str(server.pid)


def test_a_pid_file_is_never_seen_empty(tmp_path: Path) -> None:
    file = tmp_path / "server.pid"
    file.write_text("of an earlier server")

    with file.open() as seen:
        assert write_pid_file(str(file)) == ""

        assert seen.read() == "of an earlier server"
    assert file.read_text() == str(os.getpid())
    assert list(tmp_path.iterdir()) == [file]


def test_a_pid_file_that_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    file.touch()
    link.symlink_to(file)

    assert write_pid_file(str(link)) == ""

    assert link.is_symlink()
    assert file.read_text() == str(os.getpid())


def test_before_a_port_opens_the_pid_file_is_there_and_an_old_ports_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file, ports = tmp_path / "pid", tmp_path / f"nats-server_{os.getpid()}.ports"
    config = tmp_path / "server.conf"
    config.write_text(f'ports_file_dir: "{tmp_path}"')
    ports.write_text("{}")
    found = []

    def bind(sockets: ListeningSockets, host: str, port: int) -> None:
        found.append((pid_file.read_text(), ports.exists()))
        raise UsageError("far enough")

    monkeypatch.setattr(ListeningSockets, "bind_ahead", bind)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        assert obey(["-P", str(pid_file), "-c", str(config)], {}) == 1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)

    assert found == [(str(os.getpid()), False)]


@both
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_ports_file_names_every_address_and_goes_with_the_server(
    name: str, host: str, tmp_path: Path
) -> None:
    with ServerProcess(name, "-a", host, "-p", "-1", "--ports_file_dir", str(tmp_path)) as server:
        port = server.port
        file = tmp_path / f"nats-server_{server.pid}.ports"

        assert json.loads(wait_for_file(file))["nats"][0] == f"nats://127.0.0.1:{port}"

        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_the_ports_file_names_the_same_addresses_as_the_real_one(tmp_path: Path) -> None:
    found = []
    for name in BOTH:
        arguments = ["-p", "-1", "-m", "-1", "--ports_file_dir", str(tmp_path)]
        with ServerProcess(name, *arguments) as server:
            server.wait_for("Server is ready")
            text = wait_for_file(tmp_path / f"nats-server_{server.pid}.ports")
            urls = json.loads(re.sub(r":\d{4,5}\"", ':PORT"', text))
            found.append({kind: sorted(each) for kind, each in urls.items()})

    assert found[0] == found[1]


@both
def test_every_address_means_those_of_both_families(name: str) -> None:
    with ServerProcess(name, "-p", "-1") as server:
        assert server.wait_for("Listening").startswith(
            "[INF] Listening for client connections on 0.0.0.0:"
        )
        with server.connect() as client:
            info = json.loads(client.recv(65_536).split(b" ", 1)[1])

    assert info["client_ip"] == "127.0.0.1"


@both
def test_a_log_file_that_was_moved_away_is_opened_anew(name: str, tmp_path: Path) -> None:
    file, moved = tmp_path / "server.log", tmp_path / "old.log"
    arguments = ["-a", "127.0.0.1", "-p", "-1", "-l", str(file)]
    with ServerProcess(name, *arguments) as server:
        while "Server is ready" not in wait_for_file(file):
            pass
        file.rename(moved)

        server.signal(signal.SIGUSR1)
        wait_for_file(file)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0

    assert 'Trapped "user defined signal 1" signal' in moved.read_text()
    assert "Server Exiting.." in file.read_text()
    assert server.lines == []


@both
def test_without_a_log_file_there_is_nothing_to_reopen(name: str) -> None:
    with ServerProcess(name, "-a", "127.0.0.1", "-p", "-1") as server:
        server.wait_for("Server is ready")

        line = server.signal(signal.SIGUSR1, "re-open")

    assert line == "[INF] File log re-open ignored, not a file logger"


@both
def test_without_a_configuration_file_there_is_nothing_to_reload(name: str) -> None:
    with ServerProcess(name, "-a", "127.0.0.1", "-p", "-1") as server:
        server.wait_for("Server is ready")

        assert server.reload() == (
            "[ERR] Failed to reload server configuration: "
            "can only reload config when a file is provided using -c or --config"
        )


@pytest.mark.parametrize("target", ["pid", "file"])
def test_a_running_server_is_signalled_by_its_number_or_its_pid_file(
    target: str, tmp_path: Path
) -> None:
    file = tmp_path / "server.pid"
    with ServerProcess("penstock", "-a", "127.0.0.1", "-p", "-1", "-P", str(file)) as server:
        server.wait_for("Server is ready")
        whom = str(file) if target == "file" else str(server.pid)

        for command, word in (("reopen", "user defined signal 1"), ("quit", "interrupt")):
            answer = ask("penstock", "--signal", f"{command}={whom}")
            assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
            server.wait_for(f'Trapped "{word}" signal')
        assert server.wait() == 0


def test_a_part_that_was_asked_for_is_told_to_be_missing_and_the_rest_runs() -> None:
    settings = "leafnodes { port: -1 }"
    with (
        ServerProcess("penstock", "-a", "127.0.0.1", "-p", "-1", settings=settings) as server,
        server.connect() as client,
    ):
        info = json.loads(client.recv(65_536).split(b" ", 1)[1])

    assert info["port"] == server.port
    assert "[WRN] Leafnodes is not available yet, going on without it" in server.messages


def test_what_a_client_sends_cannot_break_a_line_of_the_log() -> None:
    with (
        ServerProcess("penstock", "-a", "127.0.0.1", "-p", "-1", "-D") as server,
        server.connect() as client,
    ):
        forged = '{"name":"x\\n[1] 2026/01/01 00:00:00.000000 [INF] Forged","lang":"py"}'
        client.sendall(f"CONNECT {forged}\r\nPING\r\n".encode())
        while b"PONG" not in client.recv(65_536):
            pass
        client.sendall(b"-ERR 'x'\r\n")
        server.wait_for("Client connection closed")

        assert any("Forged" in line for line in server.lines)
        assert all(line.startswith(f"[{server.pid}]") for line in server.lines)
