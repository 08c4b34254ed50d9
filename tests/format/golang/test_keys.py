"""Encryption at rest: the derived keys, and that nothing opens by mistake."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from penstock.errors import FormatError
from penstock.format.golang.keys import AssetKey, GoCipher, ServerKey, hchacha20

SEED = bytes(range(32))


def seal(cipher: GoCipher, key: bytes, nonce: bytes, plain: bytes) -> bytes:
    if cipher is GoCipher.AES:
        return nonce + AESGCM(key).encrypt(nonce, plain, None)
    aead = ChaCha20Poly1305(hchacha20(key, nonce[:16]))
    return nonce + aead.encrypt(bytes(4) + nonce[16:], plain, None)


def key_file(cipher: GoCipher, context: bytes) -> bytes:
    wrapping = hmac.digest(b"secret", b"ACC" + context, hashlib.sha256)
    nonce = bytes(24 if cipher is GoCipher.CHACHA else 16)
    return seal(cipher, wrapping, nonce, SEED)


def test_the_published_vector_of_hchacha20_comes_out() -> None:
    key = bytes(range(32))
    nonce = bytes.fromhex("000000090000004a0000000031415927")

    assert hchacha20(key, nonce).hex() == (
        "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"
    )


@pytest.mark.parametrize("cipher", list(GoCipher))
def test_a_key_file_opens_with_its_key_account_and_context_alone(cipher: GoCipher) -> None:
    data = key_file(cipher, b"S:1")

    opened = ServerKey("secret", "ACC").open_key_file("S:1", data)

    assert opened is not None
    assert (opened.cipher, opened.seed) == (cipher, SEED)
    assert ServerKey(b"other", "ACC").open_key_file("S:1", data) is None
    assert ServerKey("secret", "ACC2").open_key_file("S:1", data) is None
    assert ServerKey("secret", "ACC").open_key_file("S:2", data) is None
    assert ServerKey("secret", "ACC").open_key_file("S:1", data[:-1]) is None


@pytest.mark.parametrize("cipher", list(GoCipher))
@pytest.mark.parametrize("place", [0, 30, -1])
def test_a_changed_file_does_not_open(cipher: GoCipher, place: int) -> None:
    key = AssetKey(cipher, SEED, b"")
    sealed = bytearray(seal(cipher, SEED, bytes(24 if cipher is GoCipher.CHACHA else 16), b"text"))

    assert key.unseal(bytes(sealed)) == b"text"
    sealed[place] ^= 1
    with pytest.raises(FormatError):
        key.unseal(bytes(sealed))
    with pytest.raises(FormatError):
        key.unseal(b"short")


@pytest.mark.parametrize("cipher", list(GoCipher))
def test_a_changed_byte_of_a_block_stays_where_it_is(cipher: GoCipher) -> None:
    key = AssetKey(cipher, SEED, bytes(range(24 if cipher is GoCipher.CHACHA else 16)))
    plain = bytes(1000)
    data = bytearray(key.decrypt_block(plain))
    assert data != plain

    data[500] ^= 1

    assert key.decrypt_block(bytes(data)) == plain[:500] + b"\x01" + plain[501:]
