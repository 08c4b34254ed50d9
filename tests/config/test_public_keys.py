"""Public nkeys, against those of the reference library."""

from __future__ import annotations

import nkeys  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.public_keys import KeyKind, is_public_key, key_kind

KINDS = {
    nkeys.PREFIX_BYTE_USER: KeyKind.USER,
    nkeys.PREFIX_BYTE_ACCOUNT: KeyKind.ACCOUNT,
    nkeys.PREFIX_BYTE_OPERATOR: KeyKind.OPERATOR,
    nkeys.PREFIX_BYTE_SERVER: KeyKind.SERVER,
}


@given(st.binary(min_size=32, max_size=32), st.sampled_from(sorted(KINDS)))
def test_a_key_of_the_reference_library_is_known_by_its_kind(raw: bytes, prefix: int) -> None:
    public = nkeys.from_seed(nkeys.encode_seed(raw, prefix)).public_key.decode()

    assert key_kind(public) is KINDS[prefix]
    assert is_public_key(public, KINDS[prefix])


@given(st.binary(min_size=32, max_size=32), st.integers(0, 55))
def test_a_key_with_one_letter_changed_is_none(raw: bytes, position: int) -> None:
    seed = nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(seed).public_key.decode()
    other = "A" if public[position] != "A" else "B"

    assert not is_public_key(public[:position] + other + public[position + 1 :], KeyKind.USER)


@pytest.mark.parametrize("text", ["", "U", "é" * 56, "u" * 56, "1" * 56, "A" * 57])
def test_other_text_is_no_key(text: str) -> None:
    assert key_kind(text) is None
