"""Which messages consumers still need, against the rules written out in full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.consumer.needs import Position, StreamNeeds
from penstock.consumer.pending import Pending
from penstock.stream.consumers_port import FedStream
from penstock.subjects import SubjectFilter

LAST = 12
SEQS = st.sets(st.integers(1, LAST))


class Fed(FedStream):
    """A stream that reads from another, and has still to read some messages."""

    def __init__(self, needed: set[int]) -> None:
        self.needed = needed

    def wants(self, subject: bytes) -> bool:
        return subject == b"fed"

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        return stream_seq in self.needed


def subject_of(stream_seq: int) -> bytes:
    return b"s.odd" if stream_seq % 2 else b"s.even"


@given(st.integers(1, LAST + 1), SEQS, SEQS, SEQS, SEQS, st.booleans())
def test_a_consumer_needs_what_it_has_not_been_given_or_not_acknowledged(
    cursor: int, chosen: set[int], pending: set[int], given_up: set[int], held: set[int], odd: bool
) -> None:
    deliveries = Pending((1,))
    for place, seq in enumerate(sorted(pending)):
        deliveries.deliver(seq, place + 1, 0)
    deliveries.redelivered.update(dict.fromkeys(given_up, 1))
    position = Position(deliveries)
    position.cursor = cursor
    position.chosen = sorted(chosen, reverse=True)
    position.held = held
    position.subjects = SubjectFilter([b"s.odd"]) if odd else None

    for seq in range(1, LAST + 2):
        wanted = seq % 2 == 1 or not odd
        needed = seq >= cursor or seq in chosen | pending | given_up | held
        assert position.needs(seq, subject_of(seq)) == (wanted and needed)
        assert position.matches(subject_of(seq)) == wanted


@given(st.integers(0, LAST), SEQS)
def test_with_one_ack_for_all_everything_above_the_floor_is_needed(
    floor: int, chosen: set[int]
) -> None:
    deliveries = Pending((1,))
    deliveries.floor_stream_seq = floor
    position = Position(deliveries)
    position.cursor = LAST + 1
    position.chosen = sorted(chosen, reverse=True)
    position.by_floor = True

    assert [position.needs(seq, b"") for seq in range(1, LAST + 1)] == [
        seq > floor for seq in range(1, LAST + 1)
    ]


@given(SEQS, st.integers(1, LAST))
def test_a_chosen_message_is_dropped_once(chosen: set[int], seq: int) -> None:
    position = Position(Pending((1,)))
    position.chosen = sorted(chosen, reverse=True)

    position.drop_chosen(seq)

    assert position.chosen == sorted(chosen - {seq}, reverse=True)


def test_a_message_is_needed_while_any_consumer_or_fed_stream_needs_it() -> None:
    loaded: list[int] = []

    def load_subject(stream_seq: int) -> bytes:
        loaded.append(stream_seq)
        return subject_of(stream_seq)

    fed_streams: list[FedStream] = []
    needs = StreamNeeds(fed_streams, load_subject)
    assert not needs.needs(5)
    assert not needs.wants(b"s.odd")

    position = Position(Pending((1,)))
    position.cursor = 5
    needs.positions["all"] = position
    assert [needs.needs(seq) for seq in (4, 5)] == [False, True]
    assert needs.wants(b"any")
    # Without a filter no subject is looked at.
    assert not loaded

    position.subjects = SubjectFilter([b"s.even"])
    assert [needs.needs(seq) for seq in (4, 5, 6)] == [False, False, True]
    assert loaded == [4, 5, 6]
    assert not needs.needs(7, b"s.odd")
    assert needs.needs(7, b"s.even")
    assert loaded == [4, 5, 6]
    assert not needs.wants(b"s.odd")

    fed_streams.append(Fed({3}))
    assert [needs.needs(seq) for seq in (3, 5)] == [True, False]
    assert needs.wants(b"fed")
