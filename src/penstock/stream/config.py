"""A stream's configuration as clients send it and get it back.

Names and order of the fields are those of the wire; so are the names of the classes, because errors
of the JSON rules show them. A field that was not sent has the value that nothing said stands for;
`validation` turns it into the default that is echoed back.

What always holds: a configuration never changes; a changed one is another
(`msgspec.structs.replace`).

Pure. Everybody above may import it.
"""

from __future__ import annotations

from typing import Annotated, Self

import msgspec

from penstock.documents.decoding import decode_text
from penstock.documents.shapes import (
    OMIT_EMPTY,
    POINTER,
    DurationNs,
    Int,
    Int32,
    Int64,
    Uint64,
    Word,
)
from penstock.documents.times import Instant
from penstock.errors import InvalidDocument
from penstock.protocol.quoting import quoted


class RetentionPolicy(Word):
    """When a message is no longer kept."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORK_QUEUE = "workqueue"


class DiscardPolicy(Word):
    """What goes when a stream is full."""

    OLD = "old"
    NEW = "new"

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read it in any case."""
        try:
            return super().from_json(raw.lower())
        except InvalidDocument:
            raise InvalidDocument(f"can not unmarshal {quoted(raw)}") from None


class StorageType(Word):
    """Where messages are kept."""

    FILE = "file"
    MEMORY = "memory"


class StoreCompression(Word):
    """How payloads are packed on disk."""

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
    """A pattern, and what becomes of the subjects that it selects."""

    src: str = ""
    dest: str = ""


class RePublish(msgspec.Struct, frozen=True):
    """Where stored messages are published again."""

    src: Annotated[str, OMIT_EMPTY] = ""
    dest: str = ""
    headers_only: Annotated[bool, OMIT_EMPTY] = False


class Placement(msgspec.Struct, frozen=True):
    """Which servers may have the stream; `tags` is None where none were sent."""

    cluster: Annotated[str, OMIT_EMPTY] = ""
    tags: Annotated[tuple[str, ...] | None, OMIT_EMPTY] = None
    preferred: Annotated[str, OMIT_EMPTY] = ""


class ExternalStream(msgspec.Struct, frozen=True):
    """How a stream of another account or domain is reached."""

    api: str = ""
    deliver: str = ""


class StreamConsumerSource(msgspec.Struct, frozen=True):
    """A consumer of the origin that is there already."""

    name: Annotated[str, OMIT_EMPTY] = ""
    deliver_subject: Annotated[str, OMIT_EMPTY] = ""


class StreamSource(msgspec.Struct, frozen=True):
    """An origin: the stream that a mirror copies, or one that a stream takes messages from."""

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
    """What a client asks for: a configuration, and whether nothing may be corrected silently."""

    pedantic: Annotated[bool, OMIT_EMPTY] = False

    def config(self) -> StreamConfig:
        """Give the configuration alone."""
        fields = StreamConfig.__struct_fields__
        return StreamConfig(**{name: getattr(self, name) for name in fields})
