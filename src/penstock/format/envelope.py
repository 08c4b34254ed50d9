"""The envelope of a compressed or encrypted record, and the keys that seal and open it.

An envelope is the payload of a record whose `enveloped` flag is set.

    FSV2  +--------+---------------+---------------------+---------------------+----------------+
          | `FSV2` | algorithms u8 | headers len uvarint | payload len uvarint | body, to end   |
          +--------+---------------+---------------------+---------------------+----------------+
    FSV1  +--------+---------------+------------------------------+-----------------------------+
          | `FSV1` | algorithms u8 | nonce, 12 bytes if encrypted | body, to the end            |
          +--------+---------------+------------------------------+-----------------------------+

`algorithms`: low nibble the compression, high nibble the cipher. The plain bytes of FSV2 are the
headers and the payload together; they are compressed, then encrypted, and a cipher's 16-byte tag
ends the body. FSV1 is read for old data only: its plain bytes are the payload alone, and nothing is
bound.

Invariant: what a length field asks for is checked against limits.py before it is allocated;
an encrypted FSV2 record is bound to its stream, sequence, timestamp, subject and lengths, so that
no record can stand in for another; a nonce is the sequence, and does not repeat because a data
key serves one generation of one block, where a sequence is written at most once. No secret is in a
repr or an error.

The records of one block share a data key, which its header holds wrapped under the store's key.

Pure: no files, and randomness is an argument. Called by the store (seal) and by readers (unseal),
any thread.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from enum import IntEnum

import msgspec

from penstock.errors import FormatError, LimitReached, UsageError, WrongKey
from penstock.format import snappy
from penstock.format.block import BlockHeader
from penstock.format.varint import put_uvarint, read_uvarint
from penstock.limits import HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX, SNAPPY_EXPANSION_MAX

MAGIC = b"FSV2"
MAGIC_FSV1 = b"FSV1"
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
WRAPPED_KEY_BYTES = 1 + NONCE_BYTES + KEY_BYTES + TAG_BYTES

_HEAD_BYTES = 5
_WRAP_MAGIC = b"PNSTKKEY"
_WRAP_INFO = b"penstock block key"


class Compression(IntEnum):
    """How the plain bytes were made smaller."""

    NONE = 0
    SNAPPY = 1


class Cipher(IntEnum):
    """What sealed the bytes."""

    NONE = 0
    CHACHA20_POLY1305 = 1
    AES_256_GCM = 2


# By the byte that stands for both: one look-up per record instead of two enum calls.
_ALGORITHMS = {
    cipher << 4 | compression: (compression, cipher)
    for compression in Compression
    for cipher in Cipher
}


class RecordIdentity(msgspec.Struct, frozen=True):
    """Where a record belongs: all that its envelope is bound to besides its lengths."""

    stream: bytes
    seq: int
    timestamp_ns: int
    subject: bytes

    def associated_data(self, head: bytes, headers_bytes: int, payload_bytes: int) -> bytes:
        """Return the bytes that are authenticated with the envelope, `head` its first five."""
        parts = (
            head,
            struct.pack("<I", len(self.stream)),
            self.stream,
            struct.pack("<QqI", self.seq, self.timestamp_ns, len(self.subject)),
            self.subject,
            struct.pack("<QQ", headers_bytes, payload_bytes),
        )
        return b"".join(parts)

    def nonce(self) -> bytes:
        """Return the nonce: unique under one data key, see the module."""
        return struct.pack("<IQ", 0, self.seq)


class DataKey:
    """A key of one cipher; it keeps the cipher's object, not the key's bytes."""

    __slots__ = ("_aead", "_invalid", "cipher")

    def __init__(self, cipher: Cipher, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise UsageError(f"a data key has {KEY_BYTES} bytes, not {len(key)}")
        # Loading it takes longer than a server without keys does for all else of its store.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

        self.cipher = cipher
        self._invalid = InvalidTag
        self._aead: ChaCha20Poly1305 | AESGCM
        match cipher:
            case Cipher.CHACHA20_POLY1305:
                self._aead = ChaCha20Poly1305(key)
            case Cipher.AES_256_GCM:
                self._aead = AESGCM(key)
            case Cipher.NONE:
                raise UsageError("a data key needs a cipher")

    def __repr__(self) -> str:
        return f"DataKey({self.cipher.name})"

    def encrypt(self, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
        """Return ciphertext and tag; the caller must not use a nonce twice."""
        return self._aead.encrypt(nonce, plain, associated)

    def decrypt(self, nonce: bytes, sealed: bytes | memoryview, associated: bytes) -> bytes:
        """Return the plain bytes; raises FormatError if anything is not as it was sealed."""
        try:
            return self._aead.decrypt(nonce, sealed, associated)
        except self._invalid:
            raise FormatError("authentication failed: wrong key, place or bytes") from None


def seal(
    headers: bytes,
    payload: bytes,
    place: RecordIdentity,
    *,
    compression: Compression,
    key: DataKey | None,
) -> bytes:
    """Return the FSV2 envelope of one message; raises LimitReached for what could not be read."""
    if len(headers) > HEADERS_BYTES_MAX:
        raise LimitReached("header bytes", HEADERS_BYTES_MAX)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LimitReached("payload bytes", PAYLOAD_BYTES_MAX)
    body = headers + payload
    if compression is Compression.SNAPPY:
        packed = snappy.compress(body)
        if len(packed) < len(body):
            body = packed
        else:
            compression = Compression.NONE
    cipher = Cipher.NONE if key is None else key.cipher
    head = MAGIC + bytes([cipher << 4 | compression])
    out = bytearray(head)
    put_uvarint(out, len(headers))
    put_uvarint(out, len(payload))
    if key is not None:
        associated = place.associated_data(head, len(headers), len(payload))
        body = key.encrypt(place.nonce(), body, associated)
    out += body
    return bytes(out)


def unseal(
    envelope: bytes | memoryview, place: RecordIdentity, key: DataKey | None, *, path: str = ""
) -> tuple[bytes, bytes]:
    """Return headers and payload of an FSV2 envelope.

    Raises FormatError for bytes that `seal` did not write at this place with this key (plain ones
    included, where there is a key), and WrongKey, naming `path`, where a key is needed.
    """
    view = memoryview(envelope)
    compression, cipher = _read_algorithms(view, MAGIC)
    headers_bytes, offset = read_uvarint(view, _HEAD_BYTES)
    payload_bytes, offset = read_uvarint(view, offset)
    if headers_bytes > HEADERS_BYTES_MAX or payload_bytes > PAYLOAD_BYTES_MAX:
        raise FormatError("envelope declares more than the limits allow", offset=_HEAD_BYTES)
    body: bytes | memoryview = view[offset:]
    if cipher is not Cipher.NONE and key is None:
        raise WrongKey(path, f"sequence {place.seq} is encrypted and no key was given")
    if key is not None:
        # A process that can write files must not be able to pass off plain bytes as sealed ones.
        if cipher is not key.cipher:
            raise FormatError("envelope is not sealed with its block's cipher", offset=4)
        head = bytes(view[:_HEAD_BYTES])
        associated = place.associated_data(head, headers_bytes, payload_bytes)
        body = key.decrypt(place.nonce(), body, associated)
    plain = _expand(body, compression, headers_bytes + payload_bytes)
    if len(plain) != headers_bytes + payload_bytes:
        raise FormatError("envelope holds another length than it declares", offset=offset)
    return bytes(plain[:headers_bytes]), bytes(plain[headers_bytes:])


def unseal_fsv1(
    envelope: bytes | memoryview, store_key: StoreKey | None, *, path: str = ""
) -> bytes:
    """Return the payload of an FSV1 envelope; raises FormatError and WrongKey as `unseal` does."""
    view = memoryview(envelope)
    compression, cipher = _read_algorithms(view, MAGIC_FSV1)
    body: bytes | memoryview = view[_HEAD_BYTES:]
    if cipher is not Cipher.NONE:
        if store_key is None:
            raise WrongKey(path, "a record is encrypted and no key was given")
        nonce = bytes(body[:NONCE_BYTES])
        if len(nonce) < NONCE_BYTES:
            raise FormatError("envelope ends within its nonce", offset=len(view))
        body = store_key.fsv1_key(cipher).decrypt(nonce, body[NONCE_BYTES:], b"")
    return bytes(_expand(body, compression, PAYLOAD_BYTES_MAX))


def read_algorithms(envelope: bytes | memoryview) -> tuple[Compression, Cipher]:
    """Return the algorithms of an envelope of either version; raises FormatError."""
    view = memoryview(envelope)
    return _read_algorithms(view, MAGIC_FSV1 if view[:4] == MAGIC_FSV1 else MAGIC)


def _read_algorithms(view: memoryview, magic: bytes) -> tuple[Compression, Cipher]:
    if len(view) < _HEAD_BYTES or view[:4] != magic:
        raise FormatError(f"not an envelope of {magic.decode()}")
    algorithms = _ALGORITHMS.get(view[4])
    if algorithms is None:
        raise FormatError("envelope of unknown algorithms", offset=4)
    return algorithms


def _expand(
    body: bytes | memoryview, compression: Compression, plain_bytes_max: int
) -> bytes | memoryview:
    # Undo the compression; Snappy's own length is checked before it is allocated.
    if compression is Compression.NONE:
        if len(body) > plain_bytes_max:
            raise FormatError("envelope holds more than it may", offset=_HEAD_BYTES)
        return body
    if snappy.plain_size(body) > min(plain_bytes_max, len(body) * SNAPPY_EXPANSION_MAX):
        raise FormatError("compressed body declares more than it may", offset=_HEAD_BYTES)
    return snappy.expand(body)


class WrappedKey(msgspec.Struct, frozen=True):
    """A block's data key, sealed with the store's key: what stands in the block's header.

    +-----------+-----------------+--------------------------------+
    | cipher u8 | nonce, 12 bytes | sealed key and tag, 48 bytes   |
    +-----------+-----------------+--------------------------------+
    """

    cipher: Cipher
    nonce: bytes
    sealed: bytes

    def encode(self) -> bytes:
        """Return the 61 bytes of the diagram."""
        return bytes([self.cipher]) + self.nonce + self.sealed

    @classmethod
    def decode(cls, buffer: bytes | memoryview) -> WrappedKey:
        """Read the 61 bytes back; raises FormatError. They are authenticated by `unwrap`."""
        data = bytes(buffer)
        if len(data) != WRAPPED_KEY_BYTES:
            raise FormatError(f"a wrapped key has {WRAPPED_KEY_BYTES} bytes, not {len(data)}")
        if data[0] not in (Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM):
            raise FormatError("wrapped key of an unknown cipher")
        sealed_start = 1 + NONCE_BYTES
        return cls(Cipher(data[0]), data[1:sealed_start], data[sealed_start:])


class StoreKey:
    """The secret of a store, from which each stream's wrapping key is derived."""

    __slots__ = ("_fsv1_keys", "_secret")

    def __init__(self, secret: bytes) -> None:
        if not secret:
            raise UsageError("the store's secret is empty")
        self._secret = secret
        self._fsv1_keys: dict[Cipher, DataKey] = {}

    def __repr__(self) -> str:
        return "StoreKey(hidden)"

    def wrap(
        self,
        cipher: Cipher,
        stream: bytes,
        block: int,
        generation: int,
        random_bytes: Callable[[int], bytes],
    ) -> tuple[DataKey, WrappedKey]:
        """Draw a fresh data key for one generation of a block; give it, and its wrapped form."""
        key = random_bytes(KEY_BYTES)
        nonce = random_bytes(NONCE_BYTES)
        if len(nonce) != NONCE_BYTES:
            raise UsageError(f"the random source gave {len(nonce)} bytes of {NONCE_BYTES}")
        data_key = DataKey(cipher, key)
        associated = _wrap_associated_data(stream, block, generation)
        sealed = self._wrapping_key(cipher, stream).encrypt(nonce, key, associated)
        return data_key, WrappedKey(cipher, nonce, sealed)

    def unwrap(
        self, wrapped: WrappedKey, stream: bytes, block: int, generation: int, *, path: str = ""
    ) -> DataKey:
        """Return the data key; raises WrongKey, naming `path`, if this secret does not open it."""
        associated = _wrap_associated_data(stream, block, generation)
        wrapping_key = self._wrapping_key(wrapped.cipher, stream)
        try:
            key = wrapping_key.decrypt(wrapped.nonce, wrapped.sealed, associated)
        except FormatError:
            raise WrongKey(path, f"the key does not open block {block}") from None
        return DataKey(wrapped.cipher, key)

    def fsv1_key(self, cipher: Cipher) -> DataKey:
        """Return the one key under which all FSV1 records of a store were sealed."""
        key = self._fsv1_keys.get(cipher)
        if key is None:
            key = DataKey(cipher, hashlib.sha256(self._secret).digest())
            self._fsv1_keys[cipher] = key
        return key

    def _wrapping_key(self, cipher: Cipher, stream: bytes) -> DataKey:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derivation = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=stream, info=_WRAP_INFO)
        return DataKey(cipher, derivation.derive(self._secret))


def _wrap_associated_data(stream: bytes, block: int, generation: int) -> bytes:
    return _WRAP_MAGIC + stream + struct.pack("<II", block, generation)


Unseal = Callable[[int, int, bytes, bytes, bytes], tuple[bytes, bytes]]
"""(seq, timestamp_ns, subject, headers, payload as stored) -> (headers, payload) in the plain."""


def data_key(header: BlockHeader, stream: bytes, key: StoreKey | None, path: str) -> DataKey | None:
    """Return the key of an encrypted block, None for a plain one; raises WrongKey."""
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
    """Return the function that opens the enveloped records of a block.

    The data key is unwrapped at once, so a wrong one is noticed here.
    """
    block_key = data_key(header, stream, key, path)

    def open_envelope(
        seq: int, timestamp_ns: int, subject: bytes, headers: bytes, payload: bytes
    ) -> tuple[bytes, bytes]:
        if payload[:4] == b"FSV1":
            return headers, unseal_fsv1(payload, key)
        return unseal(payload, RecordIdentity(stream, seq, timestamp_ns, subject), block_key)

    return open_envelope
