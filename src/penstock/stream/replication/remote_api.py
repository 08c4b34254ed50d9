"""The way to streams that are not of this account: requests to their API, and their messages.

`AccountApi` uses the account's own subjects, which may lead to other accounts, domains and servers.
Connections to other servers are the other implementation: `server.jetstream` makes them, and gives
them to the account by the name that stands in an origin's API prefix.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.routing.hub import Hub, Service
from penstock.routing.sublist import Sublist, Subscription

Listener = Callable[[bytes, bytes | None, bytes, bytes], None]
"""Called with subject, reply, headers and body of each message."""

Unsubscribe = Callable[[], None]


class RemoteApi(Protocol):
    """Publishing and subscribing where an origin is."""

    on_connected: list[Callable[[], None]]
    """Called when the connection is there, for the first time or again."""

    def publish(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> bool:
        """Publish there; return False if it is known that nobody is subscribed.

        Not to be called while a message is being delivered here.
        """
        ...

    def subscribe(self, subject: bytes, listener: Listener) -> Unsubscribe:
        """Call the listener for messages of a subject; return a function that ends it."""
        ...


class AccountApi:
    """The subjects of an account of this server."""

    def __init__(self, hub: Hub, sublist: Sublist) -> None:
        self._hub = hub
        self._sublist = sublist
        self.on_connected: list[Callable[[], None]] = []

    def publish(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> bool:
        """Publish in the account; return False if nobody is subscribed."""
        heard_by = self._hub.publish(self._sublist, subject, reply, headers, body)
        self._hub.flush()
        return heard_by > 0

    def subscribe(self, subject: bytes, listener: Listener) -> Unsubscribe:
        """Call the listener for messages of a subject; return a function that ends it."""
        subscription = Subscription(Service(listener), subject, b"1")
        self._sublist.insert(subscription)

        def unsubscribe() -> None:
            self._sublist.remove(subscription)

        return unsubscribe
