"""Filters between a socket and the protocol, bytes in and bytes out; TLS is one of them.

A filter turns what came from the socket into protocol bytes and the other way round. TLS is here,
WebSocket in `net.websocket`; they stack. A filter never touches the socket itself.

One filter belongs to one connection; the event loop's thread. Called by `net.channel`.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Protocol

from penstock.limits import TLS_READ_BYTES
from penstock.net.host import ClosedReason


class FilterFailed(Exception):
    """No more bytes of the peer can be taken; the connection must end.

    `before` are protocol bytes that came in time, and `farewell` is sent first. The log has it at
    `level`, and monitoring that it was `closed` for this reason.
    """

    def __init__(
        self,
        reason: str,
        farewell: bytes = b"",
        *,
        level: str = "DBG",
        closed: ClosedReason = ClosedReason.READ_ERROR,
    ) -> None:
        super().__init__(reason)
        self.before = b""
        self.farewell = farewell
        self.level = level
        self.closed = closed


class TlsHandshakeFailed(FilterFailed):
    """There will be no encrypted stream; `is_probe` if the peer did not try to make one."""

    def __init__(self, reason: str, farewell: bytes = b"", *, is_probe: bool = False) -> None:
        level = "DBG" if is_probe else "ERR"
        closed = ClosedReason.TLS_HANDSHAKE_ERROR
        super().__init__(f"TLS handshake error: {reason}", farewell, level=level, closed=closed)


TLS_HANDSHAKE_RECORD = b"\x16"
"""The first byte of a client that speaks TLS."""


class Filter(Protocol):
    """One layer between the socket and the protocol."""

    @property
    def ready(self) -> bool:
        """True if the handshake is done."""
        ...

    @property
    def has_more(self) -> bool:
        """True if bytes that came wait for a turn of their own: `incoming(b"")`."""
        ...

    def incoming(self, data: bytes) -> tuple[bytes, bytes]:
        """Return (protocol bytes, bytes to send back) of the socket's; raise FilterFailed."""
        ...

    def outgoing(self, data: bytes) -> bytes:
        """Return protocol bytes as bytes for the socket."""
        ...

    def farewell(self, reason: ClosedReason) -> bytes:
        """Return what is to be sent before the connection ends."""
        ...


class TlsFilter:
    """TLS on the server's side, over memory buffers."""

    has_more = False

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        # The peer has ended its side, and may wait for the server to end the other.
        self.ended = False
        self._begun = False
        self._ready = False
        self._is_disowned = False

    @property
    def ready(self) -> bool:
        """True if the handshake is done."""
        return self._ready

    def incoming(self, data: bytes) -> tuple[bytes, bytes]:
        """Decrypt, and carry the handshake forward while it lasts; see `Filter`."""
        if not self._begun:
            self._begun = True
            if data[:1] != TLS_HANDSHAKE_RECORD:
                reason = "tls: first record does not look like a TLS handshake"
                raise TlsHandshakeFailed(reason, is_probe=True)
        self._in.write(data)
        try:
            if not self._ready:
                self.tls.do_handshake()
                self._ready = True
            return self._read(), self._out.read()
        except ssl.SSLWantReadError:
            return b"", self._out.read()
        except ssl.SSLError as error:
            kind = FilterFailed if self._ready else TlsHandshakeFailed
            raise kind(f"tls: {_told(error)}", self._out.read()) from None

    def _read(self) -> bytes:
        parts = []
        try:
            while part := self.tls.read(TLS_READ_BYTES):
                parts.append(part)
                if not self._in.pending and not self.tls.pending():
                    # Asking once more would cost an exception.
                    return b"".join(parts)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)

    def outgoing(self, data: bytes) -> bytes:
        """Encrypt."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.tls.write(rest) :]
        return self._out.read()

    def disown(self) -> None:
        """Let no client resume this session: TLS forgets one that ends without a farewell."""
        self._is_disowned = True

    def farewell(self, reason: ClosedReason) -> bytes:
        """Return the bytes that end the encrypted stream."""
        if self._is_disowned:
            return b""
        with contextlib.suppress(ssl.SSLError):
            self.tls.unwrap()
        return self._out.read()


def _told(error: ssl.SSLError) -> str:
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "client didn't provide a certificate"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"failed to verify certificate: {error.verify_message}"
    return (error.reason or "broken").replace("_", " ").lower()
