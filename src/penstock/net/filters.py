"""What may lie between a socket and the protocol: bytes in, bytes out.

A filter turns what came from the socket into protocol bytes and the other way round; TLS is one,
WebSocket another, and they stack. It never touches the socket itself.
"""

from __future__ import annotations

import ssl
from typing import Protocol


class FilterFailed(Exception):
    """The peer's bytes cannot be understood; the connection must end. `farewell` is sent first."""

    def __init__(self, reason: str, farewell: bytes = b"") -> None:
        super().__init__(reason)
        self.farewell = farewell


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
        self._ready = False

    @property
    def ready(self) -> bool:
        """Tell whether the hand-shake is done."""
        return self._ready

    def incoming(self, data: bytes) -> tuple[bytes, bytes]:
        """Decrypt; carries the hand-shake forward while it lasts."""
        self._in.write(data)
        try:
            if not self._ready:
                self.tls.do_handshake()
                self._ready = True
            return self._read(), self._out.read()
        except ssl.SSLWantReadError:
            return b"", self._out.read()
        except ssl.SSLError as error:
            raise FilterFailed(f"TLS: {error.reason or error}", self._out.read()) from None

    def _read(self) -> bytes:
        parts = []
        try:
            while part := self.tls.read(65_536):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(parts)

    def outgoing(self, data: bytes) -> bytes:
        """Encrypt."""
        if data:
            self.tls.write(data)
        return self._out.read()

    def farewell(self) -> bytes:
        """Say that the encrypted stream ends here."""
        try:
            self.tls.unwrap()
        except ssl.SSLError:
            pass
        return self._out.read()
