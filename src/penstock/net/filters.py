"""What may lie between a socket and the protocol: bytes in, bytes out.

A filter turns what came from the socket into protocol bytes and the other way round; TLS is one,
WebSocket another, and they stack. It never touches the socket itself.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Protocol

READ_BYTES = 65_536
"""Plain bytes taken from a decrypted stream at a time."""


class FilterFailed(Exception):
    """The peer's bytes cannot be understood; the connection must end. `farewell` is sent first."""

    def __init__(self, reason: str, farewell: bytes = b"") -> None:
        super().__init__(reason)
        self.farewell = farewell


class TlsHandshakeFailed(FilterFailed):
    """There is no encrypted stream, and there will be none; `is_probe` where nobody tried."""

    def __init__(self, reason: str, farewell: bytes = b"", *, is_probe: bool = False) -> None:
        super().__init__(reason, farewell)
        self.is_probe = is_probe


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

    def farewell(self) -> bytes:
        """Give what is to be sent before the connection ends."""
        ...


class TlsFilter:
    """TLS on the server's side, over memory buffers."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._begun = False
        self._ready = False

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
        # It ends where more must come, or where the peer said that nothing more will.
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while part := self.tls.read(READ_BYTES):
                parts.append(part)
        return b"".join(parts)

    def outgoing(self, data: bytes) -> bytes:
        """Encrypt."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.tls.write(rest) :]
        return self._out.read()

    def farewell(self) -> bytes:
        """Say that the encrypted stream ends here."""
        with contextlib.suppress(ssl.SSLError):
            self.tls.unwrap()
        return self._out.read()


def _told(error: ssl.SSLError) -> str:
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "client didn't provide a certificate"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"failed to verify certificate: {error.verify_message}"
    return (error.reason or "broken").replace("_", " ").lower()
