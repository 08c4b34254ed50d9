from collections.abc import Callable
from typing import final

from penstock.routing.subject_transform import SubjectTransform
from penstock.routing.sublist import Receiver, Sublist, Subscription

@final
class Hub:
    @property
    def in_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    is_tracing: bool
    @property
    def publisher(self) -> Receiver | None: ...
    def __init__(self, seed: int, monotonic_ns: Callable[[], int] | None = None) -> None: ...
    def publish(
        self, sublist: Sublist, subject: bytes, reply: bytes | None, headers: bytes, body: bytes
    ) -> int: ...
    def publish_as(
        self,
        sublist: Sublist,
        target: bytes,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> int: ...
    def pass_on(
        self,
        sublist: Sublist,
        target: bytes,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> int: ...
    def give(
        self,
        source: Receiver,
        subscription: Subscription,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> bool: ...
    def flush(self) -> None: ...

class Service(Receiver):
    def __init__(
        self,
        callback: Callable[[bytes, bytes | None, bytes, bytes], bool | None],
        declined: tuple[bytes, ...] = (),
    ) -> None: ...
    def on_auto_unsubscribed(self, subscription: Subscription) -> None: ...

class Shadow(Receiver):
    @property
    def original(self) -> Subscription: ...
    def __init__(self, original: Subscription, rename: SubjectTransform | None) -> None: ...
    def on_auto_unsubscribed(self, subscription: Subscription) -> None: ...
