"""Archives of streams: what is written is read again, however it is cut, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.golang.archive import END, MAGIC, ArchiveEntry, ArchiveParser, S2Unpacker
from penstock.format.golang.s2 import encode_s2_stream
from penstock.format.varint import put_uvarint
from penstock.limits import ARCHIVE_ENTRY_BYTES_MAX, ARCHIVE_NAME_BYTES_MAX

ENTRIES = st.lists(
    st.builds(
        ArchiveEntry,
        st.binary(min_size=1, max_size=40),
        st.integers(min_value=-(2**63), max_value=2**63 - 1),
        st.integers(min_value=0, max_value=2**64 - 1),
        st.binary(max_size=60),
        st.binary(max_size=60),
    ),
    max_size=8,
)


def written(entries: list[ArchiveEntry]) -> bytes:
    return MAGIC + b"".join(each.encode() for each in [*entries, END])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(ENTRIES, st.lists(st.integers(min_value=0, max_value=10_000), max_size=10))
def test_entries_come_back_however_the_bytes_are_cut(
    entries: list[ArchiveEntry], places: list[int]
) -> None:
    parser = ArchiveParser()

    found = [each for piece in cut(written(entries), places) for each in parser.feed(piece)]

    assert found == entries
    assert parser.is_complete


@given(ENTRIES, st.integers(min_value=1, max_value=10_000))
def test_an_archive_that_is_cut_off_is_not_complete(
    entries: list[ArchiveEntry], missing: int
) -> None:
    data = written(entries)
    parser = ArchiveParser()

    found = list(parser.feed(data[: -(missing % len(data) + 1)]))

    assert found == entries[: len(found)]
    assert not parser.is_complete


@given(st.binary(max_size=200))
def test_any_bytes_are_an_archive_or_refused(data: bytes) -> None:
    parser = ArchiveParser()
    try:
        list(parser.feed(MAGIC + data))
        list(parser.feed(data))
    except FormatError:
        return


def test_sizes_beyond_their_bounds_are_refused_before_the_bytes_come() -> None:
    for sizes in ((ARCHIVE_NAME_BYTES_MAX + 1, 0), (1, ARCHIVE_ENTRY_BYTES_MAX + 1), (1, 2**63)):
        head = bytearray(MAGIC)
        for number in (sizes[0], 0, 1, 0, sizes[1]):
            put_uvarint(head, number)

        with pytest.raises(FormatError):
            list(ArchiveParser().feed(bytes(head)))


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(FormatError):
        list(ArchiveParser().feed(MAGIC + b"\xff" * 10))


@given(st.binary(min_size=1, max_size=5000), st.lists(st.integers(0, 10_000), max_size=10))
def test_an_s2_stream_is_unpacked_however_it_is_cut(data: bytes, places: list[int]) -> None:
    unpacker = S2Unpacker()
    packed = encode_s2_stream(data) + encode_s2_stream(data)

    found = b"".join(plain for piece in cut(packed, places) for plain in unpacker.feed(piece))

    assert found == data + data
    assert unpacker.is_between_chunks


def test_what_does_not_begin_as_an_s2_stream_is_refused() -> None:
    with pytest.raises(FormatError):
        list(S2Unpacker().feed(encode_s2_stream(b"hello")[10:] + b"more"))
