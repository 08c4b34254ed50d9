"""A small HTTP/1.1 server for the monitoring pages: any method gets the page, HEAD its head alone.

Invariants: a request's head is bounded in bytes and in time, so is the time that a client takes to
read an answer, and so is the number of connections: one too many is closed at once, the others are
not disturbed. A page that fails is answered with 500 and one line in the log.

Why no library serves them is said in `penstock.monitor`. One thread: the event loop's; the server
starts it where a monitoring port is configured.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.limits import (
    MONITOR_CONNECTIONS_MAX,
    MONITOR_REQUEST_BYTES_MAX,
    MONITOR_TURN_NS,
    MONITOR_WAIT_S_MAX,
)
from penstock.monitor.pages import PLAIN, Page, SlicedPage

Log = Callable[[str, str], None]

# A token of RFC 9110. The pages change nothing, so it does not matter which.
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


class Responder(Protocol):
    """What answers requests: the pages."""

    def answer(self, path: str, query: str) -> Page | SlicedPage:
        """Return the page of a path, or a generator that makes it in slices."""
        ...


class _Request(msgspec.Struct, frozen=True):
    method: str
    target: str
    keep_alive: bool


class _Refused(Exception):
    """The request is answered with a status, and the connection is closed."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpServer:
    """One listening port; see the module."""

    def __init__(
        self,
        responder: Responder,
        log: Log,
        *,
        wait_s: float = MONITOR_WAIT_S_MAX,
        clock: Clock | None = None,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._responder = responder
        self._log = log
        self._wait_s = wait_s
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Serve the clients of a listening socket, and close it in the end."""
        self._server = await asyncio.start_server(
            self._accepted, sock=listening, ssl=tls, limit=MONITOR_REQUEST_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end what is under way; stopping twice does nothing."""
        if self._server is None:
            return
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= MONITOR_CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            # Cancelling comes only from `stop`, which waits for nothing but the end.
            with contextlib.suppress(
                OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError
            ):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        keep_alive = True
        while keep_alive:
            with_body = True
            try:
                request = await self._read(reader)
                keep_alive, with_body = request.keep_alive, request.method != "HEAD"
                page = await self._page(request.target)
            except _Refused as refused:
                keep_alive = False
                page = Page(refused.status, PLAIN, f"{refused}\n".encode())
            writer.write(_head(page, keep_alive=keep_alive))
            if with_body:
                writer.write(page.body)
            async with asyncio.timeout(self._wait_s):
                await writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> _Request:
        try:
            async with asyncio.timeout(self._wait_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request header fields too large"
            ) from None
        return _parsed(head)

    async def _page(self, target: str) -> Page:
        path, query = _taken_apart(target)
        try:
            page = self._responder.answer(path, query)
            return page if isinstance(page, Page) else await self._in_turns(page)
        except Exception as error:  # noqa: BLE001 - a page is an edge: it fails alone
            self._log("ERR", f"Error answering {path!r}: {type(error).__name__}: {error}")
            return Page(HTTPStatus.INTERNAL_SERVER_ERROR, PLAIN, b"internal error\n")

    async def _in_turns(self, slices: SlicedPage) -> Page:
        """Make a page, for as long in each turn of the event loop as its share of it lasts."""
        until_ns = self._clock.monotonic_ns() + MONITOR_TURN_NS
        while True:
            try:
                next(slices)
            except StopIteration as end:
                page: Page = end.value
                return page
            if self._clock.monotonic_ns() >= until_ns:
                await asyncio.sleep(0)
                until_ns = self._clock.monotonic_ns() + MONITOR_TURN_NS


def _taken_apart(target: str) -> tuple[str, str]:
    """Return path and query of a request's target, which may be a whole address."""
    if not target.startswith("/"):
        try:
            parts = urlsplit(target)
        except ValueError:
            raise _Refused(HTTPStatus.BAD_REQUEST, "400 Bad Request") from None
        return unquote(parts.path), parts.query
    path, _, query = target.partition("?")
    return unquote(path), query


def _parsed(head: bytes) -> _Request:
    bad = _Refused(HTTPStatus.BAD_REQUEST, "400 Bad Request")
    lines = head[:-4].decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[1]:
        raise bad
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise bad
        headers[name.lower()] = value.strip()
    if words[2] == "HTTP/1.1" and "host" not in headers:
        raise _Refused(HTTPStatus.BAD_REQUEST, "400 Bad Request: missing required Host header")
    if not _METHOD.fullmatch(words[0]):
        raise bad
    wish = headers.get("connection", "").lower()
    keep_alive = wish != "close" if words[2] == "HTTP/1.1" else wish == "keep-alive"
    # A body has no meaning here and is not read, so what follows it cannot be read either.
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        keep_alive = False
    return _Request(words[0], words[1], keep_alive)


def _head(page: Page, *, keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {int(page.status)} {HTTPStatus(page.status).phrase}"]
    if page.shared:
        lines.append("Access-Control-Allow-Origin: *")
    lines += [
        f"Content-Type: {page.content_type}",
        "X-Content-Type-Options: nosniff",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Length: {len(page.body)}",
    ]
    if not keep_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
