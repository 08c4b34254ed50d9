"""The PROXY protocol's header, versions 1 and 2: whose connection a load balancer passes on.

    PROXY TCP4 192.0.2.1 198.51.100.1 4711 4222\\r\\n              version 1, a line of text

    +--------------+---------+--------+----------+-----------------------------------+
    | signature 12 | 2 | cmd | family | size u16 | source, target, ports, and others |   version 2
    +--------------+---------+--------+----------+-----------------------------------+

Numbers are big-endian. A balancer that speaks for itself (LOCAL, UNKNOWN) names nobody. What does
not begin like a header is none: a client may come without a balancer. Pure.
"""

from __future__ import annotations

import ipaddress
import re

import msgspec

from penstock.errors import FormatError

LINE_BYTES_MAX = 107
"""Of version 1, its line end counted: what the longest addresses take."""

HEADER_BYTES_MAX = 16 + 0xFFFF
"""Of version 2: its size field has 16 bits."""

_TEXT_START = b"PROXY "
_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_INVALID = "invalid PROXY protocol header"
_UNSUPPORTED = "unsupported PROXY protocol feature"
_PORT = re.compile(r"[0-9]{1,18}", re.ASCII)


class ProxyHeader(msgspec.Struct, frozen=True):
    """A header of `size` bytes, 0 for none at all; `ip` is None where it names nobody."""

    size: int
    ip: str | None = None
    port: int = 0


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Read what a connection begins with; None where more must come. Raises FormatError."""
    start = data[: len(_TEXT_START)]
    if _TEXT_START.startswith(start):
        return _read_line(data) if start == _TEXT_START else None
    if not _SIGNATURE.startswith(start):
        return ProxyHeader(0)
    if not _SIGNATURE.startswith(data[: len(_SIGNATURE)]):
        raise FormatError(f"{_INVALID}: invalid signature")
    return _read_binary(data) if len(data) >= 16 else None


def _read_line(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, LINE_BYTES_MAX)
    if end < 0:
        if len(data) < LINE_BYTES_MAX:
            return None
        raise FormatError(f"{_INVALID}: v1 line too long")
    words = data[len(_TEXT_START) : end].decode("latin-1").split()
    if words[:1] == ["UNKNOWN"]:
        return ProxyHeader(end + 2)
    if len(words) != 5:
        raise FormatError(f"{_INVALID}: invalid v1 format")
    protocol, source, target = words[:3]
    ip = _address(source)
    _address(target)
    ports = [_port(words[3], "source"), _port(words[4], "dest")]
    _check_protocol(protocol, ":" in source, ":" in target)
    return ProxyHeader(end + 2, ip, ports[0])


def _address(text: str) -> str:
    try:
        return _plain(ipaddress.ip_address(text))
    except ValueError:
        raise FormatError(f"{_INVALID}: invalid address") from None


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Write an address; one of IPv4 within IPv6 as what it is."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _port(text: str, whose: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 0xFFFF:
        raise FormatError(f"invalid {whose} port")
    return int(text)


def _check_protocol(protocol: str, source_is_v6: bool, target_is_v6: bool) -> None:
    if protocol == "TCP4" and (source_is_v6 or target_is_v6):
        raise FormatError(f"{_INVALID}: TCP4 with IPv6 address")
    if protocol == "TCP6" and not (source_is_v6 and target_is_v6):
        raise FormatError(f"{_INVALID}: TCP6 with IPv4 address")
    if protocol not in ("TCP4", "TCP6"):
        raise FormatError(f"{_INVALID}: invalid protocol")


def _read_binary(data: bytes) -> ProxyHeader | None:
    version, command = data[12] & 0xF0, data[12] & 0x0F
    family, transport = data[13] & 0xF0, data[13] & 0x0F
    rest_size = int.from_bytes(data[14:16], "big")
    size = 16 + rest_size
    if version != 0x20:
        raise FormatError(f"{_INVALID}: invalid version 0x{version:02x}")
    if command > 1:
        raise FormatError(f"unknown PROXY protocol command: 0x{command:02x}")
    if command == 1 and transport != 1:
        raise FormatError(f"{_UNSUPPORTED}: only STREAM protocol supported")
    if command == 1 and family not in (0x00, 0x10, 0x20):
        raise FormatError(f"{_UNSUPPORTED}: unsupported address family 0x{family:02x}")
    names_somebody = command == 1 and family != 0
    width = 4 if family == 0x10 else 16
    if names_somebody and rest_size < 2 * width + 4:
        kind = "IPv4" if width == 4 else "IPv6"
        raise FormatError(f"{kind} address data too short: {rest_size} bytes")
    if len(data) < size:
        return None
    if not names_somebody:
        return ProxyHeader(size)
    ip = _plain(ipaddress.ip_address(data[16 : 16 + width]))
    ports_at = 16 + 2 * width
    return ProxyHeader(size, ip, int.from_bytes(data[ports_at : ports_at + 2], "big"))
