"""The requests to `$JS.API` and the fields of its answers, one class each.

Requests are read with `text.json.codec.decode_request`. Those that create or update a stream are
`stream.config.config.StreamConfigRequest`, those for consumers
`consumer.config.config.CreateConsumerRequest`. The names of the classes appear in errors, and are
the reference server's.

An answer is its type and the fields of one or two of these, or its type and an error; some fields
are written even beside an error (`beside_error`). Written with `text.json.codec.encode_after`. What
is JSON already is `Encoded`.

Pure.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

import msgspec

from penstock.consumer.info import ConsumerInfo
from penstock.errors import ApiError
from penstock.stream.config.config import StreamConfig
from penstock.stream.info import StreamInfo, StreamState
from penstock.stream.quota import TierLimits
from penstock.text.json.shapes import OMIT_EMPTY, POINTER, DurationNs, Int, Int64, Uint64
from penstock.text.json.write import Encoded
from penstock.text.times import ZERO_TIME, Instant


class JSApiStreamInfoRequest(msgspec.Struct, frozen=True):
    """STREAM.INFO: what to show beside the state."""

    offset: Int = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class JSApiStreamNamesRequest(msgspec.Struct, frozen=True):
    """STREAM.NAMES: streams that listen to a subject, or all."""

    offset: Int = 0
    subject: str = ""


class JSApiStreamListRequest(msgspec.Struct, frozen=True):
    """STREAM.LIST: streams that listen to a subject, or all."""

    offset: Int = 0
    subject: str = ""


class JSApiStreamPurgeRequest(msgspec.Struct, frozen=True):
    """STREAM.PURGE: which messages to remove, and how many of them to keep."""

    seq: Uint64 = 0
    filter: str = ""
    keep: Uint64 = 0


class JSApiMsgDeleteRequest(msgspec.Struct, frozen=True):
    """STREAM.MSG.DELETE: one message."""

    seq: Uint64 = 0
    no_erase: bool = False


class JSApiMsgGetRequest(msgspec.Struct, frozen=True):
    """STREAM.MSG.GET and DIRECT.GET: one message or several."""

    seq: Uint64 = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: Int = 0
    max_bytes: Int = 0
    start_time: Instant | None = None
    multi_last: tuple[str, ...] = ()
    up_to_seq: Uint64 = 0
    up_to_time: Instant | None = None
    no_hdr: bool = False


class JSApiStreamSnapshotRequest(msgspec.Struct, frozen=True):
    """STREAM.SNAPSHOT: where to send it, and in what pieces."""

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: Int = 0
    window_size: Int = 0
    jsck: bool = False


class JSApiStreamRestoreRequest(msgspec.Struct, frozen=True):
    """STREAM.RESTORE: the configuration of the stream to restore."""

    config: StreamConfig = StreamConfig()
    state: StreamState = StreamState()


class JSApiConsumersRequest(msgspec.Struct, frozen=True):
    """CONSUMER.NAMES and CONSUMER.LIST: the first to show."""

    offset: Int = 0


class JSApiConsumerPauseRequest(msgspec.Struct, frozen=True):
    """CONSUMER.PAUSE: until when; no time ends a pause."""

    pause_until: Instant = ZERO_TIME


class JSApiConsumerUnpinRequest(msgspec.Struct, frozen=True):
    """CONSUMER.UNPIN: of which group."""

    group: str = ""


class JSApiConsumerResetRequest(msgspec.Struct, frozen=True):
    """CONSUMER.RESET: where to restart; 0: behind the acknowledged messages."""

    seq: Uint64 = 0


class Page(msgspec.Struct, frozen=True):
    """Which part of a long answer this is."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0


class StreamNames(Page, frozen=True):
    """The names of streams; None if there are none."""

    streams: tuple[str, ...] | None = None


class StreamList(Page, frozen=True):
    """Streams, and the offline ones with their reasons."""

    streams: tuple[Annotated[StreamInfo, POINTER], ...] | Encoded = ()
    missing: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    offline: Annotated[dict[str, str], OMIT_EMPTY] = msgspec.field(default_factory=dict)


class Created(msgspec.Struct, frozen=True):
    """Whether a stream was created."""

    did_create: Annotated[bool, OMIT_EMPTY] = False


class Done(msgspec.Struct, frozen=True):
    """Whether the request was carried out."""

    success: Annotated[bool, OMIT_EMPTY] = False


class StreamPurged(Done, frozen=True):
    """How many messages were removed."""

    purged: Uint64 = 0


class StreamRestoring(msgspec.Struct, frozen=True):
    """Where to send the pieces of a snapshot."""

    deliver_subject: str = ""


class StoredMsg(msgspec.Struct, frozen=True):
    """A stored message; headers and data in base64. Written by `message_json`."""

    subject: str = ""
    seq: Uint64 = 0
    hdrs: Annotated[str, OMIT_EMPTY] = ""
    data: Annotated[str, OMIT_EMPTY] = ""
    time: Instant = ZERO_TIME


class GottenMessage(msgspec.Struct, frozen=True):
    """The requested message."""

    message: Annotated[StoredMsg | Encoded | None, OMIT_EMPTY] = None


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
        """Return the document of a tier's limits."""
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
    """API requests since the start."""

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
    """A stream's consumers, and the offline ones with their reasons."""

    consumers: tuple[Annotated[ConsumerInfo, POINTER], ...] | Encoded = ()
    missing: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    offline: Annotated[dict[str, str], OMIT_EMPTY] = msgspec.field(default_factory=dict)


class ConsumerPaused(msgspec.Struct, frozen=True):
    """Whether a consumer is paused, and for how long."""

    paused: bool = False
    pause_until: Instant = ZERO_TIME
    pause_remaining: Annotated[DurationNs, OMIT_EMPTY] = 0


class ConsumerReset(msgspec.Struct, frozen=True):
    """The sequence at which a consumer restarts."""

    reset_seq: Uint64 = 0


class ApiFault(msgspec.Struct, frozen=True):
    """An error."""

    code: Int = 0
    err_code: Annotated[Int, OMIT_EMPTY] = 0
    description: Annotated[str, OMIT_EMPTY] = ""


class Refused(msgspec.Struct, frozen=True):
    """Why a request was not carried out."""

    error: ApiFault = ApiFault()

    @classmethod
    def of(cls, error: ApiError) -> Self:
        """Return the document of an error."""
        return cls(ApiFault(error.code, error.err_code, error.description))


class SnapshotStarted(msgspec.Struct, frozen=True):
    """The stream of which a snapshot is sent."""

    config: StreamConfig = StreamConfig()
    state: StreamState = StreamState()


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


def beside_error(kind: str) -> tuple[msgspec.Struct, ...]:
    """Return the documents whose fields an answer of this type has even if it is an error."""
    empty = _BESIDE_ERROR.get(kind)
    return () if empty is None else (empty,)
