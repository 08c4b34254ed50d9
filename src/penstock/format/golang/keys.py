"""Encryption at rest as Go's nats-server does it, for reading.

    key-encryption key = HMAC-SHA-256(server key, account + context)
    key file           = nonce | Seal(key-encryption key, 32-byte seed)
    small file         = nonce | Seal(seed, plain)
    block file         = plain bytes XOR the cipher's stream of (seed, the key file's nonce)

The context is the stream's name, `stream:block number` or `stream.consumer`. The ciphers are
XChaCha20-Poly1305 (24-byte nonce) and AES-256-GCM with a 16-byte nonce; blocks use the bare stream
(XChaCha20, AES-CTR). A key file's length shows its cipher.

Pure: no files. Called by `metadata` and `recovery`; any thread.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import StrEnum

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as Keystream
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES, ChaCha20
from cryptography.hazmat.primitives.ciphers.modes import CTR

from penstock.errors import FormatError

_SEED_BYTES = 32
_TAG_BYTES = 16
_WORD_MAX = 0xFFFFFFFF
_COLUMNS_AND_DIAGONALS = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)


class GoCipher(StrEnum):
    """The words of the server's `cipher` option."""

    CHACHA = "chacha"
    AES = "aes"


_NONCE_BYTES = {GoCipher.CHACHA: 24, GoCipher.AES: 16}
_CIPHER_BY_KEY_FILE_BYTES = {
    nonce_bytes + _SEED_BYTES + _TAG_BYTES: cipher for cipher, nonce_bytes in _NONCE_BYTES.items()
}


def hchacha20(key: bytes, nonce: bytes) -> bytes:
    """Derive a 32-byte subkey from a 32-byte key and 16 bytes of nonce (the X in XChaCha20)."""
    words = list(struct.unpack("<4I8I4I", b"expand 32-byte k" + key + nonce))
    for _ in range(10):
        for quarter in _COLUMNS_AND_DIAGONALS:
            _quarter_round(words, *quarter)
    return struct.pack("<8I", *words[:4], *words[12:])


def _quarter_round(words: list[int], a: int, b: int, c: int, d: int) -> None:
    for summed, added, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        words[summed] = (words[summed] + words[added]) & _WORD_MAX
        mixed = words[turned] ^ words[summed]
        words[turned] = ((mixed << bits) | (mixed >> (32 - bits))) & _WORD_MAX


def _open_sealed(cipher: GoCipher, key: bytes, sealed: bytes) -> bytes | None:
    """Return the plain bytes of `nonce | sealed`, or None if they do not authenticate."""
    nonce_bytes = _NONCE_BYTES[cipher]
    nonce, body = sealed[:nonce_bytes], sealed[nonce_bytes:]
    if len(body) < _TAG_BYTES:
        return None
    try:
        if cipher is GoCipher.AES:
            return AESGCM(key).decrypt(nonce, body, None)
        aead = ChaCha20Poly1305(hchacha20(key, nonce[:16]))
        return aead.decrypt(bytes(4) + nonce[16:], body, None)
    except InvalidTag:
        return None


class AssetKey(msgspec.Struct, frozen=True):
    """What a key file holds: the key of one stream, block or consumer."""

    cipher: GoCipher
    seed: bytes
    nonce: bytes

    def unseal(self, sealed: bytes) -> bytes:
        """Open a small file; FormatError if it does not authenticate."""
        plain = _open_sealed(self.cipher, self.seed, sealed)
        if plain is None:
            raise FormatError("the file does not open with its own key")
        return plain

    def decrypt_block(self, data: bytes) -> bytes:
        """Take the cipher's stream off a block file; damage stays where it is."""
        if self.cipher is GoCipher.AES:
            decryptor = Keystream(AES(self.seed), CTR(self.nonce)).decryptor()
        else:
            subkey = hchacha20(self.seed, self.nonce[:16])
            # The block counter (zero) and four zero bytes stand before the rest of the nonce.
            algorithm = ChaCha20(subkey, bytes(8) + self.nonce[16:])
            decryptor = Keystream(algorithm, None).decryptor()
        return decryptor.update(data) + decryptor.finalize()


class ServerKey:
    """The server's `jetstream { key }` for the assets of one account."""

    def __init__(self, key: str | bytes, account: str) -> None:
        self._key = key.encode() if isinstance(key, str) else key
        self._account = account.encode()

    def open_key_file(self, context: str, key_file: bytes) -> AssetKey | None:
        """Return the key in a key file, or None if this server key does not open it."""
        cipher = _CIPHER_BY_KEY_FILE_BYTES.get(len(key_file))
        if cipher is None:
            return None
        wrapping = hmac.digest(self._key, self._account + context.encode(), hashlib.sha256)
        seed = _open_sealed(cipher, wrapping, key_file)
        if seed is None:
            return None
        return AssetKey(cipher, seed, key_file[: _NONCE_BYTES[cipher]])
