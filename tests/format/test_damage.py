"""Damage is told in words, and comes back from an index or a checkpoint as it was noted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.damage import Damage, decode_damage, encode_damage

u64 = st.integers(0, 2**64 - 1)
lists = st.lists(
    st.builds(
        Damage,
        block=st.integers(0, 2**32 - 1),
        offset=u64,
        length=u64,
        reason=st.text(max_size=80),
        first_seq=u64,
        last_seq=u64,
    ),
    max_size=5,
)


@given(lists)
def test_a_list_of_damage_comes_back_as_it_was_written(damage: list[Damage]) -> None:
    assert decode_damage(encode_damage(damage)) == damage


def test_no_damage_takes_no_bytes() -> None:
    assert encode_damage([]) == b""
    assert decode_damage(b"") == []


def test_a_list_that_is_cut_off_is_refused_at_every_length() -> None:
    one = encode_damage([Damage(1, 2, 3, "torn", 4, 5)])
    image = one + encode_damage([Damage(6, 7, 8, "", 9, 10)])

    for size in range(len(image)):
        if size in (0, len(one)):
            continue
        with pytest.raises(FormatError, match="cut off"):
            decode_damage(image[:size])


def test_a_reason_that_is_no_text_is_shown_as_far_as_it_can_be() -> None:
    image = encode_damage([Damage(1, 2, 3, "??", 4, 5)])[:-2] + b"\xff!"

    assert decode_damage(image)[0].reason == "�!"


def test_an_endless_reason_is_cut_to_what_its_length_can_tell() -> None:
    [back] = decode_damage(encode_damage([Damage(1, 2, 3, "x" * 70_000, 4, 5)]))

    assert back.reason == "x" * 0xFFFF


@pytest.mark.parametrize(
    ("first_seq", "last_seq", "cost"),
    [(5, 4, "no sequence missing"), (5, 5, "sequence 5"), (5, 9, "sequences 5 to 9")],
)
def test_damage_is_told_with_its_place_and_its_cost(
    first_seq: int, last_seq: int, cost: str
) -> None:
    text = str(Damage(3, 128, 60, "no whole record here", first_seq, last_seq))

    assert text == f"block 3, offset 128, 60 bytes: no whole record here ({cost})"
