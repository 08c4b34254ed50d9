"""Who is signalled by `--signal`, and who is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.server.process_files import is_server, running_servers, send_signal
from penstock.testing.servers import ServerProcess


@pytest.mark.parametrize(
    "words",
    [
        ["/usr/bin/nats-server", "-js"],
        ["nats-server"],
        ["/opt/venv/bin/penstock-server", "-p", "4222"],
        ["/usr/bin/python3.11", "/opt/venv/bin/penstock-server", "-p", "4222"],
        ["python3", "-m", "penstock.server.main"],
    ],
    ids=" ".join,
)
def test_a_server_is_known_by_what_it_was_started_with(words: list[str]) -> None:
    assert is_server("\0".join([*words, ""]).encode())


@pytest.mark.parametrize(
    "words",
    [
        ["less", "/usr/bin/nats-server"],
        ["bash", "-c", "nats-server -js"],
        ["python3", "build.py", "nats-server"],
        ["python3"],
        [""],
        ["/usr/bin/nats-server-exporter"],
    ],
    ids=" ".join,
)
def test_who_only_names_a_server_is_none(words: list[str]) -> None:
    assert not is_server("\0".join([*words, ""]).encode())


@pytest.mark.slow
def test_running_servers_are_found_and_this_process_is_none_of_them() -> None:
    with ServerProcess("penstock", "-a", "127.0.0.1", "-p", "-1") as server:
        server.wait_for("Server is ready")

        found = running_servers()

    assert server.pid in found
    assert os.getpid() not in found


def test_the_signal_of_a_command_arrives(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        file.write_text(f"{process.pid}\n")

        send_signal("term", str(file))

        assert process.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("command", "target", "reason"),
    [
        ("reload", "abc", "invalid pid: abc"),
        ("nonsense", "1", 'unknown signal "nonsense"'),
        ("reload", "99999999", '\nsignal "reload" 99999999: no such process'),
        ("reload", "999999999999999999", '\nsignal "reload" 999999999999999999: no such process'),
    ],
)
def test_what_cannot_be_signalled_is_refused(command: str, target: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        send_signal(command, target)

    assert str(refused.value) == reason
