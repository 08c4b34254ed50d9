"""Both stores against the model, through every operation in any order.

Two stores go the same way: one on files that can lose power, without threads, with blocks so small
that rotation, compaction and eviction happen all the time; and one in memory. After each step the
numbers are compared, at each look everything that can be asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st

from penstock.errors import LimitReached, PenstockError, RecordNotFound, SequenceOutOfOrder
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.layout import INDEX_SUFFIX, STATE_NAME
from penstock.store.filestore import FileStore
from penstock.store.interface import NEVER_NS, Discard, NewMessage, StoreConfig
from penstock.store.log import block_cache
from penstock.store.memstore import MemoryStore
from penstock.testing.clock import FakeClock
from penstock.testing.filesystem import MemoryFileSystem
from tests.models.store import IN_FILES, IN_MEMORY, Message, Patterns, StoreModel
from tests.support.stores import (
    FILTERS,
    assert_same,
    assert_same_answers,
    assert_same_state,
    assert_same_times,
    filter_of,
)

SECOND_NS = 1_000_000_000
PATH = "/streams/orders"
KEY = StoreKey(b"the state machine's own secret..")

SUBJECTS = st.sampled_from([b"a.1", b"a.2", b"b.1", b"b.2.x", b"c", b"d.1.2.3"])
HEADERS = st.sampled_from([b"", b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: 1\r\n\r\n"])
PAYLOADS = st.builds(
    lambda size, byte, is_even: bytes([byte]) * size if is_even else Random(byte).randbytes(size),
    st.sampled_from([0, 1, 20, 100, 400, 1200, 5000]),
    st.integers(0, 255),
    st.booleans(),
)
"""Some can be compressed and some cannot."""

MESSAGES = st.tuples(SUBJECTS, HEADERS, PAYLOADS)
PLACES = st.floats(0, 1)
"""Where to pick a sequence, as a share of those that there are."""


@st.composite
def limits(draw: st.DrawFn) -> dict[str, Any]:
    """Draw limits, none of them most of the time."""
    discard = draw(st.sampled_from(list(Discard)))
    per_subject = draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
    return {
        "max_msgs": draw(st.sampled_from([0, 0, 0, 1, 10, 40])),
        "max_bytes": draw(st.sampled_from([0, 0, 0, 300, 3_000, 20_000])),
        "max_age_ns": draw(st.sampled_from([0, 0, 0, 10 * SECOND_NS, 1000 * SECOND_NS])),
        "max_msgs_per_subject": per_subject,
        "max_msg_bytes": draw(st.sampled_from([0, 0, 0, 500])),
        "discard": discard,
        "discard_new_per_subject": discard is Discard.NEW
        and per_subject > 0
        and draw(st.booleans()),
        "block_bytes": draw(st.sampled_from([4096, 4096, 16_384])),
        "sync_interval_ns": draw(st.sampled_from([0, 0, 10 * SECOND_NS])),
    }


class StoreMachine(stateful.RuleBasedStateMachine):
    """A file store, a memory store, and a model of each."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.files = MemoryFileSystem()
        self.random = Random(1)
        self.config = StoreConfig(name="orders", block_bytes=4096)
        self.file_store = self._open()
        self.memory_store = MemoryStore.create(
            self.config, clock=self.clock, random_bytes=self.random.randbytes
        )
        self.file_model = StoreModel(self.config, IN_FILES)
        self.memory_model = StoreModel(self.config, IN_MEMORY)

    def _open(self) -> FileStore:
        return FileStore.open(
            PATH,
            self.config,
            files=self.files,
            clock=self.clock,
            random_bytes=self.random.randbytes,
            key=KEY,
            threaded=False,
        )

    @property
    def pairs(self) -> list[tuple[FileStore, StoreModel]]:
        """Each store with its model."""
        return [(self.file_store, self.file_model), (self.memory_store, self.memory_model)]

    def _both(
        self,
        do: Callable[[FileStore], object],
        model: Callable[[StoreModel], object],
        *refusals: type[PenstockError],
    ) -> None:
        """Do the same to store and model: the same answer or the same refusal."""
        for store, twin in self.pairs:
            expected = outcome_of(model, twin, refusals)
            assert outcome_of(do, store, refusals) == expected

    def _pick(self, model: StoreModel, place: float) -> int:
        """Pick a sequence, mostly of a message."""
        seqs = [*sorted(model.messages), model.last_seq + 1]
        return seqs[int(place * (len(seqs) - 1))]

    def _each_pick(self, place: float) -> list[tuple[FileStore, StoreModel, int]]:
        return [(store, model, self._pick(model, place)) for store, model in self.pairs]

    # Writing

    @stateful.rule(
        message=MESSAGES,
        ttl_s=st.sampled_from([0, 0, 0, 1, 60, 5000, NEVER_NS]),
        keep=st.sampled_from([0, 0, 0, 1, 3]),
    )
    def store(self, message: NewMessage, ttl_s: int, keep: int) -> None:
        now_ns = self.clock.now_ns()
        expires_ns = min(now_ns + ttl_s * SECOND_NS, NEVER_NS) if ttl_s else 0
        self._both(
            lambda store: store.store(*message, expires_ns=expires_ns, keep=keep),
            lambda model: model.store(*message, now_ns=now_ns, expires_ns=expires_ns, keep=keep),
            LimitReached,
        )

    @stateful.rule(batch=st.lists(MESSAGES, min_size=1, max_size=12))
    def store_batch(self, batch: list[NewMessage]) -> None:
        now_ns = self.clock.now_ns()
        self._both(
            lambda store: store.store_batch(batch),
            lambda model: model.store_batch(batch, now_ns=now_ns),
            LimitReached,
        )

    @stateful.rule(
        message=MESSAGES,
        ahead=st.sampled_from([0, 1, 1, 2, 10, 2**32, 2**40]),
        later_s=st.integers(-30, 0),
        ttl_s=st.sampled_from([0, 0, 30]),
    )
    def store_raw(self, message: NewMessage, ahead: int, later_s: int, ttl_s: int) -> None:
        time_ns = self.clock.now_ns() + later_s * SECOND_NS
        expires_ns = time_ns + ttl_s * SECOND_NS if ttl_s else 0
        for store, model in self.pairs:
            seq = model.last_seq + ahead
            raw = Message(seq, time_ns, *message, expires_ns)

            def keep(store: FileStore, seq: int = seq) -> None:
                store.store_raw(*message, seq=seq, timestamp_ns=time_ns, expires_ns=expires_ns)

            def keep_in_model(model: StoreModel, raw: Message = raw) -> None:
                model.store_raw(raw)

            expected = outcome_of(keep_in_model, model, (SequenceOutOfOrder,))
            assert outcome_of(keep, store, (SequenceOutOfOrder,)) == expected

    @stateful.rule(count=st.sampled_from([1, 1, 2, 7, 2**33]))
    def skip(self, count: int) -> None:
        self._both(lambda store: store.skip(count), lambda model: model.skip(count))

    # Removing

    @stateful.rule(place=PLACES)
    def remove(self, place: float) -> None:
        for store, model, seq in self._each_pick(place):
            assert store.remove(seq) == model.remove(seq)

    @stateful.rule(places=st.lists(PLACES, min_size=5, max_size=20))
    def remove_several(self, places: list[float]) -> None:
        for place in places:
            self.remove(place)

    @stateful.rule(place=PLACES)
    def erase(self, place: float) -> None:
        for store, model, seq in self._each_pick(place):
            assert store.erase(seq) == model.remove(seq)

    @stateful.rule(
        patterns=st.sampled_from(FILTERS),
        place=st.one_of(st.none(), PLACES),
        keep=st.sampled_from([0, 0, 1, 3]),
    )
    def purge(self, patterns: Patterns, place: float | None, keep: int) -> None:
        for store, model in self.pairs:
            seq = 0 if place is None else self._pick(model, place)
            removed = model.purge(patterns, seq=seq, keep=keep)
            assert store.purge(filter_of(patterns), seq=seq, keep=keep) == removed

    @stateful.rule(place=PLACES, beyond=st.sampled_from([0, 0, 1, 10, 2**34]))
    def compact(self, place: float, beyond: int) -> None:
        for store, model, picked in self._each_pick(place):
            seq = model.last_seq + beyond if beyond else picked
            assert store.compact(seq) == model.compact(seq)

    @stateful.rule(place=PLACES)
    def truncate(self, place: float) -> None:
        for store, model, seq in self._each_pick(place):
            if seq in model.messages:
                store.truncate(seq)
                model.truncate(seq)
            else:
                with pytest.raises(RecordNotFound):
                    store.truncate(seq)

    @stateful.rule()
    def reset(self) -> None:
        self._both(lambda store: store.reset(), lambda model: model.reset())

    # Time

    @stateful.rule(seconds=st.sampled_from([1, 1, 5, 30, 600]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance_seconds(seconds)
        now_ns = self.clock.now_ns()
        self._both(lambda store: store.expire(), lambda model: model.expire(now_ns))

    # Living

    @stateful.rule(
        limits=limits(),
        compression=st.sampled_from(list(Compression)),
        cipher=st.sampled_from([Cipher.NONE, Cipher.NONE, *list(Cipher)[1:]]),
    )
    def update_config(
        self, limits: dict[str, Any], compression: Compression, cipher: Cipher
    ) -> None:
        self.config = StoreConfig(name="orders", compression=compression, cipher=cipher, **limits)
        in_memory = StoreConfig(name="orders", compression=compression, **limits)
        self.file_store.update_config(self.config)
        self.memory_store.update_config(in_memory)
        for _, model in self.pairs:
            model.config = self.config
            model.enforce_all(self.clock.now_ns())

    @stateful.rule()
    def flush(self) -> None:
        for store, model in self.pairs:
            assert store.flush() == model.last_seq

    @stateful.rule(thorough=st.booleans())
    def reclaim(self, thorough: bool) -> None:
        for store, _ in self.pairs:
            store.reclaim(thorough=thorough)

    @stateful.rule()
    def checkpoint(self) -> None:
        self.file_store.checkpoint()

    # Opening again

    def _opened_again(self) -> None:
        self.file_store = self._open()
        self.file_model.enforce_all(self.clock.now_ns())
        assert self.file_store.report.damage == []
        assert self.file_store.report.torn_bytes == 0

    @stateful.rule()
    def stop_and_open(self) -> None:
        self.file_store.stop()
        self._opened_again()
        assert self.file_store.report.clean
        assert self.file_store.report.checkpoint_used

    @stateful.rule()
    def open_without_checkpoint(self) -> None:
        self.file_store.stop()
        self.files.unlink(f"{PATH}/{STATE_NAME}")
        self._opened_again()
        assert self.file_store.report.clean

    @stateful.rule(checkpoint=st.booleans(), share=st.sampled_from([0.3, 1.0]))
    def open_without_indexes(self, checkpoint: bool, share: float) -> None:
        self.file_store.stop()
        for name in self.files.list_names(PATH):
            if name.endswith(INDEX_SUFFIX) and self.random.random() < share:
                self.files.unlink(f"{PATH}/{name}")
        if not checkpoint:
            self.files.unlink(f"{PATH}/{STATE_NAME}")
        self._opened_again()

    @stateful.rule()
    def lose_power_after_a_flush(self) -> None:
        self.file_store.flush()
        self.files = self.files.crash()
        self._opened_again()

    @stateful.rule()
    def take_stock_again(self) -> None:
        self.file_store.flush()
        self.file_store.reopen()
        self.file_model.enforce_all(self.clock.now_ns())

    # Looking

    @stateful.rule(patterns=st.sampled_from(FILTERS), place=PLACES, offset=st.integers(0, 2))
    def ask(self, patterns: Patterns, place: float, offset: int) -> None:
        for store, model, seq in self._each_pick(place):
            assert_same_answers(store, model, patterns, seq + offset)
            message = model.messages.get(seq)
            if message is not None:
                assert_same_times(store, model, message.timestamp_ns + offset)

    @stateful.rule()
    def look_at_everything(self) -> None:
        for store, model in self.pairs:
            assert_same(store, model)

    @stateful.invariant()
    def the_numbers_agree(self) -> None:
        for store, model in self.pairs:
            assert_same_state(store, model)

    def teardown(self) -> None:
        self.look_at_everything()
        self.file_store.flush()
        self.file_store.stop()
        self.file_store = self._open()
        self.file_model.enforce_all(self.clock.now_ns())
        self.look_at_everything()
        for store, _ in self.pairs:
            store.stop()


def outcome_of(
    call: Callable[[Any], object], subject: object, refusals: tuple[type[PenstockError], ...]
) -> object:
    """Return what a call returned, or the kind of refusal."""
    with contextlib.suppress(*refusals):
        return call(subject)
    return refusals


@pytest.fixture(autouse=True)
def _crowded_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let indexes and files come and go in the middle of everything."""
    monkeypatch.setattr(block_cache, "INDEX_CACHE_BYTES_MAX", 2_000)
    monkeypatch.setattr(block_cache, "OPEN_BLOCKS_MAX", 2)


def test_both_stores_do_what_the_model_does() -> None:
    stateful.run_state_machine_as_test(
        StoreMachine,
        settings=settings(max_examples=40, stateful_step_count=40, report_multiple_bugs=False),
    )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_both_stores_do_what_the_model_does_for_long() -> None:
    stateful.run_state_machine_as_test(
        StoreMachine, settings=settings(max_examples=500, stateful_step_count=100)
    )
