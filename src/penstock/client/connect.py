"""The way to a server: the connection, TLS if it is wanted, and the log-in.

    sock, wire, info = open_wire(parse_url("tls://127.0.0.1"), options)

Invariants: a returned connection is logged in, and a failed one is closed. Errors name the server,
and never a secret.

Blocking; called by `client` alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.client.credentials import Address, Credentials
from penstock.client.websocket import WebSocketStream
from penstock.client.wire import Wire
from penstock.errors import AuthorizationError, CannotConnect, FormatError, UsageError

Connected = socket.socket | WebSocketStream
"""What a connection's bytes go through."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The files for TLS: trusted authorities ("" for the system's), certificate and key."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    is_first: bool = False
    """The handshake comes before INFO, as servers with `handshake_first` want it."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How to connect."""

    credentials: Credentials
    tls: ClientTls | None
    name: str
    timeout_s: float


def open_wire(address: Address, options: ConnectOptions) -> tuple[Connected, Wire, dict[str, Any]]:
    """Connect and log in; return the socket, its wire and the server's INFO.

    Raise CannotConnect, AuthorizationError, UsageError, FormatError, or TimeoutError if the server
    does not answer in time.
    """
    sock: Connected
    with _told(address):
        sock = opened = socket.create_connection(
            (address.host, address.port), timeout=options.timeout_s
        )
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with _told(address):
            wire = Wire(opened.fileno())
            if address.is_websocket:
                if address.is_tls:
                    sock = opened = _secured(opened, address, options)
                sock = WebSocketStream.upgrade(opened, address)
                wire.secure(sock)
            else:
                set_timeout(opened, options.timeout_s)
                if options.tls is not None and options.tls.is_first:
                    sock = _secured(opened, address, options)
                    wire.secure(sock)
            info = _read_info(wire)
            if sock is opened and _wants_tls(info, address, options):
                sock = _secured(opened, address, options)
                wire.secure(sock)
            _log_in(wire, info, address, options)
    except BaseException:
        sock.close()
        raise
    return sock, wire, info


def set_timeout(sock: Connected, timeout_s: float | None) -> None:
    """Set how long a read or a write may wait; None for ever."""
    if isinstance(sock, ssl.SSLSocket | WebSocketStream):
        sock.settimeout(timeout_s)
        return
    # The compiled side reads the descriptor itself, so the timeout must be the kernel's. For the
    # kernel a time of 0 means for ever.
    sock.settimeout(None)
    micros = 0 if timeout_s is None else max(int(timeout_s * 1_000_000), 1)
    value = b"".join(part.to_bytes(8, "little") for part in divmod(micros, 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


@contextlib.contextmanager
def _told(address: Address) -> Iterator[None]:
    # Turn the system's errors into errors that name the server.
    host, port = address.host, address.port
    try:
        yield
    except TimeoutError:
        raise TimeoutError(f"{address} did not answer in time") from None
    except socket.gaierror:
        raise CannotConnect(host, port, "no such host") from None
    except ssl.SSLCertVerificationError as error:
        reason = f"its certificate is not trusted: {error.verify_message}"
        raise CannotConnect(host, port, reason) from None
    except ssl.SSLError as error:
        reason = f"TLS failed: {(error.reason or 'broken off').replace('_', ' ').lower()}"
        raise CannotConnect(host, port, reason) from None
    except OSError as error:
        reason = str(error) if error.errno is None else os.strerror(error.errno).lower()
        raise CannotConnect(host, port, reason) from None


def _read_info(wire: Wire) -> dict[str, Any]:
    try:
        info = json.loads(wire.wait_info())
    except ValueError as error:
        raise FormatError(f"the server's INFO is not JSON: {error}") from None
    if not isinstance(info, dict):
        raise FormatError("the server's INFO is not a JSON object")
    return info


def _wants_tls(info: dict[str, Any], address: Address, options: ConnectOptions) -> bool:
    if info.get("tls_required"):
        return True
    is_wanted = address.is_tls or options.tls is not None
    if is_wanted and not info.get("tls_available"):
        raise UsageError(f"{address} does not speak TLS")
    return is_wanted


def _secured(sock: socket.socket, address: Address, options: ConnectOptions) -> ssl.SSLSocket:
    tls = options.tls or ClientTls()
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except (OSError, ValueError) as error:
        files = ", ".join(each for each in (tls.ca_file, tls.cert_file, tls.key_file) if each)
        raise UsageError(f"cannot use {files} for TLS: {error}") from None
    set_timeout(sock, None)
    sock.settimeout(options.timeout_s)
    return context.wrap_socket(sock, server_hostname=address.host)


def _log_in(wire: Wire, info: dict[str, Any], address: Address, options: ConnectOptions) -> None:
    # The log-in is accepted when the server has answered the PING behind CONNECT.
    known = options.credentials or address.credentials
    nonce = info.get("nonce", "")
    if known.seed and not (isinstance(nonce, str) and nonce):
        raise UsageError(f"{address} asks for no signature: it has no users with nkeys or JWTs")
    fields = {
        "verbose": False,
        "pedantic": False,
        "lang": "python-penstock",
        "version": "0.1",
        "name": options.name,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "echo": True,
        **known.connect_fields(nonce),
    }
    wire.write(b"CONNECT " + json.dumps(fields).encode() + b"\r\nPING\r\n")
    try:
        wire.send()
        wire.wait_pong(1)
    except ConnectionError:
        words = wire.errors[-1].decode(errors="replace") if wire.errors else ""
        if words.startswith("Auth"):
            raise AuthorizationError(words) from None
        raise
