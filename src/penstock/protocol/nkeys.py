"""Nkeys: Ed25519 and Curve25519 keys as text, and the signatures made with them.

    base32( prefix u8 | public key, 32 bytes | CRC-16 of the 33 bytes before, little-endian )

The prefix is chosen so that the text starts with a letter that tells the kind of the key: 56
characters without padding. A seed, which is the secret half, has two such letters, `S` and the
kind's: five bits of the one, eight of the other and three that are zero, then 32 bytes and the
checksum of the 34 bytes before: 58 characters.

Invariant: text from outside is refused with a return value, never with an exception.

Pure; any thread. Both sides of a connection use it: the server checks, the client signs.
"""

from __future__ import annotations

import base64
import binascii
from enum import IntEnum

PUBLIC_KEY_CHARACTERS = 56
"""The length of a public key as text."""

SIGNATURE_BYTES = 64
"""The length of an Ed25519 signature."""

SEED_CHARACTERS = 58
"""The length of a seed as text."""

_SIGNATURE_CHARACTERS_MAX = 88
"""A size of the format: 64 bytes in base64, padding counted."""

_SEED_PREFIX = 18 << 3


class Prefix(IntEnum):
    """The first byte: five bits that make the letter, three that are zero."""

    ACCOUNT = 0 << 3
    CLUSTER = 2 << 3
    SERVER = 13 << 3
    OPERATOR = 14 << 3
    USER = 20 << 3
    CURVE = 23 << 3


def encode_public_key(prefix: Prefix, key: bytes) -> str:
    """Return a 32-byte public key as text."""
    body = bytes((prefix,)) + key
    return base64.b32encode(body + _checksum(body)).decode()


def find_public_key(text: str, *prefixes: Prefix) -> bytes | None:
    """Return the key that `text` stands for; None if it is of none of these kinds."""
    if len(text) != PUBLIC_KEY_CHARACTERS:
        return None
    try:
        raw = base64.b32decode(text)
    except (binascii.Error, ValueError):
        return None
    body, checksum = raw[:-2], raw[-2:]
    if raw[0] not in prefixes or checksum != _checksum(body):
        return None
    return body[1:]


def is_public_key(text: str, *prefixes: Prefix) -> bool:
    """Return True if `text` is a public key of one of these kinds."""
    return find_public_key(text, *prefixes) is not None


def is_user_key(text: str) -> bool:
    """Return True if `text` is a user's public key."""
    return is_public_key(text, Prefix.USER)


def is_account_key(text: str) -> bool:
    """Return True if `text` is an account's public key."""
    return is_public_key(text, Prefix.ACCOUNT)


def is_operator_key(text: str) -> bool:
    """Return True if `text` is an operator's public key."""
    return is_public_key(text, Prefix.OPERATOR)


def find_signature(text: str) -> bytes | None:
    """Return the signature in `text`, base64url without padding or base64; None for neither."""
    if len(text) > _SIGNATURE_CHARACTERS_MAX or not text.isascii():
        return None
    try:
        if "=" not in text and "+" not in text and "/" not in text:
            padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
            raw = base64.b64decode(padded, validate=True)
        else:
            raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == SIGNATURE_BYTES else None


def is_signed(user_key: str, message: bytes, signature: str) -> bool:
    """Return True if the holder of a user's key signed `message`."""
    key = find_public_key(user_key, Prefix.USER)
    raw = find_signature(signature)
    return key is not None and raw is not None and is_verified(key, message, raw)


def is_verified(key: bytes, message: bytes, signature: bytes) -> bool:
    """Return True if `signature` of `message` was made with the other half of a public key."""
    # Here and below: a server whose users have passwords starts without loading any of it.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def find_user_seed(text: str) -> bytes | None:
    """Return the 32 secret bytes of a user's seed; None if `text` is none."""
    if len(text) != SEED_CHARACTERS:
        return None
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    body, checksum = raw[:-2], raw[-2:]
    prefix = bytes((_SEED_PREFIX | Prefix.USER >> 5, (Prefix.USER & 31) << 3))
    if body[:2] != prefix or checksum != _checksum(body):
        return None
    return body[2:]


def sign(seed: bytes, message: bytes) -> tuple[str, str]:
    """Sign a message with a user's secret bytes; return the public key and the signature."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(seed)
    signature = base64.urlsafe_b64encode(private.sign(message)).rstrip(b"=").decode()
    return encode_public_key(Prefix.USER, private.public_key().public_bytes_raw()), signature


def _checksum(body: bytes) -> bytes:
    return binascii.crc_hqx(body, 0).to_bytes(2, "little")
