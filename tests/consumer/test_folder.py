"""A consumer in an archive: whatever the archive cannot tell of is delivered again, not skipped."""

from __future__ import annotations

from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.folder import entry_of, read_entry
from penstock.format.state.consumer import (
    ConsumerState,
    DeadLetter,
    PendingDelivery,
    SequencePair,
)


def archived(state: ConsumerState) -> ConsumerState:
    entry = entry_of("C", ConsumerConfig(durable_name="C"), state, last_seq=100, now_ns=1)
    return read_entry(entry).state


def test_what_follows_on_a_held_message_is_not_delivered_yet() -> None:
    state = ConsumerState(
        delivered=SequencePair(9, 20),
        ack_floor=SequencePair(3, 10),
        pending={11: PendingDelivery(4, 5), 15: PendingDelivery(7, 6)},
        held={13, 16},
    )

    found = archived(state)

    assert found.delivered.stream_seq == 12
    assert found.pending == {11: PendingDelivery(4, 5)}


def test_a_message_whose_letter_is_owed_is_pending() -> None:
    state = ConsumerState(
        delivered=SequencePair(9, 20),
        ack_floor=SequencePair(3, 10),
        pending={11: PendingDelivery(4, 5)},
        letters={11: DeadLetter(3, 7, is_terminated=True, text=b"why")},
    )

    assert archived(state).pending == state.pending
    assert archived(state).delivered == state.delivered
