"""The log: its form, its file, and what it does not let through."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from penstock.config.options.server import ServerOptions
from penstock.server.log import Log
from penstock.testing.clock import FakeClock

NOON_NS = 1_700_000_000 * 10**9 + 123_456_789


def log(path: Path, **options: object) -> Log:
    made = ServerOptions(log_file=str(path), logtime_utc=True, **options)  # type: ignore[arg-type]
    return Log(FakeClock(now_ns=NOON_NS), made)


def test_a_line_has_process_time_level_and_text(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written = log(path)

    written.line("INF", "Server is ready")
    written.close()

    assert path.read_text() == (
        f"[{os.getpid()}] 2023/11/14 22:13:20.123456 [INF] Server is ready\n"
    )


def test_the_time_can_be_left_out(tmp_path: Path) -> None:
    written = log(tmp_path / "log", logtime=False)

    written.line("WRN", "so")
    written.close()

    assert (tmp_path / "log").read_text() == f"[{os.getpid()}] [WRN] so\n"


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ({}, ["INF"]),
        ({"debug": True}, ["DBG", "INF"]),
        ({"trace": True}, ["TRC", "INF"]),
        ({"debug": True, "trace": True}, ["DBG", "TRC", "INF"]),
    ],
    ids=["plain", "debug", "trace", "both"],
)
def test_levels_that_nobody_asked_for_are_left_out(
    options: dict[str, bool], levels: list[str], tmp_path: Path
) -> None:
    written = log(tmp_path / "log", **options)

    for level in ("DBG", "TRC", "INF"):
        written.line(level, "x")
    written.close()

    assert re.findall(r"\[([A-Z]{3})\]", (tmp_path / "log").read_text()) == levels


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x1b[31mb", "a\x00b", "a\udcffb", "a\u2028b"])
def test_what_cannot_be_printed_is_written_so_that_a_line_stays_a_line(
    text: str, tmp_path: Path
) -> None:
    written = log(tmp_path / "log", logtime=False)

    written.line("INF", text)
    written.close()

    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert lines[0].endswith("b")


def test_a_file_that_grew_too_long_goes_on_in_a_new_one(tmp_path: Path) -> None:
    written = log(tmp_path / "log", log_size_limit=500)

    written.line("INF", "x" * 500)
    written.line("INF", "second")
    written.close()

    old = tmp_path / "log.2023.11.14.22.13.20.123456789"
    assert "x" * 500 in old.read_text()
    told, second = (tmp_path / "log").read_text().splitlines()
    assert told.endswith(f'[INF] Rotated log, backup saved as "{old}"')
    assert second.endswith("second")


def test_only_so_many_files_are_kept_and_others_are_not_touched(tmp_path: Path) -> None:
    oldest = tmp_path / "log.2020.01.01.00.00.00.000000001"
    older = tmp_path / "log.2021.01.01.00.00.00.000000001"
    foreign = tmp_path / "log.conf"
    for path in (oldest, older, foreign):
        path.write_text("x")
    written = log(tmp_path / "log", log_size_limit=100, log_max_files=3)

    written.line("INF", "x" * 100)
    written.close()

    assert not oldest.exists()
    assert (tmp_path / "log").read_text().endswith(f'[INF] Purged log file "{oldest.name}"\n')
    assert older.exists()
    assert foreign.exists()


def test_a_log_file_is_not_for_everybody(tmp_path: Path) -> None:
    log(tmp_path / "log").close()

    assert (tmp_path / "log").stat().st_mode & 0o007 == 0


def test_other_options_take_it_to_another_file(tmp_path: Path) -> None:
    written = log(tmp_path / "one")
    written.line("INF", "first")

    written.configure(ServerOptions(log_file=str(tmp_path / "two"), debug=True))
    written.line("DBG", "second")
    written.close()

    assert "first" in (tmp_path / "one").read_text()
    assert "second" in (tmp_path / "two").read_text()


def test_a_file_that_cannot_be_had_leaves_it_where_it_was(tmp_path: Path) -> None:
    written = log(tmp_path / "one")

    with pytest.raises(OSError, match=r"error opening file: open .*: no such file"):
        written.configure(ServerOptions(log_file=str(tmp_path / "no" / "such" / "file")))
    written.line("INF", "still here")
    written.close()

    assert "still here" in (tmp_path / "one").read_text()


def test_a_disk_that_takes_no_more_stops_nothing() -> None:
    written = log(Path("/dev/full"))

    written.line("INF", "lost")
    written.line("INF", "lost too")
    written.close()
