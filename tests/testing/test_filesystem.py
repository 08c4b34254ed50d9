"""What a power cut leaves of the memory file system: what was synced, always; the rest, perhaps.

That it behaves as the system's own otherwise is proved by tests/store/test_vfs.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.store.vfs import File, write_all
from penstock.testing.disk import SECTOR_BYTES
from penstock.testing.filesystem import MemoryFileSystem

SEEDS = range(300)


def synced_file(files: MemoryFileSystem, path: str, data: bytes) -> File:
    """Make a file that is on stable storage with its name."""
    file = files.open(path, "create")
    write_all(file, 0, data)
    file.sync_data()
    files.sync_dir("/")
    return file


def survivors(files: MemoryFileSystem) -> list[dict[str, bytes]]:
    """Return what is found after a power cut, for many ways it can go."""
    return [files.survivor(Random(seed)).snapshot() for seed in SEEDS]


def contents(files: MemoryFileSystem, path: str) -> set[bytes]:
    return {found[path] for found in survivors(files)}


def test_a_power_cut_keeps_what_was_synced_and_nothing_else() -> None:
    files = MemoryFileSystem()
    file = synced_file(files, "/a", b"synced")
    write_all(file, 0, b"UNSYNCED")
    files.open("/b", "create").sync_data()

    assert files.snapshot() == {"/a": b"UNSYNCED", "/b": b""}
    assert files.crash().snapshot() == {"/a": b"synced"}


def test_a_file_without_a_synced_name_is_lost_however_well_it_was_synced() -> None:
    files = MemoryFileSystem()
    files.make_dirs("/x")
    file = files.open("/x/a", "create")
    write_all(file, 0, b"synced")
    file.sync_data()
    files.sync_dir("/x")
    assert files.survivor().snapshot() == {}

    files.sync_dir("/")

    assert files.crash().snapshot() == {"/x/a": b"synced"}


def test_a_name_without_synced_bytes_may_be_found_empty() -> None:
    files = MemoryFileSystem()
    synced_file(files, "/a", b"old")
    write_all(files.open("/a.tmp", "create"), 0, b"new")
    files.rename("/a.tmp", "/a")

    assert contents(files, "/a") >= {b"old", b"new", b""}


def test_what_was_open_or_locked_is_dead_after_a_power_cut_and_free_in_the_survivor() -> None:
    files = MemoryFileSystem()
    file = synced_file(files, "/a", b"synced")
    files.lock("/lock")
    found = files.crash()

    for call in (
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
        file.sync_data,
        file.size,
        lambda: files.open("/a", "read"),
        lambda: files.list_names("/"),
        lambda: files.lock("/other"),
        lambda: files.make_dirs("/x"),
        lambda: files.sync_dir("/"),
    ):
        assert code_of(call) == errno.EIO
    file.close()
    found.lock("/lock").release()
    assert found.snapshot()["/a"] == b"synced"


def code_of(call: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the code says which
        call()
    return caught.value.errno


def test_one_seed_gives_one_survivor_and_survivors_do_not_share_bytes() -> None:
    files = MemoryFileSystem()
    write_all(synced_file(files, "/a", bytes(5000)), 0, b"x" * 5000)

    first, again = files.crash(Random(7)), files.crash(Random(7))
    write_all(first.open("/a", "update"), 0, b"changed")

    assert again.snapshot() == files.crash(Random(7)).snapshot()
    assert first.snapshot() != again.snapshot()


def test_an_overwrite_arrives_in_whole_sectors_and_in_any_order() -> None:
    files = MemoryFileSystem()
    old, new = b"o" * 3 * SECTOR_BYTES, b"n" * 3 * SECTOR_BYTES
    write_all(synced_file(files, "/a", old), 0, new)

    patterns = set()
    for data in contents(files, "/a"):
        sectors = [data[place : place + SECTOR_BYTES] for place in range(0, len(old), SECTOR_BYTES)]
        assert all(len(set(sector)) == 1 for sector in sectors)
        patterns.add("".join(chr(sector[0]) for sector in sectors))

    assert patterns >= {"ooo", "nnn", "noo", "oon", "non"}


def test_a_write_that_is_not_aligned_is_torn_at_the_disks_sectors() -> None:
    files = MemoryFileSystem()
    size = 2 * SECTOR_BYTES
    write_all(synced_file(files, "/a", b"o" * size), SECTOR_BYTES - 10, b"n" * 20)

    assert contents(files, "/a") == {
        b"o" * size,
        b"o" * (SECTOR_BYTES - 10) + b"n" * 20 + b"o" * (SECTOR_BYTES - 10),
        b"o" * (SECTOR_BYTES - 10) + b"n" * 10 + b"o" * SECTOR_BYTES,
        b"o" * SECTOR_BYTES + b"n" * 10 + b"o" * (SECTOR_BYTES - 10),
    }


def test_an_append_may_arrive_cut_at_any_byte() -> None:
    files = MemoryFileSystem()
    file = synced_file(files, "/a", b"s" * 10)
    write_all(file, 10, b"a" * 600)
    write_all(file, 610, b"b" * 600)
    whole = b"s" * 10 + b"a" * 600 + b"b" * 600

    prefixes = {data for data in contents(files, "/a") if whole.startswith(data)}

    assert {b"s" * 10, whole} <= prefixes
    assert len({len(data) % SECTOR_BYTES for data in prefixes}) > 20


def test_an_append_may_arrive_as_zeros_before_or_after_what_did_arrive() -> None:
    files = MemoryFileSystem()
    file = synced_file(files, "/a", b"s" * 10)
    write_all(file, 10, b"a" * 600)
    write_all(file, 610, b"b" * 600)

    found = contents(files, "/a")

    assert all(data.startswith(b"s" * 10) and len(data) <= 1210 for data in found)
    assert any(data.endswith(b"\0") for data in found)
    assert any(b"b" in data and b"a" not in data for data in found)


def test_an_unsynced_cut_may_be_lost() -> None:
    files = MemoryFileSystem()
    synced_file(files, "/a", b"all of it").truncate(3)

    assert contents(files, "/a") == {b"all of it", b"all"}


def test_entries_of_one_folder_arrive_in_order_and_those_of_two_independently() -> None:
    files = MemoryFileSystem()
    for name in ("/x", "/y"):
        files.make_dirs(name)
    files.sync_dir("/")
    for number in range(3):
        files.open(f"/x/{number}", "create")
        files.open(f"/y/{number}", "create")

    found = {tuple(sorted(names)) for names in survivors(files)}

    for names in found:
        for folder in ("/x", "/y"):
            here = [name for name in names if name.startswith(folder)]
            assert here == [f"{folder}/{number}" for number in range(len(here))]
    assert ("/x/0", "/x/1", "/x/2") in found
    assert ("/y/0", "/y/1", "/y/2") in found
    assert () in found


def test_what_was_synced_is_not_undone_by_what_was_done_before() -> None:
    files = MemoryFileSystem()
    synced_file(files, "/a", b"x")
    files.unlink("/a")
    files.sync_dir("/")

    assert all(found == {} for found in survivors(files))


def test_what_survived_one_power_cut_survives_the_next() -> None:
    files = MemoryFileSystem()
    write_all(synced_file(files, "/a", b"synced"), 0, b"UNSYNCED")

    assert files.crash().crash().snapshot() == {"/a": b"synced"}


def test_an_unsynced_removal_may_be_lost_or_kept() -> None:
    files = MemoryFileSystem()
    synced_file(files, "/a", b"x")
    files.unlink("/a")

    assert files.crash().snapshot() == {"/a": b"x"}
    assert {tuple(found) for found in survivors(files)} == {(), ("/a",)}


def test_a_rename_between_folders_is_never_half_done() -> None:
    files = MemoryFileSystem()
    for name in ("/x", "/y"):
        files.make_dirs(name)
    file = files.open("/x/a", "create")
    write_all(file, 0, b"whole")
    file.sync_data()
    files.sync_dir("/")
    files.sync_dir("/x")
    files.rename("/x/a", "/y/a")

    assert {tuple(found) for found in survivors(files)} == {("/x/a",), ("/y/a",)}
    files.sync_dir("/x")
    assert files.crash().snapshot() == {"/y/a": b"whole"}


def test_syncing_a_rename_syncs_what_came_before_it_in_both_folders() -> None:
    files = MemoryFileSystem()
    for name in ("/x", "/y"):
        files.make_dirs(name)
    files.sync_dir("/")
    files.open("/y/before", "create")
    files.open("/x/a", "create")
    files.rename("/x/a", "/y/a")
    files.open("/y/after", "create")

    files.sync_dir("/x")

    assert sorted(files.crash().snapshot()) == ["/y/a", "/y/before"]


def test_a_failed_sync_loses_bytes_that_no_later_sync_brings_back() -> None:
    files = MemoryFileSystem()
    synced_file(files, "/a", b"12345").close()
    file = files.open("/a", "update")
    write_all(file, 0, b"67")
    file.lose_unsynced()  # type: ignore[attr-defined]  # what the memory file has beyond the protocol
    write_all(file, 4, b"x")
    file.sync_data()

    assert files.snapshot() == {"/a": b"6734x"}
    assert files.crash().snapshot() == {"/a": b"1234x"}


def test_a_flipped_bit_is_damage_on_the_medium_and_on_its_way_there() -> None:
    files = MemoryFileSystem()
    write_all(synced_file(files, "/a", b"\0\0"), 2, b"\0")

    files.flip_bit("/a", 9)
    files.flip_bit("/a", 16)

    assert files.snapshot() == {"/a": b"\0\x02\x01"}
    assert files.survivor().snapshot() == {"/a": b"\0\x02"}
    assert b"\0\x02\x01" in contents(files, "/a")
    with pytest.raises(UsageError):
        files.flip_bit("/a", 24)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 2000), st.binary(max_size=1500)),
            st.tuples(st.just("truncate"), st.integers(0, 3000), st.just(b"")),
            st.tuples(st.just("sync"), st.just(0), st.just(b"")),
        ),
        max_size=12,
    ),
    st.integers(0, 2**32),
)
def test_every_byte_found_was_synced_or_written_there_or_is_zero(
    steps: list[tuple[str, int, bytes]], seed: int
) -> None:
    files = MemoryFileSystem()
    file = synced_file(files, "/a", b"")
    synced, current = b"", bytearray()
    possible: dict[int, set[int]] = {}
    sizes = [0]
    for what, offset, data in steps:
        if what == "write":
            write_all(file, offset, data)
            if data:
                current.extend(bytes(max(0, offset - len(current))))
                current[offset : offset + len(data)] = data
            for place, byte in enumerate(data, offset):
                possible.setdefault(place, {0}).add(byte)
        elif what == "truncate":
            file.truncate(offset)
            del current[offset:]
            current.extend(bytes(offset - len(current)))
        else:
            file.sync_data()
            synced, possible, sizes = bytes(current), {}, []
        sizes.append(len(current))

    found = files.crash(Random(seed)).snapshot()["/a"]

    assert files.snapshot()["/a"] == current
    assert files.crash().snapshot()["/a"] == synced
    assert len(found) <= max(sizes)
    for place, byte in enumerate(found):
        before = synced[place] if place < len(synced) else 0
        assert byte in possible.get(place, set()) | {0, before}
