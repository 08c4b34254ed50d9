"""What is told of a consumer: how far it is, what it waits for, who waits for it.

Names and order of the fields are those of the wire. Pure.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.consumer.config import ConsumerConfig
from penstock.documents.shapes import OMIT_EMPTY, DurationNs, Int, Uint64
from penstock.documents.times import ZERO_TIME, Instant
from penstock.stream.info import ClusterInfo


class SequenceInfo(msgspec.Struct, frozen=True):
    """A place in the consumer's own count and in the stream; `last_active` is when it moved."""

    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0
    last_active: Annotated[Instant | None, OMIT_EMPTY] = None


class PriorityGroupState(msgspec.Struct, frozen=True):
    """A group of clients, and the one of them that is served."""

    group: str = ""
    pinned_client_id: Annotated[str, OMIT_EMPTY] = ""
    pinned_ts: Instant = ZERO_TIME


class ConsumerInfo(msgspec.Struct, frozen=True):
    """Everything that is told of a consumer; `ts` is when."""

    stream_name: str = ""
    name: str = ""
    created: Instant = ZERO_TIME
    config: Annotated[ConsumerConfig | None, OMIT_EMPTY] = None
    delivered: SequenceInfo = SequenceInfo()
    ack_floor: SequenceInfo = SequenceInfo()
    num_ack_pending: Int = 0
    num_redelivered: Int = 0
    num_waiting: Int = 0
    num_pending: Uint64 = 0
    cluster: Annotated[ClusterInfo | None, OMIT_EMPTY] = None
    push_bound: Annotated[bool, OMIT_EMPTY] = False
    paused: Annotated[bool, OMIT_EMPTY] = False
    pause_remaining: Annotated[DurationNs, OMIT_EMPTY] = 0
    ts: Instant = ZERO_TIME
    priority_groups: Annotated[tuple[PriorityGroupState, ...], OMIT_EMPTY] = ()
