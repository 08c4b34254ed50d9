"""Where acknowledgements come in."""

from typing import Protocol, final

from penstock.consumer.pending import Pending
from penstock.routing.hub import Hub
from penstock.routing.sublist import Receiver, Subscription

class _Acknowledged(Protocol):
    def on_ack(self, numbers: tuple[int, int, int], reply: bytes | None, body: bytes) -> None: ...
    def on_acks(self, count: int) -> None: ...

@final
class AckDoor(Receiver):
    """One consumer's door for acknowledgements."""

    is_plain: bool

    @property
    def noted(self) -> int:
        """How many were noted since the consumer was told."""
        ...

    def on_auto_unsubscribed(self, subscription: Subscription) -> None:
        """A door does not close by itself."""
        ...

    def __init__(
        self,
        hub: Hub,
        consumer: _Acknowledged,
        pending: Pending,
        start: bytes,
        long_start: bytes,
    ) -> None:
        """What is not plain goes to `consumer.on_ack(numbers, reply, body)`.

        After a buffer with plain ones `consumer.on_acks(count)` is called. `start` and `long_start`
        are what subjects of the two forms begin with.
        """
        ...
