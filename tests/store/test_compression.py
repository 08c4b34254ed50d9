"""A compressed stream: what shrinks is stored smaller, what does not is stored as it is."""

from __future__ import annotations

from random import Random

import pytest

from penstock.format.envelope import Cipher, Compression
from penstock.format.record import ENVELOPED
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.log.fast_copy import Copier
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter
from tests.support.store_kinds import StoreHouse

HEADERS = b"NATS/1.0\r\nTrace: 1\r\n\r\n"
TEXT = b'{"order": 17, "customer": "c-204", "items": [{"sku": "a-1"}, {"sku": "a-1"}]}'
NOISE = Random(3).randbytes(200)


def is_enveloped(store: FileStore, seq: int) -> bool:
    log = store.engine.log
    block, _, _ = log.ledger.place_of(seq)
    index = log.cache.index_of(block)
    ordinal = index.ordinal_of(seq)
    assert ordinal is not None
    return bool(index.entry(ordinal)[5] & ENVELOPED)


def test_only_what_becomes_shorter_is_put_into_an_envelope(house: StoreHouse) -> None:
    store = house.open(compression=Compression.SNAPPY)
    store.store(b"a", HEADERS, TEXT * 4)
    store.store(b"a", b"", NOISE)
    store.store(b"a", b"", b"")
    store.store(b"a", b"", TEXT * 2)
    store.flush()

    assert [is_enveloped(store, seq) for seq in (1, 2, 3, 4)] == [True, False, False, True]
    assert (store.load(1).headers, store.load(1).payload) == (HEADERS, TEXT * 4)
    assert store.load(2).payload == NOISE


def test_an_encrypted_stream_puts_all_into_envelopes(lasting_house: StoreHouse) -> None:
    store = lasting_house.open(compression=Compression.SNAPPY, cipher=Cipher.AES_256_GCM)
    store.store(b"a", b"", NOISE)
    store.store(b"a", b"", TEXT * 4)

    assert is_enveloped(store, 1)
    assert is_enveloped(store, 2)


def test_what_was_compressed_comes_back_after_a_restart_and_a_rewrite(
    lasting_house: StoreHouse,
) -> None:
    store = lasting_house.open(compression=Compression.SNAPPY)
    payloads = [(TEXT * 3 if number % 3 else NOISE) + b"%d" % number for number in range(200)]
    for payload in payloads:
        store.store(b"a", HEADERS, payload)
    for seq in range(1, 200, 2):
        store.remove(seq)
    store.reclaim(thorough=True)
    store = lasting_house.open_again(store)

    for seq in range(2, 200, 2):
        message = store.load(seq)
        assert (message.headers, message.payload) == (HEADERS, payloads[seq - 1])


def test_text_takes_less_of_the_disk(simulated_house: StoreHouse) -> None:
    sizes = []
    for compression in Compression:
        store = simulated_house.open(compression=compression, name=compression.name)
        for number in range(50):
            store.store(b"a", b"", TEXT * 3 + b"%d" % number)
        store.flush()
        sizes.append(sum(block.bytes for block in store.engine.log.ledger.blocks))
        store.delete()

    assert sizes[1] < sizes[0] * 0.6


@pytest.mark.parametrize("cipher", [Cipher.NONE, Cipher.CHACHA20_POLY1305])
def test_a_scan_opens_what_was_compressed_and_leaves_what_was_encrypted(
    lasting_house: StoreHouse, cipher: Cipher
) -> None:
    store = lasting_house.open(compression=Compression.SNAPPY, cipher=cipher)
    for number in range(100):
        store.store(b"a", HEADERS, TEXT * 3 + b"%d" % number)
    store.flush()
    target = MemoryStore.create(StoreConfig())
    copier = Copier(store.scanner(), target.appender())
    last = copier.copy_placed(SubjectFilter([]), 1, 100, count_max=1000, bytes_max=2**30)

    assert last == (100 if cipher is Cipher.NONE else 0)
    assert [target.load(seq).payload for seq in range(1, last + 1)] == [
        TEXT * 3 + b"%d" % number for number in range(last)
    ]
