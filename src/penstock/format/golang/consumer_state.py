"""A consumer's `o.dat`: what was delivered, what is acknowledged, what waits for an ack.

    [22][version] uvarints: ack floor (consumer, stream), delivered (consumer, stream), pending
    if any pending: varint base in seconds, then per message
        uvarint stream seq - floor, uvarint consumer seq - floor (version 2), varint seconds
    uvarint redelivered count, then per message: uvarint stream seq - floor, uvarint count

Version 1 keeps delivered sequences relative to the ack floor and as the next to come, has no
consumer sequence per pending message and adds the seconds instead of subtracting them. Times are
whole seconds on disk. Pure.
"""

from __future__ import annotations

import msgspec

from penstock.errors import FormatError
from penstock.format.golang.cursor import ByteCursor

_MAGIC = 22
_SEQ_MAX = 2**63 - 1
_SECOND_NS = 1_000_000_000


class PendingAck(msgspec.Struct, frozen=True):
    """A delivered message that waits for its ack; version 1 does not keep `consumer_seq` (0)."""

    consumer_seq: int
    delivered_ns: int


class GoConsumerState(msgspec.Struct, frozen=True):
    """Where a consumer stands; `pending` and `redelivered` are keyed by stream sequence."""

    ack_floor_consumer_seq: int
    ack_floor_stream_seq: int
    delivered_consumer_seq: int
    delivered_stream_seq: int
    pending: dict[int, PendingAck]
    redelivered: dict[int, int]


def decode_consumer_state(data: bytes) -> GoConsumerState:
    """Decode the plain bytes of an `o.dat`; raises FormatError."""
    cursor = ByteCursor(data)
    if cursor.unsigned(1) != _MAGIC:
        raise FormatError("not a consumer's state")
    version = cursor.unsigned(1)
    if version not in (1, 2):
        raise FormatError(f"consumer state of unknown version {version}", offset=1)
    floor_consumer, floor_stream = cursor.uvarint(), cursor.uvarint()
    delivered_consumer, delivered_stream = cursor.uvarint(), cursor.uvarint()
    if version == 1:
        delivered_consumer += max(floor_consumer - 1, 0)
        delivered_stream += max(floor_stream - 1, 0)
    if max(floor_consumer, floor_stream, delivered_consumer, delivered_stream) > _SEQ_MAX:
        raise FormatError("a consumer's sequence is impossible", offset=2)
    pending = _decode_pending(cursor, version, floor_consumer, floor_stream)
    redelivered = _decode_redelivered(cursor, floor_stream)
    return GoConsumerState(
        floor_consumer, floor_stream, delivered_consumer, delivered_stream, pending, redelivered
    )


def _decode_pending(
    cursor: ByteCursor, version: int, floor_consumer: int, floor_stream: int
) -> dict[int, PendingAck]:
    count = cursor.uvarint()
    pending: dict[int, PendingAck] = {}
    base_s = cursor.varint() if count else 0
    # No room is made for `count`: it ends with the data if it is a lie.
    for _ in range(count):
        stream_seq = cursor.uvarint() + floor_stream
        consumer_seq = cursor.uvarint() + floor_consumer if version == 2 else 0
        seconds = cursor.varint()
        if stream_seq == 0:
            raise FormatError("a pending message has no sequence", offset=cursor.at)
        delivered_s = base_s - seconds if version == 2 else base_s + seconds
        pending[stream_seq] = PendingAck(consumer_seq, delivered_s * _SECOND_NS)
    return pending


def _decode_redelivered(cursor: ByteCursor, floor_stream: int) -> dict[int, int]:
    redelivered: dict[int, int] = {}
    for _ in range(cursor.uvarint()):
        above_floor, count = cursor.uvarint(), cursor.uvarint()
        if above_floor and count:
            redelivered[above_floor + floor_stream] = count
    return redelivered
