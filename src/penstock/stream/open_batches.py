"""What all batches have in common: those that are open, and how they end without their commit.

Called by the atomic and the fast batches of a stream. One thread: the event loop's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from penstock import error_codes
from penstock.errors import ApiError
from penstock.stream.batch_room import BatchRoom
from penstock.stream.headers import without
from penstock.stream.messages import REQUIRED_API_LEVEL, Message
from penstock.stream.versioning import is_level_known

if TYPE_CHECKING:
    from penstock.stream.publishing import Publishing

TIMEOUT: Final = "timeout"
LARGE: Final = "large"
INCOMPLETE: Final = "incomplete"
UNSUPPORTED: Final = "unsupported"
"""Why a batch is abandoned."""


class OpenBatch(msgspec.Struct):
    """A batch that is not committed."""

    touched_ns: int


B = TypeVar("B", bound=OpenBatch)


class OpenBatches(ABC, Generic[B]):
    """The batches of one kind in one stream; see the module."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._batches: dict[bytes, B] = {}

    @property
    def _room(self) -> BatchRoom:
        return self._publishing.stream.host.batch_room

    def _now_ns(self) -> int:
        return self._publishing.stream.host.clock.monotonic_ns()

    def _check_message(self, message: Message) -> None:
        """Refuse what no batch can have; raise ApiError."""
        config = self._publishing.stream.config
        if config.sealed:
            raise ApiError(error_codes.STREAM_SEALED)
        self._publishing.check_room(message)
        if 0 <= config.max_msg_size < len(message.headers) + len(message.body):
            raise ApiError(error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM)

    def _check_level(self, batch_id: bytes, message: Message) -> None:
        """Take the level that a message needs out of it; one that is not known ends the batch."""
        level = message.value(REQUIRED_API_LEVEL)
        if not level:
            return
        if not is_level_known(level.decode("utf-8", "replace")):
            self._abandon(batch_id, UNSUPPORTED)
            raise ApiError(error_codes.REQUIRED_API_LEVEL)
        message.headers = without(message.headers, REQUIRED_API_LEVEL)

    @abstractmethod
    def _drop(self, batch_id: bytes) -> None:
        """Be done with a batch, and give back the room that it took."""

    @abstractmethod
    def _abandon(self, batch_id: bytes, reason: str) -> None:
        """Give up a batch."""

    def clear(self) -> None:
        """Forget all batches."""
        for batch_id in list(self._batches):
            self._drop(batch_id)

    def due_in_s(self) -> float | None:
        """Tell when a batch may have waited too long; None where there is none."""
        touched_ns = (each.touched_ns for each in self._batches.values())
        return self._room.idle_in_s(touched_ns, self._now_ns())

    def abandon_idle(self) -> None:
        """Give up the batches that have waited too long for their next message."""
        now_ns = self._now_ns()
        for batch_id, batch in list(self._batches.items()):
            if now_ns - batch.touched_ns >= self._room.idle_ns_max:
                self._abandon(batch_id, TIMEOUT)
