"""Nkeys against the package of the same name, and against everything that is not one."""

from __future__ import annotations

import base64

import nkeys as reference  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.nkeys import (
    PUBLIC_KEY_CHARACTERS,
    Prefix,
    encode_public_key,
    find_public_key,
    find_signature,
    find_user_seed,
    is_public_key,
    is_signed,
    is_user_key,
    sign,
)

seeds = st.binary(min_size=32, max_size=32)


def user_of(seed: bytes) -> reference.KeyPair:
    return reference.from_seed(reference.encode_seed(seed, reference.PREFIX_BYTE_USER))


@given(seeds, st.binary(max_size=40))
def test_signatures_of_the_reference_are_accepted_in_both_spellings(
    seed: bytes, message: bytes
) -> None:
    user = user_of(seed)
    key = user.public_key.decode()
    signature = user.sign(message)

    assert is_user_key(key)
    raw_url = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    assert is_signed(key, message, raw_url)
    assert is_signed(key, message, base64.b64encode(signature).decode())
    assert not is_signed(key, message + b"x", raw_url)
    assert not is_signed(key, message, base64.urlsafe_b64encode(bytes(64)).decode().rstrip("="))


@given(st.sampled_from(Prefix), st.binary(min_size=32, max_size=32))
def test_a_public_key_is_read_as_it_was_written(prefix: Prefix, key: bytes) -> None:
    text = encode_public_key(prefix, key)

    assert len(text) == PUBLIC_KEY_CHARACTERS
    assert [find_public_key(text, each) for each in Prefix if each != prefix] == [None] * 5
    assert find_public_key(text, prefix) == key


@pytest.mark.parametrize(
    ("prefix", "letter"),
    [
        (Prefix.USER, "U"),
        (Prefix.SERVER, "N"),
        (Prefix.ACCOUNT, "A"),
        (Prefix.OPERATOR, "O"),
        (Prefix.CLUSTER, "C"),
        (Prefix.CURVE, "X"),
    ],
)
def test_the_first_letter_tells_the_kind(prefix: Prefix, letter: str) -> None:
    assert encode_public_key(prefix, bytes(32))[0] == letter


@given(seeds, st.integers(0, PUBLIC_KEY_CHARACTERS - 1), st.sampled_from("ABCXYZ234567"))
def test_a_key_with_one_wrong_character_is_refused(seed: bytes, place: int, other: str) -> None:
    key = user_of(seed).public_key.decode()
    changed = key[:place] + other + key[place + 1 :]

    assert is_user_key(changed) == (changed == key)


@pytest.mark.parametrize("size", [*range(56), *range(57, 130), 4096, 100_000])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    key = user_of(bytes(32)).public_key.decode()

    assert not is_user_key((key * (size // 56 + 1))[:size])
    assert not is_signed((key * (size // 56 + 1))[:size], b"nonce", "A" * 86)


@given(st.text(max_size=60) | st.text(alphabet="ABCDEFGH234567=u", min_size=56, max_size=56))
def test_text_that_is_no_key_is_refused_without_an_exception(text: str) -> None:
    assert not is_user_key(text)
    assert not is_signed(text, b"nonce", "A" * 86)


@given(st.text(max_size=100) | st.text(alphabet="AZaz09-_+/=\n ", min_size=80, max_size=90))
def test_text_that_is_no_signature_is_refused_without_an_exception(text: str) -> None:
    signature = find_signature(text)

    assert signature is None or len(signature) == 64
    assert not is_signed(user_of(bytes(32)).public_key.decode(), b"nonce", text)


def test_a_key_that_is_no_point_of_the_curve_is_refused_without_an_exception() -> None:
    for key in (bytes(32), b"\xff" * 32, b"\x02" + bytes(31)):
        text = encode_public_key(Prefix.USER, key)
        assert not is_signed(text, b"nonce", base64.b64encode(b"\x01" * 64).decode())


@given(seeds, st.binary(max_size=40))
def test_a_seed_of_the_reference_signs_as_the_reference_does(seed: bytes, message: bytes) -> None:
    text = reference.encode_seed(seed, reference.PREFIX_BYTE_USER).decode()

    assert find_user_seed(text) == seed
    key, signature = sign(seed, message)
    assert key == user_of(seed).public_key.decode()
    assert find_signature(signature) == user_of(seed).sign(message)
    assert is_signed(key, message, signature)


@given(seeds, st.integers(0, 56), st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
def test_a_seed_with_a_wrong_letter_is_none(seed: bytes, place: int, letter: str) -> None:
    text = reference.encode_seed(seed, reference.PREFIX_BYTE_USER).decode()
    wrong = text[:place] + letter + text[place + 1 :]

    assert find_user_seed(wrong) == (seed if wrong == text else None)


@given(st.text(max_size=70))
def test_text_that_is_no_seed_is_refused_without_an_exception(text: str) -> None:
    assert find_user_seed(text) is None


def test_a_seed_of_another_kind_is_not_a_users() -> None:
    account = reference.encode_seed(bytes(32), reference.PREFIX_BYTE_ACCOUNT).decode()

    assert find_user_seed(account) is None


KINDS = {
    reference.PREFIX_BYTE_USER: Prefix.USER,
    reference.PREFIX_BYTE_ACCOUNT: Prefix.ACCOUNT,
    reference.PREFIX_BYTE_OPERATOR: Prefix.OPERATOR,
    reference.PREFIX_BYTE_SERVER: Prefix.SERVER,
}


@given(seeds, st.sampled_from(sorted(KINDS)))
def test_a_public_key_of_the_reference_is_of_its_kind_alone(seed: bytes, prefix: int) -> None:
    public = reference.from_seed(reference.encode_seed(seed, prefix)).public_key.decode()

    assert [kind for kind in Prefix if is_public_key(public, kind)] == [KINDS[prefix]]
    assert is_public_key(public, *Prefix)


@given(seeds, st.integers(0, PUBLIC_KEY_CHARACTERS - 1))
def test_a_public_key_with_one_letter_changed_is_none(seed: bytes, position: int) -> None:
    public = user_of(seed).public_key.decode()
    other = "A" if public[position] != "A" else "B"

    assert not is_public_key(public[:position] + other + public[position + 1 :], *Prefix)


@pytest.mark.parametrize("text", ["", "U", "é" * 56, "u" * 56, "1" * 56, "A" * 57])
def test_other_text_is_no_public_key(text: str) -> None:
    assert not is_public_key(text, *Prefix)
