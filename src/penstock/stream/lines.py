"""A line: the way to streams that are not of this account, for requests and for their messages.

`AccountLine` is the account's own subjects, which may lead to other accounts, domains and servers.
Connections to other servers are lines too; the server makes those, and gives them to the account by
the name that stands in an origin's API prefix.

One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.routing.hub import Hub, Service
from penstock.routing.sublist import Sublist, Subscription

Listener = Callable[[bytes, bytes | None, bytes, bytes], None]
"""Called with subject, reply, headers and body of each message."""

Unsubscribe = Callable[[], None]


class Line(Protocol):
    """A way to streams elsewhere."""

    on_connected: list[Callable[[], None]]
    """Called when the line is there, for the first time or again."""

    def publish(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> bool:
        """Publish there; False where it is known that nobody hears it.

        Not to be called while a message is being delivered here.
        """
        ...

    def subscribe(self, subject: bytes, listener: Listener) -> Unsubscribe:
        """Have messages of a subject; give how to end it."""
        ...


class AccountLine:
    """The subjects of an account of this server."""

    def __init__(self, hub: Hub, sublist: Sublist) -> None:
        self._hub = hub
        self._sublist = sublist
        self.on_connected: list[Callable[[], None]] = []

    def publish(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> bool:
        """Publish in the account; False where nobody listens."""
        heard_by = self._hub.publish(self._sublist, subject, reply, headers, body)
        self._hub.flush()
        return heard_by > 0

    def subscribe(self, subject: bytes, listener: Listener) -> Unsubscribe:
        """Have messages of a subject; give how to end it."""
        subscription = Subscription(Service(listener), subject, b"1")
        self._sublist.insert(subscription)

        def unsubscribe() -> None:
            self._sublist.remove(subscription)

        return unsubscribe
