"""Every store: what is durable when, configuration, envelopes, stopping, opening and deleting."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import StoreClosed, UsageError, WrongKey
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter
from penstock.testing.filesystem import MemoryFileSystem
from tests.support.store_kinds import StoreHouse
from tests.support.stores import assert_same

SECOND_NS = 1_000_000_000
ENVELOPES = list(itertools.product(Compression, Cipher))
BODY = (b"a.1", b"NATS/1.0\r\nA: 1\r\n\r\n", b"the same again and again " * 20)


def test_a_flush_makes_everything_durable_and_tells_it(house: StoreHouse) -> None:
    store = house.open()
    assert store.flush() == 0
    for _ in range(20):
        store.store(b"a.1", b"", b"x" * 500)
    assert store.flush() == 20
    assert store.durable_seq == store.state().durable_seq == 20
    assert house.durable[-1] == 20
    assert house.durable == sorted(house.durable)


def test_nothing_is_told_to_be_durable_before_a_commit(simulated_house: StoreHouse) -> None:
    store = simulated_house.open()
    simulated_house.durable.clear()
    store.store_batch([(b"a.1", b"", b"x" * 500)] * 20)
    assert (store.durable_seq, simulated_house.durable) == (0, [])
    store.flush()
    assert (store.durable_seq, simulated_house.durable) == (20, [20])


def test_each_durable_sequence_is_told_in_order_by_a_thread_of_the_store(
    lasting_house: StoreHouse,
) -> None:
    store = lasting_house.open()
    for _ in range(200):
        store.store(b"a.1", b"", b"x" * 100)
    store.flush()
    assert lasting_house.durable == sorted(lasting_house.durable)
    assert lasting_house.durable[-1] == 200


@pytest.mark.parametrize("do", ["purge", "erase", "compact", "truncate"])
def test_removing_on_request_is_durable_when_it_returns(
    simulated_house: StoreHouse, do: str
) -> None:
    house = simulated_house
    store, model = house.open(), house.model()
    for _ in range(30):
        store.store(b"a.1", b"", b"x" * 400)
        model.store(b"a.1", b"", b"x" * 400, now_ns=house.clock.now_ns())
    store.flush()
    arguments: tuple[Any, ...] = (SubjectFilter([b"a.1"]),) if do == "purge" else (15,)
    getattr(store, do)(*arguments)
    if do == "purge":
        model.purge([b"a.1"])
    else:
        getattr(model, "remove" if do == "erase" else do)(15)
    house.lose_power()
    assert_same(house.open(), model)


# With a sync interval


def test_with_an_interval_what_was_written_is_synced_when_it_is_over(
    simulated_house: StoreHouse,
) -> None:
    house = simulated_house
    store = house.open(sync_interval_ns=10 * SECOND_NS)
    engine_commit = store.engine.durability.committer.commit
    store.store(b"a.1", b"", b"first")
    engine_commit()
    assert store.durable_seq == 1
    assert _survivors(house) == 0
    house.clock.advance_seconds(10)
    engine_commit()
    assert _survivors(house) == 1


@pytest.mark.parametrize("how", ["flush", "stop", "update_config"])
def test_with_an_interval_a_flush_a_stop_and_its_end_sync_at_once(
    simulated_house: StoreHouse, how: str
) -> None:
    house = simulated_house
    store = house.open(sync_interval_ns=3600 * SECOND_NS)
    for _ in range(30):
        store.store(b"a.1", b"", b"x" * 400)
        store.engine.durability.committer.commit()
    assert _survivors(house) < 30
    if how == "update_config":
        store.update_config(StoreConfig(name="orders", block_bytes=4096))
        store.engine.durability.committer.commit()
    else:
        getattr(store, how)()
    assert _survivors(house) == 30


def test_with_an_interval_a_reset_store_goes_on(simulated_house: StoreHouse) -> None:
    store = simulated_house.open(sync_interval_ns=3600 * SECOND_NS)
    for _ in range(3):
        store.store_batch([(b"a.1", b"", b"x" * 400)] * 30)
        store.engine.durability.committer.commit()
        store.truncate(15)
        store.engine.durability.committer.commit()
        store.reset()
    store.store(b"a.1", b"", b"")
    assert store.flush() == 1
    assert store.failure is None


def _survivors(house: StoreHouse) -> int:
    """Return how many messages a power cut at this moment leaves."""
    assert isinstance(house.files, MemoryFileSystem)
    left = house.files.survivor()
    with FileStore.open(house.path, StoreConfig(name="orders"), files=left, threaded=False) as twin:
        return twin.state().messages


# Envelopes


@pytest.mark.parametrize(("compression", "cipher"), ENVELOPES)
def test_every_envelope_gives_back_what_was_put_in(
    lasting_house: StoreHouse, compression: Compression, cipher: Cipher
) -> None:
    house = lasting_house
    config: dict[str, Any] = {"compression": compression, "cipher": cipher}
    store, model = house.open(**config), house.model(**config)
    for place in range(60):
        body = (b"a.%d" % (place % 4), BODY[1] if place % 3 else b"", BODY[2] * (place % 5))
        store.store(*body)
        model.store(*body, now_ns=house.clock.now_ns())
    batch = [BODY, (b"b.1", b"", b"")]
    assert store.store_batch(batch) == model.store_batch(batch, now_ns=house.clock.now_ns())
    assert_same(store, model)
    for seq in range(1, 50, 2):
        assert store.remove(seq) == model.remove(seq)
    assert store.erase(50) == model.remove(50)
    store.reclaim(thorough=True)
    assert_same(store, model)
    assert_same(house.open_again(store, **config), model)


@pytest.mark.parametrize(("compression", "cipher"), ENVELOPES)
def test_a_store_goes_over_to_another_envelope_and_reads_both(
    lasting_house: StoreHouse, compression: Compression, cipher: Cipher
) -> None:
    house = lasting_house
    store, model = house.open(), house.model()
    sealed: dict[str, Any] = {"compression": compression, "cipher": cipher}
    for how in ("update", "reopen"):
        for envelope in (sealed, {}):
            if how == "update":
                store.update_config(StoreConfig(name="orders", block_bytes=4096, **envelope))
            else:
                store = house.open_again(store, **envelope)
            for _ in range(6):
                store.store(*BODY)
                model.store(*BODY, now_ns=house.clock.now_ns())
            assert_same(store, model)
    assert_same(house.open_again(store), model)


def test_nothing_is_written_in_the_plain_after_a_cipher_was_asked_for(
    lasting_house: StoreHouse,
) -> None:
    house = lasting_house
    store = house.open()
    store.store(b"a.1", b"", b"in the plain")
    store = house.open_again(store, cipher=Cipher.AES_256_GCM)
    store.store(b"a.1", b"SECRET header", b"SECRET payload")
    store.flush()
    store.update_config(StoreConfig(name="orders", block_bytes=4096))
    store.update_config(
        StoreConfig(name="orders", block_bytes=4096, cipher=Cipher.CHACHA20_POLY1305)
    )
    store.store_batch([(b"a.1", b"", b"SECRET too")])
    store.flush()
    files = house.file_bytes().values()
    assert any(b"in the plain" in data for data in files)
    assert not any(b"SECRET" in data for data in files)


def test_a_cipher_without_a_key_is_refused_at_once(lasting_house: StoreHouse) -> None:
    house = lasting_house
    config = StoreConfig(name="orders", cipher=Cipher.AES_256_GCM)
    with pytest.raises(WrongKey):
        FileStore.open(house.path, config, files=house.files, threaded=False)
    with FileStore.open(house.path, files=house.files, threaded=False) as store:
        with pytest.raises(WrongKey):
            store.update_config(StoreConfig(cipher=Cipher.AES_256_GCM))
        assert store.store(*BODY)[0] == 1
        assert store.config.cipher is Cipher.NONE


def test_another_key_opens_nothing(lasting_house: StoreHouse) -> None:
    house = lasting_house
    store = house.open(cipher=Cipher.AES_256_GCM)
    store.store(*BODY)
    store.stop()
    before = house.file_bytes()
    for key in (None, StoreKey(b"another")):
        with pytest.raises(WrongKey):
            FileStore.open(house.path, store.config, files=house.files, key=key, threaded=False)
    assert house.file_bytes() == before


# Stopping, opening, deleting


def test_a_stopped_store_refuses_every_write(house: StoreHouse) -> None:
    store = house.open()
    store.store(*BODY)
    store.stop()
    writes: list[Callable[[], object]] = [
        lambda: store.store(*BODY),
        lambda: store.store_raw(*BODY, seq=9, timestamp_ns=1),
        lambda: store.store_batch([BODY]),
        lambda: store.skip(),
        lambda: store.remove(1),
        lambda: store.erase(1),
        lambda: store.purge(),
        lambda: store.compact(1),
        lambda: store.truncate(1),
        lambda: store.expire(),
        lambda: store.reset(),
        lambda: store.update_config(StoreConfig(name="orders")),
    ]
    for write in writes:
        with pytest.raises(StoreClosed):
            write()
    store.stop()


def test_a_store_that_is_stopped_and_opened_many_times_loses_nothing(
    lasting_house: StoreHouse,
) -> None:
    house = lasting_house
    store, model = house.open(), house.model()
    for place in range(40):
        body = (b"a.%d" % (place % 3), b"", b"x" * (place * 50 % 900))
        store.store(*body)
        model.store(*body, now_ns=house.clock.now_ns())
        if place % 4 == 0:
            assert store.remove(place // 2) == model.remove(place // 2)
        store = house.open_again(store)
        assert store.report.clean
    assert_same(store, model)


def test_a_deleted_store_leaves_nothing_behind(house: StoreHouse) -> None:
    store = house.open()
    store.store_batch([BODY] * 40)
    store.flush()
    store.delete()
    assert not house.files.exists(house.path)
    with pytest.raises(StoreClosed):
        store.store(*BODY)
    if house.is_lasting:
        assert house.open().state().last_seq == 0


def test_a_store_goes_on_after_taking_stock_again(lasting_house: StoreHouse) -> None:
    house = lasting_house
    store, model = house.open(), house.model()
    for _ in range(3):
        for _ in range(15):
            store.store(*BODY)
            model.store(*BODY, now_ns=house.clock.now_ns())
        store.flush()
        assert store.reopen().clean
        assert_same(store, model)


def test_the_name_of_a_stream_cannot_be_changed(house: StoreHouse) -> None:
    store = house.open()
    with pytest.raises(UsageError):
        store.update_config(StoreConfig(name="others"))
    assert store.config.name == "orders"


def test_smaller_blocks_are_used_from_the_change_on(lasting_house: StoreHouse) -> None:
    store = lasting_house.open(block_bytes=1_000_000)
    store.store_batch([(b"a.1", b"", b"x" * 500)] * 20)
    store.update_config(StoreConfig(name="orders", block_bytes=4096))
    store.store_batch([(b"a.1", b"", b"x" * 500)] * 20)
    store.flush()
    assert sum(".blk" in name for name in lasting_house.file_bytes()) >= 3
    assert store.state().messages == 40


def test_a_store_in_memory_gives_memory_back_when_messages_go() -> None:
    store = MemoryStore.create(StoreConfig(name="orders", block_bytes=4096, max_msgs=10))
    sizes = []
    for _ in range(20):
        store.store_batch([(b"a.1", b"", b"x" * 1000)] * 300)
        files = store.engine.log.directory.files
        sizes.append(
            sum(
                files.open(f"/memory/{name}", "read").size() for name in files.list_names("/memory")
            )
        )
    assert max(sizes) < 1_000_000
