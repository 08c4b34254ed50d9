"""What clients are answered from `$JS.API`, one class for each thing that is told.

An answer is its type and the fields of one or two of these, or its type and an error; some fields
are written even beside an error (`beside_error`). Written with `documents.encoding.document_of`.
Pure.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any, Final, Self

import msgspec

from penstock.consumer.info import ConsumerInfo
from penstock.documents.encoding import document_of
from penstock.documents.shapes import OMIT_EMPTY, POINTER, DurationNs, Int, Int64, Uint64
from penstock.documents.times import ZERO_TIME, Instant
from penstock.stream.allowances import TierLimits
from penstock.stream.info import StreamInfo


class Page(msgspec.Struct, frozen=True):
    """Which part of a long answer this is."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0


class StreamNames(Page, frozen=True):
    """The names of streams; None where there are none."""

    streams: tuple[str, ...] | None = None


class StreamList(Page, frozen=True):
    """Streams, and those of which nothing can be told."""

    streams: tuple[Annotated[StreamInfo, POINTER], ...] = ()
    missing: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    offline: Annotated[dict[str, str], OMIT_EMPTY] = msgspec.field(default_factory=dict)


class Created(msgspec.Struct, frozen=True):
    """Whether a stream was made."""

    did_create: Annotated[bool, OMIT_EMPTY] = False


class Done(msgspec.Struct, frozen=True):
    """Whether it was done."""

    success: Annotated[bool, OMIT_EMPTY] = False


class StreamPurged(Done, frozen=True):
    """How many messages went."""

    purged: Uint64 = 0


class StreamRestoring(msgspec.Struct, frozen=True):
    """Where the pieces of a snapshot are to be sent."""

    deliver_subject: str = ""


class StoredMsg(msgspec.Struct, frozen=True):
    """A message as it was kept; headers and data in base64."""

    subject: str = ""
    seq: Uint64 = 0
    hdrs: Annotated[str, OMIT_EMPTY] = ""
    data: Annotated[str, OMIT_EMPTY] = ""
    time: Instant = ZERO_TIME

    @classmethod
    def of(cls, subject: bytes, seq: int, headers: bytes, payload: bytes, time_ns: int) -> Self:
        """Make it of what a store gives."""
        return cls(
            subject.decode("utf-8", "replace"),
            seq,
            b64encode(headers).decode(),
            b64encode(payload).decode(),
            Instant(time_ns),
        )


class GottenMessage(msgspec.Struct, frozen=True):
    """The message that was asked for."""

    message: Annotated[StoredMsg | None, OMIT_EMPTY] = None


class LimitsInfo(msgspec.Struct, frozen=True):
    """What an account may use."""

    max_memory: Int64 = 0
    max_storage: Int64 = 0
    max_streams: Int = 0
    max_consumers: Int = 0
    max_ack_pending: Int = 0
    memory_max_stream_bytes: Int64 = 0
    storage_max_stream_bytes: Int64 = 0
    max_bytes_required: bool = False

    @classmethod
    def of(cls, limits: TierLimits) -> Self:
        """Make it of the limits."""
        return cls(**{name: getattr(limits, name) for name in cls.__struct_fields__})


class TierInfo(msgspec.Struct, frozen=True):
    """What an account uses, in all or with one number of replicas."""

    memory: Uint64 = 0
    storage: Uint64 = 0
    reserved_memory: Uint64 = 0
    reserved_storage: Uint64 = 0
    streams: Int = 0
    consumers: Int = 0
    limits: LimitsInfo = LimitsInfo()


class ApiStatistics(msgspec.Struct, frozen=True):
    """Requests since the start."""

    level: Int = 0
    total: Uint64 = 0
    errors: Uint64 = 0
    inflight: Annotated[Uint64, OMIT_EMPTY] = 0


class AccountInfo(TierInfo, frozen=True):
    """What an account uses, and what it may use."""

    domain: Annotated[str, OMIT_EMPTY] = ""
    api: ApiStatistics = ApiStatistics()
    tiers: Annotated[dict[str, TierInfo], OMIT_EMPTY] = msgspec.field(default_factory=dict)


class ConsumerNames(Page, frozen=True):
    """The names of a stream's consumers."""

    consumers: tuple[str, ...] = ()


class ConsumerList(Page, frozen=True):
    """A stream's consumers, and those of which nothing can be told."""

    consumers: tuple[Annotated[ConsumerInfo, POINTER], ...] = ()
    missing: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    offline: Annotated[dict[str, str], OMIT_EMPTY] = msgspec.field(default_factory=dict)


class ConsumerPaused(msgspec.Struct, frozen=True):
    """Whether a consumer pauses, and for how long."""

    paused: bool = False
    pause_until: Instant = ZERO_TIME
    pause_remaining: Annotated[DurationNs, OMIT_EMPTY] = 0


class ConsumerReset(msgspec.Struct, frozen=True):
    """Where a consumer starts again."""

    reset_seq: Uint64 = 0


_BESIDE_ERROR: Final[dict[str, msgspec.Struct]] = {
    "stream_info_response": Page(),
    "stream_names_response": StreamNames(),
    "stream_list_response": StreamList(),
    "stream_purge_response": StreamPurged(),
    "stream_restore_response": StreamRestoring(),
    "consumer_names_response": ConsumerNames(),
    "consumer_list_response": ConsumerList(),
    "consumer_pause_response": ConsumerPaused(),
    "consumer_reset_response": ConsumerReset(),
}


def beside_error(kind: str) -> dict[str, Any]:
    """Give the fields that an answer of this type has even where it is an error."""
    empty = _BESIDE_ERROR.get(kind)
    return {} if empty is None else document_of(empty)
