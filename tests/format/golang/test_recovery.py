"""Which messages a folder of blocks holds when blocks or index are not as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.format.golang.directory import GoStreamReader, find_go_streams
from penstock.limits import GO_BLOCK_BYTES_MAX
from tests.format.golang.go_records import (
    ERASED,
    TOMBSTONE,
    encode_index,
    encode_record,
    write_stream,
)

RECORD_BYTES = 31


def records(first_seq: int, last_seq: int, *, block: int = 1) -> bytes:
    return b"".join(encode_record(seq, b"a", block=block) for seq in range(first_seq, last_seq + 1))


def seqs_of(reader: GoStreamReader) -> list[int]:
    return [message.seq for batch in reader.batches() for message in batch.messages()]


def lost_of(reader: GoStreamReader) -> list[tuple[int, int, int]]:
    return [(each.block, each.first_seq, each.last_seq) for each in reader.report.damage]


def test_an_index_that_fits_is_believed(tmp_path: Path) -> None:
    data = records(1, 5)
    index = encode_index(
        state=(3, 93, 2, 4), blocks=[(1, 93, 2, 4)], last_block=1, last_hash=data[-8:]
    )

    reader = GoStreamReader(str(write_stream(tmp_path, {1: data}, index=index)))

    assert reader.report.index_problem is None
    assert seqs_of(reader) == [2, 3, 4]
    assert [each.seq for each in reader.read_block(reader.blocks[0]).messages()] == [2, 3, 4]


@pytest.mark.parametrize(
    ("state", "blocks", "last_block"),
    [
        ((4, 155, 1, 5), [(1, 155, 1, 5)], 1),
        ((5, 154, 1, 5), [(1, 155, 1, 5)], 1),
        ((5, 155, 1, 6), [(1, 155, 1, 5)], 1),
        ((5, 155, 1, 5), [(1, 155, 1, 5)], 2),
        ((0, 0, 0, 0), [], 1),
        ((1, 31, 1, 2**63), [(1, 31, 2**63, 2**63)], 1),
        ((1, 31, 1, 5), [(1, 31, 2**63, 2**63)], 1),
        ((10, 310, 1, 5), [(1, 155, 1, 5), (1, 155, 1, 5)], 1),
    ],
)
def test_an_index_that_does_not_add_up_is_not_believed(
    tmp_path: Path,
    state: tuple[int, int, int, int],
    blocks: list[tuple[int, int, int, int]],
    last_block: int,
) -> None:
    data = records(1, 5)
    index = encode_index(state=state, blocks=blocks, last_block=last_block, last_hash=data[-8:])

    reader = GoStreamReader(str(write_stream(tmp_path, {1: data}, index=index)))

    assert reader.report.index_problem is not None
    assert seqs_of(reader) == [1, 2, 3, 4, 5]


def test_a_stale_index_tells_the_highest_and_lowest_sequence(tmp_path: Path) -> None:
    index = encode_index(
        state=(9, 279, 3, 11), blocks=[(1, 279, 3, 11)], last_block=1, last_hash=b"another."
    )

    reader = GoStreamReader(str(write_stream(tmp_path, {1: records(1, 5)}, index=index)))

    assert seqs_of(reader) == [3, 4, 5]
    assert (reader.state.first_seq, reader.state.last_seq) == (3, 11)


def test_tombstones_reach_back_over_blocks(tmp_path: Path) -> None:
    blocks = {
        1: records(1, 3),
        2: records(4, 6, block=2),
        10: encode_record(2 | TOMBSTONE, block=10) + encode_record(6 | TOMBSTONE, block=10),
    }

    reader = GoStreamReader(str(write_stream(tmp_path, blocks)))

    assert seqs_of(reader) == [1, 3, 4, 5]
    assert (reader.state.messages, reader.state.bytes) == (4, 4 * RECORD_BYTES)
    assert (reader.state.first_seq, reader.state.last_seq) == (1, 6)


def test_sequences_that_stand_twice_are_given_once_and_reported(tmp_path: Path) -> None:
    blocks = {1: records(1, 5), 2: records(4, 6, block=2)}

    reader = GoStreamReader(str(write_stream(tmp_path, blocks)))

    assert seqs_of(reader) == [1, 2, 3, 4, 5, 6]
    assert [each.block for each in reader.report.damage] == [1]
    assert reader.report.damage[0].last_seq < reader.report.damage[0].first_seq


def test_damage_at_a_block_s_edges_is_bounded_by_its_neighbours(tmp_path: Path) -> None:
    second = bytearray(records(4, 9, block=2))
    second[25] ^= 1
    second[-1] ^= 1
    blocks = {1: records(1, 3), 2: bytes(second), 3: b"", 4: records(10, 11, block=4)}

    reader = GoStreamReader(str(write_stream(tmp_path, blocks)))

    assert seqs_of(reader) == [1, 2, 3, 5, 6, 7, 8, 10, 11]
    assert lost_of(reader) == [(2, 4, 4), (2, 9, 9)]


def test_a_block_lost_whole_is_bounded_by_its_neighbours(tmp_path: Path) -> None:
    path = write_stream(tmp_path, {1: records(1, 3), 2: b"", 3: records(8, 9, block=3)})
    with (path / "msgs" / "2.blk").open("r+b") as file:
        file.truncate(GO_BLOCK_BYTES_MAX + 1)

    reader = GoStreamReader(str(path))

    assert seqs_of(reader) == [1, 2, 3, 8, 9]
    assert lost_of(reader) == [(2, 4, 7)]
    (damage,) = reader.report.damage
    assert damage.length == GO_BLOCK_BYTES_MAX + 1
    assert damage.reason == f"{GO_BLOCK_BYTES_MAX + 1} bytes: more than the server ever writes"


def test_a_torn_tail_may_have_cost_the_next_sequence(tmp_path: Path) -> None:
    reader = GoStreamReader(str(write_stream(tmp_path, {1: records(1, 4)[:-5]})))

    assert seqs_of(reader) == [1, 2, 3]
    assert lost_of(reader) == [(1, 4, 4)]


def test_deleted_sequences_are_not_missed(tmp_path: Path) -> None:
    data = bytearray(records(1, 4) + encode_record(3 | TOMBSTONE))
    data[2 * RECORD_BYTES + 5] ^= 1

    reader = GoStreamReader(str(write_stream(tmp_path, {1: bytes(data)})))

    assert seqs_of(reader) == [1, 2, 4]
    (damage,) = reader.report.damage
    assert damage.last_seq < damage.first_seq


def test_an_erased_message_leaves_its_sequence_used(tmp_path: Path) -> None:
    erased = encode_record(2 | ERASED, b"", b"random", timestamp_ns=0)
    data = encode_record(1, b"a") + erased + encode_record(2 | TOMBSTONE, timestamp_ns=77)

    state = GoStreamReader(str(write_stream(tmp_path, {1: data}))).state

    assert (state.messages, state.last_seq, state.last_timestamp_ns) == (1, 2, 77)


def test_a_packed_block_with_an_impossible_size_is_damage(tmp_path: Path) -> None:
    packed = b"cmp\x01\x00" + bytes(20)

    reader = GoStreamReader(str(write_stream(tmp_path, {1: packed, 2: records(1, 2, block=2)})))

    assert seqs_of(reader) == [1, 2]
    assert [each.block for each in reader.report.damage] == [1]


@pytest.mark.parametrize("config", [[], "text", 7])
def test_a_configuration_that_is_no_object_is_reported(tmp_path: Path, config: object) -> None:
    reader = GoStreamReader(str(write_stream(tmp_path, {1: records(1, 2)}, config=config)))

    assert [each.reason for each in reader.report.files] == [
        "the configuration is not a JSON object"
    ]
    assert seqs_of(reader) == [1, 2]


def test_a_configuration_of_other_types_limits_nothing(tmp_path: Path) -> None:
    config = {"name": ["S"], "max_msgs": "2", "max_bytes": None, "first_seq": "x", "discard": 1}

    reader = GoStreamReader(str(write_stream(tmp_path, {1: records(1, 3)}, config=config)))

    assert (reader.name, seqs_of(reader)) == ("S", [1, 2, 3])


def test_a_stream_without_blocks_starts_where_it_was_told_to(tmp_path: Path) -> None:
    config = {"name": "S", "first_seq": 500}

    state = GoStreamReader(str(write_stream(tmp_path, {}, config=config))).state

    assert (state.messages, state.first_seq, state.last_seq) == (0, 500, 499)


def test_stray_files_are_no_consumers_and_no_streams(tmp_path: Path) -> None:
    path = write_stream(tmp_path, {1: records(1, 1)})
    assert GoStreamReader(str(path)).consumers() == []
    (path / "obs").mkdir()
    (path / "obs" / "stray").write_bytes(b"")
    path.with_name("stray").write_bytes(b"")
    path.with_name(".S").mkdir()
    for name in ("meta.inf", "msgs"):
        path.with_name(".S").joinpath(name).mkdir()

    assert GoStreamReader(str(path)).consumers() == []
    assert [(each.account, each.stream) for each in find_go_streams(str(tmp_path))] == [("A", "S")]


def test_the_account_is_taken_from_the_path(tmp_path: Path) -> None:
    path = write_stream(tmp_path, {})

    assert GoStreamReader(str(path)).account == "A"
    assert GoStreamReader(str(path.rename(tmp_path / "S"))).account == "$G"
