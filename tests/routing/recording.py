"""A link whose other side is the test: it notes what came in, and its outbox can be read."""

from __future__ import annotations

from penstock.net.link import Link
from penstock.routing.hub import Hub
from penstock.routing.sublist import Sublist, Subscription

Noted = tuple[object, ...]


class RecordingLink(Link):
    """A link without a socket that notes each call and carries out the simplest of it."""

    def __init__(self, hub: Hub | None = None, sublist: Sublist | None = None) -> None:
        super().__init__(hub or Hub(1), -1)
        self.sublist = sublist or Sublist()
        self.authorized = True
        self.verbose = self.pedantic = False
        self.headers = True
        self.noted: list[Noted] = []
        self.sent = b""
        self.ended: list[bytes] = []

    def on_connect(self, text: bytes) -> None:
        self.noted.append(("connect", text))

    def on_subscribe(self, subject: bytes, queue: bytes | None, sid: bytes) -> None:
        self.noted.append(("subscribe", subject, queue, sid))
        self.sublist.insert(Subscription(self, subject, sid, queue))

    def on_unsubscribe(self, sid: bytes, max_messages: int) -> None:
        self.noted.append(("unsubscribe", sid, max_messages))

    def on_ping(self) -> None:
        self.noted.append(("ping",))

    def on_pong(self) -> None:
        self.noted.append(("pong",))

    def on_info(self, text: bytes) -> None:
        self.noted.append(("info", text))

    def on_client_error(self, text: bytes) -> None:
        self.noted.append(("error", text))

    def on_publish_line(self, subject: bytes) -> None:
        self.noted.append(("line", subject))

    def on_violation(self, kind: str, text: str) -> None:
        self.noted.append(("violation", kind, text))
        self.closed = True

    def on_slow(self) -> None:
        self.noted.append(("slow",))
        self.closed = True

    def on_auto_unsubscribed(self, subscription: Subscription) -> None:
        self.ended.append(subscription.sid)
        self.sublist.remove(subscription)

    def on_refused(self, subject: bytes) -> None:
        self.noted.append(("refused", subject))

    def drain(self) -> None:
        self.sent += self.out.take()
