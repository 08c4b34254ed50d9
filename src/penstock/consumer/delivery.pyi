"""From records to receivers: the per-message half of delivery."""

from typing import final

from penstock.consumer.pending import Pending
from penstock.routing.hub import Hub
from penstock.routing.sublist import Sublist
from penstock.store.log.fast_scan import Scanner
from penstock.subjects import SubjectFilter

RUN_END: int
"""No more messages up to `until`."""
RUN_COUNT: int
"""`count_max` messages were sent."""
RUN_BYTES: int
"""The message at the cursor is larger than the bytes that are left."""
RUN_UNREAD: int
"""The message at the cursor is an envelope or is damaged."""
RUN_NOBODY: int
"""No subscriber took the message at the cursor."""
RUN_BEHIND: int
"""The subscriber is far behind: try again later."""

@final
class MessageSender:
    """Sends one consumer's messages."""

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
        """How many messages the last run sent."""
        ...

    @property
    def sent_bytes(self) -> int:
        """The bytes of their subjects, replies, headers and payloads together."""
        ...

    def __init__(self, hub: Hub, sublist: Sublist, reply_start: bytes) -> None: ...
    def reply_to(
        self, deliveries: int, stream_seq: int, consumer_seq: int, time_ns: int, pending: int
    ) -> bytes:
        """Return the reply subject of a message that is sent in another way."""
        ...

    def has_interest(self, target: bytes) -> bool:
        """Return True if a subject has subscribers."""
        ...

    def is_behind(self, target: bytes) -> bool:
        """Return True if a subscriber of a subject has too many bytes waiting for its socket."""
        ...

    def run(
        self,
        scanner: Scanner,
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
        chosen: list[int] | None = None,
    ) -> int:
        """Send the messages from `cursor` on to `target`; return why it stopped.

        At most `count_max` messages are sent, with a size of `bytes_max` together (-1: any), but a
        first one of any size if `first_goes`; none above `until`. `consumer_seq` is that of the
        first; `num_pending` counts the matching messages from `cursor` on. What is sent is noted in
        `pending`. Several `targets` are sent one message each in turn. With `headers_only` the size
        of a payload is sent instead of it. Only those that are `chosen` are sent, if that is given:
        their sequences, the next one last; what is sent or gone is removed from it.
        """
        ...
