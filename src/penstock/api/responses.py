"""What clients are answered from `$JS.API`: a type, and an error or what was asked for.

    STREAM_PURGE.answer(StreamPurged(success=True, purged=5))
    STREAM_PURGE.refusal(ApiError(error_codes.STREAM_NOT_FOUND))

Some fields are written even beside an error; a response type knows its own. Pure.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

import msgspec

from penstock.documents.encoding import document_of, to_json
from penstock.documents.shapes import OMIT_EMPTY, POINTER, Int, Int64, Uint64
from penstock.documents.times import ZERO_TIME, Instant
from penstock.errors import ApiError
from penstock.stream.allowances import TierLimits
from penstock.stream.info import StreamInfo

_PREFIX: Final = "io.nats.jetstream.api.v1."


@dataclass(frozen=True, slots=True)
class ResponseType:
    """A kind of answer; `always` are the parts of it that stand beside an error, too."""

    name: str
    always: tuple[msgspec.Struct, ...] = ()

    def answer(self, *parts: msgspec.Struct) -> bytes:
        """Write what was asked for: the fields of the parts, one after the other."""
        return self._written({}, parts)

    def refusal(self, error: ApiError) -> bytes:
        """Write why there is nothing."""
        return self._written({"error": error.document()}, self.always)

    def _written(self, fields: dict[str, Any], parts: tuple[msgspec.Struct, ...]) -> bytes:
        document: dict[str, Any] = {"type": _PREFIX + self.name} | fields
        for part in parts:
            document |= document_of(part)
        return to_json(document)


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

    streams: tuple[Annotated[StreamInfo, POINTER], ...] | None = None
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


ACCOUNT_INFO: Final = ResponseType("account_info_response")
STREAM_CREATE: Final = ResponseType("stream_create_response")
STREAM_UPDATE: Final = ResponseType("stream_update_response")
STREAM_INFO: Final = ResponseType("stream_info_response", (Page(),))
STREAM_NAMES: Final = ResponseType("stream_names_response", (StreamNames(),))
STREAM_LIST: Final = ResponseType("stream_list_response", (StreamList(),))
STREAM_DELETE: Final = ResponseType("stream_delete_response")
STREAM_PURGE: Final = ResponseType("stream_purge_response", (StreamPurged(),))
STREAM_MSG_GET: Final = ResponseType("stream_msg_get_response")
STREAM_MSG_DELETE: Final = ResponseType("stream_msg_delete_response")
STREAM_SNAPSHOT: Final = ResponseType("stream_snapshot_response")
STREAM_RESTORE: Final = ResponseType("stream_restore_response", (StreamRestoring(),))
