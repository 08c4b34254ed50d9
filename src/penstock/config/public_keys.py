"""Public nkeys: is this text one, and of what kind? Pure.

An nkey is base32 without padding of: a kind byte, 32 bytes of the key, and a CRC-16 (XMODEM) of
both in little-endian order.
"""

from __future__ import annotations

import base64
import binascii
from enum import IntEnum
from typing import Final

_LENGTH: Final = 56
_PAYLOAD_BYTES: Final = 33


class KeyKind(IntEnum):
    """What a key is of; the first letter of its text follows from it."""

    ACCOUNT = 0
    CLUSTER = 2 << 3
    SERVER = 13 << 3
    OPERATOR = 14 << 3
    USER = 20 << 3
    CURVE = 23 << 3


def key_kind(key: str) -> KeyKind | None:
    """Give the kind of a public key; None if it is not one."""
    if len(key) != _LENGTH or not key.isascii():
        return None
    try:
        raw = base64.b32decode(key + "=" * (-len(key) % 8))
    except binascii.Error:
        return None
    payload, checksum = raw[:_PAYLOAD_BYTES], raw[_PAYLOAD_BYTES:]
    if binascii.crc_hqx(payload, 0) != int.from_bytes(checksum, "little"):
        return None
    try:
        return KeyKind(payload[0])
    except ValueError:
        return None


def is_public_key(key: str, kind: KeyKind) -> bool:
    """Tell whether a text is a public key of this kind."""
    return key_kind(key) is kind
