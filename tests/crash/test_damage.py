"""Hostile directories: every bit, every length, files missing, swapped, foreign or absurd.

Whatever is done to the files of a store, opening it gives a clear error or a reported repair: never
a crash, never another message's data, never a loss that is not reported.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from penstock.errors import (
    CorruptStore,
    RecordNotFound,
    StoreReadOnly,
    UnsupportedVersion,
    WrongKey,
)
from penstock.format.block import HEADER_BYTES
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, StoreKey
from penstock.format.hashing import xxh64
from penstock.format.layout import HIGH_WATER_NAME, QUARANTINE_NAME, STATE_NAME
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.clock import FakeClock
from penstock.testing.filesystem import MemoryFileSystem

PATH = "/stream"
CONFIG = StoreConfig(name="orders", block_bytes=4096)
KEY = StoreKey(b"a key")

Content = dict[int, tuple[bytes, bytes, bytes]]
Files = dict[str, bytes]


def message(seq: int, payload_bytes: int) -> tuple[bytes, bytes, bytes]:
    headers = b"NATS/1.0\r\nN: %d\r\n\r\n" % seq if seq % 3 == 0 else b""
    return b"orders.%d" % (seq % 4), headers, Random(seq).randbytes(payload_bytes)


def write_store(
    count: int = 14,
    *,
    payload_bytes: int = 600,
    commit_every: int = 3,
    config: StoreConfig = CONFIG,
    key: StoreKey | None = None,
    seed: int = 1,
    stop: bool = True,
) -> tuple[Files, Content]:
    """Return the files of a stream and what they hold: message 2 is removed, 3 is erased."""
    disk = MemoryFileSystem()
    store = FileStore.open(
        PATH,
        config,
        files=disk,
        clock=FakeClock(),
        random_bytes=Random(seed).randbytes,
        key=key,
        threaded=False,
    )
    content = {}
    for seq in range(1, count + 1):
        content[seq] = message(seq, payload_bytes)
        store.store(*content[seq])
        if seq == 5:
            store.remove(2)
            store.erase(3)
        if seq % commit_every == 0:
            store.flush()
    store.flush()
    if stop:
        store.stop()
    del content[2], content[3]
    files = {
        path.removeprefix(f"{PATH}/"): data
        for path, data in disk.snapshot().items()
        if not path.endswith("/LOCK")
    }
    return files, content


def lay_out(files: Files) -> MemoryFileSystem:
    """Return a machine with these files in the stream's directory, all of them synced."""
    disk = MemoryFileSystem()
    for name, data in files.items():
        path = f"{PATH}/{name}"
        disk.make_dirs(os.path.dirname(path))
        file = disk.open(path, "create")
        file.write_at(0, data)
        file.sync_data()
        file.close()
    for folder in ("/", PATH):
        disk.sync_dir(folder)
    return disk


def open_store(
    disk: MemoryFileSystem, config: StoreConfig = CONFIG, key: StoreKey | None = None
) -> FileStore:
    return FileStore.open(
        PATH,
        config,
        files=disk,
        clock=FakeClock(),
        random_bytes=Random(2).randbytes,
        key=key,
        threaded=False,
    )


def read_all(store: FileStore, last_seq: int) -> tuple[Content, set[int]]:
    """Load every sequence: give what is there, and what is damaged."""
    found, damaged = {}, set()
    for seq in range(1, last_seq + 1):
        try:
            loaded = store.load(seq)
            found[seq] = (loaded.subject, loaded.headers, loaded.payload)
        except CorruptStore:
            damaged.add(seq)
        except RecordNotFound:
            pass
    return found, damaged


def told(damage: list[Damage]) -> set[int]:
    """Return the sequences that reports call lost."""
    return {seq for each in damage for seq in range(each.first_seq, each.last_seq + 1)}


def check(
    files: Files,
    content: Content,
    *,
    lost_max: int,
    config: StoreConfig = CONFIG,
    key: StoreKey | None = None,
    twice: bool = True,
) -> FileStore:
    """Open a damaged store: nothing wrong is given, and what is missing is told."""
    disk = lay_out(files)
    store = open_store(disk, config, key)
    found, damaged = read_all(store, max(content))
    for seq, each in found.items():
        # What a lost tombstone had removed may be back, and then something is told of it.
        assert each == content.get(seq) or (seq == 2 and not store.report.clean), seq
    missing = content.keys() - found.keys()
    # Damage in a block that is then rewritten is told of only when it is found.
    assert missing <= told([*store.report.damage, *store.state().lost]), missing
    assert damaged <= missing
    assert len(missing) <= lost_max, missing
    assert store.state().last_seq >= max(content)
    assert store.store(b"next", b"", b"") == (max(content) + 1, store.state().last_time_ns)
    store.flush()
    if twice:
        check_that_it_stays(disk, found, config, key)
    return store


def check_that_it_stays(
    disk: MemoryFileSystem, found: Content, config: StoreConfig, key: StoreKey | None
) -> None:
    """Opened again after a power cut, it holds the same."""
    again = open_store(disk.survivor(), config, key)
    assert read_all(again, max(found, default=0))[0] == found


def snapshot(store: FileStore) -> Files:
    """Return every file of the machine that a store stands on."""
    disk = store.engine.log.directory.files
    assert isinstance(disk, MemoryFileSystem)
    return disk.snapshot()


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# Flips


def flip_bits(first: int, step: int) -> None:
    """Flip every `step`-th bit of a small block, one at a time."""
    files, content = write_store(5, payload_bytes=4, commit_every=4)
    for bit in range(first, 8 * len(files["000001.blk"]), step):
        damaged = {**files, "000001.blk": flipped(files["000001.blk"], bit)}
        check(damaged, content, lost_max=1, twice=bit % 16 == 0)


@pytest.mark.slow
def test_a_flipped_bit_of_a_block_costs_at_most_the_record_it_hits() -> None:
    flip_bits(0, 5)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(5))
def test_a_flip_of_any_bit_of_a_block_costs_at_most_the_record_it_hits(first: int) -> None:
    flip_bits(first, 5)


@pytest.mark.slow
def test_a_flip_of_any_bit_of_an_encrypted_block_is_never_accepted() -> None:
    config = StoreConfig(name="orders", block_bytes=4096, cipher=Cipher.AES_256_GCM)
    files, content = write_store(5, payload_bytes=10, config=config, key=KEY)

    for bit in range(0, 8 * len(files["000001.blk"]), 7):
        damaged = {**files, "000001.blk": flipped(files["000001.blk"], bit)}
        check(damaged, content, lost_max=1, config=config, key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [True, False])
def test_a_flip_in_any_byte_of_any_file_costs_at_most_the_record_it_hits(stop: bool) -> None:
    files, content = write_store(14, payload_bytes=600, stop=stop)
    assert len([name for name in files if name.endswith(".blk")]) == 3
    dice = Random(3)

    for name, data in files.items():
        # Whole records of noise: a few bytes of each are as good as all of them.
        places = range(0, len(data), 37 if name.endswith(".blk") else 3)
        for place in places:
            damaged = {**files, name: flipped(data, 8 * place + dice.randrange(8))}
            check(damaged, content, lost_max=1 if name.endswith(".blk") else 0)


# Lengths


@pytest.mark.slow
@pytest.mark.parametrize("stop", [True, False])
def test_a_last_block_cut_at_any_byte_loses_only_what_was_behind(stop: bool) -> None:
    files, content = write_store(10, payload_bytes=24, commit_every=4, stop=stop)
    data = files["000001.blk"]
    # Behind the records of a store that was not stopped there is room, which holds nothing.
    used = len(data.rstrip(b"\0"))
    assert (used == len(data)) == stop

    for size in range(len(data)):
        lost_max = len(content) if size < used else 0
        store = check({**files, "000001.blk": data[:size]}, content, lost_max=lost_max)
        assert store.report.clean == (size >= used)


@pytest.mark.slow
def test_a_sealed_block_cut_at_any_byte_loses_only_what_was_behind() -> None:
    files, content = write_store(14, payload_bytes=600)
    data = files["000001.blk"]
    in_block = [seq for seq in content if seq <= 7]

    for size in range(0, len(data), 11):
        store = check({**files, "000001.blk": data[:size]}, content, lost_max=len(in_block))
        assert not store.report.clean


@pytest.mark.parametrize("name", ["000001.blk", "000002.blk", "000003.blk"])
@pytest.mark.parametrize("tail", [1, 100, 4096, 100_000])
def test_a_zero_filled_tail_costs_nothing(name: str, tail: int) -> None:
    files, content = write_store(14)

    store = check({**files, name: files[name] + bytes(tail)}, content, lost_max=0)

    # The last block may have room behind its records; behind any other's there are none.
    assert store.report.clean == (name == "000003.blk")


@pytest.mark.parametrize("size", [512, 4096])
def test_zeroed_and_swapped_pages_cost_only_the_records_they_touch(size: int) -> None:
    files, content = write_store(
        60, payload_bytes=300, config=StoreConfig(name="orders", block_bytes=16384)
    )
    config = StoreConfig(name="orders", block_bytes=16384)
    data = files["000001.blk"]
    touched = size // 300 + 3

    for start in range(0, len(data) - 2 * size, size):
        zeroed = data[:start] + bytes(size) + data[start + size :]
        check({**files, "000001.blk": zeroed}, content, lost_max=touched, config=config)
        swapped = (
            data[:start]
            + data[start + size : start + 2 * size]
            + data[start : start + size]
            + data[start + 2 * size :]
        )
        check({**files, "000001.blk": swapped}, content, lost_max=2 * touched, config=config)


# Files


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("name", ["000001.idx", "000002.idx", STATE_NAME, HIGH_WATER_NAME])
def test_a_derived_file_that_is_missing_costs_nothing(name: str, stop: bool) -> None:
    files, content = write_store(14, stop=stop)
    files.pop(name, None)

    check(files, content, lost_max=0)


def test_all_derived_files_missing_cost_nothing() -> None:
    files, content = write_store(14)

    blocks = {name: data for name, data in files.items() if name.endswith(".blk")}

    check(blocks, content, lost_max=0)


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("name", ["000001.blk", "000002.blk", "000003.blk"])
def test_a_block_that_is_missing_is_reported_with_its_sequences(name: str, stop: bool) -> None:
    files, content = write_store(14, stop=stop)
    del files[name]

    store = check(files, content, lost_max=7)

    assert store.report.damage


def test_a_block_whose_header_is_zeroed_keeps_its_records() -> None:
    for stop in (True, False):
        files, content = write_store(10, payload_bytes=24, commit_every=2, stop=stop)
        data = files["000001.blk"]

        zeroed = {**files, "000001.blk": bytes(HEADER_BYTES) + data[HEADER_BYTES:]}

        check(zeroed, content, lost_max=0)


def test_a_wrong_magic_is_mended_or_reported_and_the_bytes_are_kept() -> None:
    files, content = write_store(14)
    for name in ("000001.blk", "000002.blk", "000003.blk"):
        store = check({**files, name: b"GARBAGE!" + files[name][8:]}, content, lost_max=0)
        kept = f"{PATH}/{QUARANTINE_NAME}/{name}-header"
        assert any(path.startswith(kept) for path in snapshot(store))


FOREIGN: dict[str, bytes] = {
    "notes.txt": b"not ours",
    "000001.blk.bak": b"a copy",
    "0000001.blk": b"another spelling",
    "9999999999.blk": b"a number beyond all",
    "000000.blk": b"before the first",
    "000099.idx": b"an index of nothing",
    "stream.state.old": b"x",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_left_as_they_are(name: str) -> None:
    files, content = write_store(14)

    store = check({**files, name: FOREIGN[name]}, content, lost_max=0)

    assert snapshot(store)[f"{PATH}/{name}"] == FOREIGN[name]


def test_a_file_in_the_place_of_the_next_block_is_kept_aside_and_told_of() -> None:
    files, content = write_store(14)
    garbage = Random(5).randbytes(5000)

    store = check({**files, "000077.blk": garbage}, content, lost_max=0)

    assert garbage in snapshot(store).values()
    assert not store.report.clean


@pytest.mark.parametrize("as_name", ["000001.blk", "000002.blk", "000003.blk", "000009.blk"])
def test_a_block_of_another_stream_is_never_taken_for_ours(as_name: str) -> None:
    files, content = write_store(14)
    others, _ = write_store(14, seed=99, payload_bytes=555)

    for source in ("000001.blk", "000003.blk"):
        store = check({**files, as_name: others[source]}, content, lost_max=7)
        assert snapshot(store)[f"{PATH}/{as_name}"] == others[source]
        assert not store.report.clean


def test_sums_of_another_stream_are_not_believed() -> None:
    files, content = write_store(14)
    others, _ = write_store(40, seed=99)

    for name in (STATE_NAME, HIGH_WATER_NAME, "000001.idx"):
        check({**files, name: others[name]}, content, lost_max=0)
    check(
        {**files, **{name: others[name] for name in (STATE_NAME, HIGH_WATER_NAME)}},
        content,
        lost_max=0,
    )


def test_blocks_of_one_stream_that_changed_places_are_refused() -> None:
    files, content = write_store(14)

    swapped = {**files, "000001.blk": files["000002.blk"], "000002.blk": files["000001.blk"]}

    store = check(swapped, content, lost_max=14)
    assert store.report.damage


def absurd_records() -> Iterator[bytes]:
    yield b"\x00" + b"\xff" * 9 + b"\x01" + bytes(100)
    yield b"\x00\x00\x00" + b"\xff" * 9 + b"\x01" + bytes(100)
    yield b"\x00\x00" + b"\xff\xff\xff\xff\x0f" + bytes(100)
    yield b"\x08\x00\x00\x05\xff\xff\xff\xff\xff" + bytes(24)
    yield b"\xff" * 300
    yield Random(9).randbytes(3000)


def test_absurd_lengths_are_cut_off_and_cost_nothing() -> None:
    files, content = write_store(14)

    for tail in absurd_records():
        for name in ("000002.blk", "000003.blk"):
            check({**files, name: files[name] + tail}, content, lost_max=0)


# What must not be touched


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "LOCK"
    }


def lay_out_on_disk(files: Files, folder: Path) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def newer(data: bytes, version_at: int, checksum_span: tuple[int, int]) -> bytes:
    """Return a file whose version is one higher, with a checksum that holds."""
    changed = bytearray(data)
    (version,) = struct.unpack_from("<H", data, version_at)
    struct.pack_into("<H", changed, version_at, version + 1)
    start, end = checksum_span
    changed[end : end + 8] = struct.pack("<Q", xxh64(bytes(changed[start:end])))
    return bytes(changed)


def newer_high_water(data: bytes) -> bytes:
    return newer(newer(data, 4, (0, 56)), 68, (64, 120))


NEWER: dict[str, Callable[[bytes], bytes]] = {
    "000001.blk": lambda data: newer(data, 8, (0, 120)),
    "000003.blk": lambda data: newer(data, 8, (0, 120)),
    STATE_NAME: lambda data: newer(data, 8, (0, len(data) - 8)),
    HIGH_WATER_NAME: newer_high_water,
}


@pytest.mark.parametrize("name", NEWER)
def test_a_newer_format_is_refused_and_nothing_is_touched(name: str, tmp_path: Path) -> None:
    files, _ = write_store(14, stop=True)
    files[name] = NEWER[name](files[name])
    files["000002.blk.0123456789abcdef.tmp"] = b"left over"
    files["000003.blk"] = files["000003.blk"] + b"torn"
    if name == "000003.blk":
        files["000002.blk"] = flipped(files["000002.blk"], 3)
    lay_out_on_disk(files, tmp_path)
    before = hashes(tmp_path)

    with pytest.raises(UnsupportedVersion):
        FileStore.open(str(tmp_path), CONFIG, threaded=False)

    assert hashes(tmp_path) == before


def test_a_newer_index_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    files, _ = write_store(14, stop=False)
    files["000001.idx"] = newer(files["000001.idx"], 8, (0, len(files["000001.idx"]) - 8))
    files["000003.blk"] += b"torn"
    lay_out_on_disk(files, tmp_path)
    before = hashes(tmp_path)

    with pytest.raises(UnsupportedVersion):
        FileStore.open(str(tmp_path), CONFIG, threaded=False)

    assert hashes(tmp_path) == before


@pytest.mark.parametrize("key", [None, StoreKey(b"another key")])
@pytest.mark.parametrize("stop", [True, False])
def test_a_wrong_key_or_none_is_refused_and_nothing_is_touched(
    key: StoreKey | None, stop: bool, tmp_path: Path
) -> None:
    config = StoreConfig(name="orders", block_bytes=4096, cipher=Cipher.CHACHA20_POLY1305)
    files, _ = write_store(14, config=config, key=KEY, stop=stop)
    files["stream.state.0123456789abcdef.tmp"] = b"left over"
    files["000003.blk"] += b"torn"
    lay_out_on_disk(files, tmp_path)
    before = hashes(tmp_path)

    for asked in (config, CONFIG):
        with pytest.raises(WrongKey):
            FileStore.open(str(tmp_path), asked, key=key, threaded=False)

    assert hashes(tmp_path) == before


def test_records_stay_secret_after_a_cipher_is_chosen_for_a_plain_stream(tmp_path: Path) -> None:
    with FileStore.open(str(tmp_path), CONFIG, threaded=False) as store:
        store.store(b"a", b"", b"in the plain")
    config = StoreConfig(name="orders", block_bytes=4096, cipher=Cipher.AES_256_GCM)

    with FileStore.open(str(tmp_path), config, key=KEY, threaded=False) as store:
        store.store(b"a", b"", b"the secret")
        store.flush()

    assert not any(b"the secret" in path.read_bytes() for path in tmp_path.glob("*.blk"))


# Damage that is met while the store runs


def damage_payload(path: Path, seq: int) -> bytes:
    """Flip a bit in the middle of a message's payload; give the bytes around it."""
    data = path.read_bytes()
    middle = data.index(message(seq, 600)[2]) + 300
    path.write_bytes(flipped(data, 8 * middle))
    return path.read_bytes()[middle - 200 : middle + 200]


def fourteen_messages(
    path: Path, *, on_damage: Callable[[Damage], None] | None = None
) -> FileStore:
    store = FileStore.open(str(path), CONFIG, threaded=False, on_damage=on_damage)
    for seq in range(1, 15):
        store.store(*message(seq, 600))
    store.flush()
    return store


def all_but(*missing: int) -> Content:
    return {seq: message(seq, 600) for seq in range(1, 15) if seq not in missing}


def test_damage_met_while_running_is_told_once_and_its_neighbours_are_served(
    tmp_path: Path,
) -> None:
    seen: list[Damage] = []
    store = fourteen_messages(tmp_path, on_damage=seen.append)
    damage_payload(tmp_path / "000001.blk", 2)

    for _ in range(3):
        assert read_all(store, 14) == (all_but(2), {2})

    assert [(each.block, each.first_seq, each.last_seq) for each in seen] == [(1, 2, 2)]
    assert store.state().lost == tuple(seen)
    assert store.load_next(2).seq == 3
    assert store.load_previous(2).seq == 1
    store.stop()


def test_a_damaged_record_is_kept_aside_when_its_block_is_rewritten(tmp_path: Path) -> None:
    seen: list[Damage] = []
    store = fourteen_messages(tmp_path, on_damage=seen.append)
    damaged = damage_payload(tmp_path / "000001.blk", 2)
    for seq in (1, 3, 4, 5):
        store.remove(seq)

    store.reclaim()

    kept = [path.read_bytes() for path in (tmp_path / QUARANTINE_NAME).iterdir()]
    assert len(kept) == 1
    assert damaged in kept[0]
    assert [(each.first_seq, each.last_seq) for each in seen] == [(2, 2)]
    assert read_all(store, 14)[0] == all_but(1, 2, 3, 4, 5)
    store.stop()


def test_an_index_that_is_damaged_while_running_costs_nothing(tmp_path: Path) -> None:
    fourteen_messages(tmp_path).stop()
    path = tmp_path / "000002.idx"
    for place in range(0, path.stat().st_size, 11):
        store = FileStore.open(str(tmp_path), CONFIG, threaded=False)
        assert store.report.checkpoint_used
        path.write_bytes(flipped(path.read_bytes(), 8 * place + 1))

        store.engine.log.ledger.note_index_room(bool(place % 2))
        assert read_all(store, 14)[0] == all_but()
        store.stop()


def test_an_index_lost_together_with_a_record_is_told_and_a_reopening_takes_stock(
    tmp_path: Path,
) -> None:
    fourteen_messages(tmp_path).stop()
    store = FileStore.open(str(tmp_path), CONFIG, threaded=False)
    assert store.report.checkpoint_used
    damage_payload(tmp_path / "000002.blk", 8)
    path = tmp_path / "000002.idx"
    path.write_bytes(flipped(path.read_bytes(), 8 * 300))

    with pytest.raises(CorruptStore):
        store.load(9)
    with pytest.raises(StoreReadOnly):
        store.store(b"a", b"", b"")
    assert store.load(1).payload == message(1, 600)[2]
    store.reopen()

    assert read_all(store, 14)[0] == all_but(8)
    assert told(list(store.state().lost)) == {8}
    store.stop()
