"""The journal of consumers: what was written is read back, and no other bytes are taken for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError, UnsupportedVersion
from penstock.format.hashing import xxh64
from penstock.format.state.journal import (
    HEAD_BYTES,
    JournalEntry,
    decode_journal,
    encode_frame,
    encode_head,
)

ENTRIES = st.lists(
    st.builds(
        JournalEntry,
        stream=st.text(min_size=1, max_size=4),
        stream_ns=st.integers(-(2**63), 2**63 - 1),
        consumer=st.text(min_size=1, max_size=4),
        document=st.none() | st.binary(max_size=40),
    ),
    max_size=6,
)


def journal_of(entries: list[JournalEntry], salt: int = 7) -> bytes:
    data = encode_head(salt)
    for entry in entries:
        data += encode_frame(entry, salt=salt, place=len(data))
    return data


@given(ENTRIES, st.integers(0, 2**64 - 1))
def test_what_was_written_is_read_back(entries: list[JournalEntry], salt: int) -> None:
    data = journal_of(entries, salt)

    assert decode_journal(data, path="j") == (entries, len(data))


@given(ENTRIES, st.data())
def test_a_journal_that_is_cut_ends_with_the_last_whole_change(
    entries: list[JournalEntry], data: st.DataObject
) -> None:
    whole = journal_of(entries)
    size = data.draw(st.integers(HEAD_BYTES, len(whole)))

    found, end = decode_journal(whole[:size], path="j")

    assert found == entries[: len(found)]
    assert end == len(journal_of(found))
    assert len(found) == len(entries) or size < len(journal_of(entries[: len(found) + 1]))


@given(ENTRIES, st.data())
def test_a_flipped_bit_is_never_taken_for_another_change(
    entries: list[JournalEntry], data: st.DataObject
) -> None:
    whole = bytearray(journal_of(entries))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8

    try:
        found, _ = decode_journal(bytes(whole), path="j")
    except FormatError:
        assert bit < HEAD_BYTES * 8
    else:
        assert found == entries[: len(found)]
        assert len(found) < len(entries)


def test_frames_of_another_journal_or_another_place_do_not_count() -> None:
    entry = JournalEntry("S", 1, "C", b"{}")
    head = encode_head(7)
    strange = encode_frame(entry, salt=8, place=HEAD_BYTES)
    moved = encode_frame(entry, salt=7, place=HEAD_BYTES + 1)

    assert decode_journal(head + strange, path="j").entries == []
    assert decode_journal(head + moved, path="j").entries == []


def test_a_file_that_was_only_made_is_empty() -> None:
    assert decode_journal(b"", path="j") == ([], 0)


def test_a_journal_of_a_later_version_is_refused() -> None:
    head = bytearray(encode_head(7))
    head[8] = 2
    head[24:] = xxh64(bytes(head[:24])).to_bytes(8, "little")

    with pytest.raises(UnsupportedVersion):
        decode_journal(bytes(head), path="j")
