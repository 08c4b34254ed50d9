"""Servers that a bench starts: found, started, stopped, and what is told when they do not start."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.bench.servers import (
    OURS,
    BenchServer,
    find_executable,
    processor_ns,
    processor_ns_since,
)
from penstock.client.client import Client
from penstock.errors import BenchFailed, UsageError


def test_an_executable_is_found_on_the_path_before_the_one_beside_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    beside = str(Path(sys.executable).parent / "nats-server")
    assert find_executable("nats-server") == beside

    on_path = tmp_path / "nats-server"
    on_path.write_text("#!/bin/sh\n")
    on_path.chmod(0o755)

    assert find_executable("nats-server") == str(on_path)
    assert find_executable(beside) == beside


def test_an_executable_that_is_nowhere_is_named() -> None:
    with pytest.raises(UsageError, match="'no-such-server'"):
        find_executable("no-such-server")


@pytest.mark.slow
@pytest.mark.parametrize("command", [OURS, ("nats-server",)], ids=["ours", "reference"])
def test_a_server_runs_as_long_as_its_block(command: tuple[str, ...]) -> None:
    executable = find_executable(command[0])

    with BenchServer("it", [executable, *command[1:]]) as server:
        with Client.connect(server.url) as client:
            assert client.info["host"] == "127.0.0.1"
        os.kill(server.pid, 0)

    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_the_processor_time_of_a_process_has_that_of_ended_threads() -> None:
    def work() -> None:
        until_ns = time.thread_time_ns() + 20_000_000
        while time.thread_time_ns() < until_ns:
            pass

    before_ns = processor_ns(os.getpid())
    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    used_ns = processor_ns(os.getpid()) - before_ns
    assert 40_000_000 <= used_ns <= time.process_time_ns()


def test_a_while_too_short_for_the_clock_can_still_be_divided_by() -> None:
    not_counted_yet_ns = processor_ns(os.getpid()) + 1_000_000_000

    assert processor_ns_since(os.getpid(), not_counted_yet_ns) == 1


def test_a_server_that_does_not_start_is_told_with_its_last_words() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('first\\nno room here')"]

    with pytest.raises(BenchFailed) as failed:
        BenchServer("it", command)

    assert (failed.value.what, failed.value.reason) == ("server it", "no room here")


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server"
    file.write_text("words")
    file.chmod(0o755)

    with pytest.raises(UsageError, match="Exec format error"):
        BenchServer("it", [str(file)])
