"""A consumer as an entry of a stream's archive: its configuration, and how far it is.

    {"config": {…},
     "state": {"delivered": {…}, "ack_floor": {…}, "pending": {…}, "redelivered": {…}}}

Names and order of the fields are the reference server's. What is read is no more than what somebody
wrote: the configuration is still to be checked, the state is one that could be.

Pure; any thread.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from penstock.consumer.config import ConsumerConfig
from penstock.documents.decoding import decode
from penstock.documents.encoding import encode
from penstock.documents.shapes import OMIT_EMPTY, Int64, Uint64
from penstock.errors import FormatError, InvalidDocument
from penstock.format.consumer_state import ConsumerState, PendingDelivery, SequencePair
from penstock.format.golang.archive import CONSUMERS_PREFIX, ArchiveEntry


class ArchivedPlace(msgspec.Struct, frozen=True):
    """A place in the consumer's own count and in the stream."""

    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0


class ArchivedPending(msgspec.Struct, frozen=True):
    """A message that was not acknowledged."""

    Sequence: Uint64 = 0
    Timestamp: Int64 = 0


class ArchivedState(msgspec.Struct, frozen=True):
    """How far a consumer is; by sequences of the stream."""

    delivered: ArchivedPlace = ArchivedPlace()
    ack_floor: ArchivedPlace = ArchivedPlace()
    pending: Annotated[dict[str, ArchivedPending], OMIT_EMPTY] = msgspec.field(default_factory=dict)
    redelivered: Annotated[dict[str, Uint64], OMIT_EMPTY] = msgspec.field(default_factory=dict)


class ArchivedConsumer(msgspec.Struct, frozen=True):
    """The entry; what is None was not there."""

    config: ConsumerConfig | None = None
    state: ArchivedState | None = None


class Archived(NamedTuple):
    """A consumer that was read."""

    name: str
    config: ConsumerConfig
    state: ConsumerState


def entry_of(
    name: str, config: ConsumerConfig, state: ConsumerState, *, last_seq: int, now_ns: int
) -> ArchiveEntry:
    """Archive a consumer of a stream that ends at a sequence.

    The archive cannot tell of a message that others were delivered before: what follows on the
    first of these counts as not delivered, and will be delivered again.
    """
    last_seq = min(last_seq, min(state.held, default=last_seq + 1) - 1)
    delivered, floor = state.delivered, state.ack_floor
    archived = ArchivedState(
        ArchivedPlace(delivered.consumer_seq, min(delivered.stream_seq, last_seq)),
        ArchivedPlace(floor.consumer_seq, min(floor.stream_seq, last_seq)),
        {
            str(seq): ArchivedPending(each.consumer_seq, each.timestamp_ns)
            for seq, each in state.pending.items()
            if seq <= last_seq
        },
        {str(seq): count for seq, count in state.redelivered.items() if seq <= last_seq},
    )
    payload = encode(ArchivedConsumer(config, archived))
    return ArchiveEntry(CONSUMERS_PREFIX + name.encode(), now_ns, payload=payload)


def read_entry(entry: ArchiveEntry) -> Archived:
    """Read a consumer; raises FormatError."""
    if not entry.name.startswith(CONSUMERS_PREFIX):
        raise FormatError("expected a consumer")
    try:
        name = entry.name.removeprefix(CONSUMERS_PREFIX).decode()
        document = decode(ArchivedConsumer, entry.payload, strict=False)
    except (InvalidDocument, UnicodeDecodeError) as error:
        raise FormatError(f"failed to decode a consumer: {error}") from None
    if document.config is None or document.state is None:
        raise FormatError(f"consumer {name!r} is missing config or state")
    return Archived(name, document.config, _state(name, document.state))


def _state(name: str, archived: ArchivedState) -> ConsumerState:
    delivered = SequencePair(archived.delivered.consumer_seq, archived.delivered.stream_seq)
    floor = SequencePair(archived.ack_floor.consumer_seq, archived.ack_floor.stream_seq)
    if floor.consumer_seq > delivered.consumer_seq or floor.stream_seq > delivered.stream_seq:
        raise FormatError(f"consumer {name!r} has acknowledged more than was delivered")
    try:
        pending = {
            int(seq): PendingDelivery(each.Sequence, each.Timestamp)
            for seq, each in archived.pending.items()
        }
        redelivered = {int(seq): count for seq, count in archived.redelivered.items() if count}
    except ValueError:
        raise FormatError(f"consumer {name!r} has a sequence that is no number") from None
    # What does not fit between the floor and what was delivered would never be found again.
    return ConsumerState(
        delivered,
        floor,
        {
            seq: each
            for seq, each in pending.items()
            if floor.stream_seq < seq <= delivered.stream_seq
            and floor.consumer_seq < each.consumer_seq <= delivered.consumer_seq
        },
        {seq: count for seq, count in redelivered.items() if 0 < seq <= delivered.stream_seq},
    )
