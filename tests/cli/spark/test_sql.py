"""`penstock sql` before Spark starts, and its prompt: what is refused, read and shown."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.spark.sql import tables_below
from penstock.cli.spark.sql_shell import run_script, run_shell
from penstock.errors import UsageError
from penstock.store.filestore import FileStore
from tests.cli.conftest import Run
from tests.cli.stores import make_store


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--format", "parquet"], 2, "--output"),
        (["--output", "x.txt"], 2, "--format"),
        (["--path", "/nowhere"], 2, "/nowhere: no such directory"),
        (["--remote", "sc://h", "--user", "u", "--password", "s3cret"], 2, "--creds"),
        (["-s", "nats://127.0.0.1:1"], 1, "connection refused"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(
    run: Run, arguments: list[str], code: int, words: str
) -> None:
    ran = run("sql", "SELECT 1", *arguments)

    assert ran.code == code
    assert words in ran.err
    assert "s3cret" not in ran.err


def test_a_tree_without_streams_is_told(run: Run, tmp_path: Path) -> None:
    ran = run("sql", "SELECT 1", "--path", tmp_path)

    assert ran.code == 2
    assert "no stream and no archive" in ran.err


def test_streams_of_one_name_are_told_apart_by_where_they_are(tmp_path: Path) -> None:
    for folder in ("a/streams/ORDERS/msgs", "b/streams/ORDERS", "b/streams/OTHER"):
        make_store(tmp_path / folder)
    (tmp_path / "archives" / "OLD" / "manifests").mkdir(parents=True)
    (tmp_path / "archives" / "OLD" / "manifests" / "1.json").touch()

    tables = tables_below(str(tmp_path), {})

    assert {each.name: each.format for each in tables} == {
        "a/streams/ORDERS": "penstock-blocks",
        "b/streams/ORDERS": "penstock-blocks",
        "OTHER": "penstock-blocks",
        "OLD": "penstock-archive",
    }


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_query_of_the_readme_sums_by_region(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    (query,) = re.findall(r'^    penstock sql "(.*)"$', readme, re.MULTILINE)
    with FileStore.open(str(tmp_path / "ORDERS")) as store:
        for region, cents in (("eu", 4200), ("us", 900), ("eu", 1)):
            store.store(b"orders", b"", json.dumps({"region": region, "cents": cents}).encode())

    command = [sys.executable, "-m", "penstock", "sql", query, "--path", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--format", "csv"], capture_output=True, text=True, timeout=110, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()[1:]) == ["eu,4201", "us,900"]


def test_a_script_is_run_statement_by_statement() -> None:
    shown: list[str] = []

    run_script("SELECT 1; SELECT ';'\n;\n -- the end\n SELECT 3", shown.append)

    assert shown == ["SELECT 1", "SELECT ';'", "-- the end\n SELECT 3"]


def test_a_script_ends_at_its_first_error() -> None:
    shown: list[str] = []

    def show(statement: str) -> None:
        shown.append(statement)
        raise UsageError("wrong")

    with pytest.raises(UsageError):
        run_script("SELECT 1; SELECT 2", show)
    assert shown == ["SELECT 1"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which the prompt keeps its history."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_the_prompt_reads_until_a_semicolon_and_goes_on_after_errors(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [
        ".tables", "SELECT", "  1", "; SELECT 2;", "WRONG;", ".schema odd-one", ".what",
        "SELECT 'never ends;", "';", ".quit", "SELECT 4;",
    ]  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(typed) + "\n"))
    shown: list[str] = []

    def show(statement: str) -> None:
        shown.append(statement)
        if statement == "WRONG":
            raise UsageError("that is wrong")

    run_shell(["ORDERS", "odd-one"], show)

    assert shown == [
        "SELECT\n  1", "SELECT 2", "WRONG", "DESCRIBE `odd-one`", "SELECT 'never ends;\n'",
    ]  # fmt: skip
    printed = capsys.readouterr()
    assert "2 tables" in printed.out
    assert "ORDERS\nodd-one\n" in printed.out
    assert ".schema TABLE" in printed.out
    assert printed.err == "error: that is wrong\n"
    assert (home / "penstock" / "sql_history").stat().st_mode & 0o777 == 0o600


def test_the_prompt_leaves_when_the_input_ends(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1"))
    shown: list[str] = []

    run_shell([], shown.append)

    assert shown == []
