"""What both kinds of batches share: the open batches of a stream, and the server's bounds for them.

`BatchQuota` is one for the whole server: streams take from it when they open batches and give back
when those end. `OpenBatches` is the base of `AtomicBatches` and `FastBatches`. They decide; the
stream's `Publishing` stores, answers and publishes advisories.

Thread: the event loop's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from penstock import error_codes
from penstock.clock import Clock
from penstock.errors import ApiError, ErrorCode
from penstock.limits import (
    BATCH_BYTES_MAX,
    BATCH_IDLE_NS_MAX,
    BATCH_MESSAGES_MAX,
    BATCHES_PER_SERVER_MAX,
    BATCHES_PER_STREAM_MAX,
    FAST_BATCHES_PER_SERVER_MAX,
    FAST_BATCHES_PER_STREAM_MAX,
)
from penstock.protocol.headers import without
from penstock.stream.config.config import is_level_known
from penstock.stream.publish.facts import StreamFacts
from penstock.stream.publish.judge import check_room
from penstock.stream.publish.message import REQUIRED_API_LEVEL, IncomingMessage
from penstock.text.json.codec import to_json
from penstock.text.quoting import quoted_bytes

TIMEOUT: Final = "timeout"
LARGE: Final = "large"
INCOMPLETE: Final = "incomplete"
UNSUPPORTED: Final = "unsupported"
"""Why a batch is abandoned, in the words of the advisory."""


class BatchQuota(msgspec.Struct):
    """The server's bounds for batches, and how much of them is in use."""

    per_stream_max: int = BATCHES_PER_STREAM_MAX
    total_max: int = BATCHES_PER_SERVER_MAX
    fast_per_stream_max: int = FAST_BATCHES_PER_STREAM_MAX
    fast_total_max: int = FAST_BATCHES_PER_SERVER_MAX
    messages_max: int = BATCH_MESSAGES_MAX
    idle_ns_max: int = BATCH_IDLE_NS_MAX
    bytes_max: int = BATCH_BYTES_MAX
    total: int = 0
    fast_total: int = 0
    bytes: int = 0
    """What uncommitted atomic batches hold in memory."""

    def idle_in_s(self, touched_ns: Iterable[int], now_ns: int) -> float | None:
        """Return in how many seconds the first batch is idle too long; None without batches.

        `touched_ns` are the times of the batches' last messages.
        """
        oldest_ns = min(touched_ns, default=None)
        if oldest_ns is None:
            return None
        return max((self.idle_ns_max - (now_ns - oldest_ns)) / 1e9, 0.0)


class BatchAbandoned(ApiError):
    """A message is refused, and its batch ends with it; an advisory says why."""

    def __init__(self, entry: ErrorCode, batch_id: bytes, reason: str, **values: object) -> None:
        super().__init__(entry, **values)
        self.batch_id = batch_id
        self.reason = reason


class OpenBatch(msgspec.Struct):
    """A batch that is not committed."""

    touched_ns: int


B = TypeVar("B", bound=OpenBatch)


class OpenBatches(ABC, Generic[B]):
    """The open batches of one kind in one stream; see the module."""

    def __init__(self, facts: StreamFacts, quota: BatchQuota, clock: Clock) -> None:
        self._facts = facts
        self._quota = quota
        self._clock = clock
        self._batches: dict[bytes, B] = {}

    def _now_ns(self) -> int:
        return self._clock.monotonic_ns()

    def _check_message(self, message: IncomingMessage) -> None:
        """Raise ApiError if no batch of the stream may have such a message."""
        config = self._facts.config
        self._facts.rules.check_sealed()
        check_room(message, self._facts)
        if 0 <= config.max_msg_size < len(message.headers) + len(message.body):
            raise ApiError(error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM)

    def _check_level(self, batch_id: bytes, message: IncomingMessage) -> None:
        """Remove the required API level from a message; drop the batch if it is not supported."""
        level = message.value(REQUIRED_API_LEVEL)
        if not level:
            return
        if not is_level_known(level.decode("utf-8", "replace")):
            self._drop(batch_id)
            raise BatchAbandoned(error_codes.REQUIRED_API_LEVEL, batch_id, UNSUPPORTED)
        message.headers = without(message.headers, REQUIRED_API_LEVEL)

    @abstractmethod
    def _drop(self, batch_id: bytes) -> None:
        """Forget a batch, and return its share of the quota."""

    def clear(self) -> None:
        """Forget all batches."""
        for batch_id in list(self._batches):
            self._drop(batch_id)

    def due_in_s(self) -> float | None:
        """Return in how many seconds a batch may be idle too long; None without batches."""
        touched_ns = (each.touched_ns for each in self._batches.values())
        return self._quota.idle_in_s(touched_ns, self._now_ns())

    def drop_idle(self) -> list[bytes]:
        """Forget the batches whose next message did not come in time; return their ids."""
        now_ns = self._now_ns()
        idle = [
            batch_id
            for batch_id, batch in self._batches.items()
            if now_ns - batch.touched_ns >= self._quota.idle_ns_max
        ]
        for batch_id in idle:
            self._drop(batch_id)
        return idle


def refusal_body(error: ApiError, stream: str) -> bytes:
    """Return the answer to a publisher whose message was refused."""
    return to_json({"error": error.document(), "stream": stream, "seq": 0})


def ack_part(batch_id: bytes, count: int) -> bytes:
    """Return the fields of an acknowledgement that are about a batch."""
    return b',"batch":%b,"count":%d' % (quoted_bytes(batch_id).encode(), count)
