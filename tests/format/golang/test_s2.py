"""The S2 stream decoder: what encoders write comes back, and nothing else gets through."""

from __future__ import annotations

import contextlib
import random
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.golang.recovery import unpack_block
from penstock.format.golang.s2 import decode_s2_stream, encode_s2_stream, salvage_s2_stream
from tests.format.golang.written_by_go import WrittenStore

S2_IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
SNAPPY_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
LIMIT = 1 << 20

repetitive = st.lists(st.sampled_from([b"a", b"abc", b"0123456789" * 9]), max_size=200).map(
    b"".join
)
texts = st.binary(max_size=3000) | repetitive


def masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def chunk(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def compressed(block: bytes, plain: bytes) -> bytes:
    return chunk(0, struct.pack("<I", masked_crc(plain)) + block)


@given(texts)
def test_what_was_encoded_comes_back(data: bytes) -> None:
    assert decode_s2_stream(encode_s2_stream(data), len(data)) == data


@given(texts)
def test_snappy_streams_are_read(data: bytes) -> None:
    assert decode_s2_stream(bytes(cramjam.snappy.compress(data)), len(data)) == data


def test_streams_of_several_chunks_come_back() -> None:
    data = random.Random(5).randbytes(300_000) * 9

    assert decode_s2_stream(encode_s2_stream(data), len(data)) == data


@given(st.binary(max_size=200))
def test_the_encoder_writes_what_the_frame_says(data: bytes) -> None:
    stream = encode_s2_stream(data)

    assert stream.startswith(S2_IDENTIFIER)
    if data:
        assert int.from_bytes(stream[14:18], "little") == masked_crc(data)


@pytest.mark.parametrize(
    ("code", "extra", "size"),
    [
        (0, b"", 4),
        (4, b"", 8),
        (5, b"\x02", 10),
        (6, b"\x01\x01", 257 + 260),
        (7, b"\x01\x00\x01", 65537 + 65540),
    ],
)
def test_repeat_codes_of_every_length_repeat_the_last_offset(
    code: int, extra: bytes, size: int
) -> None:
    plain = b"abcd" + (b"abcd" * (2 + size // 4))[: 4 + size]
    block_size = bytes(_uvarint(len(plain)))
    literal, copy = bytes([3 << 2]) + b"abcd", bytes([1, 4])
    repeat = bytes([(code << 2) | 1, 0]) + extra

    stream = S2_IDENTIFIER + compressed(block_size + literal + copy + repeat, plain)

    assert decode_s2_stream(stream, len(plain)) == plain


def _uvarint(value: int) -> list[int]:
    out = []
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return [*out, value]


def test_snappy_streams_have_no_repeat_codes() -> None:
    plain = b"abcd" * 3
    block = bytes([12, 3 << 2]) + b"abcd" + bytes([1, 4, 1, 0])

    assert decode_s2_stream(S2_IDENTIFIER + compressed(block, plain), LIMIT) == plain
    with pytest.raises(FormatError):
        decode_s2_stream(SNAPPY_IDENTIFIER + compressed(block, plain), LIMIT)


def test_padding_and_skippable_chunks_are_passed_over() -> None:
    plain = chunk(1, struct.pack("<I", masked_crc(b"words")) + b"words")

    stream = S2_IDENTIFIER + chunk(0xFE, bytes(9)) + plain + chunk(0x99, b"index") + plain

    assert decode_s2_stream(stream, LIMIT) == b"wordswords"


@pytest.mark.parametrize(
    "stream",
    [
        compressed(b"\x00", b""),
        S2_IDENTIFIER + chunk(0x02, b"data"),
        S2_IDENTIFIER + chunk(1, b"abc"),
        S2_IDENTIFIER + chunk(1, b"\0\0\0\0abc"),
        S2_IDENTIFIER + chunk(0xFF, b"S2sTwX"),
        S2_IDENTIFIER + chunk(1, b"abcdef")[:-1],
        S2_IDENTIFIER + b"\x01\x00",
        S2_IDENTIFIER + compressed(b"\x80\x80\x80\x80\x01", b""),
        # A repeat before any copy, and a copy from before the start.
        S2_IDENTIFIER + compressed(bytes([8, 3 << 2]) + b"abcd" + bytes([1, 0]), b"abcdabcd"),
        S2_IDENTIFIER + compressed(bytes([8, 3 << 2]) + b"abcd" + bytes([1, 5]), b"abcdabcd"),
    ],
)
def test_what_the_format_forbids_is_refused(stream: bytes) -> None:
    with pytest.raises(FormatError):
        decode_s2_stream(stream, LIMIT)


def test_more_than_the_limit_is_refused() -> None:
    stream = encode_s2_stream(bytes(1000))

    assert decode_s2_stream(stream, 1000) == bytes(1000)
    with pytest.raises(FormatError):
        decode_s2_stream(stream, 999)


@given(texts, st.data())
def test_changed_streams_give_the_same_bytes_or_an_error(data: bytes, draw: st.DataObject) -> None:
    stream = bytearray(encode_s2_stream(data))
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.integers(0, len(stream) - 1))
        stream[place] = draw.draw(st.integers(0, 255))

    try:
        decoded = decode_s2_stream(stream, LIMIT)
    except FormatError:
        return

    # A chunk turned into a skippable one is lost without a word: the frame allows it.
    assert decoded in (data, b"")


@given(st.binary(max_size=300))
def test_any_bytes_give_an_answer_or_an_error(tail: bytes) -> None:
    for identifier in (b"", S2_IDENTIFIER, SNAPPY_IDENTIFIER):
        for stream in (identifier + tail, identifier + chunk(0, bytes(4) + tail)):
            with contextlib.suppress(FormatError):
                assert len(decode_s2_stream(stream, 10_000)) <= 10_000
            assert len(salvage_s2_stream(stream, 500)[0]) == 500


def test_salvage_keeps_the_chunks_that_check_out() -> None:
    data = random.Random(6).randbytes(1 << 20) + b"b" * (1 << 20) + b"c" * 1000
    stream = bytearray(encode_s2_stream(data))
    stream[5000] ^= 1

    salvaged, holes = salvage_s2_stream(stream, len(data))

    assert salvaged == bytes(1 << 20) + data[1 << 20 :]
    assert holes == [(0, 1 << 20)]


def test_salvage_gives_up_where_the_frame_is_lost() -> None:
    data = random.Random(7).randbytes(1 << 20) + b"b" * 1000
    stream = encode_s2_stream(data)

    salvaged, holes = salvage_s2_stream(stream[: 1 << 19], len(data))

    assert salvaged == bytes(len(data))
    assert holes == [(0, len(data))]


@pytest.mark.oracle
def test_blocks_packed_by_the_server_are_read(stopped: WrittenStore) -> None:
    paths = sorted((stopped.stream_path("PACKED") / "msgs").glob("*.blk"))
    packed = [data for path in paths if (data := path.read_bytes()).startswith(b"cmp")]

    plain = [unpack_block(data) for data in packed]

    assert packed
    assert all(len(each) > 2 * len(data) for each, data in zip(plain, packed, strict=True))
    assert all(each[-8:] == data[-8:] for each, data in zip(plain, packed, strict=True))
