"""An envelope opens with its own key at its own place, and asks for no memory it cannot use."""

from __future__ import annotations

import hashlib
import hmac
import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from cramjam import snappy
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.errors import FormatError, LimitReached, PenstockError, UsageError, WrongKey
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
    unseal_fsv1,
)
from penstock.limits import HEADERS_BYTES_MAX, MIB, PAYLOAD_BYTES_MAX

KEY = bytes(range(32))
SECRET = b"correct horse battery staple"
PLACE = RecordIdentity(
    stream=b"ORDERS", seq=42, timestamp_ns=1_790_000_000_000_000_001, subject=b"orders.1"
)
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"
PAYLOAD = b"payload payload payload payload"

SEALING = (Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM)
every_combination = pytest.mark.parametrize(
    ("compression", "cipher"), [(squeeze, cipher) for squeeze in Compression for cipher in Cipher]
)
every_seal = pytest.mark.parametrize(
    ("compression", "cipher"), [(squeeze, cipher) for squeeze in Compression for cipher in SEALING]
)
byte_strings = st.binary(max_size=200) | st.builds(
    lambda unit, times: unit * times, st.binary(min_size=1, max_size=4), st.integers(0, 2_000)
)
places = st.builds(
    RecordIdentity,
    stream=st.binary(max_size=40),
    seq=st.integers(0, 2**64 - 1),
    timestamp_ns=st.integers(-(2**63), 2**63 - 1),
    subject=st.binary(max_size=80),
)


def data_key(cipher: Cipher) -> DataKey | None:
    return None if cipher is Cipher.NONE else DataKey(cipher, KEY)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def seeded_random_bytes(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


def seal_fsv1(payload: bytes, compression: Compression, cipher: Cipher, secret: bytes) -> bytes:
    """Write as Penstock once did; kept here because nothing else writes it any more."""
    body = bytes(snappy.compress_raw(payload)) if compression is Compression.SNAPPY else payload
    head = b"FSV1" + bytes([cipher << 4 | compression])
    if cipher is Cipher.NONE:
        return head + body
    key = hashlib.sha256(secret).digest()
    nonce = hashlib.sha256(payload).digest()[:12]
    aead = ChaCha20Poly1305(key) if cipher is Cipher.CHACHA20_POLY1305 else AESGCM(key)
    return head + nonce + aead.encrypt(nonce, body, None)


def peak_bytes_of_refusing(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every_combination
@given(headers=byte_strings, payload=byte_strings, place=places)
def test_headers_and_payload_come_back_as_they_were(
    compression: Compression, cipher: Cipher, headers: bytes, payload: bytes, place: RecordIdentity
) -> None:
    key = data_key(cipher)

    envelope = seal(headers, payload, place, compression=compression, key=key)

    assert unseal(memoryview(bytearray(envelope)), place, key) == (headers, payload)
    assert len(envelope) <= len(headers) + len(payload) + 5 + 2 * 3 + 16


def test_the_plain_layout_is_the_documented_one() -> None:
    envelope = seal(b"h" * 3, b"p" * 200, PLACE, compression=Compression.NONE, key=None)

    assert envelope == b"FSV2\x00\x03\xc8\x01" + b"h" * 3 + b"p" * 200


def test_compression_comes_before_encryption_and_both_stand_in_the_algorithms() -> None:
    payload = b"x" * 10_000
    key = data_key(Cipher.AES_256_GCM)

    envelope = seal(b"", payload, PLACE, compression=Compression.SNAPPY, key=key)

    assert envelope[4] == 0x21
    assert len(envelope) < 600


def test_bytes_that_do_not_shrink_are_stored_as_they_are() -> None:
    payload = seeded_random_bytes(1)(1_000)

    envelope = seal(b"", payload, PLACE, compression=Compression.SNAPPY, key=None)

    assert envelope[4] == 0
    assert envelope.endswith(payload)


def test_associated_data_and_nonce_are_the_documented_ones() -> None:
    # Sealed by hand, from the specification alone.
    head = b"FSV2\x10"
    associated = (
        head + struct.pack("<I", 6) + b"ORDERS" + struct.pack("<Qq", 42, PLACE.timestamp_ns)
    )
    associated += struct.pack("<I", 8) + b"orders.1" + struct.pack("<QQ", 1, 2)
    nonce = bytes(4) + struct.pack("<Q", 42)
    sealed = ChaCha20Poly1305(KEY).encrypt(nonce, b"hpp", associated)

    envelope = head + b"\x01\x02" + sealed

    assert unseal(envelope, PLACE, data_key(Cipher.CHACHA20_POLY1305)) == (b"h", b"pp")


@every_seal
def test_every_flipped_bit_of_a_sealed_envelope_is_refused(
    compression: Compression, cipher: Cipher
) -> None:
    key = data_key(cipher)
    envelope = seal(HEADERS, PAYLOAD, PLACE, compression=compression, key=key)

    for bit in range(len(envelope) * 8):
        damaged = bytearray(envelope)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            unseal(bytes(damaged), PLACE, key)


@every_combination
def test_every_truncation_and_every_byte_more_is_refused(
    compression: Compression, cipher: Cipher
) -> None:
    key = data_key(cipher)
    envelope = seal(HEADERS, PAYLOAD, PLACE, compression=compression, key=key)

    for size in range(len(envelope)):
        with pytest.raises(FormatError):
            unseal(envelope[:size], PLACE, key)
    with pytest.raises(FormatError):
        unseal(envelope + b"\x00", PLACE, key)


@pytest.mark.parametrize("cipher", SEALING)
@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param(replace(PLACE, seq=43), id="sequence"),
        pytest.param(replace(PLACE, stream=b"ORDERS2"), id="stream"),
        pytest.param(replace(PLACE, subject=b"orders.2"), id="subject"),
        pytest.param(replace(PLACE, timestamp_ns=PLACE.timestamp_ns + 1), id="timestamp"),
        pytest.param(
            replace(PLACE, stream=b"ORDER", subject=b"Sorders.1"), id="a byte moved between names"
        ),
    ],
)
def test_a_sealed_envelope_does_not_open_at_another_place(
    cipher: Cipher, elsewhere: RecordIdentity
) -> None:
    key = data_key(cipher)
    envelope = seal(HEADERS, PAYLOAD, PLACE, compression=Compression.NONE, key=key)

    with pytest.raises(FormatError):
        unseal(envelope, elsewhere, key)


@pytest.mark.parametrize("cipher", SEALING)
def test_the_border_between_headers_and_payload_cannot_be_moved(cipher: Cipher) -> None:
    key = data_key(cipher)
    envelope = bytearray(seal(b"hhh", b"ppp", PLACE, compression=Compression.NONE, key=key))
    envelope[5:7] = bytes([2, 4])

    with pytest.raises(FormatError):
        unseal(bytes(envelope), PLACE, key)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("lengths", [(0, 99), (0, 101), (100, 1), (1, 98)])
def test_plain_lengths_that_lie_are_refused(
    compression: Compression, lengths: tuple[int, int]
) -> None:
    body = b"z" * 100
    if compression is Compression.SNAPPY:
        body = bytes(snappy.compress_raw(body))
    envelope = b"FSV2" + bytes([compression, *lengths]) + body

    with pytest.raises(FormatError):
        unseal(envelope, PLACE, None)


def test_a_plain_envelope_is_refused_where_the_block_has_a_key() -> None:
    envelope = seal(HEADERS, PAYLOAD, PLACE, compression=Compression.NONE, key=None)

    with pytest.raises(FormatError) as caught:
        unseal(envelope, PLACE, data_key(Cipher.AES_256_GCM))

    assert caught.value.offset == 4


def test_a_key_of_the_other_cipher_is_refused() -> None:
    key = data_key(Cipher.AES_256_GCM)
    envelope = seal(HEADERS, PAYLOAD, PLACE, compression=Compression.NONE, key=key)

    with pytest.raises(FormatError):
        unseal(envelope, PLACE, data_key(Cipher.CHACHA20_POLY1305))


@pytest.mark.parametrize("cipher", SEALING)
def test_another_key_of_the_same_cipher_does_not_open(cipher: Cipher) -> None:
    envelope = seal(b"", PAYLOAD, PLACE, compression=Compression.NONE, key=data_key(cipher))

    with pytest.raises(FormatError):
        unseal(envelope, PLACE, DataKey(cipher, b"k" * 32))


def test_a_sealed_envelope_without_a_key_names_the_file() -> None:
    key = data_key(Cipher.AES_256_GCM)
    envelope = seal(HEADERS, PAYLOAD, PLACE, compression=Compression.NONE, key=key)

    with pytest.raises(WrongKey) as caught:
        unseal(envelope, PLACE, None, path="000001.blk")

    assert caught.value.path == "000001.blk"


@pytest.mark.parametrize("algorithms", [0x02, 0x0F, 0x30, 0xF0, 0x22])
def test_unknown_algorithms_are_refused(algorithms: int) -> None:
    tail = bytes([algorithms]) + b"\x00\x00" + bytes(40)

    with pytest.raises(FormatError):
        unseal(b"FSV2" + tail, PLACE, None)
    with pytest.raises(FormatError):
        unseal_fsv1(b"FSV1" + tail, StoreKey(SECRET))


@pytest.mark.parametrize("magic", [b"FSV0", b"FSV3", b"FSV1", b"fsv2"])
def test_another_magic_is_refused(magic: bytes) -> None:
    with pytest.raises(FormatError):
        unseal(magic + b"\x00\x00\x00", PLACE, None)


@pytest.mark.parametrize(
    "envelope",
    [
        pytest.param(
            b"FSV2\x01\x00" + uvarint(PAYLOAD_BYTES_MAX) + uvarint(PAYLOAD_BYTES_MAX) + b"\x00a",
            id="64 MiB in two bytes",
        ),
        pytest.param(
            b"FSV2\x01\x00" + uvarint(100) + uvarint(2**32 - 1) + b"\x00a" * 50,
            id="4 GiB behind a small declared length",
        ),
        pytest.param(
            b"FSV2\x01\x00" + uvarint(PAYLOAD_BYTES_MAX + 1) + uvarint(PAYLOAD_BYTES_MAX + 1),
            id="a payload above the limit",
        ),
        pytest.param(
            b"FSV2\x00" + uvarint(HEADERS_BYTES_MAX + 1) + b"\x00", id="headers above the limit"
        ),
        pytest.param(b"FSV2\x00\x00" + uvarint(2**64 - 1), id="the largest length there is"),
    ],
)
def test_a_decompression_bomb_is_refused_without_allocating(envelope: bytes) -> None:
    assert peak_bytes_of_refusing(lambda: unseal(envelope, PLACE, None)) < MIB


@pytest.mark.parametrize("declared", [PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, 2**32 - 1])
def test_a_bomb_in_an_old_envelope_is_refused_without_allocating(declared: int) -> None:
    envelope = b"FSV1\x01" + uvarint(declared) + b"\x00a"

    assert peak_bytes_of_refusing(lambda: unseal_fsv1(envelope, None)) < MIB


def test_headers_above_the_limit_are_refused_though_they_are_there() -> None:
    size = HEADERS_BYTES_MAX + 1

    with pytest.raises(FormatError):
        unseal(b"FSV2\x00" + uvarint(size) + b"\x00" + bytes(size), PLACE, None)


@pytest.mark.slow
def test_a_body_that_expands_beyond_what_it_may_is_refused_without_allocating() -> None:
    body = bytes(snappy.compress_raw(bytes(PAYLOAD_BYTES_MAX + 1)))
    old = b"FSV1\x01" + body
    new = b"FSV2\x01\x00\x64" + body

    assert peak_bytes_of_refusing(lambda: unseal_fsv1(old, None)) < MIB
    assert peak_bytes_of_refusing(lambda: unseal(new, PLACE, None)) < MIB


def test_the_limit_on_expansion_lets_the_best_compression_pass() -> None:
    payload = bytes(4 * MIB)
    envelope = seal(b"", payload, PLACE, compression=Compression.SNAPPY, key=None)

    assert len(payload) / len(envelope) > 20
    assert unseal(envelope, PLACE, None) == (b"", payload)


def test_what_could_not_be_read_back_is_not_sealed() -> None:
    with pytest.raises(LimitReached):
        seal(bytes(HEADERS_BYTES_MAX + 1), b"", PLACE, compression=Compression.NONE, key=None)
    with pytest.raises(LimitReached):
        seal(b"", bytes(PAYLOAD_BYTES_MAX + 1), PLACE, compression=Compression.NONE, key=None)


@given(st.sampled_from([b"FSV2\x00", b"FSV2\x01", b"FSV2\x01\x00\x14\x14"]), st.binary(max_size=60))
def test_no_bytes_at_all_break_the_reader(head: bytes, tail: bytes) -> None:
    try:
        headers, payload = unseal(head + tail, PLACE, None)
    except FormatError:
        return

    sealed = seal(headers, payload, PLACE, compression=Compression.NONE, key=None)
    assert unseal(sealed, PLACE, None) == (headers, payload)


@every_combination
@given(payload=byte_strings)
def test_old_envelopes_are_read(compression: Compression, cipher: Cipher, payload: bytes) -> None:
    envelope = seal_fsv1(payload, compression, cipher, SECRET)

    assert unseal_fsv1(memoryview(envelope), StoreKey(SECRET)) == payload


@every_seal
def test_every_flipped_bit_of_a_sealed_old_envelope_is_refused(
    compression: Compression, cipher: Cipher
) -> None:
    # Nothing binds the algorithms of FSV1, so only nonce, body and tag are covered.
    envelope = seal_fsv1(PAYLOAD, compression, cipher, SECRET)
    store_key = StoreKey(SECRET)

    for bit in range(5 * 8, len(envelope) * 8):
        damaged = bytearray(envelope)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            unseal_fsv1(bytes(damaged), store_key)
    for size in range(len(envelope)):
        with pytest.raises(FormatError):
            unseal_fsv1(envelope[:size], store_key)


def test_an_old_sealed_envelope_needs_the_right_secret() -> None:
    envelope = seal_fsv1(PAYLOAD, Compression.NONE, Cipher.AES_256_GCM, SECRET)

    with pytest.raises(WrongKey) as caught:
        unseal_fsv1(envelope, None, path="000001.blk")
    with pytest.raises(FormatError):
        unseal_fsv1(envelope, StoreKey(b"another"))

    assert caught.value.path == "000001.blk"


def test_an_old_payload_above_the_limit_is_refused() -> None:
    with pytest.raises(FormatError):
        unseal_fsv1(b"FSV1\x00" + bytes(PAYLOAD_BYTES_MAX + 1), None)


@pytest.mark.parametrize("cipher", SEALING)
@given(secret=st.binary(min_size=1, max_size=100), stream=st.binary(max_size=40))
def test_a_wrapped_key_comes_back_from_its_bytes(
    cipher: Cipher, secret: bytes, stream: bytes
) -> None:
    random_bytes = seeded_random_bytes(2)
    key, wrapped = StoreKey(secret).wrap(cipher, stream, 7, 3, random_bytes)
    envelope = seal(b"h", b"p", PLACE, compression=Compression.NONE, key=key)

    again = WrappedKey.decode(wrapped.encode())
    opened = StoreKey(secret).unwrap(again, stream, 7, 3)

    assert len(wrapped.encode()) == WRAPPED_KEY_BYTES == 61
    assert opened.cipher is cipher
    assert unseal(envelope, PLACE, opened) == (b"h", b"p")


def test_the_wrapping_key_is_derived_as_documented() -> None:
    # HKDF-SHA256 of one output block, by hand.
    extracted = hmac.digest(b"ORDERS", SECRET, "sha256")
    wrapping_key = hmac.digest(extracted, b"penstock block key\x01", "sha256")
    associated = b"PNSTKKEYORDERS" + struct.pack("<II", 7, 3)
    nonce = b"n" * 12
    sealed = AESGCM(wrapping_key).encrypt(nonce, KEY, associated)

    key = StoreKey(SECRET).unwrap(WrappedKey(Cipher.AES_256_GCM, nonce, sealed), b"ORDERS", 7, 3)

    envelope = seal(b"h", b"p", PLACE, compression=Compression.NONE, key=key)
    assert unseal(envelope, PLACE, data_key(Cipher.AES_256_GCM)) == (b"h", b"p")


@pytest.mark.parametrize("cipher", SEALING)
@pytest.mark.parametrize(
    ("secret", "stream", "block", "generation"),
    [
        pytest.param(b"another", b"ORDERS", 7, 3, id="secret"),
        pytest.param(SECRET, b"OTHER", 7, 3, id="stream"),
        pytest.param(SECRET, b"ORDERS", 8, 3, id="block"),
        pytest.param(SECRET, b"ORDERS", 7, 4, id="generation"),
    ],
)
def test_a_wrapped_key_opens_only_with_its_secret_for_its_block(
    cipher: Cipher, secret: bytes, stream: bytes, block: int, generation: int
) -> None:
    _, wrapped = StoreKey(SECRET).wrap(cipher, b"ORDERS", 7, 3, seeded_random_bytes(3))

    with pytest.raises(WrongKey) as caught:
        StoreKey(secret).unwrap(wrapped, stream, block, generation, path="000007.blk")

    assert caught.value.path == "000007.blk"


@pytest.mark.parametrize("cipher", SEALING)
def test_every_flipped_bit_of_a_wrapped_key_is_refused(cipher: Cipher) -> None:
    _, wrapped = StoreKey(SECRET).wrap(cipher, b"ORDERS", 7, 3, seeded_random_bytes(4))
    encoded = wrapped.encode()

    for bit in range(len(encoded) * 8):
        damaged = bytearray(encoded)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((FormatError, WrongKey)):
            StoreKey(SECRET).unwrap(WrappedKey.decode(bytes(damaged)), b"ORDERS", 7, 3)


@pytest.mark.parametrize("encoded", [b"", b"\x01" + bytes(59), b"\x01" + bytes(61), bytes(61)])
def test_a_wrapped_key_of_another_shape_is_refused(encoded: bytes) -> None:
    with pytest.raises(FormatError):
        WrappedKey.decode(encoded)


def test_every_generation_of_a_block_has_a_key_of_its_own() -> None:
    # The nonce is the sequence: under one key it would repeat with the first rewrite.
    random_bytes = seeded_random_bytes(5)
    store_key = StoreKey(SECRET)
    nonces = set()
    sealed_zeros = set()

    for generation in range(50):
        key, wrapped = store_key.wrap(Cipher.AES_256_GCM, b"ORDERS", 1, generation, random_bytes)
        nonces.add(wrapped.nonce)
        sealed_zeros.add(seal(b"", bytes(32), PLACE, compression=Compression.NONE, key=key))

    assert len(nonces) == 50
    # Equal plain bytes at one place: any two alike would mean one key for two generations.
    assert len(sealed_zeros) == 50


def test_nonces_differ_for_all_sequences() -> None:
    seqs = [0, 1, 255, 256, 2**32 - 1, 2**32, 2**63, 2**64 - 1]

    nonces = {replace(PLACE, seq=seq).nonce() for seq in seqs}

    assert len(nonces) == len(seqs)
    assert all(len(nonce) == 12 for nonce in nonces)


def test_no_secret_is_in_a_repr_or_in_an_error() -> None:
    store_key = StoreKey(SECRET)
    key, wrapped = store_key.wrap(Cipher.AES_256_GCM, b"S", 1, 1, lambda size: KEY[:size])
    envelope = seal(b"", PAYLOAD, PLACE, compression=Compression.NONE, key=key)
    shown = [repr(store_key), str(store_key), repr(key), str(key)]

    def provoke(call: Callable[[], object]) -> None:
        with pytest.raises(PenstockError) as caught:
            call()
        shown.append(f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__dict__}")

    provoke(lambda: unseal(envelope[:-1], PLACE, key))
    provoke(lambda: unseal(envelope, PLACE, None))
    provoke(lambda: store_key.unwrap(wrapped, b"T", 1, 1))
    provoke(lambda: DataKey(Cipher.AES_256_GCM, KEY[:31]))
    provoke(lambda: DataKey(Cipher.NONE, KEY))
    provoke(lambda: unseal_fsv1(b"FSV1\x10" + bytes(40), store_key))

    text = "\n".join(shown)
    for hidden in (SECRET, KEY, hashlib.sha256(SECRET).digest()):
        for form in (repr(hidden)[2:-1], repr(hidden[:8])[2:-1], hidden.hex(), hidden[:8].hex()):
            assert form not in text


def test_keys_that_protect_nothing_are_refused() -> None:
    with pytest.raises(UsageError):
        StoreKey(b"")
    with pytest.raises(UsageError):
        StoreKey(SECRET).wrap(Cipher.NONE, b"S", 1, 1, seeded_random_bytes(6))
    with pytest.raises(UsageError):
        StoreKey(SECRET).wrap(Cipher.AES_256_GCM, b"S", 1, 1, lambda size: bytes(min(size, 8)))
    with pytest.raises(UsageError):
        StoreKey(SECRET).wrap(Cipher.AES_256_GCM, b"S", 1, 1, lambda size: bytes(max(size, 16)))
