"""What the API shows of a stream: its state, its origins, its place in a cluster.

Names and order of the fields are those of the wire. What is JSON already is `Encoded`. Pure.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.stream.config.config import ExternalStream, StreamConfig, SubjectTransformConfig
from penstock.text.json.shapes import OMIT_EMPTY, POINTER, DurationNs, Int, Uint64
from penstock.text.json.write import Encoded
from penstock.text.times import ZERO_TIME, Instant

NOTHING = Encoded(b"")
"""Stands for details that nobody asked for; left out."""


class LostStreamData(msgspec.Struct, frozen=True):
    """Messages that were lost to damage on disk."""

    msgs: tuple[Uint64, ...] = ()
    bytes: Uint64 = 0


class StreamState(msgspec.Struct, frozen=True):
    """The messages of a stream in numbers. Written by `api.stream_json`."""

    messages: Uint64 = 0
    bytes: Uint64 = 0
    first_seq: Uint64 = 0
    first_ts: Instant = ZERO_TIME
    last_seq: Uint64 = 0
    last_ts: Instant = ZERO_TIME
    num_subjects: Annotated[Int, OMIT_EMPTY] = 0
    subjects: Annotated[dict[str, Uint64] | Encoded, OMIT_EMPTY] = msgspec.field(
        default_factory=dict
    )
    num_deleted: Annotated[Int, OMIT_EMPTY] = 0
    deleted: Annotated[tuple[Uint64, ...] | Encoded, OMIT_EMPTY] = ()
    lost: Annotated[LostStreamData | None, OMIT_EMPTY] = None
    consumer_count: Int = 0


class OriginFault(msgspec.Struct, frozen=True):
    """Why an origin cannot be read."""

    code: Int = 0
    err_code: Annotated[Int, OMIT_EMPTY] = 0
    description: Annotated[str, OMIT_EMPTY] = ""


class StreamSourceInfo(msgspec.Struct, frozen=True):
    """The state of a mirror or source; `active` is the age of its last message, -1 for none."""

    name: str = ""
    external: Annotated[ExternalStream | None, OMIT_EMPTY] = None
    lag: Uint64 = 0
    seq: Annotated[Uint64, OMIT_EMPTY] = 0
    active: DurationNs = -1
    error: Annotated[OriginFault | None, OMIT_EMPTY] = None
    filter_subject: Annotated[str, OMIT_EMPTY] = ""
    subject_transforms: Annotated[tuple[SubjectTransformConfig, ...], OMIT_EMPTY] = ()


class ClusterInfo(msgspec.Struct, frozen=True):
    """The leader of a stream."""

    name: Annotated[str, OMIT_EMPTY] = ""
    raft_group: Annotated[str, OMIT_EMPTY] = ""
    leader: Annotated[str, OMIT_EMPTY] = ""
    leader_since: Annotated[Instant | None, OMIT_EMPTY] = None
    system_account: Annotated[bool, OMIT_EMPTY] = False
    traffic_account: Annotated[str, OMIT_EMPTY] = ""


class StreamAlternate(msgspec.Struct, frozen=True):
    """Another stream with the same messages."""

    name: str = ""
    domain: Annotated[str, OMIT_EMPTY] = ""
    cluster: str = ""


class StreamInfo(msgspec.Struct, frozen=True):
    """Everything that the API shows of a stream; `ts` is when. Written by `api.stream_json`."""

    config: StreamConfig | Encoded = StreamConfig()
    created: Instant = ZERO_TIME
    state: StreamState = StreamState()
    domain: Annotated[str, OMIT_EMPTY] = ""
    cluster: Annotated[ClusterInfo | None, OMIT_EMPTY] = None
    mirror: Annotated[StreamSourceInfo | None, OMIT_EMPTY] = None
    sources: Annotated[tuple[Annotated[StreamSourceInfo, POINTER], ...], OMIT_EMPTY] = ()
    alternates: Annotated[tuple[StreamAlternate, ...], OMIT_EMPTY] = ()
    ts: Instant = ZERO_TIME
