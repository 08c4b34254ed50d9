"""From records to receivers: the per-message half of delivery."""

from typing import final

from penstock.consumer.pending import Pending
from penstock.routing.hub import Hub
from penstock.routing.sublist import Sublist
from penstock.store.outtake import Outtake
from penstock.subjects import SubjectFilter

RUN_END: int
"""Nothing more is wanted, up to where it was asked for."""
RUN_COUNT: int
"""As many as were asked for."""
RUN_BYTES: int
"""The message at the cursor is larger than what is left."""
RUN_UNREAD: int
"""The message at the cursor is an envelope or is damaged."""
RUN_NOBODY: int
"""Nobody took the message at the cursor."""
RUN_BEHIND: int
"""Whoever gets them is behind: try again later."""

@final
class Courier:
    """Carries one consumer's messages."""

    @property
    def cursor(self) -> int:
        """The next sequence to look at."""
        ...

    @property
    def last_seq(self) -> int:
        """The last message that was sent."""
        ...

    @property
    def sent(self) -> int:
        """Messages of the last run."""
        ...

    @property
    def sent_bytes(self) -> int:
        """Their subjects, replies, headers and payloads together."""
        ...

    def __init__(self, hub: Hub, sublist: Sublist, reply_start: bytes) -> None: ...
    def reply_to(
        self, deliveries: int, stream_seq: int, consumer_seq: int, time_ns: int, pending: int
    ) -> bytes:
        """Give the reply subject of a message that is sent in another way."""
        ...

    def has_interest(self, target: bytes) -> bool:
        """Whether anybody listens to a subject."""
        ...

    def is_behind(self, target: bytes) -> bool:
        """Whether so much waits for somebody who listens to a subject that more can wait."""
        ...

    def run(
        self,
        outtake: Outtake,
        target: bytes,
        subjects: SubjectFilter | None,
        *,
        cursor: int,
        until: int,
        count_max: int,
        bytes_max: int,
        first_goes: bool,
        consumer_seq: int,
        num_pending: int,
        pending: Pending,
        now_ns: int,
        targets: list[bytes] | None = None,
        headers_only: bool = False,
    ) -> int:
        """Send the messages from `cursor` on to `target`; tell why it came to an end.

        At most `count_max` messages with a size of `bytes_max` together (-1: any), but a first one
        whatever its size if it `first_goes`; none above `until`. `consumer_seq` is that of the
        first; `num_pending` counts what is wanted from `cursor` on. What is sent is noted as
        `pending`. Where there are several `targets`, they are sent one message each in turn. With
        `headers_only` the size of a payload is sent instead of it.
        """
        ...
