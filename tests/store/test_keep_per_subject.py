"""A limit of messages per subject keeps the newest ones, also when it is imposed afterwards."""

from __future__ import annotations

import pytest

from penstock.store.interface import StoreConfig
from penstock.store.memstore import MemoryStore


@pytest.mark.parametrize("in_batch", [False, True], ids=["one by one", "in a batch"])
def test_a_limit_imposed_after_the_newest_was_removed_keeps_the_one_before(in_batch: bool) -> None:
    store = MemoryStore.create()
    messages = [(b"a", b"", b"%d" % place) for place in range(3)]
    if in_batch:
        store.store_batch(messages)
    else:
        for message in messages:
            store.store(*message)
    store.remove(3)

    store.update_config(StoreConfig(max_msgs_per_subject=1))

    assert store.state().messages == 1
    assert store.load_last(b"a").seq == 2


@pytest.mark.parametrize("in_batch", [False, True], ids=["one by one", "in a batch"])
def test_a_subject_keeps_its_newest_messages_as_new_ones_come(in_batch: bool) -> None:
    store = MemoryStore.create(StoreConfig(max_msgs_per_subject=2))
    messages = [(b"ab"[place % 2 :][:1], b"", b"%d" % place) for place in range(10)]
    if in_batch:
        store.store_batch(messages)
    else:
        for message in messages:
            store.store(*message)

    assert [seq for seq in range(1, 11) if seq not in store.deleted()][-4:] == [7, 8, 9, 10]
    assert store.state().messages == 4
