"""Damage costs only the records that it touches, is told in full, and never gives false data.

The gate of the promise: every bit of a block flipped, every length to which it can be cut, every
stretch of a sector zeroed, swapped or doubled. What a walk gives must be messages that were
written, at their own places; what is missing must be what was touched.
"""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.block import HEADER_BYTES
from penstock.format.columns import ColumnBuilder, MessageRow
from penstock.format.damage import Damage
from penstock.format.record import COMMIT_START, DELETED, ENVELOPED, TOMBSTONE, encode
from penstock.format.sequence_set import SequenceSet
from penstock.format.varint import put_uvarint
from penstock.limits import RESYNC_HASH_BYTES_MAX
from penstock.subjects import SubjectFilter
from tests.format.written import START_NS, U64, BlockWriter, Written, read_all

SECTOR = 512


def ten_records() -> BlockWriter:
    """Ten messages with headers and mixed sizes."""
    writer = BlockWriter(base_seq=100)
    source = random.Random(3)
    for place in range(10):
        headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % place if place % 3 else b""
        payload = source.randbytes((0, 1, 5, 17, 40, 63, 64, 130, 3, 29)[place])
        expires_ns = START_NS + 99 if place == 4 else 0
        writer.add(b"orders.%d" % place, payload, headers=headers, expires_ns=expires_ns)
    return writer


def four_kilobytes() -> BlockWriter:
    """Some forty messages of about a hundred bytes: several sectors."""
    writer = BlockWriter(base_seq=1)
    source = random.Random(4)
    for place in range(40):
        writer.add(b"orders.%d" % (place % 7), source.randbytes(source.randint(0, 150)))
    return writer


def touched(records: list[Written], before: bytes, after: bytes) -> list[Written]:
    """Return the records of which any byte is not what it was."""
    return [
        record
        for record in records
        if after[record.offset : record.end] != before[record.offset : record.end]
    ]


def check_damage_is_told(writer: BlockWriter, data: bytes) -> None:
    """Check a walk over damaged bytes: the untouched messages, and every loss with its place."""
    lost = touched(writer.records, bytes(writer.data), data)
    kept = [record for record in writer.records if record not in lost]

    walker = writer.walker(data)
    found = read_all(walker)

    assert found == [record.message for record in kept if record.message is not None]
    last_whole_end = kept[-1].end if kept else HEADER_BYTES
    assert walker.whole_bytes == last_whole_end
    reported = SequenceSet()
    for damage in walker.damage:
        assert damage.block == writer.header.number
        assert damage.length > 0
        reported.add_range(damage.first_seq, damage.last_seq)
    before_the_tail = [record for record in lost if record.offset < last_whole_end]
    assert list(reported) == [record.seq for record in before_the_tail]
    for record in before_the_tail:
        assert any(
            damage.offset <= record.offset and record.end <= damage.offset + damage.length
            for damage in walker.damage
        )


def test_a_walk_over_a_whole_block_gives_every_message() -> None:
    writer = ten_records()

    walker = writer.walker()

    assert read_all(walker) == writer.messages
    assert walker.damage == []
    assert walker.whole_bytes == walker.offset == len(writer.data)
    assert walker.last_seq == 109


def test_a_flip_of_any_bit_costs_its_record_and_no_other() -> None:
    writer = ten_records()

    for bit in range(HEADER_BYTES * 8, len(writer.data) * 8):
        data = bytearray(writer.data)
        data[bit // 8] ^= 1 << bit % 8
        check_damage_is_told(writer, bytes(data))


def test_every_byte_value_in_every_head_is_noticed() -> None:
    # The head says how long the record is: a wrong one must not lead past its neighbour.
    writer = ten_records()

    for record in writer.records:
        for place in range(record.offset, record.offset + 4):
            for value in range(256):
                data = bytearray(writer.data)
                data[place] = value
                check_damage_is_told(writer, bytes(data))


def test_a_block_cut_at_any_length_keeps_its_whole_records() -> None:
    writer = ten_records()

    for size in range(len(writer.data)):
        walker = writer.walker(bytes(writer.data[:size]))

        whole = [record for record in writer.records if record.end <= size]

        assert read_all(walker) == [record.message for record in whole]
        assert walker.damage == []
        assert walker.whole_bytes == (whole[-1].end if whole else HEADER_BYTES)


def test_a_sector_of_zeros_anywhere_costs_what_lay_there() -> None:
    writer = four_kilobytes()

    for start in range(HEADER_BYTES, len(writer.data)):
        data = bytearray(writer.data)
        end = min(start + SECTOR, len(data))
        data[start:end] = bytes(end - start)
        check_damage_is_told(writer, bytes(data))


def test_two_sectors_that_changed_places_give_no_message_of_the_other() -> None:
    writer = four_kilobytes()
    sectors = len(writer.data) // SECTOR

    for one in range(1, sectors):
        for other in range(one + 1, sectors):
            data = bytearray(writer.data)
            first, second = one * SECTOR, other * SECTOR
            data[first : first + SECTOR] = writer.data[second : second + SECTOR]
            data[second : second + SECTOR] = writer.data[first : first + SECTOR]
            check_damage_is_told(writer, bytes(data))


def test_a_stretch_written_twice_gives_no_message_twice() -> None:
    writer = four_kilobytes()

    for record in writer.records:
        for other in writer.records:
            if other is record or other.offset + record.length > len(writer.data):
                continue
            data = bytearray(writer.data)
            data[other.offset : other.offset + record.length] = writer.data[
                record.offset : record.end
            ]
            check_damage_is_told(writer, bytes(data))


def test_a_stretch_that_was_inserted_or_left_out_gives_no_message_at_a_wrong_place() -> None:
    # All that follows is moved, so that nothing of it checks out: the place is part of the seal.
    writer = ten_records()

    for record in writer.records[:-1]:
        doubled = bytes(writer.data[: record.end] + writer.data[record.offset :])
        without = bytes(writer.data[: record.offset] + writer.data[record.end :])
        for data, kept in ((doubled, record.end), (without, record.offset)):
            walker = writer.walker(data)
            assert read_all(walker) == [each.message for each in writer.records if each.end <= kept]


@given(st.data())
def test_any_number_of_damaged_bytes_cost_only_their_records(data: st.DataObject) -> None:
    writer = ten_records()
    damaged = bytearray(writer.data)
    places = st.integers(HEADER_BYTES, len(damaged) - 1)
    for place in data.draw(st.lists(places, max_size=12)):
        damaged[place] = data.draw(st.integers(0, 255))

    check_damage_is_told(writer, bytes(damaged))


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "with its head damaged"])
def test_a_block_within_a_payload_is_never_taken_for_messages(*, broken: bool) -> None:
    inner = ten_records()
    outer = BlockWriter(base_seq=90)
    outer.add(b"before", b"before")
    outer.add(b"copy", bytes(inner.data))
    outer.add(b"copy", bytes(inner.data[HEADER_BYTES:]), seq=95)
    # The same block's own records, byte for byte, and a forgery under the seed of the block.
    outer.add(b"copy", bytes(outer.data[HEADER_BYTES:]), seq=96)
    forged = encode(b"forged", b"", b"x", seq=97, timestamp_ns=0, seed=outer.header.seed)
    outer.add(b"copy", forged * 3, seq=98)
    outer.add(b"after", b"after", seq=200)
    data = bytearray(outer.data)
    copies = [record for record in outer.records if record.message.subject == b"copy"]  # type: ignore[union-attr]  # all are messages
    for record in copies if broken else []:
        data[record.offset] ^= 0x02

    walker = outer.walker(bytes(data))
    found = read_all(walker)

    if broken:
        assert [message.subject for message in found] == [b"before", b"after"]
        assert [(damage.first_seq, damage.last_seq) for damage in walker.damage] == [(91, 199)]
    else:
        assert found == outer.messages


@pytest.mark.parametrize("size", [1, 27, 28, 512, 4096])
def test_a_tail_of_zeros_is_no_damage_and_no_record(size: int) -> None:
    writer = ten_records()

    walker = writer.walker(bytes(writer.data) + bytes(size))

    assert read_all(walker) == writer.messages
    assert walker.damage == []
    assert walker.whole_bytes == len(writer.data)
    assert walker.offset == len(writer.data) + size


def test_a_block_of_zeros_or_of_nothing_has_no_records() -> None:
    writer = BlockWriter()

    for data in (b"", bytes(10), bytes(HEADER_BYTES), bytes(5000)):
        walker = writer.walker(data)
        assert read_all(walker) == []
        assert walker.damage == []
        assert walker.whole_bytes == HEADER_BYTES


def test_sequences_must_go_on_from_the_record_before() -> None:
    # Whole records all of them, but one that comes from before: a writer never leaves that.
    writer = BlockWriter(base_seq=10)
    for seq in (10, 12, 11, 12, 9, 13):
        writer.add(b"a", seq=seq)

    walker = writer.walker()

    assert [message.seq for message in read_all(walker)] == [10, 12, 13]
    assert [(each.first_seq, each.last_seq) for each in walker.damage] == [(13, 12)]


def test_a_sequence_too_far_from_the_base_is_no_record() -> None:
    writer = BlockWriter(base_seq=10)
    writer.add(b"a", seq=10)
    writer.add(b"far", seq=10 + 2**32)
    writer.add(b"b", seq=11)

    assert [message.seq for message in read_all(writer.walker())] == [10, 11]


def test_skips_tombstones_and_erased_records_are_walked_over() -> None:
    writer = BlockWriter(base_seq=5)
    writer.bury(1, 2, 3)
    writer.add(b"a", b"first")
    writer.skip()
    writer.skip(1000)
    writer.add(b"noise", b"noise", flags=DELETED, seq=2000)
    writer.bury(5)
    writer.add(b"b", b"last", flags=COMMIT_START)

    walker = writer.walker()
    found = read_all(walker)
    index = writer.index()

    assert [(message.seq, message.payload) for message in found] == [(5, b"first"), (2001, b"last")]
    assert walker.damage == []
    assert walker.last_seq == 2001
    assert list(index.tombstones) == [1, 2, 3, 5]
    assert [index.entry(ordinal)[0] for ordinal in range(index.count)] == [5, 2000, 2001]


def test_a_skip_at_the_end_counts_for_all_that_it_skips() -> None:
    writer = BlockWriter(base_seq=5)
    writer.add(b"a")
    writer.skip(1000)

    assert writer.walker().last_seq == 4
    assert writer.index().last_seq == 1005


def test_a_lost_tombstone_is_damage_that_costs_no_message() -> None:
    writer = BlockWriter()
    writer.add_many([b"a", b"b"])
    writer.bury(1)
    writer.add(b"c")
    buried = writer.records[2]
    writer.data[buried.offset + 4] ^= 1

    index = writer.index()

    assert list(index.tombstones) == []
    assert index.damage == [Damage(7, buried.offset, buried.length, "no whole record here", 3, 2)]


def test_messages_lost_before_a_tombstone_are_told_by_it() -> None:
    writer = BlockWriter()
    writer.add_many([b"a", b"b", b"c"])
    writer.bury(1)
    for record in writer.records[1:3]:
        writer.data[record.offset] ^= 1

    assert [(each.first_seq, each.last_seq) for each in writer.index().damage] == [(2, 3)]


def test_a_tombstone_that_cannot_be_read_is_reported_and_the_walk_goes_on() -> None:
    writer = BlockWriter()
    writer.add(b"a")
    writer.add(b"", b"\x09\x09\x09", seq=1, flags=TOMBSTONE)
    writer.add(b"b")

    index = writer.index()

    assert index.count == 2
    assert [(each.offset, each.length) for each in index.damage] == [
        (writer.records[1].offset, writer.records[1].length)
    ]
    assert "tombstone" in index.damage[0].reason


def enveloped(headers_bytes: int, payload_bytes: int) -> bytes:
    out = bytearray(b"FSV2\x00")
    put_uvarint(out, headers_bytes)
    put_uvarint(out, payload_bytes)
    return bytes(out)


@pytest.mark.parametrize(
    ("payload", "counted"),
    [
        (enveloped(0, 500) + b"packed", 30 + 1 + 500),
        (enveloped(20, 500) + b"packed", 30 + 1 + 4 + 20 + 500),
        (enveloped(2**64 - 30, 2**64 - 1), 30 + 1 + 25),
        (enveloped(2**32 - 31, 0), 30 + 1 + 11),
        (b"FSV2\x00\x80", 30 + 1 + 6),
        (b"FSV2\x00", 30 + 1 + 5),
        (b"FSV1\x01packed", 30 + 1 + 11),
        (b"", 30 + 1),
    ],
    ids=["payload", "headers", "absurd", "wrapping", "cut off", "no lengths", "old", "empty"],
)
def test_an_enveloped_record_counts_for_its_plain_lengths_where_it_tells_them(
    payload: bytes, counted: int
) -> None:
    writer = BlockWriter()
    writer.add(b"a", payload, flags=ENVELOPED)

    assert writer.index().message_bytes == counted


def test_an_envelope_that_does_not_open_is_damage_of_its_own_record() -> None:
    writer = BlockWriter()
    writer.add(b"a", b"open", flags=ENVELOPED)
    writer.add(b"b", b"shut", flags=ENVELOPED)
    writer.add(b"c", b"plain")

    def unseal(
        seq: int, timestamp_ns: int, subject: bytes, headers: bytes, payload: bytes
    ) -> tuple[bytes, bytes]:
        assert (timestamp_ns, headers) == (START_NS + seq, b"")
        if payload == b"shut":
            raise FormatError("authentication failed")
        return b"headers of " + subject, b"opened"

    walker = writer.walker()
    found = read_all(walker, unseal=unseal)

    assert [(each.seq, each.headers, each.payload) for each in found] == [
        (1, b"headers of a", b"opened"),
        (3, b"", b"plain"),
    ]
    shut = writer.records[1]
    assert walker.damage == [Damage(7, shut.offset, shut.length, "authentication failed", 2, 2)]


@given(
    first_seq=st.integers(0, 130),
    last_seq=st.integers(90, 130),
    first_ns=st.integers(0, 130),
    last_ns=st.integers(90, 130),
    patterns=st.lists(st.sampled_from([b"orders.>", b"orders.3", b"*.5", b"x"]), max_size=2),
    removed=st.sets(st.integers(95, 115)),
    rows_max=st.integers(1, 12),
    bytes_max=st.integers(1, 700),
)
def test_a_walk_gives_what_was_asked_for_in_batches_of_the_size_asked_for(
    *,
    first_seq: int,
    last_seq: int,
    first_ns: int,
    last_ns: int,
    patterns: list[bytes],
    removed: set[int],
    rows_max: int,
    bytes_max: int,
) -> None:
    writer = ten_records()
    subjects = SubjectFilter(patterns)
    gone = SequenceSet()
    for seq in removed:
        gone.add(seq)

    walker = writer.walker()
    found: list[MessageRow] = []
    more = True
    while more:
        builder = ColumnBuilder()
        more = walker.fill(
            builder,
            subjects=subjects,
            first_seq=first_seq,
            last_seq=last_seq,
            first_ns=START_NS + first_ns,
            last_ns=START_NS + last_ns,
            removed=gone,
            rows_max=rows_max,
            bytes_max=bytes_max,
        )
        batch = list(builder.take(7).messages())
        assert len(batch) <= rows_max
        assert sum(len(m.subject + m.headers + m.payload) for m in batch[:-1]) < bytes_max
        found += batch

    assert found == [
        message
        for message in writer.messages
        if first_seq <= message.seq <= last_seq
        and first_ns <= message.timestamp_ns - START_NS <= last_ns
        and message.seq not in removed
        and subjects.matches(message.subject)
    ]


def test_columns_that_are_not_wanted_stay_empty() -> None:
    builder = ColumnBuilder(headers=False, payloads=False)

    ten_records().walker().fill(builder)
    batch = builder.take(7)

    assert (batch.headers, batch.payloads) == (b"", b"")
    assert [message.subject for message in batch.messages()] == [
        b"orders.%d" % place for place in range(10)
    ]


@pytest.mark.slow
def test_payloads_made_to_look_like_records_cannot_make_a_walk_endless() -> None:
    # Every eighth byte starts what could be a record that reaches to the end of the block: to
    # hash them all would take minutes. The walk gives up, and leaves the rest as a tail.
    reach = 16 * 1024 * 1024
    heads = RESYNC_HASH_BYTES_MAX // reach * 4
    decoy = bytearray(reach)
    for place in range(heads):
        head = bytearray(b"\x00\x00\x00")
        put_uvarint(head, reach - 24 - place * 8 - 7)
        decoy[place * 8 : place * 8 + len(head)] = head
    decoy[reach - 24 : reach - 8] = struct.pack("<Qq", 50, 0)
    writer = BlockWriter()
    writer.add(b"before")
    writer.add(b"decoy", bytes(decoy))
    writer.add(b"after", seq=60)
    writer.data[writer.records[1].offset] ^= 1

    walker = writer.walker()

    assert [message.subject for message in read_all(walker)] == [b"before"]
    assert walker.whole_bytes == writer.records[0].end
    assert walker.offset == len(writer.data)


def test_a_checksum_of_the_right_place_in_another_generation_does_not_hold() -> None:
    old, new = BlockWriter(generation=0), BlockWriter(generation=1)
    for writer in (old, new):
        writer.add(b"a", b"the same")
        writer.add(b"b", b"the same")
    mixed = bytes(new.data[: new.records[0].end]) + bytes(old.data[old.records[1].offset :])

    assert [message.subject for message in read_all(new.walker(mixed))] == [b"a"]
    assert (new.header.seed + HEADER_BYTES) & U64 != (old.header.seed + HEADER_BYTES) & U64
