"""The walk over a block's records: what is whole is kept, what is damaged is named."""

from __future__ import annotations

import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.errors import UsageError
from penstock.format.columns import ColumnBuilder, MessageRow
from penstock.format.golang.highway import named_key
from penstock.format.golang.records import GoBlock
from tests.format.golang.go_records import ERASED, HASH_KEY, TOMBSTONE, encode_record
from tests.format.golang.written_by_go import WrittenStore

SEQ_MAX = 2**62 - 1
NOTHING = array("Q")

tokens = st.binary(min_size=1, max_size=4).filter(lambda t: not set(t) & set(b". \t\r\n\v\f"))
subjects = st.lists(tokens, min_size=1, max_size=3).map(b".".join)
header_blocks = st.none() | st.binary(max_size=20).map(
    lambda value: b"NATS/1.0\r\nK: " + value.replace(b"\r", b"") + b"\r\n\r\n"
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, list[MessageRow]]:
    """A block of whole records and the messages in it."""
    parts, messages = [], []
    seq = offset = 0
    for _ in range(draw(st.integers(1, 12))):
        seq += draw(st.integers(1, 3))
        kind = draw(st.sampled_from([0, 0, 0, ERASED, TOMBSTONE]))
        if kind:
            parts.append(encode_record(seq | kind))
        else:
            subject, headers = draw(subjects), draw(header_blocks)
            payload = draw(st.binary(max_size=50))
            messages.append(MessageRow(seq, 1, subject, headers or b"", payload, offset))
            parts.append(encode_record(seq, subject, payload, headers=headers))
        offset += len(parts[-1])
    return b"".join(parts), messages


def messages_of(block: GoBlock) -> list[MessageRow]:
    builder = ColumnBuilder()
    block.fill(builder, 1, SEQ_MAX, NOTHING)
    return list(builder.take(1).messages())


@given(blocks())
def test_whole_blocks_come_back(written: tuple[bytes, list[MessageRow]]) -> None:
    data, messages = written

    block = GoBlock(data, HASH_KEY)

    assert messages_of(block) == messages
    assert block.damage == []


def test_every_kind_of_record_is_told_apart() -> None:
    data = b"".join(
        [
            encode_record(5, b"a", b"x", timestamp_ns=50),
            encode_record(6 | ERASED, timestamp_ns=60),
            encode_record(7 | ERASED, b"", b"random bytes", timestamp_ns=0),
            encode_record(3 | TOMBSTONE, timestamp_ns=30),
            encode_record(9, b"b", timestamp_ns=90),
            encode_record(11 | TOMBSTONE, timestamp_ns=110),
        ]
    )

    block = GoBlock(data, HASH_KEY)

    assert (block.skipped, block.erased, block.tombstones) == ([6], [7], [3, 11])
    assert (block.first_seq, block.last_seq, block.row_count) == (5, 9, 2)
    assert (block.first_ordered_seq, block.last_ordered_seq) == (5, 9)
    assert (block.highest_seq, block.highest_timestamp_ns) == (11, 110)
    assert block.damage == []


def test_ranges_deleted_sequences_and_subjects_are_left_out() -> None:
    class NotB:
        def matches(self, subject: bytes, /) -> bool:
            return subject != b"b"

    data = b"".join(encode_record(seq, b"ab"[seq % 2 :][:1]) for seq in range(1, 21))
    builder = ColumnBuilder()

    sizes = GoBlock(data, HASH_KEY).fill(builder, 3, 18, array("Q", [1, 4, 7, 7, 10, 12]), NotB())

    assert [each.seq for each in builder.take(1).messages()] == [6, 8, 14, 16, 18]
    assert memoryview(sizes).cast("I").tolist() == [31] * 5


@given(blocks(), st.data())
def test_a_changed_byte_costs_at_most_the_record_it_stands_in(
    written: tuple[bytes, list[MessageRow]], draw: st.DataObject
) -> None:
    data, messages = written
    place = draw.draw(st.integers(0, len(data) - 1))
    changed = bytearray(data)
    changed[place] ^= draw.draw(st.integers(1, 255))

    block = GoBlock(changed, HASH_KEY)

    untouched = [each for each in messages if not _covers(each, place)]
    found = messages_of(block)
    assert [each for each in found if each in untouched] == untouched
    for each in found:
        if each not in untouched:
            # The one length that can lie unseen: where a subject ends and its payload starts.
            (touched,) = (message for message in messages if _covers(message, place))
            assert place - touched.offset in (20, 21)
            assert each.subject + each.payload == touched.subject + touched.payload
    if found == untouched and len(untouched) < len(messages):
        assert block.damage


def _covers(message: MessageRow, place: int) -> bool:
    size = 30 + len(message.subject) + len(message.payload) + len(message.headers)
    size += 4 if message.headers else 0
    return message.offset <= place < message.offset + size


@given(blocks(), st.data())
def test_a_block_cut_off_keeps_what_is_whole(
    written: tuple[bytes, list[MessageRow]], draw: st.DataObject
) -> None:
    data, messages = written
    end = draw.draw(st.integers(0, len(data)))

    block = GoBlock(data[:end], HASH_KEY)

    assert messages_of(block) == [
        each for each in messages if each.offset < end and not _covers(each, end)
    ]


@given(blocks(), st.data())
def test_garbage_between_records_is_passed_over(
    written: tuple[bytes, list[MessageRow]], draw: st.DataObject
) -> None:
    data, messages = written
    garbage = draw.draw(st.binary(min_size=1, max_size=90))
    place = draw.draw(st.sampled_from([0, len(data), *(each.offset for each in messages)]))

    block = GoBlock(data[:place] + garbage + data[place:], HASH_KEY)

    assert [replace(each, offset=0) for each in messages_of(block)] == [
        replace(each, offset=0) for each in messages
    ]
    assert sum(each.length for each in block.damage) == len(garbage)


@given(st.binary(max_size=400), st.integers(0, 40))
def test_any_bytes_are_walked_to_their_end(data: bytes, length: int) -> None:
    framed = struct.pack("<I", length + 22) + data
    for candidate in (data, framed * 3):
        block = GoBlock(candidate, HASH_KEY)

        assert block.row_count == 0
        assert sum(each.length for each in block.damage) <= len(candidate)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (encode_record(1, b"a..b", b""), "record subject is not a subject"),
        (encode_record(1, b"a.", b""), "record subject is not a subject"),
        (encode_record(1, b"a b", b""), "record subject is not a subject"),
        (encode_record(1, b"", b"x"), "record subject is not a subject"),
        (
            encode_record(1, b"a", b"", headers=b"HTTP/1.0\r\n\r\n"),
            "record headers are not headers",
        ),
        (encode_record(0, b"a", b""), "record sequence does not rise"),
        (encode_record(1 | TOMBSTONE, b"", b"x"), "record length is impossible"),
        (encode_record(1 | TOMBSTONE | ERASED), "record length is impossible"),
        (encode_record(1, b"a")[:-1], "the block ends within a record"),
        (encode_record(1, b"a")[:-1] + b"?", "record checksum differs"),
    ],
)
def test_records_that_cannot_be_are_damage(record: bytes, reason: str) -> None:
    block = GoBlock(record, HASH_KEY)

    assert [each.reason for each in block.damage] == [reason]
    assert block.row_count == 0


def test_a_wrong_length_of_headers_is_seen_by_their_end() -> None:
    record = bytearray(encode_record(1, b"a", b"body", headers=b"NATS/1.0\r\nA: b\r\n\r\n"))
    record[23] -= 1

    assert [each.reason for each in GoBlock(record, HASH_KEY).damage] == [
        "record headers are not headers"
    ]


def test_headers_that_a_client_left_unclosed_are_kept() -> None:
    block = GoBlock(encode_record(1, b"a", b"body", headers=b"NATS/1.0\r\nA: b"), HASH_KEY)

    assert [each.headers for each in messages_of(block)] == [b"NATS/1.0\r\nA: b"]


def test_a_sequence_that_does_not_rise_is_damage() -> None:
    data = encode_record(5, b"a") + encode_record(4, b"b") + encode_record(6, b"c")

    block = GoBlock(data, HASH_KEY)

    assert [each.seq for each in messages_of(block)] == [5, 6]
    (damage,) = block.damage
    assert (damage.offset, damage.length, damage.seq_before, damage.seq_after) == (31, 31, 5, 6)


def test_a_record_within_a_damaged_payload_is_not_taken_for_one() -> None:
    inner = encode_record(2, b"forged", b"never published")
    outer = bytearray(encode_record(1, b"a", b"before " + inner + b" after"))
    outer[24] ^= 1

    block = GoBlock(bytes(outer) + encode_record(3, b"b"), HASH_KEY)
    alone = GoBlock(bytes(outer), HASH_KEY)

    assert [each.seq for each in messages_of(block)] == [3]
    assert messages_of(alone) == []


def test_a_wrong_length_that_reaches_another_record_hides_none_between() -> None:
    # Four records of 64 bytes; the first one's length becomes 128, which is where the third starts.
    records = [encode_record(seq, b"a", bytes(33)) for seq in range(1, 5)]
    data = bytearray(b"".join(records))
    assert len(data) == 256
    data[0] = 128

    block = GoBlock(data, HASH_KEY)

    assert [each.seq for each in messages_of(block)] == [2, 3, 4]
    assert [(each.offset, each.length) for each in block.damage] == [(0, 64)]


def test_bytes_made_to_look_like_records_are_given_up_after_a_bounded_search() -> None:
    # Each of 3,000 places claims a record of half the block: reading them all would cost 750 times
    # the block, and find the whole record at its end.
    header = struct.pack("<IQqH", 45_000, 1, 1, 1) + b"aaaaaaaa"
    data = header * 3_000 + encode_record(9, b"b")

    block = GoBlock(data, HASH_KEY)

    assert block.row_count == 0
    assert [(each.offset, each.length) for each in block.damage] == [(0, len(data))]


def test_a_block_of_another_name_holds_nothing() -> None:
    block = GoBlock(encode_record(1, b"a", b"b"), named_key("S-2"))

    assert block.row_count == 0
    with pytest.raises(UsageError):
        GoBlock(b"", b"short")


@pytest.mark.oracle
def test_any_byte_changed_in_a_block_of_the_server_costs_only_its_record(
    stopped: WrittenStore,
) -> None:
    data = (stopped.stream_path("WORK") / "msgs" / "1.blk").read_bytes()
    key = named_key("WORK-1")
    messages = messages_of(GoBlock(data, key))
    subject_lengths = {each.offset + place for each in messages for place in (20, 21)}
    assert len(messages) == 20

    for place in range(len(data)):
        if place in subject_lengths:
            continue
        changed = bytearray(data)
        changed[place] ^= 0x81
        found = messages_of(GoBlock(changed, key))
        assert found == [each for each in messages if not _covers(each, place)]
