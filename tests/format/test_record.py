"""A record comes back as it was written, or not at all."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.record import (
    COMMIT_START,
    DELETED,
    ENVELOPED,
    EXPIRES,
    SKIP,
    TOMBSTONE,
    check_message,
    check_sizes,
    decode,
    encode,
    measure,
)
from penstock.limits import (
    ENVELOPE_BYTES_MAX,
    HEADERS_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    SUBJECT_BYTES_MAX,
)
from tests.format.written import START_NS

FLAGS_KNOWN = DELETED | SKIP | ENVELOPED | TOMBSTONE | EXPIRES | COMMIT_START
STORED_PAYLOAD_MAX = PAYLOAD_BYTES_MAX + HEADERS_BYTES_MAX + ENVELOPE_BYTES_MAX
SEED = 0x0123_4567_89AB_CDEF
RECORD = encode(
    b"orders.eu.created",
    b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n",
    b"a payload of some length",
    seq=42,
    timestamp_ns=START_NS,
    expires_ns=START_NS + 5,
    seed=SEED,
)

seqs = st.integers(0, 2**64 - 1)
times = st.integers(-(2**63), 2**63 - 1)
# Lengths around the steps of a varint are where codecs go wrong.
sizes = st.sampled_from([0, 1, 127, 128, 129, 16_383, 16_384, 16_385])
texts = st.binary(max_size=60) | st.builds(bytes, sizes)


@given(
    subject=texts,
    headers=texts,
    payload=texts,
    seq=seqs,
    timestamp_ns=times,
    flags=st.integers(0, FLAGS_KNOWN).map(lambda flags: flags & ~EXPIRES),
    expires_ns=times,
    seed=seqs,
    before=st.integers(0, 20),
)
def test_a_record_comes_back_as_it_was_written(
    *,
    subject: bytes,
    headers: bytes,
    payload: bytes,
    seq: int,
    timestamp_ns: int,
    flags: int,
    expires_ns: int,
    seed: int,
    before: int,
) -> None:
    image = encode(
        subject,
        headers,
        payload,
        seq=seq,
        timestamp_ns=timestamp_ns,
        flags=flags,
        expires_ns=expires_ns,
        seed=seed,
    )
    buffer = bytes(before) + image + b"what follows"

    record = decode(buffer, before, seed=seed)

    assert (record.subject, record.headers, record.payload) == (subject, headers, payload)
    assert (record.seq, record.timestamp_ns, record.expires_ns) == (seq, timestamp_ns, expires_ns)
    assert record.flags == flags | (EXPIRES if expires_ns else 0)
    assert record.length == measure(buffer, before) == len(image)
    assert record.checksum == int.from_bytes(image[-8:], "little")


def test_the_bytes_are_those_of_the_specification() -> None:
    image = encode(b"a.b", b"HH", b"payload", seq=5, timestamp_ns=6, expires_ns=7, seed=8)

    body = b"\x10" + b"\x03a.b" + b"\x02HH" + b"\x07payload" + struct.pack("<qQq", 7, 5, 6)
    assert image == body + struct.pack("<Q", xxhash.xxh64_intdigest(body, 8))


def test_a_record_without_expiry_has_no_room_for_it() -> None:
    plain = encode(b"a", b"", b"", seq=1, timestamp_ns=1)
    expiring = encode(b"a", b"", b"", seq=1, timestamp_ns=1, expires_ns=-1)

    assert len(expiring) == len(plain) + 8
    assert decode(plain).flags & EXPIRES == 0
    assert decode(expiring).expires_ns == -1


def test_a_record_checks_out_only_under_its_own_seed() -> None:
    assert decode(RECORD, seed=SEED).seq == 42

    for seed in (0, SEED - 1, SEED + 1):
        with pytest.raises(FormatError, match="checksum"):
            decode(RECORD, seed=seed)


def test_no_byte_of_a_record_can_change_unnoticed() -> None:
    for place in range(len(RECORD)):
        for other in range(1, 256):
            damaged = bytearray(RECORD)
            damaged[place] ^= other
            with pytest.raises(FormatError):
                decode(bytes(damaged), seed=SEED)


def test_a_record_that_is_cut_off_is_refused_at_every_length() -> None:
    for size in range(len(RECORD)):
        with pytest.raises(FormatError):
            decode(RECORD[:size], seed=SEED)
        with pytest.raises(FormatError):
            measure(RECORD[:size])


@given(st.binary(max_size=200), st.integers(-5, 205))
@example(bytes(200), 0)
@example(b"\x00\xff\xff\x03" + bytes(100), 0)
def test_arbitrary_bytes_never_pass_for_a_record(data: bytes, offset: int) -> None:
    with pytest.raises(FormatError):
        decode(data, offset, seed=SEED)


@pytest.mark.parametrize(
    "head",
    [
        b"\x00" + b"\xff" * 9 + b"\x01",
        b"\x00" + b"\x80\x80\x04",
        b"\x00\x00" + b"\xff" * 9 + b"\x01",
        b"\x00\x00" + b"\x81\x80\x40",
        b"\x00\x00\x00" + b"\xff" * 9 + b"\x01",
        b"\x00\x00\x00" + b"\xff\xff\xff\xff\x0f",
    ],
    ids=["subject", "subject by one", "headers", "headers by one", "payload", "payload by much"],
)
def test_an_absurd_length_is_refused_before_anything_is_allocated(head: bytes) -> None:
    buffer = head + bytes(64)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="no record can start like this"):
            decode(buffer)
        with pytest.raises(FormatError, match="no record can start like this"):
            measure(buffer)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 100_000


def test_a_length_within_the_limits_that_the_buffer_lacks_is_a_record_cut_off() -> None:
    for head in (b"\x00\xff\xff\x03", b"\x00\x00\x80\x80\x40", b"\x00\x00\x00\x80\x80\x80\x20"):
        with pytest.raises(FormatError, match="cut off"):
            measure(head + bytes(64))


@pytest.mark.parametrize("varint", [b"\x80" * 11, b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01"])
def test_a_varint_of_more_than_64_bits_is_refused(varint: bytes) -> None:
    with pytest.raises(FormatError, match="no record can start like this"):
        measure(b"\x00" + varint + bytes(64))


@pytest.mark.parametrize("flags", [0x40, 0x80, 0xFF])
def test_unknown_flags_are_neither_written_nor_read(flags: int) -> None:
    with pytest.raises(FormatError, match="unknown record flags"):
        encode(b"a", b"", b"", seq=1, timestamp_ns=1, flags=flags)

    image = bytearray(encode(b"a", b"", b"", seq=1, timestamp_ns=1))
    image[0] = flags
    image[-8:] = struct.pack("<Q", xxhash.xxh64_intdigest(bytes(image[:-8])))
    with pytest.raises(FormatError, match="no record can start like this"):
        decode(bytes(image))


def test_the_expiry_flag_alone_is_written_with_its_field() -> None:
    record = decode(encode(b"a", b"", b"", seq=1, timestamp_ns=1, flags=EXPIRES))

    assert (record.flags, record.expires_ns) == (EXPIRES, 0)


def test_sizes_beyond_the_limits_are_refused_when_writing() -> None:
    for sizes_given in (
        (SUBJECT_BYTES_MAX + 1, 0, 0),
        (0, HEADERS_BYTES_MAX + 1, 0),
        (0, 0, STORED_PAYLOAD_MAX + 1),
    ):
        with pytest.raises(FormatError, match="at most"):
            check_sizes(*sizes_given)
    check_sizes(SUBJECT_BYTES_MAX, HEADERS_BYTES_MAX, STORED_PAYLOAD_MAX)

    with pytest.raises(FormatError, match="at most"):
        encode(bytes(SUBJECT_BYTES_MAX + 1), b"", b"", seq=1, timestamp_ns=1)
    with pytest.raises(FormatError, match="at most"):
        encode(b"", bytes(HEADERS_BYTES_MAX + 1), b"", seq=1, timestamp_ns=1)


def test_a_message_may_not_take_the_room_of_its_envelope() -> None:
    check_message(SUBJECT_BYTES_MAX, HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX)

    for sizes_given in (
        (SUBJECT_BYTES_MAX + 1, 0, 0),
        (0, HEADERS_BYTES_MAX + 1, 0),
        (0, 0, PAYLOAD_BYTES_MAX + 1),
    ):
        with pytest.raises(FormatError, match="at most"):
            check_message(*sizes_given)


def test_the_largest_subject_and_headers_come_back() -> None:
    image = encode(
        bytes(SUBJECT_BYTES_MAX),
        bytes(HEADERS_BYTES_MAX),
        b"",
        seq=1,
        timestamp_ns=1,
        expires_ns=1,
    )

    record = decode(image)

    assert (len(record.subject), len(record.headers)) == (SUBJECT_BYTES_MAX, HEADERS_BYTES_MAX)


def test_a_record_is_looked_for_only_inside_the_buffer() -> None:
    for offset in (-1, len(RECORD), len(RECORD) + 1):
        with pytest.raises(FormatError, match="past the end"):
            measure(RECORD, offset)
