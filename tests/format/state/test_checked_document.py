"""Documents with a checksum: whatever is changed in one is noticed."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.folder import ConsumerDocument, ConsumerFolder
from penstock.errors import FormatError, StreamOffline
from penstock.format.state.checked_document import with_checksum, without_checksum
from penstock.store.vfs import write_all
from penstock.stream.config.config import StreamConfig
from penstock.stream.storage import StreamDocument, StreamFolder
from penstock.testing.filesystem import MemoryFileSystem
from penstock.text.json.codec import encode
from penstock.text.times import Instant

DOCUMENT = b'{"version":2,"config":{"max_age":0}}'


def test_a_checksum_is_put_behind_a_document_and_taken_away() -> None:
    checked = with_checksum(DOCUMENT)

    assert checked.startswith(DOCUMENT[:-1] + b',"checksum":"')
    assert without_checksum(checked) == (DOCUMENT, True)
    assert without_checksum(DOCUMENT) == (DOCUMENT, False)


@given(st.integers(0, len(with_checksum(DOCUMENT)) * 8 - 1))
def test_a_flipped_bit_is_noticed_or_takes_the_checksum_away(bit: int) -> None:
    changed = bytearray(with_checksum(DOCUMENT))
    changed[bit // 8] ^= 1 << bit % 8

    with contextlib.suppress(FormatError):
        assert without_checksum(bytes(changed)) == (bytes(changed), False)


def flips(data: bytes) -> list[bytes]:
    found = []
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        found.append(bytes(changed))
    return found


def stream_in(data: bytes) -> StreamFolder:
    files = MemoryFileSystem()
    files.make_dirs("/S")
    write_all(files.open("/S/stream.json", "create"), 0, data)
    return StreamFolder(files, "/S", lambda: "unique")


def test_no_flipped_bit_of_a_stream_s_document_is_accepted() -> None:
    files = MemoryFileSystem()
    files.make_dirs("/")
    folder = StreamFolder(files, "/S", lambda: "unique")
    folder.make(StreamConfig(name="S", subjects=("s",)), Instant(7))
    folder.settle()
    data = files.open("/S/stream.json", "read").read_at(0, 10_000)
    assert stream_in(data).read().config == StreamConfig(name="S", subjects=("s",))

    for changed in flips(data):
        with pytest.raises(StreamOffline) as caught:
            stream_in(changed).read()
        assert caught.value.reason


def test_no_flipped_bit_of_a_consumer_s_document_is_accepted() -> None:
    folder = ConsumerFolder(MemoryFileSystem(), "/S/consumers/C", lambda: "unique", "S")
    config = ConsumerConfig(durable_name="C")
    data = folder.document("C", config, Instant(7), start_seq=3)
    assert folder.decoded(data).config == config

    for changed in flips(data):
        with pytest.raises(StreamOffline):
            folder.decoded(changed)


def test_documents_of_earlier_servers_are_read() -> None:
    config = StreamConfig(name="S", subjects=("s",))
    data = encode(StreamDocument(1, Instant(7), config))
    consumer = encode(ConsumerDocument(1, "C", Instant(7), 3, ConsumerConfig(durable_name="C")))
    folder = ConsumerFolder(MemoryFileSystem(), "/S/consumers/C", lambda: "unique", "S")

    assert stream_in(data).read().config == config
    assert folder.decoded(consumer).start_seq == 3
