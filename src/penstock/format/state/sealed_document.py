"""A document of a store that has a key: a stream's or a consumer's configuration, sealed.

    +------------+------------+------------------------+--------------------------+
    | `PNSTKDOC` | version u8 | wrapped key, 61 bytes  | FSV2 envelope, to end    |
    +------------+------------+------------------------+--------------------------+

Each time a document is written it has a data key of its own, wrapped as a block's is, with block
number 0. The envelope is bound to the stream and to which of its documents it is, so that no
document can stand in for another. A file that does not begin like this is a plain document. Plain
documents are read in any store: they may have been written before it had a key.

Pure: randomness is an argument. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.errors import FormatError, WrongKey
from penstock.format.envelope import (
    WRAPPED_KEY_BYTES,
    Cipher,
    Compression,
    DataKey,
    RecordIdentity,
    StoreKey,
    WrappedKey,
    seal,
    unseal,
)

MAGIC = b"PNSTKDOC"
VERSION = 1

_KEY_AT = len(MAGIC) + 1
_ENVELOPE_AT = _KEY_AT + WRAPPED_KEY_BYTES


class DocumentKeys(msgspec.Struct, frozen=True):
    """What documents are sealed with, and what opens them; see the module."""

    cipher: Cipher = Cipher.NONE
    key: StoreKey | None = None
    previous_key: StoreKey | None = None

    def seal(
        self, plain: bytes, *, stream: bytes, which: bytes, random_bytes: Callable[[int], bytes]
    ) -> bytes:
        """Return the bytes of a document's file, which are the plain ones where there is no key."""
        if self.key is None or self.cipher is Cipher.NONE:
            return plain
        data_key, wrapped = self.key.wrap(self.cipher, stream, 0, 0, random_bytes)
        place = RecordIdentity(stream, 0, 0, which)
        envelope = seal(b"", plain, place, compression=Compression.NONE, key=data_key)
        return MAGIC + bytes([VERSION]) + wrapped.encode() + envelope

    def open(self, data: bytes, *, stream: bytes, which: bytes, path: str) -> bytes:
        """Return the plain bytes of a document's file; raises WrongKey and FormatError."""
        if not data.startswith(MAGIC):
            return data
        if data[len(MAGIC) : _KEY_AT] != bytes([VERSION]):
            raise FormatError("a sealed document of another version")
        wrapped = WrappedKey.decode(data[_KEY_AT:_ENVELOPE_AT])
        data_key = self._unwrapped(wrapped, stream, path)
        return unseal(
            data[_ENVELOPE_AT:], RecordIdentity(stream, 0, 0, which), data_key, path=path
        )[1]

    def _unwrapped(self, wrapped: WrappedKey, stream: bytes, path: str) -> DataKey:
        failed = WrongKey(path, "the document is encrypted and no key was given")
        for key in (self.key, self.previous_key):
            if key is None:
                continue
            try:
                return key.unwrap(wrapped, stream, 0, 0, path=path)
            except WrongKey:
                failed = WrongKey(path, "the key does not open the document")
        raise failed
