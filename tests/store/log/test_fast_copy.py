"""The quick way from store to store leads where the store's own methods would have led."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import LimitReached
from penstock.format.envelope import Compression
from penstock.store.filestore import FileStore
from penstock.store.interface import Discard, StoreConfig
from penstock.store.log.fast_copy import Copier
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter

PLENTY: dict[str, Any] = {"count_max": 1000, "bytes_max": 2**30}
EVERYTHING = SubjectFilter([])
BETWEEN, AFTER = b" > > ", b" Qd3kPw0Z\r\n\r\n"

_MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c.d"]),
        st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"]),
        st.binary(max_size=40) | st.sampled_from([b"x" * 60, b"ab" * 200]),
    ),
    max_size=20,
)
_NEW = {"discard": Discard.NEW}
_LIMITS = st.sampled_from(
    [
        {},
        {"max_msgs": 3},
        {"max_msgs_per_subject": 1},
        {"max_msgs_per_subject": 2, "max_msgs": 5},
        {"max_bytes": 150},
        {"max_msgs": 3, **_NEW},
        {"max_bytes": 150, **_NEW},
        {"max_msgs_per_subject": 2, "max_bytes": 150, **_NEW},
        {"max_msgs_per_subject": 2, "discard_new_per_subject": True, **_NEW},
        {"compression": Compression.SNAPPY},
    ]
)


def _contents(store: FileStore) -> list[tuple[Any, ...]]:
    state = store.state()
    gone = set(store.deleted())
    found = (
        store.load(seq) for seq in range(state.first_seq, state.last_seq + 1) if seq not in gone
    )
    return [
        (each.seq, each.timestamp_ns, each.subject, each.headers, each.payload) for each in found
    ]


def _copier(origin: FileStore, target: FileStore) -> Copier:
    return Copier(origin.scanner(), target.appender())


def _filled(
    messages: list[tuple[bytes, bytes, bytes]], removed: set[int], config: StoreConfig | None = None
) -> FileStore:
    store = MemoryStore.create(config)
    for message in messages:
        store.store(*message)
    for seq in removed:
        store.remove(seq)
    return store


@given(
    messages=_MESSAGES,
    removed=st.sets(st.integers(1, 20)),
    pattern=st.sampled_from([b">", b"a", b"*"]),
    start=st.integers(1, 10),
    until=st.integers(0, 25),
    limits=_LIMITS,
    compression=st.sampled_from(list(Compression)),
)
def test_placed_messages_are_as_store_raw_keeps_them(
    messages: list[tuple[bytes, bytes, bytes]],
    removed: set[int],
    pattern: bytes,
    start: int,
    until: int,
    limits: dict[str, Any],
    compression: Compression,
) -> None:
    origin = _filled(messages, removed, StoreConfig(compression=compression))
    ours, theirs = (MemoryStore.create(StoreConfig(**limits)) for _ in range(2))
    subjects = SubjectFilter([pattern])
    copied = _copier(origin, ours).copy_placed(subjects, start, until, **PLENTY)
    last_seq = 0
    for seq, time_ns, subject, headers, payload in _contents(origin):
        if seq < start or seq > until or not subjects.matches(subject):
            continue
        if b"Nats-" in headers:
            break
        try:
            theirs.store_raw(
                subject, headers, payload, seq=seq, timestamp_ns=time_ns, is_refusable=True
            )
        except LimitReached:
            break
        last_seq = seq
    assert copied == last_seq
    assert _contents(ours) == _contents(theirs)


@given(messages=_MESSAGES, start=st.integers(1, 10))
def test_marked_messages_are_as_store_keeps_them_with_a_header_more(
    messages: list[tuple[bytes, bytes, bytes]], start: int
) -> None:
    origin = _filled(messages, set())
    target = MemoryStore.create()
    copier = _copier(origin, target)
    copied = copier.copy_marked(EVERYTHING, start, 100, b"M: O ", BETWEEN, AFTER, **PLENTY)
    expected = []
    for seq, _, subject, headers, payload in _contents(origin)[start - 1 :]:
        if b"Nats-" in headers:
            break
        mark = b"M: O %d" % seq + BETWEEN + subject + AFTER
        expected.append((subject, (headers[:-2] or b"NATS/1.0\r\n") + mark, payload))
    assert [each[2:] for each in _contents(target)] == expected
    assert copied == (start + len(expected) - 1 if expected else 0)


def test_a_run_ends_after_so_many_messages_or_bytes() -> None:
    origin = _filled([(b"a", b"", b"x" * 100)] * 9, set())
    target = MemoryStore.create()
    copier = _copier(origin, target)
    assert copier.copy_placed(EVERYTHING, 1, 9, count_max=2, bytes_max=1000) == 2
    assert copier.copy_placed(EVERYTHING, 3, 9, count_max=9, bytes_max=150) == 4
    assert target.state().messages == 4


@pytest.mark.parametrize(
    "config", [StoreConfig(max_msg_bytes=3), StoreConfig(max_bytes=20, discard=Discard.NEW)]
)
def test_what_a_store_has_to_look_at_is_left_to_it(config: StoreConfig) -> None:
    origin = _filled([(b"a", b"", b"long")], set())
    target = MemoryStore.create(config)
    assert _copier(origin, target).copy_placed(EVERYTHING, 1, 9, **PLENTY) == 0
    assert target.state().last_seq == 0


def test_what_has_its_own_time_to_live_is_left_to_the_stream() -> None:
    origin = MemoryStore.create()
    origin.store(b"a", b"", b"", expires_ns=2**62)
    assert _copier(origin, MemoryStore.create()).copy_placed(EVERYTHING, 1, 9, **PLENTY) == 0
