"""What a consumer tells of itself: its info document, statuses, heartbeats, advisories, log lines.

`ConsumerInfo` has the names and the order of the wire's fields. `Notices` publishes everything that
a consumer sends beside messages.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from penstock.consumer.config.config import ConsumerConfig
from penstock.stream.info import ClusterInfo
from penstock.text.json.shapes import OMIT_EMPTY, DurationNs, Int, Uint64
from penstock.text.json.write import Encoded
from penstock.text.times import ZERO_TIME, Instant

if TYPE_CHECKING:
    from penstock.consumer.progress import Progress
    from penstock.stream.stream import Stream


class SequenceInfo(msgspec.Struct, frozen=True):
    """A sequence of the consumer's own count and of the stream; `last_active`: when it moved."""

    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0
    last_active: Annotated[Instant | None, OMIT_EMPTY] = None


class PriorityGroupState(msgspec.Struct, frozen=True):
    """A group of clients, and the client of it that is served."""

    group: str = ""
    pinned_client_id: Annotated[str, OMIT_EMPTY] = ""
    pinned_ts: Instant = ZERO_TIME


class ConsumerInfo(msgspec.Struct, frozen=True):
    """The info document of a consumer; `ts` is when it was made. Written by `api.consumer_json`."""

    stream_name: str = ""
    name: str = ""
    created: Instant = ZERO_TIME
    config: Annotated[ConsumerConfig | Encoded | None, OMIT_EMPTY] = None
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


class Notices:
    """Publishes what one consumer sends beside messages."""

    __slots__ = ("_account_name", "_host", "_name", "_stream")

    def __init__(self, stream: Stream, name: str, account_name: str) -> None:
        self._host = stream.host
        self._stream = stream
        self._name = name
        self._account_name = account_name

    def send_status(
        self, target: bytes, code: int, text: str, more: bytes = b"", *, reply: bytes | None = None
    ) -> None:
        """Publish a status, a message without a body; `more` are header lines with their ends."""
        shown = text.encode("utf-8", "replace")
        headers = b"NATS/1.0 %d %b\r\n%b\r\n" % (code, shown, more)
        self._host.hub.publish(self._stream.sublist, target, reply, headers, b"")

    def send_heartbeat(self, target: bytes, progress: Progress, more: bytes = b"") -> None:
        """Publish how far the consumer is; `more` are header lines with their ends."""
        counts = b"Nats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % (
            progress.pending.delivered_consumer_seq,
            progress.position.cursor - 1,
        )
        self.send_status(target, 100, "Idle Heartbeat", counts + more)

    def confirm(self, reply: bytes) -> None:
        """Answer a client that asked whether its acknowledgement arrived."""
        self._host.hub.publish(self._stream.sublist, reply, None, b"", b"")

    def advise(
        self, event: str, kind: str, fields: Mapping[str, Any], *, with_account: bool = False
    ) -> None:
        """Publish an advisory about the consumer."""
        account = {"account": self._account_name} if with_account else {}
        self._publish(
            f"ADVISORY.CONSUMER.{event}", f"advisory.v1.{kind}", {**account, **self._names}, fields
        )

    def advise_pause(self, progress: Progress) -> None:
        """Publish an advisory that the consumer pauses, or goes on."""
        is_paused = progress.is_paused(progress.clock.now_ns())
        until = progress.config.pause_until or ZERO_TIME
        fields = {"paused": is_paused, "pause_until": str(until)}
        self.advise("PAUSE", "consumer_pause", fields)

    def publish_ack_metric(self, fields: Mapping[str, int]) -> None:
        """Publish the metric of one sampled acknowledgement."""
        self._publish("METRIC.CONSUMER.ACK", "metric.v1.consumer_ack", self._names, fields)

    @property
    def _names(self) -> dict[str, str]:
        return {"stream": self._stream.name, "consumer": self._name}

    def _publish(
        self, subject: str, kind: str, names: Mapping[str, str], fields: Mapping[str, Any]
    ) -> None:
        subject = f"{subject}.{self._stream.name}.{self._name}"
        self._host.advise(self._stream.sublist, subject, kind, {**names, **fields})

    def log(self, level: str, text: str) -> None:
        """Write a line to the log."""
        self._host.log(level, f"JetStream consumer '{self._stream.name} > {self._name}': {text}")
