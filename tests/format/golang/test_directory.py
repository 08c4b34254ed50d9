"""Reading whole store directories of Go's server: the reader must say what the server said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.errors import WrongKey
from penstock.format.columns import MessageRow
from penstock.format.golang.directory import (
    GoStreamReader,
    find_go_streams,
    is_go_stream_directory,
)
from tests.format.golang.conftest import Stores
from tests.format.golang.written_by_go import HOUR_NS, WrittenStore, to_ns

pytestmark = pytest.mark.oracle

STREAMS = (
    "PLAIN",
    "LATEST",
    "COUNTED",
    "SIZED",
    "PACKED",
    "LATER",
    "UNBORN",
    "PURGED",
    "INTEREST",
    "WORK",
    "AGED",
)
RUNS = [
    pytest.param(cipher, killed, id=f"{cipher or 'plain'}-{'killed' if killed else 'stopped'}")
    for cipher in (None, "chacha", "aes")
    for killed in (False, True)
]


def messages_of(reader: GoStreamReader, **options: object) -> list[MessageRow]:
    batches = reader.batches(**options)  # type: ignore[arg-type]  # each test names real options
    return [replace(message, offset=0) for batch in batches for message in batch.messages()]


def open_stream(store: WrittenStore, name: str) -> GoStreamReader:
    return GoStreamReader(str(store.stream_path(name)), key=store.key)


def copied(store: WrittenStore, name: str, folder: Path) -> Path:
    return Path(shutil.copytree(store.stream_path(name), folder / "$G" / "streams" / name))


class Only:
    """A matcher for subjects that end so."""

    def __init__(self, end: bytes) -> None:
        self.end = end

    def matches(self, subject: bytes, /) -> bool:
        return subject.endswith(self.end)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(("cipher", "killed"), RUNS)
def test_every_message_and_the_state_are_as_the_server_answered(
    stores: Stores, cipher: str | None, killed: bool, name: str
) -> None:
    store = stores(cipher, killed)
    said = store.streams[name]

    reader = open_stream(store, name)

    assert messages_of(reader) == said.messages
    state = reader.state
    assert (state.messages, state.bytes) == (said.state["messages"], said.state["bytes"])
    assert (state.first_seq, state.last_seq) == (said.state["first_seq"], said.state["last_seq"])
    assert state.first_timestamp_ns == to_ns(said.state["first_ts"])
    assert state.last_timestamp_ns == to_ns(said.state["last_ts"])
    assert reader.verify().is_clean
    # A purge writes index.db even before the server ends.
    assert (reader.report.index_problem is None) == (not killed or name == "PURGED")
    said_config = {key: value for key, value in said.config.items() if key != "metadata"}
    assert said_config.items() <= reader.config.items()


@pytest.mark.parametrize(("cipher", "killed"), RUNS)
def test_consumers_are_as_the_server_answered(
    stores: Stores, cipher: str | None, killed: bool
) -> None:
    store = stores(cipher, killed)
    said = store.streams["WORK"].consumers[0]

    (consumer,) = open_stream(store, "WORK").consumers()

    assert (consumer.name, consumer.problems) == ("worker", ())
    assert consumer.config["ack_wait"] == HOUR_NS
    state = consumer.state
    # A server that was killed may not have written the consumer's last changes.
    if not killed:
        assert state is not None
        assert state.delivered_consumer_seq == said["delivered"]["consumer_seq"]
        assert state.delivered_stream_seq == said["delivered"]["stream_seq"]
        assert state.ack_floor_consumer_seq == said["ack_floor"]["consumer_seq"]
        assert state.ack_floor_stream_seq == said["ack_floor"]["stream_seq"]
        assert len(state.pending) == said["num_ack_pending"]
        assert sorted(state.pending) == [4, 5, 7, 8, 9, 10]
        assert state.redelivered == {4: 1}
        delivered_s = to_ns(said["delivered"]["last_active"]) // 1_000_000_000
        assert all(
            abs(each.delivered_ns / 1e9 - delivered_s) <= 2 for each in state.pending.values()
        )


def test_streams_of_a_store_directory_are_found(stopped: WrittenStore) -> None:
    found = list(find_go_streams(str(stopped.store_dir)))

    assert [each.stream for each in found] == sorted(STREAMS)
    assert {each.account for each in found} == {"$G"}
    assert all(is_go_stream_directory(each.path) for each in found)
    assert list(find_go_streams(str(stopped.store_dir / "jetstream"))) == found
    assert not is_go_stream_directory(str(stopped.store_dir))


def test_small_blocks_and_packed_blocks_were_really_written(stopped: WrittenStore) -> None:
    sized = open_stream(stopped, "SIZED")
    packed = list((stopped.stream_path("PACKED") / "msgs").glob("*.blk"))

    assert len(sized.blocks) > 2
    assert sum(path.read_bytes().startswith(b"cmp\x01") for path in packed) > 1


def test_limits_are_applied_again_when_there_is_no_index(
    stopped: WrittenStore, killed: WrittenStore
) -> None:
    removed = {
        name: open_stream(killed, name).report.limits_removed for name in ("LATEST", "COUNTED")
    }

    assert removed == {"LATEST": 46, "COUNTED": 65}
    assert open_stream(stopped, "LATEST").report.limits_removed == 0


def test_messages_too_old_are_left_out_as_of_the_given_time(killed: WrittenStore) -> None:
    messages = killed.streams["AGED"].messages
    path = str(killed.stream_path("AGED"))

    reader = GoStreamReader(path, now_ns=messages[6].timestamp_ns + HOUR_NS)

    assert [message.seq for message in messages_of(reader)] == [4, 8, 9, 10]
    assert (reader.state.first_seq, reader.state.messages) == (4, 4)


@pytest.mark.parametrize("name", ["SIZED", "PLAIN"])
@pytest.mark.parametrize("killed_run", [False, True])
def test_a_range_of_sequences_is_read_across_blocks(
    stores: Stores, name: str, killed_run: bool
) -> None:
    store = stores(None, killed_run)
    expected = [each for each in store.streams[name].messages if 95 <= each.seq <= 138]

    assert messages_of(open_stream(store, name), first_seq=95, last_seq=138) == expected


def test_only_wanted_subjects_and_columns_are_read(stopped: WrittenStore) -> None:
    reader = open_stream(stopped, "PLAIN")
    said = stopped.streams["PLAIN"].messages
    expected = [
        replace(each, headers=b"", payload=b"") for each in said if each.subject.endswith(b"c.xxx")
    ]

    assert expected
    assert messages_of(reader, subjects=Only(b"c.xxx"), headers=False, payloads=False) == expected


def test_each_block_can_be_read_by_itself(stopped: WrittenStore) -> None:
    reader = open_stream(stopped, "PACKED")

    batches = [reader.read_block(plan) for plan in reader.blocks]

    assert [batch.count for batch in batches] == [plan.messages for plan in reader.blocks]
    assert sum(plan.bytes for plan in reader.blocks) == reader.state.bytes


@pytest.mark.parametrize("cipher", ["chacha", "aes"])
@pytest.mark.parametrize("key", [None, "wrong"])
def test_a_wrong_or_missing_key_is_an_error(stores: Stores, cipher: str, key: str | None) -> None:
    store = stores(cipher, False)

    with pytest.raises(WrongKey):
        GoStreamReader(str(store.stream_path("PLAIN")), key=key)


def test_the_key_is_bound_to_the_account(stores: Stores, tmp_path: Path) -> None:
    store = stores("chacha", False)
    elsewhere = shutil.copytree(store.stream_path("PLAIN"), tmp_path / "OTHER/streams/PLAIN")

    with pytest.raises(WrongKey):
        GoStreamReader(str(elsewhere), key=store.key)

    reader = GoStreamReader(str(elsewhere), key=store.key, account="$G")
    assert messages_of(reader) == store.streams["PLAIN"].messages


@pytest.mark.parametrize("cipher", ["chacha", "aes"])
def test_a_lost_stream_key_still_makes_a_wrong_key_an_error(
    stores: Stores, tmp_path: Path, cipher: str
) -> None:
    path = copied(stores(cipher, False), "PLAIN", tmp_path)
    (path / "meta.key").unlink()

    with pytest.raises(WrongKey):
        GoStreamReader(str(path), key="wrong")


def test_a_damaged_block_key_costs_its_block_and_no_more(stores: Stores, tmp_path: Path) -> None:
    store = stores("chacha", False)
    path = copied(store, "SIZED", tmp_path)
    lost = GoStreamReader(str(path), key=store.key).blocks[1]
    key_file = path / "msgs" / f"{lost.number}.key"
    key_file.write_bytes(bytes([key_file.read_bytes()[0] ^ 1]) + key_file.read_bytes()[1:])

    reader = GoStreamReader(str(path), key=store.key)
    messages = messages_of(reader)

    assert messages == [
        each
        for each in store.streams["SIZED"].messages
        if not lost.first_seq <= each.seq <= lost.last_seq
    ]
    (damage,) = reader.report.damage
    assert (damage.block, damage.first_seq, damage.last_seq) == (
        lost.number,
        lost.first_seq,
        lost.last_seq,
    )


def test_a_stale_index_is_not_believed(stopped: WrittenStore, tmp_path: Path) -> None:
    path = copied(stopped, "WORK", tmp_path)
    block = max((path / "msgs").glob("*.blk"))
    # A whole record less at the end: the index then speaks of a hash that is not there.
    block.write_bytes(block.read_bytes()[:-30])

    reader = GoStreamReader(str(path))

    assert reader.report.index_problem == "the last block has changed since index.db was written"
    assert reader.state.last_seq == 20


def test_a_later_block_makes_the_index_stale(stopped: WrittenStore, tmp_path: Path) -> None:
    path = copied(stopped, "LATEST", tmp_path)
    (path / "msgs" / "77.blk").write_bytes(b"")

    reader = GoStreamReader(str(path))

    assert reader.report.index_problem == "there are blocks later than index.db"
    assert messages_of(reader) == stopped.streams["LATEST"].messages


def test_a_missing_block_makes_the_index_stale(stopped: WrittenStore, tmp_path: Path) -> None:
    path = copied(stopped, "SIZED", tmp_path)
    gone = GoStreamReader(str(path)).blocks[1]
    (path / "msgs" / f"{gone.number}.blk").unlink()

    reader = GoStreamReader(str(path))

    assert reader.report.index_problem == f"block {gone.number} is missing"
    assert messages_of(reader) == [
        each
        for each in stopped.streams["SIZED"].messages
        if not gone.first_seq <= each.seq <= gone.last_seq
    ]


def test_a_damaged_index_is_reported_and_the_blocks_are_scanned(
    stopped: WrittenStore, tmp_path: Path
) -> None:
    path = copied(stopped, "PLAIN", tmp_path)
    index = path / "msgs" / "index.db"
    index.write_bytes(index.read_bytes()[:-1] + b"?")

    reader = GoStreamReader(str(path))

    assert [Path(each.path).name for each in reader.report.files] == ["index.db"]
    assert messages_of(reader) == stopped.streams["PLAIN"].messages


def test_damaged_metadata_is_reported_and_the_messages_are_read(
    stopped: WrittenStore, tmp_path: Path
) -> None:
    path = copied(stopped, "PLAIN", tmp_path)
    (path / "meta.inf").write_bytes(b"{" + (path / "meta.inf").read_bytes()[5:])

    reader = GoStreamReader(str(path))

    assert len(reader.report.files) == 2
    assert (reader.name, reader.config) == ("PLAIN", {})
    assert messages_of(reader) == stopped.streams["PLAIN"].messages


def test_a_purge_that_was_interrupted_is_finished(stopped: WrittenStore, tmp_path: Path) -> None:
    path = copied(stopped, "PLAIN", tmp_path)
    shutil.copytree(stopped.stream_path("PURGED") / "msgs", path / "__new_msgs__")

    reader = GoStreamReader(str(path))

    # The new block is another stream's here, so its one tombstone is reported as damage; but the
    # old messages are gone.
    assert messages_of(reader) == []


def test_a_damaged_consumer_is_reported(stopped: WrittenStore, tmp_path: Path) -> None:
    path = copied(stopped, "WORK", tmp_path)
    (path / "obs" / "worker" / "o.dat").write_bytes(b"\x16\x03")

    (consumer,) = GoStreamReader(str(path)).consumers()

    assert consumer.state is None
    assert [Path(each.path).name for each in consumer.problems] == ["o.dat"]


def test_damage_names_the_sequences_it_may_have_cost(
    stopped: WrittenStore, killed: WrittenStore, tmp_path: Path
) -> None:
    for store, folder in ((stopped, tmp_path / "stopped"), (killed, tmp_path / "killed")):
        path = copied(store, "PLAIN", folder)
        (block,) = (path / "msgs").glob("*.blk")
        batch = GoStreamReader(str(path)).read_block(GoStreamReader(str(path)).blocks[0])
        offsets = {each.seq: each.offset for each in batch.messages()}
        data = bytearray(block.read_bytes())
        data[offsets[100] + 25] ^= 4
        block.write_bytes(data)

        reader = GoStreamReader(str(path))

        expected = [each for each in store.streams["PLAIN"].messages if each.seq != 100]
        assert messages_of(reader) == expected
        (damage,) = reader.report.damage
        assert (damage.offset, damage.first_seq, damage.last_seq) == (offsets[100], 100, 100)
        assert damage.length == offsets[101] - offsets[100]


def test_a_damaged_chunk_of_a_packed_block_costs_what_it_held(
    stopped: WrittenStore, tmp_path: Path
) -> None:
    path = copied(stopped, "PACKED", tmp_path)
    plan = GoStreamReader(str(path)).blocks[0]
    block = path / "msgs" / f"{plan.number}.blk"
    data = bytearray(block.read_bytes())
    data[len(data) // 2] ^= 0x40
    block.write_bytes(data)

    reader = GoStreamReader(str(path))
    messages = messages_of(reader)

    said = stopped.streams["PACKED"].messages
    assert messages == [each for each in said if each in messages]
    assert {each.seq for each in said if each.seq > plan.last_seq} <= {
        each.seq for each in messages
    }
    assert reader.report.damage[0].block == plan.number


def test_reading_leaves_every_file_as_it_was(killed: WrittenStore) -> None:
    def snapshot() -> dict[Path, tuple[int, bytes]]:
        files = (path for path in killed.store_dir.rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = snapshot()

    for found in find_go_streams(str(killed.store_dir)):
        GoStreamReader(found.path).verify()

    assert snapshot() == before
