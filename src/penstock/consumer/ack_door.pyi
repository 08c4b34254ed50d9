"""Where acknowledgements and requests for messages come in."""

from typing import Protocol, final

from penstock.consumer.pending import Pending
from penstock.routing.hub import Hub
from penstock.routing.sublist import Receiver, Sublist, Subscription
from penstock.store.outtake import Outtake
from penstock.stream.audience import Taker

KEEP: int
REMOVE: int
REMOVE_UNNEEDED: int

class _Behind(Protocol):
    cursor: int

    def on_ack(self, numbers: tuple[int, int, int], reply: bytes | None, body: bytes) -> None: ...
    def on_acks(self, count: int) -> None: ...
    def on_done(self, stream_seqs: list[int]) -> None: ...
    def request_next(self, reply: bytes, headers: bytes, body: bytes) -> None: ...

@final
class AckDoor(Receiver):
    """One consumer's door."""

    is_open: bool
    is_plain: bool
    needs_by_floor: bool
    is_filtered: bool
    disposal: int

    @property
    def noted(self) -> int:
        """How many were noted since the consumer was told."""
        ...

    def on_auto_unsubscribed(self, subscription: Subscription) -> None:
        """A door does not close by itself."""
        ...

    def __init__(self, hub: Hub, consumer: _Behind, pending: Pending, name: bytes) -> None:
        """What is not plain goes to `consumer.on_ack(numbers, reply, body)`.

        After a buffer with plain ones `consumer.on_acks(count)` is called. Requests go to
        `consumer.request_next(reply, headers, body)`.
        """
        ...

@final
class StreamDoor(Receiver):
    """The door of one stream's consumers."""

    def __init__(
        self,
        hub: Hub,
        sublist: Sublist,
        outtake: Outtake,
        starts: tuple[bytes, bytes, bytes],
        takers: list[Taker],
    ) -> None:
        """`starts` are what the subjects of the three forms begin with, in order."""
        ...

    def add(self, door: AckDoor) -> None:
        """Let messages in to a consumer's door."""
        ...

    def remove(self, door: AckDoor) -> None:
        """Let no more in to a consumer's door."""
        ...

    def on_auto_unsubscribed(self, subscription: Subscription) -> None:
        """A door does not close by itself."""
        ...
