"""Where acknowledgements and pull requests arrive."""

from typing import Protocol, final

from penstock.consumer.needs import StreamNeeds
from penstock.consumer.pending import Pending
from penstock.routing.hub import Hub
from penstock.routing.sublist import Receiver, Sublist, Subscription
from penstock.store.log.fast_scan import Scanner

KEEP: int
REMOVE: int
REMOVE_UNNEEDED: int

class _Consumer(Protocol):
    def on_ack(self, numbers: tuple[int, int, int], reply: bytes | None, body: bytes) -> None: ...
    def on_acks(self, count: int) -> None: ...
    def request_next(self, reply: bytes, headers: bytes, body: bytes) -> None: ...

@final
class AckReceiver(Receiver):
    """Takes what is sent to one consumer."""

    is_open: bool
    is_plain: bool
    disposal: int

    @property
    def noted(self) -> int:
        """How many acknowledgements were noted since the consumer was called."""
        ...

    def on_auto_unsubscribed(self, subscription: Subscription) -> None:
        """Do nothing: these subscriptions have no limit."""
        ...

    def __init__(self, hub: Hub, consumer: _Consumer, pending: Pending, name: bytes) -> None:
        """Receive for `consumer`, whose name is `name`.

        Acknowledgements that are not plain go to `consumer.on_ack(numbers, reply, body)`. After a
        buffer with plain ones `consumer.on_acks(count)` is called. Requests go to
        `consumer.request_next(reply, headers, body)`.
        """
        ...

@final
class StreamAckReceiver(Receiver):
    """Takes what is sent to the consumers of one stream."""

    def __init__(
        self,
        hub: Hub,
        sublist: Sublist,
        scanner: Scanner,
        starts: tuple[bytes, bytes, bytes],
        needs: StreamNeeds,
    ) -> None:
        """`starts` are what the subjects of the three forms begin with, in order."""
        ...

    def add(self, receiver: AckReceiver) -> None:
        """Take what is sent to a consumer."""
        ...

    def remove(self, receiver: AckReceiver) -> None:
        """Take nothing more for a consumer."""
        ...

    def on_auto_unsubscribed(self, subscription: Subscription) -> None:
        """Do nothing: these subscriptions have no limit."""
        ...
