"""Documents that are sealed with the store's key, and bound to where they belong."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError, WrongKey
from penstock.format.envelope import Cipher, StoreKey
from penstock.format.state.sealed_document import MAGIC, DocumentKeys

CIPHERS = [Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM]
ONE, TWO = StoreKey(b"one"), StoreKey(b"two")
PLAIN = b'{"config":{"name":"S"}}'


def sealed(keys: DocumentKeys, plain: bytes = PLAIN, *, seed: int = 1) -> bytes:
    return keys.seal(plain, stream=b"S", which=b"a", random_bytes=Random(seed).randbytes)


def opened(keys: DocumentKeys, data: bytes, *, stream: bytes = b"S", which: bytes = b"a") -> bytes:
    return keys.open(data, stream=stream, which=which, path="p")


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_document_is_opened_by_the_key_that_sealed_it(cipher: Cipher) -> None:
    data = sealed(DocumentKeys(cipher, ONE))

    assert PLAIN not in data
    assert opened(DocumentKeys(cipher, ONE), data) == PLAIN
    assert opened(DocumentKeys(cipher, TWO, ONE), data) == PLAIN
    with pytest.raises(WrongKey, match="does not open"):
        opened(DocumentKeys(cipher, TWO), data)
    with pytest.raises(WrongKey, match="no key was given"):
        opened(DocumentKeys(), data)


def test_without_a_key_a_document_is_plain_and_plain_ones_are_read_with_one() -> None:
    assert sealed(DocumentKeys()) == PLAIN
    assert opened(DocumentKeys(), PLAIN) == PLAIN
    assert opened(DocumentKeys(Cipher.AES_256_GCM, ONE), PLAIN) == PLAIN


def test_no_document_stands_in_for_another() -> None:
    keys = DocumentKeys(Cipher.AES_256_GCM, ONE)
    data = sealed(keys)

    with pytest.raises(WrongKey):
        opened(keys, data, stream=b"OTHER")
    with pytest.raises(FormatError):
        opened(keys, data, which=b"b")
    # A key of its own for each: the same bytes are never sealed alike.
    assert sealed(keys, seed=2)[len(MAGIC) :] != data[len(MAGIC) :]


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_never_accepted(place: int, bit: int) -> None:
    keys = DocumentKeys(Cipher.CHACHA20_POLY1305, ONE)
    data = bytearray(sealed(keys))
    place %= len(data)
    data[place] ^= 1 << bit

    try:
        assert opened(keys, bytes(data)) != PLAIN
        # What is no sealed document any more is no document at all.
        assert place < len(MAGIC)
    except (FormatError, WrongKey):
        assert place >= len(MAGIC)


@given(st.integers(0, 10_000))
def test_a_document_that_was_cut_off_is_never_accepted(size: int) -> None:
    keys = DocumentKeys(Cipher.CHACHA20_POLY1305, ONE)
    data = sealed(keys)
    cut = data[len(MAGIC) : len(MAGIC) + size % (len(data) - len(MAGIC))]

    with pytest.raises((FormatError, WrongKey)):
        opened(keys, MAGIC + cut)
