"""What a client connection begins with: a load balancer's header, then INFO and CONNECT.

CONNECT is read as the reference server reads it: keys in any case, unknown ones ignored, absent
ones keep what they had (at first `verbose`, `pedantic` and `echo` are true), a wrong type refuses
the document. What is not UTF-8 becomes replacement characters.

The PROXY protocol's header says whose connection a load balancer passes on. Numbers are big-endian:

    PROXY TCP4 192.0.2.1 198.51.100.1 4711 4222\\r\\n              version 1, a line of text

    +--------------+---------+--------+----------+-----------------------------------+
    | signature 12 | 2 | cmd | family | size u16 | source, target, ports, and others |   version 2
    +--------------+---------+--------+----------+-----------------------------------+

A balancer that speaks for itself (LOCAL, UNKNOWN) names no client. A connection that does not begin
like a header has none: a client may come without a balancer.

Pure; any thread. Called by `net.opening`, `net.connection` and the server.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from penstock.errors import FormatError


class ConnectOptions(msgspec.Struct):
    """What a client asks for."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    tls_required: bool = False
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = ""
    auth_token: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    account: str = ""
    new_account: bool = False
    remote_account: str = ""
    proxy_sig: str = ""

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"ConnectOptions(name={self.name!r}, lang={self.lang!r}, user={self.user!r})"


_TYPES: dict[str, type] = {"bool": bool, "int": int, "str": str}
# What each key sets, and of which type it is.
_KEYS = {
    "pass" if name == "password" else name: (name, _TYPES[kind])
    for name, kind in ConnectOptions.__annotations__.items()
}

# Only servers use these keys, but a wrong type is refused.
_OBJECTS = frozenset(("import", "export"))
_INT_MAX = 2**63 - 1


def parse_connect(text: bytes, before: ConnectOptions | None = None) -> ConnectOptions:
    """Read CONNECT's document; what it leaves out is as it was `before`. Raise FormatError."""
    options = ConnectOptions() if before is None else replace(before)
    for key, value in parse_object(text, "CONNECT").items():
        if key.lower() in _OBJECTS and not isinstance(value, dict | None):
            raise FormatError(f"CONNECT: {key} must be an object")
        known = _KEYS.get(key.lower())
        if known is None or value is None:
            continue
        name, wanted = known
        if type(value) is not wanted or not _fits(value):
            raise FormatError(f"CONNECT: {key} must be a {wanted.__name__}")
        setattr(options, name, _without_surrogates(value))
    return options


def parse_object(text: bytes, operation: str) -> dict[str, Any]:
    """Read the JSON object of an operation; null is an empty one. Raise FormatError."""
    try:
        document = json.loads(text.decode("utf-8", "replace"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{operation} is not JSON: {error}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise FormatError(f"{operation} is not a JSON object")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _fits(value: object) -> bool:
    return not isinstance(value, int) or -_INT_MAX - 1 <= value <= _INT_MAX


def _without_surrogates(value: object) -> object:
    # JSON can name half a character; nothing that is written later could hold it.
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


def encode_info(fields_in_order: dict[str, object]) -> bytes:
    """Return the INFO line; fields that are None are left out."""
    document = {key: value for key, value in fields_in_order.items() if value is not None}
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escaped)
    return b"INFO " + text.encode() + b" \r\n"


PROXY_LINE_BYTES_MAX = 107
"""A size of the protocol: version 1's line with the longest addresses, its end counted."""

PROXY_HEADER_BYTES_MAX = 16 + 0xFFFF
"""A size of the protocol: the size field of version 2 has 16 bits."""

_PROXY_TEXT = b"PROXY "
_PROXY_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_PROXY_INVALID = "invalid PROXY protocol header"
_PROXY_UNSUPPORTED = "unsupported PROXY protocol feature"
_PORT = re.compile(r"[0-9]{1,18}", re.ASCII)


class ProxyHeader(msgspec.Struct, frozen=True):
    """A header of `size` bytes, 0 for none; `ip` is None where it names no client."""

    size: int
    ip: str | None = None
    port: int = 0


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Return the header a connection begins with; None if more must come. Raise FormatError."""
    start = data[: len(_PROXY_TEXT)]
    if _PROXY_TEXT.startswith(start):
        return _read_proxy_line(data) if start == _PROXY_TEXT else None
    if not _PROXY_SIGNATURE.startswith(start):
        return ProxyHeader(0)
    if not _PROXY_SIGNATURE.startswith(data[: len(_PROXY_SIGNATURE)]):
        raise FormatError(f"{_PROXY_INVALID}: invalid signature")
    return _read_proxy_binary(data) if len(data) >= 16 else None


def _read_proxy_line(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, PROXY_LINE_BYTES_MAX)
    if end < 0:
        if len(data) < PROXY_LINE_BYTES_MAX:
            return None
        raise FormatError(f"{_PROXY_INVALID}: v1 line too long")
    words = data[len(_PROXY_TEXT) : end].decode("latin-1").split()
    if words[:1] == ["UNKNOWN"]:
        return ProxyHeader(end + 2)
    if len(words) != 5:
        raise FormatError(f"{_PROXY_INVALID}: invalid v1 format")
    protocol, source, target = words[:3]
    ip = _address(source)
    _address(target)
    ports = [_port(words[3], "source"), _port(words[4], "dest")]
    _check_proxy_protocol(protocol, ":" in source, ":" in target)
    return ProxyHeader(end + 2, ip, ports[0])


def _address(text: str) -> str:
    try:
        return _plain(ipaddress.ip_address(text))
    except ValueError:
        raise FormatError(f"{_PROXY_INVALID}: invalid address") from None


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return an address as text; one of IPv4 within IPv6 as IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _port(text: str, whose: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 0xFFFF:
        raise FormatError(f"invalid {whose} port")
    return int(text)


def _check_proxy_protocol(protocol: str, source_is_v6: bool, target_is_v6: bool) -> None:
    if protocol == "TCP4" and (source_is_v6 or target_is_v6):
        raise FormatError(f"{_PROXY_INVALID}: TCP4 with IPv6 address")
    if protocol == "TCP6" and not (source_is_v6 and target_is_v6):
        raise FormatError(f"{_PROXY_INVALID}: TCP6 with IPv4 address")
    if protocol not in ("TCP4", "TCP6"):
        raise FormatError(f"{_PROXY_INVALID}: invalid protocol")


def _read_proxy_binary(data: bytes) -> ProxyHeader | None:
    version, command = data[12] & 0xF0, data[12] & 0x0F
    family, transport = data[13] & 0xF0, data[13] & 0x0F
    rest_size = int.from_bytes(data[14:16], "big")
    size = 16 + rest_size
    if version != 0x20:
        raise FormatError(f"{_PROXY_INVALID}: invalid version 0x{version:02x}")
    if command > 1:
        raise FormatError(f"unknown PROXY protocol command: 0x{command:02x}")
    if command == 1 and transport != 1:
        raise FormatError(f"{_PROXY_UNSUPPORTED}: only STREAM protocol supported")
    if command == 1 and family not in (0x00, 0x10, 0x20):
        raise FormatError(f"{_PROXY_UNSUPPORTED}: unsupported address family 0x{family:02x}")
    names_client = command == 1 and family != 0
    width = 4 if family == 0x10 else 16
    if names_client and rest_size < 2 * width + 4:
        kind = "IPv4" if width == 4 else "IPv6"
        raise FormatError(f"{kind} address data too short: {rest_size} bytes")
    if len(data) < size:
        return None
    if not names_client:
        return ProxyHeader(size)
    ip = _plain(ipaddress.ip_address(data[16 : 16 + width]))
    ports_at = 16 + 2 * width
    return ProxyHeader(size, ip, int.from_bytes(data[ports_at : ports_at + 2], "big"))
