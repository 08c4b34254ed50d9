"""A stream's directory is read without a server: all that is live, nothing else, damage told."""

from __future__ import annotations

import shutil
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.errors import CorruptStore, UnsupportedVersion, UsageError, WrongKey
from penstock.format.block import HEADER_BYTES
from penstock.format.block_contents import TAIL_REASON
from penstock.format.columns import MessageRow
from penstock.format.damage import Damage
from penstock.format.directory import MISSING_BLOCK_END
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.hashing import xxh64
from penstock.format.layout import HIGH_WATER_NAME, STATE_NAME
from penstock.format.reader import Selection, StreamReader
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from penstock.testing.clock import START_NS
from penstock.testing.filesystem import MemoryFileSystem
from tests.format.folders import (
    SMALL_BLOCKS,
    StoreFolder,
    WatchedFolder,
    contents,
    fill,
    fingerprints,
    open_store,
    read,
)

SECOND = 1_000_000_000
KEY = StoreKey(b"correct horse battery staple")


class Written:
    """What a store wrote, its last block being unfinished; read by many tests, changed by none."""

    def __init__(self, path: Path) -> None:
        self.path = path / "store"
        # When it stops it would finish the last block: what it has written is copied before.
        with open_store(path / "writing") as store:
            fill(store, 300)
            for seq in (1, 2, 50, 51, 52, 120, 299):
                store.remove(seq)
            store.erase(75)
            store.skip(10)
            fill(store, 20, start=300)
            store.flush()
            self.messages = contents(store)
            shutil.copytree(path / "writing", self.path)

    def copy(self, to: Path) -> Path:
        return Path(shutil.copytree(self.path, to / "copy"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("orders"))


def change(path: Path, at: int, value: bytes | None = None) -> None:
    """Overwrite bytes of a file, or flip a bit."""
    data = bytearray(path.read_bytes())
    place = at if at >= 0 else len(data) + at
    if value is None:
        data[place] ^= 0x10
    else:
        data[place : place + len(value)] = value
    path.write_bytes(data)


def test_a_reader_gives_all_that_is_live(written: Written) -> None:
    reader = StreamReader(str(written.path))

    assert len(reader.blocks) > 5
    assert read(reader) == written.messages
    assert reader.damage == []
    assert reader.last_seq == 330


def test_a_message_tells_where_it_lies(written: Written) -> None:
    for batch in StreamReader(str(written.path)).batches():
        data = (written.path / f"{batch.block:06d}.blk").read_bytes()
        for message in batch.messages():
            assert message.payload in data[message.offset :]
            assert data[message.offset + 2 :].startswith(message.subject)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seqs=st.tuples(st.integers(0, 340), st.integers(0, 340)),
    seconds=st.tuples(st.integers(-5, 330), st.integers(-5, 330)),
    patterns=st.lists(
        st.sampled_from([b"orders.1", b"orders.*", b"orders.6", b"stock", b">"]), max_size=2
    ),
    rows_max=st.sampled_from([1, 7, 65_536]),
)
def test_ranges_times_and_filters_select_what_they_say(
    *,
    written: Written,
    seqs: tuple[int, int],
    seconds: tuple[int, int],
    patterns: list[bytes],
    rows_max: int,
) -> None:
    first_ns, last_ns = (START_NS + second * SECOND for second in seconds)
    subjects = SubjectFilter(patterns) if patterns else None
    wanted = Selection(
        first_seq=seqs[0],
        last_seq=seqs[1],
        first_ns=first_ns,
        last_ns=last_ns,
        subjects=subjects,
        rows_max=rows_max,
    )

    assert read(StreamReader(str(written.path)), wanted) == [
        message
        for message in written.messages
        if seqs[0] <= message.seq <= seqs[1]
        and first_ns <= message.timestamp_ns <= last_ns
        and (subjects is None or subjects.matches(message.subject))
    ]


def test_batches_are_no_larger_than_asked_for(written: Written) -> None:
    reader = StreamReader(str(written.path))

    for wanted in (Selection(rows_max=3), Selection(bytes_max=500)):
        batches = list(reader.batches(wanted))
        assert sum(len(batch) for batch in batches) == len(written.messages)
        assert all(len(batch) <= wanted.rows_max for batch in batches)
        assert all(len(batch.payloads) <= wanted.bytes_max + 300 for batch in batches)


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(0, 1), (1, 0), (-1, 1)])
def test_batches_that_could_hold_nothing_are_refused(rows_max: int, bytes_max: int) -> None:
    with pytest.raises(UsageError):
        Selection(rows_max=rows_max, bytes_max=bytes_max)


def test_columns_that_are_not_wanted_are_left_out(written: Written) -> None:
    wanted = Selection(headers=False, payloads=False)

    found = read(StreamReader(str(written.path)), wanted)

    assert found == [replace(message, headers=b"", payload=b"") for message in written.messages]


def test_blocks_that_cannot_hold_a_wanted_message_are_not_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 100)
        store.store(b"rare", b"", b"here")
        fill(store, 100, start=100)
        rare = store.load_last(b"rare")
    folder = WatchedFolder(str(tmp_path))
    reader = StreamReader(folder)
    [holder] = [b for b in reader.blocks if b.base_seq <= rare.seq <= b.last_seq]
    assert len(reader.blocks) > 5

    for wanted in (
        Selection(subjects=SubjectFilter([b"rare"])),
        Selection(first_seq=rare.seq, last_seq=rare.seq),
    ):
        folder.opened.clear()
        assert [message.payload for message in read(reader, wanted) if message.subject == b"rare"]
        read_blocks = {name for name in folder.opened if name.endswith(".blk")}
        assert f"{holder.number:06d}.blk" in read_blocks
        # The block that was being written has no index, and is always looked at.
        assert len(read_blocks) <= 2
    folder.opened.clear()
    later = read(reader, Selection(first_ns=rare.timestamp_ns + 90 * SECOND))
    assert len(later) < 30
    assert len(folder.opened) < len(reader.blocks)


def test_stock_is_taken_from_the_indexes_alone(written: Written) -> None:
    folder = WatchedFolder(str(written.path))

    reader = StreamReader(folder)

    walked = [block.number for block in reader.blocks if not block.sealed]
    assert len(walked) == 1
    # The header of each block, and all of the one that is not sealed.
    assert sum(name.endswith(".blk") for name in folder.opened) == len(reader.blocks) + 1


def test_a_reader_changes_nothing(written: Written, tmp_path: Path) -> None:
    path = written.copy(tmp_path)
    (path / "LOCK").unlink()
    (path / "000002.idx").unlink()
    change(path / "000003.blk", -20)
    before = fingerprints(path)

    reader = StreamReader(str(path))
    read(reader)
    list(reader.verify())

    assert fingerprints(path) == before


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StreamReader(str(tmp_path / "nowhere"))


def test_an_empty_folder_and_foreign_files_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("000001.blk")
    (tmp_path / "1.blk").write_bytes(b"of another server")

    reader = StreamReader(str(tmp_path))

    assert (reader.blocks, reader.damage, reader.last_seq) == ([], [], 0)
    assert read(reader) == []
    assert list(reader.verify()) == []


def test_any_file_system_can_be_read_through_a_folder() -> None:
    files = MemoryFileSystem()
    with open_store("/orders", files=files) as store:
        fill(store, 100)
        expected = contents(store)

        assert read(StreamReader(StoreFolder(files, "/orders"))) == expected


# Damage


def test_a_damaged_record_is_left_out_and_told(written: Written, tmp_path: Path) -> None:
    path = written.copy(tmp_path)
    reader = StreamReader(str(path))
    block = reader.blocks[2]
    index = reader.load_index(block.number)
    seq, offset, length, *_ = index.entry(index.count // 2)
    change(path / f"{block.number:06d}.blk", offset + length - 1)

    reader = StreamReader(str(path))

    assert read(reader) == [message for message in written.messages if message.seq != seq]
    assert reader.damage == [Damage(block.number, offset, length, "no whole record here", seq, seq)]


@pytest.mark.parametrize("indexed", [True, False], ids=["with its index", "without its index"])
@pytest.mark.parametrize("how", ["damaged", "cut off", "gone"])
def test_the_last_record_of_a_sealed_block_is_missed_too(
    written: Written, tmp_path: Path, *, how: str, indexed: bool
) -> None:
    path = written.copy(tmp_path)
    block = StreamReader(str(path)).blocks[2]
    file = path / f"{block.number:06d}.blk"
    _, offset, *_ = StreamReader(str(path)).load_index(block.number).entry(block.count - 1)
    left = {"damaged": block.bytes - offset, "cut off": 5, "gone": 0}[how]
    file.write_bytes(file.read_bytes()[: offset + left])
    if how == "damaged":
        change(file, -1)
    if not indexed:
        (path / f"{block.number:06d}.idx").unlink()

    reader = StreamReader(str(path))
    found = read(reader)
    told = list(reader.damage)
    [check] = [check for check in reader.verify() if check.number == block.number]

    assert found == [message for message in written.messages if message.seq != block.last_seq]
    reason = TAIL_REASON if left else MISSING_BLOCK_END
    lost = (block.last_seq, block.last_seq)
    assert told == reader.damage == [Damage(block.number, offset, left, reason, *lost)]
    # By its index it is known how long the block was.
    length = block.bytes - offset if indexed else left
    assert check.damage == [Damage(block.number, offset, length, TAIL_REASON, *lost)]


def test_the_torn_end_of_the_block_being_written_is_no_damage(
    written: Written, tmp_path: Path
) -> None:
    path = written.copy(tmp_path)
    last = StreamReader(str(path)).blocks[-1]
    file = path / f"{last.number:06d}.blk"
    file.write_bytes(file.read_bytes()[:-3])
    # Nothing tells that the last commit was acknowledged.
    (path / HIGH_WATER_NAME).unlink()

    reader = StreamReader(str(path))

    assert read(reader) == written.messages[:-1]
    assert reader.damage == []
    *_, check = reader.verify()
    assert check.tail_bytes > 0
    assert check.damage == []


@pytest.mark.parametrize("left", [HIGH_WATER_NAME, STATE_NAME])
def test_the_torn_end_of_what_was_acknowledged_is_damage(tmp_path: Path, left: str) -> None:
    with open_store(tmp_path) as store:
        fill(store, 100)
        expected = contents(store)
    last = StreamReader(str(tmp_path)).blocks[-1]
    file = tmp_path / f"{last.number:06d}.blk"
    file.write_bytes(file.read_bytes()[:-3])
    for name in {HIGH_WATER_NAME, STATE_NAME} - {left}:
        (tmp_path / name).unlink()

    reader = StreamReader(str(tmp_path))

    assert read(reader) == expected[:-1]
    assert [(each.block, each.first_seq, each.last_seq) for each in reader.damage] == [
        (last.number, 100, 100)
    ]
    assert reader.last_seq == 100


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_a_block_that_is_just_being_begun_is_no_damage(
    written: Written, tmp_path: Path, size: int
) -> None:
    path = written.copy(tmp_path)
    number = StreamReader(str(path)).blocks[-1].number
    begun = path / f"{number + 1:06d}.blk"
    begun.write_bytes((path / f"{number:06d}.blk").read_bytes()[:size])

    reader = StreamReader(str(path))

    assert read(reader) == written.messages
    assert reader.damage == []
    *_, check = reader.verify()
    assert (check.number, check.notes) == (number + 1, ["begun and not finished"])
    # Followed by another block it would have to be whole.
    begun.rename(path / "000002.blk")
    (path / "000002.idx").unlink()
    assert [each.block for each in StreamReader(str(path)).damage] == [2]


@pytest.mark.parametrize("how", ["missing", "damaged", "cut off", "of another block"])
def test_an_index_that_cannot_be_used_is_replaced_by_a_walk(
    written: Written, tmp_path: Path, how: str
) -> None:
    path = written.copy(tmp_path)
    index = path / "000003.idx"
    match how:
        case "missing":
            index.unlink()
        case "damaged":
            change(index, 30)
        case "cut off":
            index.write_bytes(index.read_bytes()[:-1])
        case _:
            shutil.copy(path / "000002.idx", index)

    reader = StreamReader(str(path))

    assert read(reader) == written.messages
    assert reader.damage == []
    assert not reader.blocks[2].sealed
    wanted = Selection(subjects=SubjectFilter([b"orders.1"]))
    assert read(reader, wanted) == [m for m in written.messages if m.subject == b"orders.1"]
    [check] = [check for check in reader.verify() if check.number == 3]
    assert len(check.notes) == 1
    assert check.damage == []


def test_an_index_whose_entries_are_damaged_costs_a_walk_when_they_are_needed(
    written: Written, tmp_path: Path
) -> None:
    path = written.copy(tmp_path)
    change(path / "000003.idx", 300)

    reader = StreamReader(str(path))

    assert reader.blocks == StreamReader(str(written.path)).blocks
    wanted = Selection(subjects=SubjectFilter([b"orders.1"]))
    assert read(reader, wanted) == [m for m in written.messages if m.subject == b"orders.1"]
    assert reader.damage == []


def test_an_index_that_another_block_of_the_number_left_is_not_believed(tmp_path: Path) -> None:
    # The other block had the same number and generation, and held other messages.
    with open_store(tmp_path / "a") as store:
        fill(store, 100)
    with open_store(tmp_path / "b", random_bytes=lambda size: bytes(range(size))) as store:
        fill(store, 90, start=1000)
        expected = contents(store)
    shutil.copy(tmp_path / "a" / "000002.idx", tmp_path / "b" / "000002.idx")

    assert read(StreamReader(str(tmp_path / "b"))) == expected


@pytest.mark.parametrize("indexed", [True, False], ids=["by the index", "by its checksum"])
def test_a_damaged_header_is_mended_and_told(
    written: Written, tmp_path: Path, *, indexed: bool
) -> None:
    path = written.copy(tmp_path)
    change(path / "000002.blk", 20)
    if indexed:
        change(path / "000002.blk", 40)
    else:
        (path / "000002.idx").unlink()

    reader = StreamReader(str(path))

    assert read(reader) == written.messages
    assert [(each.block, each.offset, each.length) for each in reader.damage] == [
        (2, 0, HEADER_BYTES)
    ]


def test_a_block_without_header_and_index_is_read_by_its_records(
    written: Written, tmp_path: Path
) -> None:
    path = written.copy(tmp_path)
    change(path / "000002.blk", 20)
    change(path / "000002.blk", 40)
    (path / "000002.idx").unlink()

    reader = StreamReader(str(path))

    assert read(reader) == written.messages
    assert [(each.block, each.offset, each.length) for each in reader.damage] == [
        (2, 0, HEADER_BYTES)
    ]


def test_a_block_of_noise_is_told_and_the_others_are_read(written: Written, tmp_path: Path) -> None:
    path = written.copy(tmp_path)
    block = StreamReader(str(path)).blocks[1]
    noise = bytes(range(256)) * (block.bytes // 256)
    (path / "000002.blk").write_bytes(noise)
    (path / "000002.idx").unlink()

    reader = StreamReader(str(path))

    assert read(reader) == [
        message
        for message in written.messages
        if not block.base_seq <= message.seq <= block.last_seq
    ]
    reason = "not a block file: wrong magic"
    assert reader.damage == [Damage(2, 0, len(noise), reason, block.base_seq, block.last_seq)]
    [check] = [check for check in reader.verify() if check.number == 2]
    assert check.damage[0].reason == reason


def test_a_block_under_another_blocks_name_is_not_read_as_that_block(
    written: Written, tmp_path: Path
) -> None:
    path = written.copy(tmp_path)
    (path / "000002.idx").unlink()
    shutil.copy(path / "000003.blk", path / "000002.blk")
    second = StreamReader(str(written.path)).blocks[1]

    reader = StreamReader(str(path))

    assert read(reader) == [
        message
        for message in written.messages
        if not second.base_seq <= message.seq <= second.last_seq
    ]
    assert [(each.block, each.reason) for each in reader.damage] == [(2, "the header says block 3")]


@pytest.mark.parametrize("name", ["000002.blk", "000002.idx"])
def test_a_file_of_a_newer_version_is_refused(written: Written, tmp_path: Path, name: str) -> None:
    path = written.copy(tmp_path)
    data = bytearray((path / name).read_bytes())
    newer = struct.unpack_from("<H", data, 8)[0] + 1
    struct.pack_into("<H", data, 8, newer)
    end = HEADER_BYTES if name.endswith("blk") else len(data)
    struct.pack_into("<Q", data, end - 8, xxh64(data[: end - 8]))
    (path / name).write_bytes(data)

    with pytest.raises(UnsupportedVersion) as refusal:
        StreamReader(str(path))

    assert refusal.value.found == newer


# Beside a store that goes on


def test_what_is_written_after_stock_was_taken_is_not_seen(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 50)
        before = contents(store)
        reader = StreamReader(str(tmp_path))

        fill(store, 50, start=50)

        assert read(reader) == before
        assert read(StreamReader(str(tmp_path))) == contents(store)


def test_what_is_not_committed_is_not_seen(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 10)
        before = contents(store)
        store.store(b"orders.1", b"", b"pending")

        assert read(StreamReader(str(tmp_path))) == before


def test_a_block_rewritten_since_still_gives_what_is_live(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 200)
        reader = StreamReader(str(tmp_path))
        first = reader.blocks[0]
        for seq in range(1, first.last_seq):
            store.remove(seq)
        store.flush()
        store.reclaim()

        found = read(reader)

        assert found == contents(store)
        assert reader.damage == []
        assert StreamReader(str(tmp_path)).blocks[0].generation > first.generation


def test_a_block_that_vanished_held_nothing_that_is_live(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 200)
        reader = StreamReader(str(tmp_path))
        store.purge(seq=reader.blocks[2].base_seq)
        store.reclaim()
        assert not (tmp_path / "000001.blk").exists()

        assert read(reader) == contents(store)
        assert reader.damage == []
        assert next(reader.verify()).number == 3


def test_a_rewrite_that_its_index_has_not_caught_up_with_is_walked(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 100)
        old_index = (tmp_path / "000001.idx").read_bytes()
        for seq in range(1, 15):
            store.remove(seq)
        store.flush()
        store.reclaim(thorough=True)
        expected = contents(store)
    (tmp_path / "000001.idx").write_bytes(old_index)

    reader = StreamReader(str(tmp_path))

    assert read(reader) == expected
    assert reader.damage == []
    check = next(reader.verify())
    assert check.notes == ["index of another generation: it is rebuilt when opened"]


def test_a_tombstone_that_moved_on_while_stock_was_taken_is_found(tmp_path: Path) -> None:
    # The directory was listed; then a message's tombstone moved from its block into a new one,
    # and the old block was removed. The message must not come back.
    with open_store(tmp_path) as store:
        fill(store, 30)
        store.remove(3)
        store.flush()
        fill(store, 60, start=30)
        listed = sorted(file.name for file in tmp_path.iterdir())
        holder = next(
            block.number
            for block in StreamReader(str(tmp_path)).blocks
            if 3 in StreamReader(str(tmp_path)).load_index(block.number).tombstones
        )
        gone = StreamReader(str(tmp_path)).blocks[holder - 1]
        fill(store, 60, start=90)
        for seq in range(gone.base_seq, gone.last_seq + 1):
            store.remove(seq)
        store.flush()
        store.reclaim()
        assert not (tmp_path / f"{holder:06d}.blk").exists()
        folder = WatchedFolder(str(tmp_path))
        folder.old_lists.append(listed)

        assert read(StreamReader(folder)) == contents(store)


def test_a_reader_beside_a_busy_writer_sees_a_whole_beginning(tmp_path: Path) -> None:
    enough = threading.Event()
    store = FileStore.open(
        str(tmp_path), StoreConfig(name="ORDERS", block_bytes=SMALL_BLOCKS, sync_interval_ns=10**9)
    )

    def write() -> None:
        place = 0
        while not enough.is_set():
            place += 1
            store.store(b"orders.%d" % (place % 7), b"", b"payload %d" % place)
            if place % 10 == 0:
                store.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = 0
        while seen < 2_000:
            reader = StreamReader(str(tmp_path))
            found = read(reader)
            assert [message.seq for message in found] == list(range(1, len(found) + 1))
            assert all(m.payload == b"payload %d" % m.seq for m in found)
            assert reader.damage == []
            assert len(found) >= seen
            seen = len(found)
    finally:
        enough.set()
        writer.join()
        store.stop()


# At rest


@pytest.fixture(params=[(squeeze, cipher) for squeeze in Compression for cipher in Cipher], ids=str)
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[MessageRow]]:
    compression, cipher = request.param
    config = StoreConfig(
        name="ORDERS", block_bytes=SMALL_BLOCKS, compression=compression, cipher=cipher
    )
    key = None if cipher is Cipher.NONE else KEY
    with open_store(tmp_path, config=config, key=key) as store:
        fill(store, 100)
        store.store(b"orders.x", b"NATS/1.0\r\n\r\n", b"squeeze me " * 50)
        store.remove(5)
        store.flush()
        expected = contents(store)
    return tmp_path, expected


def test_every_envelope_is_opened(sealed: tuple[Path, list[MessageRow]]) -> None:
    path, expected = sealed

    reader = StreamReader(str(path), stream="ORDERS", key=KEY)

    assert read(reader) == expected
    assert reader.damage == []
    assert not any(check.damage or check.notes for check in reader.verify())
    by_range = Selection(first_seq=40, last_seq=60, subjects=SubjectFilter([b"orders.2"]))
    assert read(reader, by_range) == [
        m for m in expected if 40 <= m.seq <= 60 and m.subject == b"orders.2"
    ]


def test_a_wrong_key_is_an_error_and_never_an_empty_stream(
    sealed: tuple[Path, list[MessageRow]],
) -> None:
    path, expected = sealed
    strangers = (
        StreamReader(str(path), stream="ORDERS", key=StoreKey(b"another")),
        StreamReader(str(path), stream="ORDERS"),
        StreamReader(str(path), stream="STOCK", key=KEY),
    )

    for reader in strangers:
        assert sum(block.count for block in reader.blocks) == len(expected) + 1
        if not reader.blocks[0].encrypted:
            assert read(reader) == expected
            continue
        with pytest.raises(WrongKey):
            read(reader)
        with pytest.raises(WrongKey):
            list(reader.verify())


# Verifying


def test_a_whole_store_verifies_without_a_note(written: Written) -> None:
    reader = StreamReader(str(written.path))

    checks = list(reader.verify())

    assert [check.number for check in checks] == [block.number for block in reader.blocks]
    assert not any(check.damage or check.notes for check in checks)
    assert all(check.tail_bytes == 0 for check in checks)
    sizes = [(written.path / f"{check.number:06d}.blk").stat().st_size for check in checks]
    assert [check.bytes for check in checks] == sizes
    assert sum(check.messages for check in checks) == 320


def test_an_index_file_is_byte_for_byte_what_a_walk_gives(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 50)
        store.store(b"short-lived", b"", b"", expires_ns=START_NS + 10**15)
        store.remove(3)
        fill(store, 100, start=50)
    names = sorted(file.name for file in tmp_path.glob("*.idx"))
    assert len(names) > 3

    for name in names:
        image = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        walked = StreamReader(str(tmp_path)).load_index(int(name[:6]))
        walked.freeze()
        assert walked.encode() == image, name


def test_an_index_that_tells_of_other_messages_is_noted(tmp_path: Path) -> None:
    # As a writer with a fault would leave it: the checksum holds, and one place is wrong.
    with open_store(tmp_path) as store:
        fill(store, 100)
    path = tmp_path / "000001.idx"
    data = bytearray(path.read_bytes())
    data[256 + 16] ^= 1
    struct.pack_into("<Q", data, len(data) - 8, xxh64(data[:-8]))
    path.write_bytes(data)

    check = next(StreamReader(str(tmp_path)).verify())

    assert check.notes == ["index and block disagree"]


def test_a_block_that_does_not_follow_on_the_one_before_is_noted(
    written: Written, tmp_path: Path
) -> None:
    path = written.copy(tmp_path)
    index = StreamReader(str(path)).load_index(2)
    _, offset, *_ = index.entry(index.count - 1)
    file = path / "000002.blk"
    file.write_bytes(file.read_bytes()[:offset])

    checks = {check.number: check for check in StreamReader(str(path)).verify()}

    assert checks[2].damage[0].offset == offset
    assert checks[3].notes == ["does not follow on the end of block 2"]


def test_an_erased_record_at_a_blocks_end_is_no_break_in_the_chain(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 100)
        block = StreamReader(str(tmp_path)).blocks[1]
        store.erase(block.last_seq)

        checks = list(StreamReader(str(tmp_path)).verify())

    assert not any(check.damage or check.notes for check in checks)


def test_every_flipped_bit_of_a_stores_block_is_found_by_verifying(
    written: Written, tmp_path: Path
) -> None:
    path = written.copy(tmp_path)
    file = path / "000002.blk"
    whole = file.read_bytes()

    for at in range(0, len(whole), 13):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(damaged)
        reader = StreamReader(str(path))
        checks = [check for check in reader.verify() if check.number == 2]
        told = [*checks[0].damage, *reader.damage]
        assert any(each.offset <= at < each.offset + max(each.length, 1) for each in told), at


def test_a_block_that_became_unreadable_since_is_an_error(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, 100)
    reader = StreamReader(str(tmp_path))
    (tmp_path / "000001.blk").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "000001.idx").unlink()

    with pytest.raises(CorruptStore):
        read(reader)
