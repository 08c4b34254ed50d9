"""index.db in all its versions, and index.db that lies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.golang.highway import highway_hash, named_key
from penstock.format.golang.state import ByteCursor, StreamState, decode_deleted, decode_index
from tests.format.golang.go_records import encode_deleted, uvarints, varint
from tests.format.golang.written_by_go import WrittenStore

KEY = named_key("S")


def with_hash(body: bytes) -> bytes:
    return body + highway_hash(body, KEY)


def encode_version(version: int, deleted: bytes = b"", deleted_count: int = 0) -> bytes:
    body = bytes([11, version]) + uvarints(8, 400, 3) + varint(1000) + uvarints(12) + varint(2000)
    # Two subjects: one with a single message, which had no last block before version 4.
    body += uvarints(2, 1) + b"a" + uvarints(1, 5) + (uvarints(5) if version >= 4 else b"")
    body += uvarints(1) + b"b" + uvarints(7, 5, 5)
    body += (
        uvarints(1, 5, 400, 3) + varint(0) + uvarints(12) + varint(1000) + uvarints(deleted_count)
    )
    body += uvarints(9) if version >= 2 else b""
    body += uvarints(9) if version >= 3 else b""
    return with_hash(body + deleted + uvarints(5) + b"lasthash")


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("set_version", [1, 2])
def test_every_version_is_read(version: int, set_version: int) -> None:
    data = encode_version(version, encode_deleted([5, 6], set_version), 2)

    index = decode_index(data, KEY, None)

    assert index.state == StreamState(8, 400, 3, 1000, 12, 2000)
    assert (index.subject_count, index.last_block) == (2, 5)
    assert index.last_record_hash == b"lasthash"
    (block,) = index.blocks
    assert (block.number, block.messages, block.bytes) == (5, 8, 400)
    assert (block.first_seq, block.last_seq, list(block.deleted)) == (3, 12, [5, 6])


@given(st.sets(st.integers(0, 20_000), max_size=300), st.sampled_from([1, 2]))
def test_sets_of_deleted_sequences_come_back(seqs: set[int], version: int) -> None:
    cursor = ByteCursor(encode_deleted(sorted(seqs), version) + b"rest")

    assert list(decode_deleted(cursor)) == sorted(seqs)
    assert cursor.take(4) == b"rest"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        encode_version(4)[:-1] + b"?",
        encode_version(5),
        encode_version(0),
        with_hash(b"\x0c\x04" + bytes(40)),
        encode_version(4, encode_deleted([5], 2), 0),
        encode_version(4, b"\x16\x02\xff\xff\xff\xff\x01\0\0\0", 1),
        encode_version(4, encode_deleted([5], 2)[:10] + b"\xff" * 266, 1),
        encode_version(4, b"\x16\x03" + encode_deleted([5], 2)[2:], 1),
        encode_version(
            4, encode_deleted([5], 2).replace(b"\x01\0\0\0\x01\0\0\0", b"\1\0\0\0\2\0\0\0"), 2
        ),
    ],
)
def test_an_index_that_lies_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_index(data, KEY, None)


@given(st.binary(max_size=200))
def test_any_bytes_under_a_right_hash_give_an_index_or_an_error(tail: bytes) -> None:
    for version in range(1, 5):
        try:
            decode_index(with_hash(bytes([11, version]) + tail), KEY, None)
        except FormatError as error:
            assert error.reason  # noqa: PT017  # either outcome is right


@pytest.mark.oracle
def test_the_server_s_index_names_its_subjects_and_deletions(stopped: WrittenStore) -> None:
    said = stopped.streams["PLAIN"].state
    data = (stopped.stream_path("PLAIN") / "msgs" / "index.db").read_bytes()

    index = decode_index(data, named_key("PLAIN"), None)

    assert index.subject_count == said["num_subjects"]
    assert [seq for block in index.blocks for seq in block.deleted] == said["deleted"]
