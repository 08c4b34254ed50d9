"""`penstock server`: a server for people, which does not open a port to the world by accident."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("arguments", "host"), [([], "127.0.0.1"), (["-a", "0.0.0.0"], "0.0.0.0")])
def test_the_server_listens_on_the_loopback_unless_told_otherwise(
    arguments: list[str], host: str
) -> None:
    command = [sys.executable, "-m", "penstock", "server", "-p", "-1", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        listening = next(line for line in lines if "Listening for client connections" in line)
        process.send_signal(signal.SIGTERM)
        code = process.wait(20)

    assert f" on {host}:" in listening
    assert code == 0


def test_its_flags_are_those_of_the_stand_in() -> None:
    command = [sys.executable, "-m", "penstock", "server", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert done.stdout == "nats-server: v2.15.1\n"
