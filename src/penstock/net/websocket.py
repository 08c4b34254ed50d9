"""WebSocket on the server's side: the upgrade request, then frames, as a filter of a connection.

Messages are handed on as their bytes come, whatever the size of a frame. A compressed one
(permessage-deflate without context takeover) is gathered first, and what it expands to is bounded
by the largest payload. Control frames are answered here. The connection ends with the status and
the words of the reference server.

One filter belongs to one connection; the event loop's thread.
"""

from __future__ import annotations

import zlib
from http import HTTPStatus

from penstock.limits import (
    WEBSOCKET_BROWSER_FRAME_BYTES_MAX,
    WEBSOCKET_COMPRESS_ABOVE_BYTES,
    WEBSOCKET_PACKED_BYTES_MAX,
    WEBSOCKET_PACKED_PAYLOADS_MAX,
    WEBSOCKET_REQUEST_BYTES_MAX,
)
from penstock.net.host import ClosedReason
from penstock.net.tls import FilterFailed
from penstock.net.websocket_upgrade import (
    UpgradeRequest,
    WebSocketRules,
    acceptance,
    check_request,
    parse_request,
    refusal,
)
from penstock.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    CONTROL_BYTES_MAX,
    PING,
    PONG,
    FrameReader,
    frame_header,
)

_HEAD_END = b"\r\n\r\n"
_SYNC_TAIL = b"\x00\x00\xff\xff"
# An empty last block besides, so that the end of the data can be told from a cut.
_FINAL_TAIL = _SYNC_TAIL + b"\x01\x00\x00\xff\xff"

_NORMAL = 1000
_GOING_AWAY = 1001
_PROTOCOL_ERROR = 1002
_INVALID_DATA = 1007
_POLICY = 1008
_TOO_BIG = 1009
_INTERNAL = 1011
_STATUS_OF = {
    ClosedReason.CLIENT_CLOSED: _NORMAL,
    ClosedReason.AUTHENTICATION_TIMEOUT: _POLICY,
    ClosedReason.AUTHENTICATION_VIOLATION: _POLICY,
    ClosedReason.SLOW_PENDING_BYTES: _POLICY,
    ClosedReason.SLOW_WRITE_DEADLINE: _POLICY,
    ClosedReason.MAX_ACCOUNT_CONNECTIONS: _POLICY,
    ClosedReason.MAX_CONNECTIONS: _POLICY,
    ClosedReason.MAX_CONTROL_LINE: _POLICY,
    ClosedReason.MAX_SUBSCRIPTIONS: _POLICY,
    ClosedReason.MISSING_ACCOUNT: _POLICY,
    ClosedReason.AUTHENTICATION_EXPIRED: _POLICY,
    ClosedReason.CREDENTIALS_REVOKED: _POLICY,
    ClosedReason.PARSE_ERROR: _PROTOCOL_ERROR,
    ClosedReason.PROTOCOL_VIOLATION: _PROTOCOL_ERROR,
    ClosedReason.BAD_CLIENT_PROTOCOL: _PROTOCOL_ERROR,
    ClosedReason.MAX_PAYLOAD: _TOO_BIG,
    ClosedReason.WRITE_ERROR: _GOING_AWAY,
    ClosedReason.READ_ERROR: _GOING_AWAY,
    ClosedReason.STALE_CONNECTION: _GOING_AWAY,
    ClosedReason.SERVER_SHUTDOWN: _GOING_AWAY,
}


class WebSocketFilter:
    """WebSocket between a socket and the protocol; see the module."""

    def __init__(self, rules: WebSocketRules) -> None:
        self._rules = rules
        self.request: UpgradeRequest | None = None
        """What the client asked for, when it was accepted."""

        self._head = bytearray()
        self._reader = FrameReader(masked=True, compressing=False)
        self._compress = False
        self._frame_bytes_max = 0
        self._packed = bytearray()
        self._packed_bytes_max = min(
            rules.payload_max * WEBSOCKET_PACKED_PAYLOADS_MAX, WEBSOCKET_PACKED_BYTES_MAX
        )
        self._close_sent = False

    @property
    def ready(self) -> bool:
        """True if the upgrade is done."""
        return self.request is not None

    # Coming in

    def incoming(self, data: bytes) -> tuple[bytes, bytes]:
        """Return (protocol bytes, bytes to send back) of the socket's; raise FilterFailed."""
        if self.request is None:
            return b"", self._upgrade(data)
        plain: list[bytes] = []
        answers: list[bytes] = []
        failure = self._take(data, plain, answers)
        if failure is not None:
            failure.before = b"".join(plain)
            failure.farewell = b"".join(answers) + failure.farewell
            raise failure
        return b"".join(plain), b"".join(answers)

    def _take(self, data: bytes, plain: list[bytes], answers: list[bytes]) -> FilterFailed | None:
        for opcode, payload, compressed, final in self._reader.feed(data):
            if opcode == PING:
                answers.append(frame_header(PONG, len(payload)) + payload)
            elif opcode == CLOSE:
                return self._closed_by_client(payload)
            elif opcode == BINARY and not compressed:
                plain.append(payload)
            elif opcode == BINARY and (reason := self._expand(payload, final, plain)):
                return _failed(reason)
        violation = self._reader.violation
        return self._violated(violation) if violation else None

    def _expand(self, payload: bytes, final: bool, plain: list[bytes]) -> str:
        """Add a piece of a compressed message; return what is wrong with it, or ""."""
        self._packed += payload
        if len(self._packed) > self._packed_bytes_max:
            return "maximum payload exceeded"
        if not final:
            return ""
        packed = self._packed + _FINAL_TAIL
        self._packed = bytearray()
        expander = zlib.decompressobj(-zlib.MAX_WBITS)
        payload_max = self._rules.payload_max
        try:
            expanded = expander.decompress(packed, payload_max + 1)
        except zlib.error:
            return "compressed data that cannot be read"
        plain.append(expanded[:payload_max])
        if len(expanded) > payload_max:
            return "maximum payload exceeded"
        return "" if expander.eof else "unexpected end of compressed data"

    def _closed_by_client(self, payload: bytes) -> FilterFailed:
        if len(payload) == 1:
            return self._violated("close frame payload cannot be 1 byte")
        said = payload
        if payload:
            status = int.from_bytes(payload[:2], "big")
            if not _may_be_sent(status):
                return self._violated(f"invalid close status code {status}")
            try:
                payload[2:].decode()
            except UnicodeDecodeError:
                said = _INVALID_DATA.to_bytes(2, "big") + b"invalid utf8 body in close frame"
        self._close_sent = True
        answer = frame_header(CLOSE, len(said)) + said
        reason = "the client closed the WebSocket"
        return FilterFailed(reason, answer, closed=ClosedReason.CLIENT_CLOSED)

    def _violated(self, reason: str) -> FilterFailed:
        return _failed(reason, self._close_frame(_PROTOCOL_ERROR, reason))

    def _close_frame(self, status: int, reason: str) -> bytes:
        if self._close_sent:
            return b""
        self._close_sent = True
        text = status.to_bytes(2, "big") + reason.encode()[: CONTROL_BYTES_MAX - 2]
        return frame_header(CLOSE, len(text)) + text

    # Going out

    def outgoing(self, data: bytes) -> bytes:
        """Return protocol bytes in frames."""
        if self._compress and len(data) > WEBSOCKET_COMPRESS_ABOVE_BYTES:
            packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
            packed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
            return self._compressed(packed.removesuffix(_SYNC_TAIL))
        size_max = self._frame_bytes_max or len(data)
        if len(data) <= size_max:
            return frame_header(BINARY, len(data)) + data
        parts = (data[at : at + size_max] for at in range(0, len(data), size_max))
        return b"".join(frame_header(BINARY, len(part)) + part for part in parts)

    def _compressed(self, packed: bytes) -> bytes:
        size_max = self._frame_bytes_max
        if not size_max or len(packed) <= size_max or self._is_whole_preferred:
            return frame_header(BINARY, len(packed), compressed=True) + packed
        frames = []
        for at in range(0, len(packed), size_max):
            part = packed[at : at + size_max]
            header = frame_header(
                BINARY if at == 0 else CONTINUATION,
                len(part),
                compressed=at == 0,
                final=at + size_max >= len(packed),
            )
            frames.append(header + part)
        return b"".join(frames)

    @property
    def _is_whole_preferred(self) -> bool:
        # Safari does not put compressed messages together that come in parts.
        return self.request is not None and self.request.is_safari

    def farewell(self, reason: ClosedReason) -> bytes:
        """Return the frame that ends the connection with its reason."""
        return self._close_frame(_STATUS_OF.get(reason, _INTERNAL), reason.value)

    # The upgrade

    def _upgrade(self, data: bytes) -> bytes:
        # What was looked at before is not looked at again, but for an end that is cut.
        seen = max(len(self._head) - len(_HEAD_END) + 1, 0)
        self._head += data
        end = self._head.find(_HEAD_END, seen)
        if (end if end >= 0 else len(self._head)) > WEBSOCKET_REQUEST_BYTES_MAX:
            raise refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request too long")
        if end < 0:
            return b""
        request = parse_request(bytes(self._head[:end]))
        check_request(request, self._rules)
        if len(self._head) > end + len(_HEAD_END):
            reason = "client sent data before handshake is complete"
            raise FilterFailed(f"websocket handshake error: {reason}", level="ERR")
        self._head.clear()
        self._compress = self._rules.compression and request.asks_for_compression
        self._reader = FrameReader(masked=not request.is_unmasked, compressing=self._compress)
        if request.is_browser:
            self._frame_bytes_max = WEBSOCKET_BROWSER_FRAME_BYTES_MAX
        self.request = request
        return acceptance(request, self._rules)


def _failed(reason: str, farewell: bytes = b"") -> FilterFailed:
    return FilterFailed(f"read error: {reason}", farewell, level="ERR")


def _may_be_sent(status: int) -> bool:
    """Return True if a client may close with this status (RFC 6455, 7.4)."""
    reserved = status in (1004, 1005, 1006, 1015) or 1016 <= status <= 2999
    return 1000 <= status < 5000 and not reserved
