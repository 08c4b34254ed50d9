"""WebSocket on the server's side: the upgrade request, then frames, as a filter of a connection.

Messages are handed on as their bytes come, whatever the size of a frame. A compressed one is
gathered and expanded first, `net.websocket_deflate`. Control frames are answered here. The
connection ends with the status and the words of the reference server.

Invariant: one call expands, and looks at, no more than a bounded part of what came; `has_more` says
that another call goes on with the rest.

One filter belongs to one connection; the event loop's thread.
"""

from __future__ import annotations

from collections import deque
from http import HTTPStatus

from penstock.limits import (
    WEBSOCKET_BROWSER_FRAME_BYTES_MAX,
    WEBSOCKET_COMPRESS_ABOVE_BYTES,
    WEBSOCKET_EXPANDED_BYTES_PER_TURN,
    WEBSOCKET_PIECE_COST_BYTES,
    WEBSOCKET_REQUEST_BYTES_MAX,
)
from penstock.net.host import ClosedReason
from penstock.net.tls import FilterFailed
from penstock.net.websocket_deflate import Expander, Packer
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

    def __init__(self, rules: WebSocketRules, packer: Packer | None = None) -> None:
        """`packer` compresses for all connections of a server; None for one of its own."""
        self._rules = rules
        self.request: UpgradeRequest | None = None
        """What the client asked for, when it was accepted."""

        self._head = bytearray()
        self._reader = FrameReader(masked=True, compressing=False)
        self._compress = False
        self._frame_bytes_max = 0
        # Pieces of frames that came and were not looked at yet.
        self._waiting: deque[tuple[int, bytes, bool, bool]] = deque()
        self._expander = Expander(rules.payload_max)
        self._packer = packer or Packer()
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
        self._waiting.extend(self._reader.feed(data))
        plain: list[bytes] = []
        answers: list[bytes] = []
        failure = self._take(plain, answers)
        if failure is not None:
            self._waiting.clear()
            failure.before = b"".join(plain)
            failure.farewell = b"".join(answers) + failure.farewell
            raise failure
        return b"".join(plain), b"".join(answers)

    @property
    def has_more(self) -> bool:
        """True if something that came waits for the next turn."""
        # What cannot be a frame is told behind what came before it.
        waits = bool(self._waiting) or self._expander.is_expanding
        return waits or bool(self._reader.violation)

    def _take(self, plain: list[bytes], answers: list[bytes]) -> FilterFailed | None:
        expander = self._expander
        left = WEBSOCKET_EXPANDED_BYTES_PER_TURN
        while left > 0:
            if expander.is_expanding:
                expanded, size = expander.expand(left)
                plain.append(expanded)
                left -= size
            elif self._waiting:
                failure = self._take_piece(*self._waiting.popleft(), plain, answers)
                if failure is not None:
                    return failure
                left -= WEBSOCKET_PIECE_COST_BYTES
            else:
                violation = self._reader.violation
                return self._violated(violation) if violation else None
            if expander.wrong:
                return _failed(expander.wrong)
        return None

    def _take_piece(
        self,
        opcode: int,
        payload: bytes,
        compressed: bool,
        final: bool,
        plain: list[bytes],
        answers: list[bytes],
    ) -> FilterFailed | None:
        if opcode == PING:
            answers.append(frame_header(PONG, len(payload)) + payload)
        elif opcode == CLOSE:
            return self._closed_by_client(payload)
        elif opcode == BINARY and compressed:
            self._expander.add(payload, final=final)
        elif opcode == BINARY:
            plain.append(payload)
        return None

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
            return self._compressed(self._packer.pack(data))
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
