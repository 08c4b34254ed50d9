"""The starts of many files are read without leaving one open."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.store.vfs import OsFileSystem

ODD_NAME = os.fsdecode(b"caf\xe9")


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_names_need_not_be_text(tmp_path: Path) -> None:
    (tmp_path / ODD_NAME).write_bytes(b"found")

    assert OsFileSystem().read_starts(str(tmp_path), [ODD_NAME], 3) == [(5, b"fou")]


def test_no_names_give_no_starts(tmp_path: Path) -> None:
    assert OsFileSystem().read_starts(str(tmp_path), [], 128) == []


def test_a_failure_names_the_file_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 200)
    (tmp_path / "folder").mkdir()
    before = open_descriptors()

    with pytest.raises(FileNotFoundError) as missing:
        OsFileSystem().read_starts(str(tmp_path), ["a", "none", "a"], 128)
    with pytest.raises(IsADirectoryError) as folder:
        OsFileSystem().read_starts(str(tmp_path), ["a", "folder"], 128)
    with pytest.raises(FileNotFoundError):
        OsFileSystem().read_starts(str(tmp_path / "none"), ["a"], 128)

    assert missing.value.filename == f"{tmp_path}/none"
    assert (folder.value.errno, folder.value.filename) == (errno.EISDIR, f"{tmp_path}/folder")
    assert OsFileSystem().read_starts(str(tmp_path), ["a"] * 3, 128) == [(200, b"x" * 128)] * 3
    assert open_descriptors() == before
