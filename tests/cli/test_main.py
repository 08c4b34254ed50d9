"""The command as a whole: version, help, errors as one line, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli.main import exit_code
from penstock.errors import (
    CorruptStore,
    PenstockError,
    RecordNotFound,
    StoreLocked,
    UnsupportedVersion,
    UsageError,
    WrongKey,
)
from tests.cli.conftest import Held, Run
from tests.cli.stores import flip


def test_the_version_is_that_of_the_package(run: Run) -> None:
    ran = run("--version")

    assert (ran.code, ran.out) == (0, f"penstock {__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["store"]], ids=["penstock", "store"])
def test_without_a_command_the_help_is_shown(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)

    assert ran.code == 2
    assert "Usage: penstock" in ran.out + ran.err


def test_the_help_teaches_with_examples(run: Run) -> None:
    assert "penstock store cat DIR --subject 'orders.>' --since 1h" in run("--help").out


def test_the_help_of_the_store_commands_tells_the_exit_codes(run: Run) -> None:
    text = run("store", "--help").out

    for line in (
        "0  done",
        "1  failed, or damage was found",
        "2  wrong usage",
        "3  could not open",
    ):
        assert line in text


@pytest.mark.parametrize("name", ["ls", "info", "verify", "cat", "repair", "import", "compact"])
def test_every_store_command_has_help_with_an_example_and_json(run: Run, name: str) -> None:
    text = run("store", name, "--help").out

    assert f"penstock store {name} " in text.partition("Options:")[0].partition("\n")[2]
    assert "--json" in text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PenstockError("any"), 1),
        (CorruptStore("a", 0, "b"), 1),
        (RecordNotFound(1), 1),
        (OSError("full"), 1),
        (UsageError("what"), 2),
        (StoreLocked("a", 1), 3),
        (WrongKey("a", "b"), 3),
        (UnsupportedVersion("a", 2, 1), 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    "arguments",
    [
        ["store", "info", "/no/such/directory"],
        ["store", "cat", ".", "--first", "minus one"],
        ["store", "cat", ".", "--subject", "a..b"],
        ["store", "unheard-of"],
    ],
    ids=["no directory", "no number", "no pattern", "no command"],
)
def test_wrong_usage_ends_with_two(run: Run, arguments: list[str]) -> None:
    assert run(*arguments).code == 2


def test_a_directory_without_a_stream_says_where_to_look(run: Run, tmp_path: Path) -> None:
    ran = run("store", "info", tmp_path)

    assert ran.code == 2
    assert ran.err.splitlines() == [
        f"penstock: {tmp_path}: no stream here; `penstock store ls {tmp_path}` looks further down"
    ]


def test_an_error_is_one_line_on_stderr_without_a_traceback(held: Held) -> None:
    command = [sys.executable, "-m", "penstock", "store", "compact", str(held.path)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 3
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("penstock: ")
    assert f"process {held.pid}" in line


def test_the_command_ends_quietly_when_its_reader_has_seen_enough(orders: Path) -> None:
    command = f"{sys.executable} -m penstock store cat {orders} | head -n 2"

    ended = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )

    assert len(ended.stdout.splitlines()) == 2
    assert ended.stderr == ""


def test_a_path_cannot_smuggle_control_characters_to_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "red\x1b[31m"
    path.mkdir()

    ran = run("store", "info", path)

    assert "\x1b" not in ran.err


def test_damage_that_is_met_ends_with_one(run: Run, orders: Path) -> None:
    flip(sorted(orders.glob("*.blk"))[0], 1000)

    assert run("store", "verify", orders).code == 1
