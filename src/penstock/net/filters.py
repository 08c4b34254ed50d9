"""What may lie between a socket and the protocol: bytes in, bytes out.

A filter turns what came from the socket into protocol bytes and the other way round; TLS is one,
WebSocket another, and they stack. It never touches the socket itself.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Protocol

from penstock.net.closing import ClosedReason

READ_BYTES = 65_536
"""Plain bytes taken from a decrypted stream at a time."""


class FilterFailed(Exception):
    """No more bytes of the peer can be taken; the connection must end.

    `before` are protocol bytes that came in time, and `farewell` is sent first. The log is told
    at `level`, and monitoring that it was `closed` for this reason.
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
    """There is no encrypted stream, and there will be none; `is_probe` where nobody tried."""

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
        """Tell whether the hand-shake is done."""
        ...

    def incoming(self, data: bytes) -> tuple[bytes, bytes]:
        """Take bytes of the socket; give (protocol bytes, bytes to send back). Raises."""
        ...

    def outgoing(self, data: bytes) -> bytes:
        """Take protocol bytes; give the bytes for the socket."""
        ...

    def farewell(self, reason: ClosedReason) -> bytes:
        """Give what is to be sent before the connection ends."""
        ...


class TlsFilter:
    """TLS on the server's side, over memory buffers."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        # The peer said that nothing more will come; it may wait for the same word from us.
        self.ended = False
        self._begun = False
        self._ready = False
        self._is_disowned = False

    @property
    def ready(self) -> bool:
        """Tell whether the hand-shake is done."""
        return self._ready

    def incoming(self, data: bytes) -> tuple[bytes, bytes]:
        """Decrypt; carries the hand-shake forward while it lasts."""
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
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := self.tls.read(READ_BYTES):
                parts.append(part)
            self.ended = True
        return b"".join(parts)

    def outgoing(self, data: bytes) -> bytes:
        """Encrypt."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.tls.write(rest) :]
        return self._out.read()

    def disown(self) -> None:
        """Let nobody resume this session: TLS forgets one that ends without a farewell."""
        self._is_disowned = True

    def farewell(self, reason: ClosedReason) -> bytes:
        """Say that the encrypted stream ends here."""
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
