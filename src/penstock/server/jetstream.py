"""JetStream as a part of the server: which accounts have it, recovery, and the API's doors.

Start opens every stream of every account before clients are let in; stop makes all of them durable.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import TYPE_CHECKING

from penstock.api.dispatch import API_PREFIX, Call, answer
from penstock.api.endpoints import ENDPOINTS
from penstock.config.options_jetstream import JetStreamOptions
from penstock.routing.link import Service
from penstock.routing.sublist import Subscription
from penstock.security.accounts import GLOBAL_ACCOUNT
from penstock.server.version import NATS_VERSION
from penstock.store.vfs import OsFileSystem
from penstock.stream.account import AccountStreams
from penstock.stream.allowances import AccountLimits, ServerLimits
from penstock.stream.storage import StoragePolicy

if TYPE_CHECKING:
    from penstock.server.server import Server

FOLDER_NAME = "jetstream"


class JetStreamService:
    """All accounts' streams; see the module."""

    version = NATS_VERSION

    def __init__(self, server: Server, options: JetStreamOptions) -> None:
        self._server = server
        self.options = options
        self.hub = server.hub
        self.clock = server.clock
        self.files = OsFileSystem()
        self.domain = options.domain
        self.strict = options.strict
        self.policy = StoragePolicy(sync_interval_ns=options.sync_interval_ns or 0)
        root = options.store_dir or os.path.join(tempfile.gettempdir(), "nats")
        self.path = os.path.join(root, FOLDER_NAME)
        self.accounts: dict[str, AccountStreams] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that owns every stream."""
        return self._server.loop

    @property
    def limits(self) -> ServerLimits:
        """What the server has for streams, and what is reserved of it."""
        return ServerLimits()

    def now_ns(self) -> int:
        """The wall clock."""
        return self.clock.now_ns()

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        self._server.log(level, text)

    def start(self) -> None:
        """Open every stream, then answer requests."""
        self.files.make_dirs(self.path)
        for account in self._server.identities.accounts:
            if account.name == GLOBAL_ACCOUNT:
                self._enable(account.name, account.sublist)

    def _enable(self, name: str, sublist: object) -> None:
        account = AccountStreams(
            self,
            name,
            sublist,
            os.path.join(self.path, name),
            AccountLimits(),  # type: ignore[arg-type]
        )
        self.accounts[name] = account
        for stream in account.recover():
            state = stream.store.state()
            self.log(
                "INF", f"  Restored {state.messages:,} messages for stream '{name} > {stream.name}'"
            )
        service = Service(lambda *request: self._asked(account, *request))
        account.sublist.insert(Subscription(service, API_PREFIX.encode() + b">", b"1"))

    def _asked(
        self,
        account: AccountStreams,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> None:
        text = subject.decode("utf-8", "replace")
        found = ENDPOINTS.find(text[len(API_PREFIX) :])
        if found is None or reply is None:
            return
        endpoint, names = found
        call = Call(self, account, text, names, headers, body, reply)
        self.hub.publish(account.sublist, reply, None, b"", answer(endpoint, call))

    def stop(self) -> None:
        """Make everything durable."""
        for account in self.accounts.values():
            account.stop()
