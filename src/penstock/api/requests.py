"""What clients send to `$JS.API`, one class each; read with `documents.decoding.decode_request`.

Requests for streams to make or change are `stream.config.StreamConfigRequest`, those for consumers
`consumer.config.CreateConsumerRequest`. The names of the classes stand in errors, and are the
reference server's. Pure.
"""

from __future__ import annotations

import msgspec

from penstock.documents.shapes import Int, Uint64
from penstock.documents.times import ZERO_TIME, Instant
from penstock.stream.config import StreamConfig
from penstock.stream.info import StreamState


class JSApiStreamInfoRequest(msgspec.Struct, frozen=True):
    """STREAM.INFO: what more to tell than the state."""

    offset: Int = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class JSApiStreamNamesRequest(msgspec.Struct, frozen=True):
    """STREAM.NAMES: those that listen to a subject, or all."""

    offset: Int = 0
    subject: str = ""


class JSApiStreamListRequest(msgspec.Struct, frozen=True):
    """STREAM.LIST: those that listen to a subject, or all."""

    offset: Int = 0
    subject: str = ""


class JSApiStreamPurgeRequest(msgspec.Struct, frozen=True):
    """STREAM.PURGE: what goes, and what of it stays."""

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
    """STREAM.SNAPSHOT: where to, and in what pieces."""

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: Int = 0
    window_size: Int = 0
    jsck: bool = False


class JSApiStreamRestoreRequest(msgspec.Struct, frozen=True):
    """STREAM.RESTORE: the stream that is to be again."""

    config: StreamConfig = StreamConfig()
    state: StreamState = StreamState()


class JSApiConsumersRequest(msgspec.Struct, frozen=True):
    """CONSUMER.NAMES and CONSUMER.LIST: from where on."""

    offset: Int = 0


class JSApiConsumerPauseRequest(msgspec.Struct, frozen=True):
    """CONSUMER.PAUSE: until when; no time at all ends a pause."""

    pause_until: Instant = ZERO_TIME


class JSApiConsumerUnpinRequest(msgspec.Struct, frozen=True):
    """CONSUMER.UNPIN: of which group."""

    group: str = ""


class JSApiConsumerResetRequest(msgspec.Struct, frozen=True):
    """CONSUMER.RESET: where to start again; 0: behind what is acknowledged."""

    seq: Uint64 = 0
