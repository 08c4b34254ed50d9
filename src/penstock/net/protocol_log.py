"""The protocol in the log: one line an operation, as nats-server -V writes it.

    127.0.0.1:4711 - cid:5 - <<- [PUB orders 5]
    127.0.0.1:4711 - cid:5 - <<- MSG_PAYLOAD: ["hello"]
    127.0.0.1:4712 - cid:6 - ->> [MSG orders 1 5]

A tracer stands between a connection's bytes and the compiled link, and only while tracing is on:
the bytes then pass through Python one operation at a time, so that what an operation causes is
logged right behind it. Invariants: the bytes themselves are never changed or kept back, and what
authenticates a client is masked.

One tracer belongs to one connection; the event loop's thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.text.quoting import quoted_bytes

if TYPE_CHECKING:
    from penstock.net.channel import Channel
    from penstock.net.host import ConnectionLimits

_LINE_SPARE_BYTES = 64
"""What a line may have besides its arguments before it is too long to be logged."""

_CONTROL = frozenset((b"CONNECT", b"SUB", b"UNSUB", b"PING", b"PONG", b"INFO", b"-ERR"))
_PUBLISH = {b"PUB": 1, b"HPUB": 2}
_DELIVERY = {b"MSG": 1, b"HMSG": 2}
_SIZE = re.compile(rb"[0-9]{1,18}")
_MASK = b"[REDACTED]"
_SECRETS = (
    # Keys that begin like these, and their values; then keys that are exactly these.
    re.compile(rb'"?\s*(?:auth_token\S*?|pass\S*?)"?\s*[:=]\s*"?([^",\r\n}]*)'),
    re.compile(rb'(?:^|[^A-Za-z0-9_])"?\s*(?:proxy_sig|nkey|sig|jwt)"?\s*[:=]\s*"?([^",\r\n}]*)'),
)


def without_secrets(text: bytes) -> bytes:
    """Return a CONNECT's arguments with passwords, tokens, keys and signatures masked."""
    for pattern in _SECRETS:
        text = pattern.sub(_masked, text)
    return text


def _masked(found: re.Match[bytes]) -> bytes:
    start, end = found.span(1)
    whole = found.group()
    return whole[: start - found.start()] + _MASK + whole[end - found.start() :]


def shown_payload(payload: bytes, headers_size: int, limits: ConnectionLimits) -> str:
    """Return what the log shows of a payload, headers included; "" for nothing."""
    shown = payload
    if limits.trace_headers:
        # The empty line that ends headers is not shown.
        shown = payload[: max(headers_size - 4, 0)]
    most = limits.max_traced_msg_len
    if 0 < most < len(shown):
        return f'MSG_PAYLOAD: [{quoted_bytes(shown[:most])[:-1]}..."]'
    return f"MSG_PAYLOAD: [{quoted_bytes(shown)}]" if shown else ""


class Tracer:
    """Logs what one connection receives and sends; see the module."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._held = bytearray()
        # Bytes of a payload, and of the line end behind it, that are still to come.
        self._payload_left = 0
        self._headers_size = 0

    def tell(self, direction: str, text: bytes) -> None:
        """Log one operation."""
        shown = text.decode("utf-8", "backslashreplace")
        self._log(f"{direction} [{shown}]")

    def _log(self, text: str) -> None:
        self._channel.host.log("TRC", f"{self._channel} - {text}")

    def _tell_payload(self, direction: str, payload: bytes, headers_size: int) -> None:
        shown = shown_payload(payload, headers_size, self._channel.host.limits)
        if shown:
            self._log(f"{direction} {shown}")

    # Coming in

    def incoming(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes in parts that end where operations do, each after it was logged."""
        at = 0
        while at < len(data):
            if self._payload_left:
                part = data[at : at + self._payload_left]
                self._take_payload(part)
            else:
                end = data.find(b"\n", at)
                part = data[at:] if end < 0 else data[at : end + 1]
                self._take_line(part, is_whole=end >= 0)
            at += len(part)
            yield part

    def _take_payload(self, part: bytes) -> None:
        self._held += part
        self._payload_left -= len(part)
        if not self._payload_left:
            self._tell_payload("<<-", bytes(self._held[:-2]), self._headers_size)
            self._held.clear()

    def _take_line(self, part: bytes, *, is_whole: bool) -> None:
        self._held += part
        # Of a longer line nothing will come: the link refuses it.
        is_too_long = len(self._held) > self._channel.max_control_line + _LINE_SPARE_BYTES
        if is_whole or is_too_long:
            line = bytes(self._held).rstrip(b"\r\n")
            self._held.clear()
            if not is_too_long:
                self._take_operation(line)

    def _take_operation(self, line: bytes) -> None:
        words = line.split(None, 1)
        name = words[0].upper() if words else b""
        arguments = words[1] if len(words) > 1 else b""
        if name == b"CONNECT":
            arguments = without_secrets(arguments)
        if name in _CONTROL or name in _PUBLISH:
            self.tell("<<-", b" ".join(filter(None, (name, arguments))))
        if name in _PUBLISH:
            sizes = _sizes(arguments.split(), _PUBLISH[name])
            if sizes is not None:
                self._headers_size, size = sizes
                self._payload_left = size + 2

    # Going out

    def outgoing(self, data: bytes) -> None:
        """Log operations for the client; `data` holds whole ones."""
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            at = end + 2
            name, _, rest = line.partition(b" ")
            if name in _DELIVERY:
                self.tell("->>", line)
                sizes = _sizes(rest.split(), _DELIVERY[name])
                assert sizes is not None, "the server wrote it"
                headers_size, size = sizes
                self._tell_payload("->>", data[at : at + size], headers_size)
                at += size + 2
            elif name == b"-ERR":
                self.tell("->>", b"-ERR " + rest[1:-1])
            elif name in (b"PING", b"PONG", b"+OK"):
                self.tell("->>", name.removeprefix(b"+"))


def _sizes(words: list[bytes], count: int) -> tuple[int, int] | None:
    """Return the sizes of headers and of the whole payload; None if they cannot be read."""
    sizes = words[-count:]
    if len(words) <= count or not all(_SIZE.fullmatch(word) for word in sizes):
        return None
    return (int(sizes[0]) if count > 1 else 0), int(sizes[-1])
