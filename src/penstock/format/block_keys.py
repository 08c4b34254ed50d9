"""How the records of one block are opened and sealed: its data key, found through its header.

Shared by the store and by the read-only reader. Pure: no files; any thread.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import WrongKey
from penstock.format.block import BlockHeader
from penstock.format.envelope import (
    NONCE_BYTES,
    Cipher,
    DataKey,
    Place,
    StoreKey,
    WrappedKey,
    unseal,
    unseal_fsv1,
)

Unseal = Callable[[int, int, bytes, bytes, bytes], tuple[bytes, bytes]]
"""(seq, timestamp_ns, subject, headers, payload as stored) -> (headers, payload) in the plain."""


def data_key(header: BlockHeader, stream: bytes, key: StoreKey | None, path: str) -> DataKey | None:
    """Give the key of an encrypted block, None for a plain one; raises WrongKey."""
    if header.cipher == Cipher.NONE:
        return None
    if key is None:
        raise WrongKey(path, "the block is encrypted and no key was given")
    try:
        cipher = Cipher(header.cipher)
    except ValueError:
        raise WrongKey(path, f"unknown cipher {header.cipher}") from None
    wrapped = WrappedKey(cipher, header.wrapped_key[:NONCE_BYTES], header.wrapped_key[NONCE_BYTES:])
    return key.unwrap(wrapped, stream, header.number, header.generation, path=path)


def new_data_key(
    cipher: Cipher,
    stream: bytes,
    key: StoreKey | None,
    block: int,
    generation: int,
    random_bytes: Callable[[int], bytes],
) -> tuple[DataKey | None, bytes]:
    """Draw a fresh key for a block generation; give it and what the header keeps of it."""
    if cipher is Cipher.NONE:
        return None, bytes(60)
    if key is None:
        raise WrongKey("", f"the cipher {cipher.name} needs a key")
    fresh, wrapped = key.wrap(cipher, stream, block, generation, random_bytes)
    return fresh, wrapped.nonce + wrapped.sealed


def unsealer(header: BlockHeader, stream: bytes, key: StoreKey | None, path: str) -> Unseal:
    """Give the function that opens the enveloped records of a block.

    The data key is unwrapped at once, so a wrong one is noticed here.
    """
    block_key = data_key(header, stream, key, path)

    def open_envelope(
        seq: int, timestamp_ns: int, subject: bytes, headers: bytes, payload: bytes
    ) -> tuple[bytes, bytes]:
        if payload[:4] == b"FSV1":
            return headers, unseal_fsv1(payload, key)
        return unseal(payload, Place(stream, seq, timestamp_ns, subject), block_key)

    return open_envelope
