"""Names that a server generates: its own in the form of public keys, nonces, unique ids.

The source of random bytes is an argument: a server passes `os.urandom`, a simulation its own seeded
source.

Invariant: the same random bytes make the same names.

Pure; a `UniqueIds` belongs to one thread.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from penstock.protocol.nkeys import Prefix, encode_public_key

RandomBytes = Callable[[int], bytes]
"""Returns this many random bytes, as os.urandom does."""

NONCE_BYTES = 11
"""Random bytes in a nonce: 15 characters as text, which is what a client signs."""

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PREFIX_DIGITS = 12
_SEQUENCE_DIGITS = 10
_SEQUENCE_END = 62**_SEQUENCE_DIGITS
_STEP_MIN = 33
_STEP_END = 333


def new_server_id(random_bytes: RandomBytes) -> str:
    """Make the name of a server: `N` and 55 characters, in the form of a public key.

    It is only a name: nothing is ever signed with it, so no key is made for it.
    """
    return encode_public_key(Prefix.SERVER, random_bytes(32))


def new_xkey(random_bytes: RandomBytes) -> str:
    """Make what INFO shows as the server's Curve25519 key, `X` and 55 characters.

    Any 32 bytes are such a public key. Nobody can read what is sealed for it, and nothing that
    this server does asks for that.
    """
    return encode_public_key(Prefix.CURVE, random_bytes(32))


def new_nonce(random_bytes: RandomBytes) -> str:
    """Make the text that a client must sign, once."""
    return base64.urlsafe_b64encode(random_bytes(NONCE_BYTES)).rstrip(b"=").decode()


class UniqueIds:
    """Makes ids of 22 characters that never repeat, cheaply: a random prefix and a counter.

    The counter starts and steps at random, so that ids do not tell how many there are; when it
    would pass its end, a new prefix is drawn.
    """

    def __init__(self, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._start()

    def _start(self) -> None:
        self._prefix = _base62(self._below(62**_PREFIX_DIGITS), _PREFIX_DIGITS)
        self._sequence = self._below(_SEQUENCE_END)
        self._step = _STEP_MIN + self._below(_STEP_END - _STEP_MIN)

    def _below(self, end: int) -> int:
        # 16 bytes: what they favour the low numbers by is beyond noticing.
        return int.from_bytes(self._random_bytes(16), "little") % end

    def next(self) -> str:
        """Return the next id."""
        self._sequence += self._step
        if self._sequence >= _SEQUENCE_END:
            self._start()
        return self._prefix + _base62(self._sequence, _SEQUENCE_DIGITS)


def _base62(number: int, digits: int) -> str:
    characters = []
    for _ in range(digits):
        number, digit = divmod(number, 62)
        characters.append(_DIGITS[digit])
    return "".join(reversed(characters))
