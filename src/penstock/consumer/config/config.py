"""A consumer's configuration as clients send it and get it back.

Names and order of the fields are those of the wire; so are the names of the classes, because errors
of the JSON rules show them. A field that was not sent has its zero value; `validation` replaces it
by the default that is echoed back.

Invariant: a configuration never changes; a changed one is another (`msgspec.structs.replace`).

Pure; any thread.
"""

from __future__ import annotations

from typing import Annotated, Self

import msgspec

from penstock.errors import InvalidDocument
from penstock.text.json.shapes import OMIT_EMPTY, DurationNs, Int, Uint64, Word
from penstock.text.times import Instant


class DeliverPolicy(Word):
    """Which message is delivered first."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read a policy; "undefined" is `all`."""
        return super().from_json(b'"all"' if raw == b'"undefined"' else raw)


class AckPolicy(Word):
    """Which messages an acknowledgement is for, and whether any is expected."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(Word):
    """How fast stored messages are delivered."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(Word):
    """Which of several pulling clients is served first."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read a word; raise InvalidDocument with the reference server's own text."""
        try:
            return super().from_json(raw)
        except InvalidDocument:
            reason = f"unknown priority policy: {raw.decode('utf-8', 'replace')}"
            raise InvalidDocument(reason) from None


class ConsumerAction(Word):
    """What a request may do: create a consumer, update one, or either."""

    CREATE_OR_UPDATE = ""
    UPDATE = "update"
    CREATE = "create"

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Read a word; raise InvalidDocument with the reference server's own text."""
        try:
            return super().from_json(raw)
        except InvalidDocument:
            reason = f"unknown consumer action: {raw.decode('utf-8', 'replace')}"
            raise InvalidDocument(reason) from None


class ConsumerConfig(msgspec.Struct, frozen=True):
    """The whole configuration; durations are in nanoseconds."""

    durable_name: Annotated[str, OMIT_EMPTY] = ""
    name: Annotated[str, OMIT_EMPTY] = ""
    description: Annotated[str, OMIT_EMPTY] = ""
    deliver_policy: DeliverPolicy = DeliverPolicy.ALL
    opt_start_seq: Annotated[Uint64, OMIT_EMPTY] = 0
    opt_start_time: Annotated[Instant | None, OMIT_EMPTY] = None
    ack_policy: AckPolicy = AckPolicy.NONE
    ack_wait: Annotated[DurationNs, OMIT_EMPTY] = 0
    max_deliver: Annotated[Int, OMIT_EMPTY] = 0
    backoff: Annotated[tuple[DurationNs, ...], OMIT_EMPTY] = ()
    filter_subject: Annotated[str, OMIT_EMPTY] = ""
    filter_subjects: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    replay_policy: ReplayPolicy = ReplayPolicy.INSTANT
    rate_limit_bps: Annotated[Uint64, OMIT_EMPTY] = 0
    sample_freq: Annotated[str, OMIT_EMPTY] = ""
    max_waiting: Annotated[Int, OMIT_EMPTY] = 0
    max_ack_pending: Annotated[Int, OMIT_EMPTY] = 0
    flow_control: Annotated[bool, OMIT_EMPTY] = False
    headers_only: Annotated[bool, OMIT_EMPTY] = False
    max_batch: Annotated[Int, OMIT_EMPTY] = 0
    max_expires: Annotated[DurationNs, OMIT_EMPTY] = 0
    max_bytes: Annotated[Int, OMIT_EMPTY] = 0
    deliver_subject: Annotated[str, OMIT_EMPTY] = ""
    deliver_group: Annotated[str, OMIT_EMPTY] = ""
    idle_heartbeat: Annotated[DurationNs, OMIT_EMPTY] = 0
    inactive_threshold: Annotated[DurationNs, OMIT_EMPTY] = 0
    num_replicas: Int = 0
    mem_storage: Annotated[bool, OMIT_EMPTY] = False
    direct: Annotated[bool, OMIT_EMPTY] = False
    sourcing: Annotated[bool, OMIT_EMPTY] = False
    metadata: Annotated[dict[str, str], OMIT_EMPTY] = msgspec.field(default_factory=dict)
    pause_until: Annotated[Instant | None, OMIT_EMPTY] = None
    priority_groups: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    priority_policy: Annotated[PriorityPolicy, OMIT_EMPTY] = PriorityPolicy.NONE
    priority_timeout: Annotated[DurationNs, OMIT_EMPTY] = 0

    @property
    def is_durable(self) -> bool:
        """True if the consumer stays until it is removed, whether clients use it or not."""
        return bool(self.durable_name)

    @property
    def is_push(self) -> bool:
        """True if messages are sent as they come, rather than when a client asks for them."""
        return bool(self.deliver_subject)

    @property
    def is_internal(self) -> bool:
        """True if the consumer feeds another stream; it is not counted then."""
        return self.direct or self.sourcing

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects to deliver; empty for all."""
        return (
            (*self.filter_subjects, self.filter_subject)
            if self.filter_subject
            else (self.filter_subjects)
        )

    @property
    def sample_percent(self) -> int:
        """The percentage of acknowledgements that a metric is published for."""
        return int(self.sample_freq.removesuffix("%") or 0)


class CreateConsumerRequest(msgspec.Struct, frozen=True):
    """A request to create or update a consumer; `pedantic`: refuse instead of correcting."""

    stream_name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    action: ConsumerAction = ConsumerAction.CREATE_OR_UPDATE
    pedantic: Annotated[bool, OMIT_EMPTY] = False
