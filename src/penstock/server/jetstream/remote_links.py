"""Links to other NATS servers, through which streams mirror and source streams there.

    jetstream { links { east { url: "nats://user:password@east.example.com:4222" } } }

A stream reaches an origin there as if it were in a domain of that name: with the external API
prefix `$JS.east.API`. Only streams of the link's `account` can, by default the global account. To
the other server a link is an ordinary client, with the rights of the user in the URL or in the
credentials file. A link that breaks is reconnected, to the next URL if there are several.

Invariants: what the other server sends is bounded, and nothing secret is written to the log.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterable
from itertools import cycle
from typing import Any, Final

from penstock.client.credentials import NOBODY, Address, Credentials, parse_url
from penstock.config.options.jetstream import LinkOptions
from penstock.errors import AuthorizationError, FormatError, PenstockError, UsageError
from penstock.limits import (
    LINK_LINE_BYTES_MAX,
    LINK_RETRY_S,
    LINK_SILENCE_S,
    PAYLOAD_BYTES_MAX,
)
from penstock.stream.replication.remote_api import Listener, Unsubscribe

Log = Callable[[str, str], None]
"""Called with level and text."""

_BROKEN: Final = (OSError, ValueError, EOFError, PenstockError)


class OriginLink:
    """A connection to another server that is made again when it breaks; a `RemoteApi` for feeds."""

    def __init__(self, options: LinkOptions, log: Log) -> None:
        """Raise UsageError or OSError if an address or the credentials cannot be used."""
        self.name = options.name
        self.account = options.account
        self._log = log
        self._addresses = [parse_url(url) for url in options.urls]
        path = options.credentials
        self._credentials = Credentials.from_creds_file(path) if path else NOBODY
        self._listeners: dict[bytes, tuple[bytes, Listener]] = {}
        self._sids = 0
        self._writer: asyncio.StreamWriter | None = None
        self.on_connected: list[Callable[[], None]] = []
        self._is_heard = True
        self._fault = ""

    # What feeds ask for

    def publish(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> bool:
        """Publish there; False while there is no connection."""
        if self._writer is None:
            return False
        target = subject if reply is None else b"%b %b" % (subject, reply)
        if headers:
            sizes = b"%d %d" % (len(headers), len(headers) + len(body))
            self._writer.write(b"HPUB %b %b\r\n%b%b\r\n" % (target, sizes, headers, body))
        else:
            self._writer.write(b"PUB %b %d\r\n%b\r\n" % (target, len(body), body))
        return True

    def subscribe(self, subject: bytes, listener: Listener) -> Unsubscribe:
        """Have messages of a subject; give how to end it."""
        self._sids += 1
        sid = b"%d" % self._sids
        self._listeners[sid] = (subject, listener)
        if self._writer is not None:
            self._writer.write(b"SUB %b %b\r\n" % (subject, sid))

        def unsubscribe() -> None:
            del self._listeners[sid]
            if self._writer is not None:
                self._writer.write(b"UNSUB %b\r\n" % sid)

        return unsubscribe

    # Living

    async def run(self) -> None:
        """Keep the connection up, until cancelled."""
        for address in cycle(self._addresses):
            try:
                await self._stay(address)
            except _BROKEN as error:
                self._tell(f"{address}: {error or 'broken off'}")
            finally:
                self._let_go()
            await asyncio.sleep(LINK_RETRY_S)

    def _tell(self, fault: str) -> None:
        # Once, however often it is tried again.
        if fault != self._fault:
            self._log("WRN", f"JetStream link {self.name!r}: {fault}")
        self._fault = fault

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def _stay(self, address: Address) -> None:
        """Connect, and hand out messages as long as it lasts."""
        async with asyncio.timeout(LINK_SILENCE_S):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, limit=LINK_LINE_BYTES_MAX
            )
            try:
                await self._log_in(reader, writer, address)
            except BaseException:
                writer.transport.abort()
                raise
        self._writer = writer
        for sid, (subject, _) in self._listeners.items():
            writer.write(b"SUB %b %b\r\n" % (subject, sid))
        self._fault = ""
        self._log("INF", f"JetStream link {self.name!r}: connected to {address}")
        for each in tuple(self.on_connected):
            each()
        watch = asyncio.get_running_loop().create_task(self._watch(writer))
        try:
            while True:
                await self._read(reader)
        finally:
            watch.cancel()

    async def _log_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address
    ) -> None:
        line = await reader.readline()
        info: Any = json.loads(line.removeprefix(b"INFO ")) if line else None
        if not isinstance(info, dict):
            raise FormatError("no NATS server")
        if address.is_tls or info.get("tls_required"):
            context = ssl.create_default_context()
            await writer.start_tls(context, server_hostname=address.host)
        known = self._credentials or address.credentials
        connect = {
            "verbose": False,
            "pedantic": False,
            "lang": "python-penstock",
            "name": f"link {self.name}",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            **known.connect_fields(str(info.get("nonce", ""))),
        }
        writer.write(b"CONNECT %b\r\nPING\r\n" % json.dumps(connect).encode())
        while (line := await reader.readline()) != b"PONG\r\n":
            if not line or line.startswith(b"-ERR"):
                raise AuthorizationError(line.decode("utf-8", "replace").strip() or "closed")

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        """Break a connection on which nothing is heard, not even an answer to a PING."""
        while True:
            self._is_heard = False
            writer.write(b"PING\r\n")
            await asyncio.sleep(LINK_SILENCE_S)
            if not self._is_heard:
                writer.transport.abort()

    # What comes

    async def _read(self, reader: asyncio.StreamReader) -> None:
        line = await reader.readline()
        self._is_heard = True
        words = line.split()
        if not line.endswith(b"\n"):
            raise EOFError("closed by the server")
        if words[:1] in ([b"MSG"], [b"HMSG"]):
            await self._read_message(reader, words)
        elif words[:1] == [b"PING"] and self._writer is not None:
            self._writer.write(b"PONG\r\n")
        elif words[:1] == [b"-ERR"]:
            self._tell(line.decode("utf-8", "replace").strip())

    async def _read_message(self, reader: asyncio.StreamReader, words: list[bytes]) -> None:
        has_headers = words[0] == b"HMSG"
        fixed = 5 if has_headers else 4
        if not fixed <= len(words) <= fixed + 1:
            raise FormatError("not a message")
        size = int(words[-1])
        headers_size = int(words[-2]) if has_headers else 0
        if not 0 <= headers_size <= size <= PAYLOAD_BYTES_MAX:
            raise FormatError("a message's size that cannot be")
        data = await reader.readexactly(size + 2)
        known = self._listeners.get(words[2])
        if known is not None:
            reply = words[3] if len(words) > fixed else None
            known[1](words[1], reply, data[:headers_size], data[headers_size:-2])


class OriginLinks:
    """All links of a server."""

    def __init__(self, options: Iterable[LinkOptions], log: Log) -> None:
        """Raise UsageError if an address or the credentials cannot be used."""
        try:
            self._links = [OriginLink(each, log) for each in options]
        except OSError as error:
            raise UsageError(f"credentials of a link: {error}") from None
        self._tasks: list[asyncio.Task[None]] = []

    def of_account(self, account: str) -> dict[str, OriginLink]:
        """Return the links that an account's streams may use, by name."""
        return {link.name: link for link in self._links if link.account == account}

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect all links, and keep them connected."""
        self._tasks = [
            loop.create_task(link.run(), name=f"link {link.name}") for link in self._links
        ]

    def stop(self) -> None:
        """Close all links."""
        for task in self._tasks:
            task.cancel()
