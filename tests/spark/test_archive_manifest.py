"""Manifests: each adds to the one before, is written once, and is never believed when damaged."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from penstock.errors import CorruptStore, UnsupportedVersion, UsageError
from penstock.format.hashing import xxh64
from penstock.spark.archives.folder import (
    WHOLE_EVERY,
    AlreadyThere,
    ArchiveFolder,
    FileEntry,
    Manifest,
    commit,
    find_manifest,
    hex_of,
    load_manifest,
    manifest_name,
)

EMPTY = Manifest("ORDERS", "2026-07-20T12:30:00Z", {"name": "ORDERS"}, 1, 1)


def entry(first: int, last: int) -> FileEntry:
    name = f"data/{first:020d}-{last:020d}.parquet"
    return FileEntry(name, first, last, last - first + 1, 10, 5, 6, "00", 100, "ff")


def grown(folder: ArchiveFolder, now: Manifest, first: int, last: int) -> Manifest:
    return commit(folder, msgspec.structs.replace(now, end=last + 1), [entry(first, last)])


@pytest.fixture
def folder(tmp_path: Path) -> ArchiveFolder:
    return ArchiveFolder(str(tmp_path / "archive"))


def test_an_archive_is_what_its_manifests_add_up_to(folder: ArchiveFolder) -> None:
    now = EMPTY
    for number in range(2 * WHOLE_EVERY + 5):
        now = grown(folder, now, number * 10 + 1, number * 10 + 10)

    assert load_manifest(folder) == now
    assert now.number == len(now.files) == 2 * WHOLE_EVERY + 5
    assert now.messages == 10 * now.number


def test_an_archive_is_read_from_its_last_whole_manifest_on(
    folder: ArchiveFolder, tmp_path: Path
) -> None:
    now = EMPTY
    for number in range(WHOLE_EVERY + 3):
        now = grown(folder, now, number * 10 + 1, number * 10 + 10)
    (tmp_path / "archive" / manifest_name(3)).write_bytes(b"nobody reads this any more")

    assert load_manifest(folder) == now


def test_the_same_archive_makes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        now = grown(ArchiveFolder(str(tmp_path / name)), EMPTY, 1, 10)
        grown(ArchiveFolder(str(tmp_path / name)), now, 11, 20)

    for number in (1, 2):
        one, other = (tmp_path / name / manifest_name(number) for name in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()


def test_sequences_that_no_file_answers_for_are_holes(folder: ArchiveFolder) -> None:
    now = grown(folder, EMPTY, 1, 10)
    now = grown(folder, now, 15, 20)

    assert now.holes() == [(11, 14)]
    assert [each.first for each in now.between(5, 12)] == [1]
    assert [each.first for each in now.between(10, 15)] == [1, 15]


def test_of_two_who_write_one_manifest_one_does(folder: ArchiveFolder) -> None:
    now = grown(folder, EMPTY, 1, 10)
    ready = threading.Barrier(4)
    told: list[str] = []

    def add(last: int) -> None:
        ready.wait()
        try:
            grown(ArchiveFolder(folder.place), now, 11, last)
            told.append("written")
        except AlreadyThere:
            told.append("refused")

    threads = [threading.Thread(target=add, args=(last,)) for last in (20, 30, 40, 50)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert sorted(told) == ["refused"] * 3 + ["written"]
    assert load_manifest(folder).number == 2
    assert folder.names("manifests") == [f"{number:020d}.json" for number in (1, 2)]


def test_files_out_of_order_are_never_committed(folder: ArchiveFolder) -> None:
    now = grown(folder, EMPTY, 1, 10)

    with pytest.raises(CorruptStore):
        grown(folder, now, 10, 20)


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-20],
        lambda data: data.replace(b'"end":21', b'"end":99'),
        lambda data: b"",
        lambda data: b"[1, 2]",
        lambda data: data.replace(b'"checksum":"', b'"checksum":"0'),
    ],
    ids=["cut off", "changed", "empty", "something else", "another checksum"],
)
def test_a_damaged_manifest_is_not_believed(folder: ArchiveFolder, harm: object) -> None:
    grown(folder, grown(folder, EMPTY, 1, 10), 11, 20)
    path = Path(folder.full(manifest_name(2)))

    path.write_bytes(harm(path.read_bytes()))  # type: ignore[operator]

    with pytest.raises(CorruptStore):
        load_manifest(folder)


def test_a_manifest_that_is_missing_between_others_is_damage(folder: ArchiveFolder) -> None:
    now = EMPTY
    for number in range(3):
        now = grown(folder, now, number * 10 + 1, number * 10 + 10)
    Path(folder.full(manifest_name(2))).unlink()

    with pytest.raises(CorruptStore):
        load_manifest(folder)


def test_a_manifest_of_a_later_version_is_refused(folder: ArchiveFolder) -> None:
    grown(folder, EMPTY, 1, 10)
    path = Path(folder.full(manifest_name(1)))
    inner = path.read_bytes().partition(b'"manifest":')[2][:-1]
    later = inner.replace(b'"version":1', b'"version":2')
    path.write_bytes(b'{"checksum":"%b","manifest":%b}' % (hex_of(xxh64(later)).encode(), later))

    with pytest.raises(UnsupportedVersion):
        load_manifest(folder)


def test_a_folder_without_manifests_is_no_archive(folder: ArchiveFolder) -> None:
    assert find_manifest(folder) is None
    with pytest.raises(UsageError):
        load_manifest(folder)
