"""Files of an archive: whole or not there, on local disks and on other file systems."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from penstock.errors import UsageError
from penstock.spark.archives.folder import (
    BEGUN_BYTES,
    HASHED_BYTES,
    AlreadyThere,
    ArchiveFolder,
    HashingFile,
)


class Broken(Exception):
    """Something went wrong on the way."""


def fill_half(file: HashingFile) -> None:
    file.write(b"half of it")
    raise Broken


@pytest.fixture(params=["local", "object store"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> ArchiveFolder:
    """Return a folder of the local disk, and one where files are written in place."""
    found = ArchiveFolder(str(tmp_path / "archive"))
    if request.param == "object store":
        found.files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
        found.path = "archive"
        found._is_local = found._moves = False
    return found


def test_a_file_is_read_as_it_was_written_with_the_same_hash(folder: ArchiveFolder) -> None:
    # So long that the kernel is asked to write it more than once.
    data = bytes(range(256)) * (BEGUN_BYTES // 200)

    written = folder.write("data/one", lambda file: [file.write(data), file.write(data)])

    assert folder.read("data/one", 10**8) == data + data
    assert folder.hash_of("data/one") == written
    assert folder.size("data/one") == 2 * len(data)
    assert folder.names("data") == ["one"]


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    folder = ArchiveFolder(str(tmp_path))
    folder.write("data/one", lambda file: file.write(b"before"))

    with pytest.raises(Broken):
        folder.write("data/one", fill_half)

    assert folder.read("data/one", 100) == b"before"
    assert folder.names("data") == ["one"]


def test_nothing_is_left_of_a_file_that_was_not_finished(folder: ArchiveFolder) -> None:
    with pytest.raises(Broken):
        folder.write("data/one", fill_half)

    assert folder.names("data") == []


def test_a_file_is_put_only_where_none_is(folder: ArchiveFolder) -> None:
    folder.put_if_absent("manifests/1", b"first")

    with pytest.raises(AlreadyThere):
        folder.put_if_absent("manifests/1", b"second")

    assert folder.read("manifests/1", 100) == b"first"
    assert folder.names("manifests") == ["1"]


@given(st.lists(st.integers(0, 3 * HASHED_BYTES), max_size=4))
def test_a_hash_does_not_see_how_it_was_written(sizes: list[int]) -> None:
    whole, cut = HashingFile(pa.BufferOutputStream()), HashingFile(pa.BufferOutputStream())
    data = bytes(sum(sizes))

    whole.write(data)
    for size in sizes:
        cut.write(bytes(size))
    whole.close()
    cut.close()

    assert whole.hash == cut.hash
    assert whole.tell() == cut.tell() == len(data)


def test_what_is_not_there_has_no_size_and_no_names(folder: ArchiveFolder) -> None:
    assert folder.size("data/one") == -1
    assert folder.names("data") == []
    folder.remove("data/one")


def test_a_place_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError):
        ArchiveFolder("gopher://somewhere/archive")


def test_a_file_that_is_too_large_is_not_read(folder: ArchiveFolder) -> None:
    folder.put_if_absent("one", b"four")

    with pytest.raises(UsageError):
        folder.read("one", 3)
