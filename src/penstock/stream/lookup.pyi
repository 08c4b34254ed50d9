from collections.abc import Callable

from penstock.routing.hub import Hub
from penstock.routing.sublist import Receiver, Sublist, Subscription
from penstock.store.interface import StreamStore

class Lookup(Receiver):
    """Answers for one stream, under its own name or that of its origin."""

    def __init__(
        self,
        hub: Hub,
        sublist: Sublist,
        store: StreamStore,
        name: bytes,
        start_size: int,
        callback: Callable[[bytes, bytes | None, bytes, bytes], None],
    ) -> None: ...
    def on_auto_unsubscribed(self, subscription: Subscription) -> None: ...
