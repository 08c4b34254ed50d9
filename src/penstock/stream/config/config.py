"""A stream's configuration as clients send it and get it back.

Names and order of the fields are those of the wire. So are the names of the classes, because errors
of the JSON rules show them. A field that was not sent has its zero value; `validation` turns that
into the default that is echoed back.

API levels say which server a configuration needs. `_nats.req.level` is stored in its metadata.
`_nats.ver` and `_nats.level` describe the server that answers: they are never stored.

Invariant: a configuration never changes; a changed one is another (`msgspec.structs.replace`).

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Self

import msgspec
from msgspec.structs import replace

from penstock.errors import InvalidDocument
from penstock.text.json.codec import decode_text
from penstock.text.json.shapes import (
    OMIT_EMPTY,
    POINTER,
    DurationNs,
    Int,
    Int32,
    Int64,
    Uint64,
    Word,
)
from penstock.text.quoting import quoted_bytes
from penstock.text.times import Instant


class RetentionPolicy(Word):
    """When a message is removed."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORK_QUEUE = "workqueue"


class DiscardPolicy(Word):
    """Which message is dropped when a stream is full."""

    OLD = "old"
    NEW = "new"

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read it, in upper or lower case."""
        try:
            return super().from_json(raw.lower())
        except InvalidDocument:
            raise InvalidDocument(f"can not unmarshal {quoted_bytes(raw)}") from None


class StorageType(Word):
    """Where messages are stored."""

    FILE = "file"
    MEMORY = "memory"


class StoreCompression(Word):
    """How payloads are compressed on disk."""

    NONE = "none"
    S2 = "s2"

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read it as any other text."""
        word = decode_text(raw)
        for each in cls:
            if word == each:
                return each
        raise InvalidDocument("unknown compression algorithm")


class PersistModeType(Word):
    """Whether an acknowledgement waits for the disk."""

    DEFAULT = "default"
    ASYNC = "async"

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read it; an empty word is the default."""
        return super().from_json(b'"default"' if raw == b'""' else raw)


class SubjectTransformConfig(msgspec.Struct, frozen=True):
    """A pattern, and the destination for the subjects that it matches."""

    src: str = ""
    dest: str = ""


class RePublish(msgspec.Struct, frozen=True):
    """Where stored messages are published again."""

    src: Annotated[str, OMIT_EMPTY] = ""
    dest: str = ""
    headers_only: Annotated[bool, OMIT_EMPTY] = False


class Placement(msgspec.Struct, frozen=True):
    """Which servers may hold the stream; `tags` is None if none were sent."""

    cluster: Annotated[str, OMIT_EMPTY] = ""
    tags: Annotated[tuple[str, ...] | None, OMIT_EMPTY] = None
    preferred: Annotated[str, OMIT_EMPTY] = ""


class ExternalStream(msgspec.Struct, frozen=True):
    """The prefixes under which a stream of another account or domain is reached."""

    api: str = ""
    deliver: str = ""


class StreamConsumerSource(msgspec.Struct, frozen=True):
    """An existing consumer of the origin, to read it through."""

    name: Annotated[str, OMIT_EMPTY] = ""
    deliver_subject: Annotated[str, OMIT_EMPTY] = ""


class StreamSource(msgspec.Struct, frozen=True):
    """An origin: the stream that a mirror copies, or a source of a sourcing stream."""

    name: str = ""
    opt_start_seq: Annotated[Uint64, OMIT_EMPTY] = 0
    opt_start_time: Annotated[Instant | None, OMIT_EMPTY] = None
    filter_subject: Annotated[str, OMIT_EMPTY] = ""
    subject_transforms: Annotated[tuple[SubjectTransformConfig, ...], OMIT_EMPTY] = ()
    external: Annotated[ExternalStream | None, OMIT_EMPTY] = None
    consumer: Annotated[StreamConsumerSource | None, OMIT_EMPTY] = None


class StreamConsumerLimits(msgspec.Struct, frozen=True):
    """Defaults and bounds of the stream's consumers."""

    inactive_threshold: Annotated[DurationNs, OMIT_EMPTY] = 0
    max_ack_pending: Annotated[Int, OMIT_EMPTY] = 0


class StreamConfig(msgspec.Struct, frozen=True):
    """The whole configuration; durations are in nanoseconds."""

    name: str = ""
    description: Annotated[str, OMIT_EMPTY] = ""
    subjects: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    retention: RetentionPolicy = RetentionPolicy.LIMITS
    max_consumers: Int = 0
    max_msgs: Int64 = 0
    max_bytes: Int64 = 0
    max_age: DurationNs = 0
    max_msgs_per_subject: Int64 = 0
    max_msg_size: Annotated[Int32, OMIT_EMPTY] = 0
    discard: DiscardPolicy = DiscardPolicy.OLD
    storage: StorageType = StorageType.FILE
    num_replicas: Int = 0
    no_ack: Annotated[bool, OMIT_EMPTY] = False
    duplicate_window: Annotated[DurationNs, OMIT_EMPTY] = 0
    placement: Annotated[Placement | None, OMIT_EMPTY] = None
    mirror: Annotated[StreamSource | None, OMIT_EMPTY] = None
    sources: Annotated[tuple[Annotated[StreamSource, POINTER], ...], OMIT_EMPTY] = ()
    compression: StoreCompression = StoreCompression.NONE
    first_seq: Annotated[Uint64, OMIT_EMPTY] = 0
    subject_transform: Annotated[SubjectTransformConfig | None, OMIT_EMPTY] = None
    republish: Annotated[RePublish | None, OMIT_EMPTY] = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: Annotated[bool, OMIT_EMPTY] = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: StreamConsumerLimits = StreamConsumerLimits()
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: Annotated[DurationNs, OMIT_EMPTY] = 0
    allow_msg_counter: Annotated[bool, OMIT_EMPTY] = False
    allow_atomic: Annotated[bool, OMIT_EMPTY] = False
    allow_msg_schedules: Annotated[bool, OMIT_EMPTY] = False
    persist_mode: Annotated[PersistModeType, OMIT_EMPTY] = PersistModeType.DEFAULT
    allow_batched: Annotated[bool, OMIT_EMPTY] = False
    metadata: Annotated[dict[str, str], OMIT_EMPTY] = msgspec.field(default_factory=dict)


class StreamConfigRequest(StreamConfig, frozen=True):
    """A request: a configuration, and whether it is refused rather than silently corrected."""

    pedantic: Annotated[bool, OMIT_EMPTY] = False

    def config(self) -> StreamConfig:
        """Return the configuration alone."""
        fields = StreamConfig.__struct_fields__
        return StreamConfig(**{name: getattr(self, name) for name in fields})


API_LEVEL: Final = 5
"""The newest level of the JetStream API that this server supports."""

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
SERVER_VERSION_KEY: Final = "_nats.ver"
SERVER_LEVEL_KEY: Final = "_nats.level"

_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def required_level(config: StreamConfig) -> int:
    """Return the lowest level of a server that can hold such a stream."""
    if config.allow_batched:
        return 4
    if (
        config.allow_msg_counter
        or config.allow_atomic
        or config.allow_msg_schedules
        or config.persist_mode is PersistModeType.ASYNC
    ):
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0


def with_required_level(config: StreamConfig) -> StreamConfig:
    """Put the required level into the metadata, and remove what is for answers only."""
    return replace(config, metadata=kept_metadata(config.metadata, required_level(config)))


def with_level_of(config: StreamConfig, other: StreamConfig) -> StreamConfig:
    """Take over the required level of another configuration, so that it makes no difference."""
    return replace(config, metadata=metadata_with_level_of(config.metadata, other.metadata))


def for_answer(config: StreamConfig, server_version: str) -> StreamConfig:
    """Add to the metadata what answers show of the server."""
    return replace(config, metadata=answered_metadata(config.metadata, server_version))


def kept_metadata(metadata: Mapping[str, str], level: int) -> dict[str, str]:
    """Return the metadata to store: with the required level, without what is for answers only."""
    return _without_server(metadata) | {REQUIRED_LEVEL_KEY: str(level)}


def metadata_with_level_of(metadata: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata to store, with the required level of another, or without any."""
    kept = _without_server(metadata)
    kept.pop(REQUIRED_LEVEL_KEY, None)
    if REQUIRED_LEVEL_KEY in other:
        kept[REQUIRED_LEVEL_KEY] = other[REQUIRED_LEVEL_KEY]
    return kept


def answered_metadata(metadata: Mapping[str, str], server_version: str) -> dict[str, str]:
    """Return the metadata as answers show it, with the server's version and level."""
    told = {SERVER_VERSION_KEY: server_version, SERVER_LEVEL_KEY: str(API_LEVEL)}
    return dict(metadata) | told


def is_supported(metadata: Mapping[str, str]) -> bool:
    """Return True if this server can serve a stream or consumer with this metadata."""
    level = metadata.get(REQUIRED_LEVEL_KEY, "")
    return not level or is_level_known(level)


def is_level_known(level: str) -> bool:
    """Return True if this server supports a level that a client asks for."""
    return _LEVEL.fullmatch(level) is not None and int(level) <= API_LEVEL


def _without_server(metadata: Mapping[str, str]) -> dict[str, str]:
    told = (SERVER_VERSION_KEY, SERVER_LEVEL_KEY)
    return {key: value for key, value in metadata.items() if key not in told}
