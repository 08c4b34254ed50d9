"""The HTTP request that begins a WebSocket connection: read, judged and answered. Pure.

Judged as the reference server judges it, and in its order: method, host, upgrade, key, version,
origin. A refusal is answered with a status and ends the connection; the log says why. Called by
`net.websocket`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import re
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from penstock.net.tls import FilterFailed

_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERSION = re.compile(r"HTTP/\d\.\d")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# What RFC 6265 lets a cookie's value have, and the blank and comma that Go takes besides.
_COOKIE_VALUE = re.compile(r"[\x20-\x21\x23-\x3a\x3c-\x5b\x5d-\x7e]*")
_BROWSER = "Mozilla/"


class WebSocketRules(msgspec.Struct, frozen=True):
    """What a listener demands of its clients."""

    payload_max: int
    compression: bool = False
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    is_tls: bool = False
    extra_headers: tuple[tuple[str, str], ...] = ()


class UpgradeRequest(msgspec.Struct):
    """A request that was read; header names in small letters."""

    method: str = "GET"
    path: str = "/"
    headers: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def first(self, name: str) -> str:
        """Return a header's first value, or ""."""
        return self.headers.get(name, [""])[0]

    def contains(self, name: str, word: str) -> bool:
        """Return True if a header lists a word."""
        listed = ",".join(self.headers.get(name, [])).split(",")
        return any(each.strip(" \t").lower() == word for each in listed)

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies; of two with one name the last counts, malformed ones are left out."""
        found = {}
        for part in ";".join(self.headers.get("cookie", [])).split(";"):
            name, _, value = part.strip(" \t").partition("=")
            if len(value) > 1 and value.startswith('"') and value.endswith('"'):
                value = value[1:-1]
            if _TOKEN.fullmatch(name) and _COOKIE_VALUE.fullmatch(value):
                found[name] = value
        return found

    @property
    def is_unmasked(self) -> bool:
        """True if the client asks to send frames without a mask."""
        return self.first("nats-no-masking") == "true"

    @property
    def asks_for_compression(self) -> bool:
        """True if the client offers to compress messages."""
        offers = ",".join(self.headers.get("sec-websocket-extensions", [])).replace(";", ",")
        return "permessage-deflate" in (each.strip(" \t").lower() for each in offers.split(","))

    @property
    def is_browser(self) -> bool:
        """True if the client says that it is a browser."""
        return self.first("user-agent").startswith(_BROWSER)

    @property
    def is_safari(self) -> bool:
        """True if the client is Safari: other browsers that name it do not name a version."""
        agent = self.first("user-agent")
        return self.is_browser and "Version/" in agent and "Safari/" in agent

    @property
    def forwarded_for(self) -> str:
        """The address for which a proxy connects, or ""."""
        address = self.first("x-forwarded-for")
        try:
            return address if address and ipaddress.ip_address(address) else ""
        except ValueError:
            return ""


def parse_request(text: bytes) -> UpgradeRequest:
    """Read a request's head, without the empty line at its end; raise FilterFailed."""
    lines = text.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not _VERSION.fullmatch(words[2]) or not _TOKEN.fullmatch(words[0]):
        raise _malformed(HTTPStatus.BAD_REQUEST, "not an HTTP request")
    if not words[2].startswith("HTTP/1."):
        raise _malformed(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "unsupported protocol version")
    if not words[1].startswith(("/", "http://", "https://")):
        raise _malformed(HTTPStatus.BAD_REQUEST, "invalid address")
    request = UpgradeRequest(method=words[0], path=words[1])
    for line in lines[1:]:
        name, separator, value = line.partition(":")
        if not separator or not _TOKEN.fullmatch(name):
            raise _malformed(HTTPStatus.BAD_REQUEST, "malformed header")
        request.headers.setdefault(name.lower(), []).append(value.strip(" \t"))
    if len(request.headers.get("host", [])) > 1:
        raise _malformed(HTTPStatus.BAD_REQUEST, "too many Host headers")
    return request


def check_request(request: UpgradeRequest, rules: WebSocketRules) -> None:
    """Raise FilterFailed, with the answer to send, if the request cannot be upgraded."""
    path = request.path.partition("?")[0]
    if path.endswith("/mqtt"):
        raise refusal(HTTPStatus.NOT_FOUND, "mqtt websocket endpoint not enabled")
    if request.method != "GET":
        raise refusal(HTTPStatus.METHOD_NOT_ALLOWED, "request method must be GET")
    key = request.first("sec-websocket-key")
    problems = (
        (not request.first("host"), "'Host' missing in request"),
        (not request.contains("upgrade", "websocket"), "invalid value for header 'Upgrade'"),
        (not request.contains("connection", "upgrade"), "invalid value for header 'Connection'"),
        (not key, "key missing"),
        (not _is_key(key), "invalid websocket key"),
        (not request.contains("sec-websocket-version", "13"), "invalid version"),
    )
    for wrong, reason in problems:
        if wrong:
            raise refusal(HTTPStatus.BAD_REQUEST, reason)
    if reason := _wrong_origin(request, rules):
        raise refusal(HTTPStatus.FORBIDDEN, f"origin not allowed: {reason}")
    if path.endswith("/leafnode"):
        # The reference server accepts the upgrade first, and then closes.
        reason = "Not configured to accept leaf node connections"
        raise FilterFailed(reason, acceptance(request, rules), level="ERR")


def acceptance(request: UpgradeRequest, rules: WebSocketRules) -> bytes:
    """Return the answer to a request that passed the checks."""
    key = request.first("sec-websocket-key")
    digest = hashlib.sha1(key.encode() + _ACCEPT_GUID, usedforsecurity=False).digest()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
    ]
    if rules.compression and request.asks_for_compression:
        lines.append(
            "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
            "client_no_context_takeover"
        )
    if request.is_unmasked:
        lines.append("Nats-No-Masking: true")
    lines += [f"{name}: {value}" for name, value in rules.extra_headers]
    return "\r\n".join([*lines, "", ""]).encode()


def refusal(status: HTTPStatus, reason: str) -> FilterFailed:
    """Return the failure that ends a connection which is not upgraded."""
    answer = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\n"
        f"Sec-Websocket-Version: 13\r\nX-Content-Type-Options: nosniff\r\n"
        f"Content-Length: {len(status.phrase) + 1}\r\nConnection: close\r\n\r\n{status.phrase}\n"
    ).encode()
    return FilterFailed(f"websocket handshake error: {reason}", answer, level="ERR")


def _malformed(status: HTTPStatus, reason: str) -> FilterFailed:
    """Return the failure that ends a connection whose request is not HTTP."""
    text = f"{status.value} {status.phrase}"
    answer = (
        f"HTTP/1.1 {text}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Connection: close\r\n\r\n{text}"
    ).encode()
    return FilterFailed(f"websocket: {reason}", answer)


def _wrong_origin(request: UpgradeRequest, rules: WebSocketRules) -> str:
    """Return why a page of this origin may not connect, or ""."""
    origin = request.first("origin") or request.first("sec-websocket-origin")
    if not origin or not (rules.same_origin or rules.allowed_origins):
        return ""
    asked = _origin_of(origin)
    if asked is None:
        return "not an address"
    scheme = "https" if rules.is_tls else "http"
    if rules.same_origin and asked != _origin_of(f"{scheme}://{request.first('host')}"):
        return "not same origin"
    allowed = {_origin_of(each) for each in rules.allowed_origins}
    return "not in the allowed list" if allowed and asked not in allowed else ""


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
    # A page that has no origin, such as a file, says "null".
    return (parts.scheme, parts.hostname or "", port) if parts.scheme else None
