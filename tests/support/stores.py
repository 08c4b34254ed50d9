"""Comparing a store with the model of one, question by question."""

from __future__ import annotations

import pytest

from penstock.errors import RecordNotFound
from penstock.store.filestore import FileStore
from penstock.store.interface import FilteredState, SubjectState
from penstock.store.log.block import StoredMessage
from penstock.subjects import SubjectFilter
from tests.models.store import Message, Patterns, StoreModel

FILTERS: tuple[Patterns, ...] = (
    None,
    [b">"],
    [b"a.1"],
    [b"a.*"],
    [b"b.>"],
    [b"*.1"],
    [b"a.1", b"b.1"],
    [b"a.*", b"a.1", b"b.>"],
    [b"nobody"],
    [b"nobody.>"],
)
"""Every kind of filter: none, everything, a literal, wildcards, several that overlap, no match."""


def filter_of(patterns: Patterns) -> SubjectFilter | None:
    """Return the filter made of patterns."""
    return None if patterns is None else SubjectFilter(patterns)


def as_message(stored: StoredMessage) -> Message:
    """Read everything that a stored message holds."""
    return Message(
        stored.seq,
        stored.timestamp_ns,
        stored.subject,
        stored.headers,
        stored.payload,
        stored.expires_ns,
    )


def assert_same_state(store: FileStore, model: StoreModel) -> None:
    """Compare the stream in numbers."""
    state = store.state()
    found = (
        state.messages,
        state.bytes,
        state.first_seq,
        state.first_time_ns,
        state.last_seq,
        state.last_time_ns,
        state.deleted,
        state.subjects,
        state.lost,
    )
    expected = (
        len(model.messages),
        model.size,
        model.first_seq,
        model.first_time_ns,
        model.last_seq,
        model.last_time_ns,
        model.last_seq - model.first_seq + 1 - len(model.messages),
        len(model.subjects()),
        (),
    )
    assert found == expected
    # An index that a power cut left half-written is no loss: it is built again.
    assert [problem for problem in store.problems if ".idx" not in problem] == []


def assert_same_messages(store: FileStore, model: StoreModel) -> None:
    """Compare every message, by sequence and in order, and that nothing else is there."""
    for seq, message in model.messages.items():
        assert as_message(store.load(seq)) == message
    missing = [seq for ends in model.deleted for seq in ends]
    for seq in (*missing, 0, model.first_seq - 1, model.last_seq + 1):
        with pytest.raises(RecordNotFound):
            store.load(seq)
    seqs = []
    seq = 0
    while True:
        try:
            seq = store.load_next(seq + 1).seq
        except RecordNotFound:
            break
        seqs.append(seq)
    assert seqs == sorted(model.messages)
    assert list(store.deleted().ranges()) == model.deleted


def assert_same_answers(store: FileStore, model: StoreModel, patterns: Patterns, seq: int) -> None:
    """Compare what is asked with one filter from one sequence on."""
    wanted = filter_of(patterns)
    everything = wanted or SubjectFilter([])
    matching = model.wanted(patterns, seq)
    assert store.filtered_state(wanted, seq) == (
        FilteredState(len(matching), matching[0].seq, matching[-1].seq)
        if matching
        else FilteredState(0, 0, 0)
    )
    assert store.count_pending(wanted, seq) == len(matching)
    assert store.count_pending(wanted, seq, last_per_subject=True) == model.count_pending(
        patterns, seq, last_per_subject=True
    )
    assert _seq(store, "load_next", seq, wanted) == model.next_seq(patterns, seq)
    assert _seq(store, "load_previous", seq, wanted) == model.previous_seq(patterns, seq)
    subjects = model.subjects(patterns)
    assert store.subjects_totals(everything) == {name: len(s) for name, s in subjects.items()}
    assert store.subjects_state(everything) == {
        name: SubjectState(len(s), s[0], s[-1]) for name, s in subjects.items()
    }
    assert store.multi_last(everything) == model.multi_last(patterns)
    assert store.multi_last(everything, up_to_seq=seq or 1) == model.multi_last(
        patterns, up_to_seq=seq or 1
    )


def _seq(store: FileStore, how: str, seq: int, wanted: SubjectFilter | None) -> int | None:
    try:
        found: StoredMessage = getattr(store, how)(seq, wanted)
    except RecordNotFound:
        return None
    return found.seq


def assert_same_times(store: FileStore, model: StoreModel, time_ns: int) -> None:
    """Compare what is asked of one moment."""
    assert store.seq_from_time(time_ns) == model.seq_from_time(time_ns)
    assert store.multi_last(SubjectFilter([]), up_to_time_ns=time_ns) == model.multi_last(
        None, up_to_time_ns=time_ns
    )


def assert_same(store: FileStore, model: StoreModel) -> None:
    """Compare everything that a store can be asked."""
    assert_same_state(store, model)
    assert_same_messages(store, model)
    middle = (model.first_seq + model.last_seq) // 2
    for patterns in FILTERS:
        for seq in (0, model.first_seq + 1, middle, model.last_seq, model.last_seq + 1):
            assert_same_answers(store, model, patterns, seq)
    assert store.all_last() == model.multi_last(None)
    for subject, seqs in model.subjects().items():
        assert store.load_last(subject).seq == seqs[-1]
    with pytest.raises(RecordNotFound):
        store.load_last(b"nobody")
    for time_ns in sorted({m.timestamp_ns for m in model.messages.values()})[::7]:
        assert_same_times(store, model, time_ns)
        assert_same_times(store, model, time_ns + 1)
