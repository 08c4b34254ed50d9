"""WebSocket on the server's side: the upgrade request, then frames, as a filter of a connection.

The upgrade is judged as the reference server judges it (method, host, key, version, origin). Frames
of a client are masked unless it asked for no masking; control frames are answered here; a message
may be compressed (permessage-deflate without context takeover), and what it expands to is bounded.

One filter belongs to one connection; the event loop's thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from penstock.errors import FormatError
from penstock.net.filters import FilterFailed
from penstock.protocol.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    frame_header,
    read_frame,
)

_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_STATUS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
_DEFLATE_TAIL = b"\x00\x00\xff\xff"
COMPRESS_FROM_BYTES = 64
"""Shorter messages are sent as they are: compressing them costs more than it saves."""

REQUEST_BYTES_MAX = 16 * 1024
"""An upgrade request is a few hundred bytes; cookies may make it some thousand."""


@dataclass(frozen=True, slots=True)
class WebSocketRules:
    """What a listener demands of its clients."""

    payload_max: int
    compression: bool = False
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    is_tls: bool = False
    extra_headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Upgrade:
    """What the upgrade request told."""

    headers: dict[str, list[str]] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    path: str = "/"

    def first(self, name: str) -> str:
        """Give a header's first value, or an empty text."""
        return self.headers.get(name, [""])[0]

    def contains(self, name: str, word: str) -> bool:
        """Tell whether a header lists a word."""
        listed = ",".join(self.headers.get(name, [])).split(",")
        return any(each.strip().lower() == word.lower() for each in listed)


class WebSocketFilter:
    """WebSocket between a socket and the protocol; see the module."""

    def __init__(self, rules: WebSocketRules) -> None:
        self._rules = rules
        self.on_upgraded: Callable[[Upgrade], None] | None = None
        """Hears of the request when it was accepted."""

        self._ready = False
        self._masked = True
        self._compress = False
        self._data = bytearray()
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._parts_compressed = False
        self._close_sent = False

    @property
    def ready(self) -> bool:
        """Tell whether the upgrade is done."""
        return self._ready

    def incoming(self, data: bytes) -> tuple[bytes, bytes]:
        """Take bytes of the socket; give (protocol bytes, bytes to send back)."""
        self._data += data
        answer = b""
        if not self._ready:
            answer = self._upgrade()
            if not self._ready:
                return b"", answer
        plain = []
        at = 0
        try:
            while frame := read_frame(
                self._data, at, payload_max=self._rules.payload_max, masked=self._masked
            ):
                opcode, final, compressed, payload, used = frame
                at += used
                if opcode >= CLOSE:
                    answer += self._control(opcode, payload)
                else:
                    plain.append(self._message_part(opcode, final, compressed, payload))
        except FormatError as error:
            raise FilterFailed(error.reason, answer + self._close_frame(error.offset)) from None
        del self._data[:at]
        return b"".join(plain), answer

    def _message_part(self, opcode: int, final: bool, compressed: bool, payload: bytes) -> bytes:
        begins = opcode != CONTINUATION
        if begins == bool(self._parts) or (compressed and not (begins and self._compress)):
            raise FormatError("frames of a message out of order", offset=1002)
        if begins:
            self._parts_compressed = compressed
            self._parts_bytes = 0
        if final and begins and not compressed:
            return payload
        self._parts.append(payload)
        self._parts_bytes += len(payload)
        if self._parts_bytes > self._rules.payload_max:
            raise FormatError("a message in too many parts", offset=1009)
        if not final:
            return b""
        whole = b"".join(self._parts)
        self._parts.clear()
        return self._expand(whole) if self._parts_compressed else whole

    def _expand(self, data: bytes) -> bytes:
        expander = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            plain = expander.decompress(data + _DEFLATE_TAIL, self._rules.payload_max)
        except zlib.error:
            raise FormatError("compressed data that cannot be read", offset=1007) from None
        if expander.unconsumed_tail:
            raise FormatError("compressed data that grows too large", offset=1009)
        return plain

    def _control(self, opcode: int, payload: bytes) -> bytes:
        if opcode == PING:
            return frame_header(PONG, len(payload)) + payload
        if opcode == PONG:
            return b""
        code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1000
        raise FilterFailed("the client closed the WebSocket", self._close_frame(code))

    def _close_frame(self, code: int) -> bytes:
        if self._close_sent:
            return b""
        self._close_sent = True
        return frame_header(CLOSE, 2) + code.to_bytes(2, "big")

    def outgoing(self, data: bytes) -> bytes:
        """Put protocol bytes into a frame."""
        if self._compress and len(data) >= COMPRESS_FROM_BYTES:
            packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
            packed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
            packed = packed.removesuffix(_DEFLATE_TAIL)
            return frame_header(BINARY, len(packed), compressed=True) + packed
        return frame_header(BINARY, len(data)) + data

    def farewell(self) -> bytes:
        """Say that the connection ends."""
        return self._close_frame(1000) if self._ready else b""

    # The upgrade

    def _upgrade(self) -> bytes:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > REQUEST_BYTES_MAX:
                raise FilterFailed("upgrade request too long", _refusal(400))
            return b""
        request = parse_request(bytes(self._data[:end]))
        del self._data[: end + 4]
        if self._data:
            raise FilterFailed("data before the upgrade is complete", _refusal(400))
        self._masked = request.first("nats-no-masking") != "true"
        extensions = ",".join(request.headers.get("sec-websocket-extensions", []))
        self._compress = self._rules.compression and "permessage-deflate" in extensions
        answer = self._accept(request)
        self._ready = True
        if self.on_upgraded is not None:
            self.on_upgraded(request)
        return answer

    def _accept(self, request: Upgrade) -> bytes:
        key = request.first("sec-websocket-key")
        problems = (
            (not request.first("host"), "no host"),
            (not request.contains("upgrade", "websocket"), "invalid value for header 'Upgrade'"),
            (not request.contains("connection", "Upgrade"), "invalid 'Connection'"),
            (not _is_key(key), "invalid key"),
            (not request.contains("sec-websocket-version", "13"), "invalid version"),
        )
        for wrong, reason in problems:
            if wrong:
                raise FilterFailed(f"websocket handshake error: {reason}", _refusal(400))
        if not self._origin_allowed(request):
            raise FilterFailed("websocket handshake error: origin not allowed", _refusal(403))
        digest = hashlib.sha1(key.encode() + _ACCEPT_GUID, usedforsecurity=False).digest()
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
        ]
        if self._compress:
            lines.append(
                "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
                "client_no_context_takeover"
            )
        if not self._masked:
            lines.append("Nats-No-Masking: true")
        lines += [f"{name}: {value}" for name, value in self._rules.extra_headers]
        return "\r\n".join([*lines, "", ""]).encode()

    def _origin_allowed(self, request: Upgrade) -> bool:
        origin = request.first("origin") or request.first("sec-websocket-origin")
        rules = self._rules
        if not origin or not (rules.same_origin or rules.allowed_origins):
            return True
        asked = _origin_of(origin)
        if asked is None:
            return False
        scheme = "https" if rules.is_tls else "http"
        if rules.same_origin and asked != _origin_of(f"{scheme}://{request.first('host')}"):
            return False
        allowed = {_origin_of(each) for each in rules.allowed_origins}
        return not allowed or asked in allowed


def parse_request(text: bytes) -> Upgrade:
    """Read an HTTP upgrade request's head; raises FilterFailed."""
    lines = text.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise FilterFailed("not an HTTP request", _refusal(400))
    if words[0] != "GET":
        raise FilterFailed("request method must be GET", _refusal(405))
    request = Upgrade(path=words[1])
    for line in lines[1:]:
        name, separator, value = line.partition(":")
        if not separator or not name or name != name.strip():
            raise FilterFailed("a header line that is none", _refusal(400))
        request.headers.setdefault(name.lower(), []).append(value.strip())
    try:
        for line in request.headers.get("cookie", []):
            request.cookies |= {name: each.value for name, each in SimpleCookie(line).items()}
    except CookieError:
        pass
    if request.path.endswith(("/mqtt", "/leafnode")):
        raise FilterFailed("this endpoint is not enabled", _refusal(404))
    return request


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _origin_of(text: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(text)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return (parts.scheme.lower(), (parts.hostname or "").lower(), port)


def _refusal(status: int) -> bytes:
    text = _STATUS[status]
    return (
        f"HTTP/1.1 {status} {text}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Sec-Websocket-Version: 13\r\nX-Content-Type-Options: nosniff\r\n"
        f"Content-Length: {len(text) + 1}\r\nConnection: close\r\n\r\n{text}\n"
    ).encode()
