"""The PROXY protocol's header: whom it names, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.protocol.handshake import PROXY_HEADER_BYTES_MAX, ProxyHeader, read_proxy_header

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V4 = bytes([10, 0, 0, 1, 10, 0, 0, 2]) + (5555).to_bytes(2, "big") + b"\x10\x7e"
V6 = bytes(15) + b"\x01" + bytes(15) + b"\x02" + (5555).to_bytes(2, "big") + b"\x10\x7e"
LINE = b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 4222\r\n"

READ = [
    (LINE, "192.0.2.1", 4711),
    (b"PROXY TCP6 2001:db8::1 ::2 4711 4222\r\n", "2001:db8::1", 4711),
    (b"PROXY TCP6 ::ffff:1.2.3.4 ::2 4711 4222\r\n", "1.2.3.4", 4711),
    (b"PROXY UNKNOWN\r\n", None, 0),
    (b"PROXY UNKNOWN whatever it says\r\n", None, 0),
    (SIGNATURE + b"\x21\x11\x00\x0c" + V4, "10.0.0.1", 5555),
    (SIGNATURE + b"\x21\x11\x00\x10" + V4 + b"more", "10.0.0.1", 5555),
    (SIGNATURE + b"\x21\x21\x00\x24" + V6, "::1", 5555),
    (SIGNATURE + b"\x20\x00\x00\x00", None, 0),
    (SIGNATURE + b"\x20\x11\x00\x02ab", None, 0),
    (SIGNATURE + b"\x21\x01\x00\x02ab", None, 0),
]


@pytest.mark.parametrize(("header", "ip", "port"), READ)
def test_a_header_names_the_client(header: bytes, ip: str | None, port: int) -> None:
    assert read_proxy_header(header + b"CONNECT {}\r\n") == ProxyHeader(len(header), ip, port)


@pytest.mark.parametrize("header", [header for header, _, _ in READ])
def test_of_a_header_that_is_not_all_there_nothing_is_said(header: bytes) -> None:
    for size in range(len(header)):
        assert read_proxy_header(header[:size]) is None


@pytest.mark.parametrize(
    "data", [b"CONNECT {}\r\n", b"PUB a 0\r\n", b"\x16\x03\x01", b"\r\nPING\r\n"]
)
def test_what_begins_otherwise_is_no_header(data: bytes) -> None:
    assert read_proxy_header(data) == ProxyHeader(0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PROXY TCP4 x y 1 2\r\n", "invalid address"),
        (b"PROXY TCP4 ::1 ::2 1 2\r\n", "TCP4 with IPv6 address"),
        (b"PROXY TCP6 1.2.3.4 ::2 1 2\r\n", "TCP6 with IPv4 address"),
        (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", "invalid protocol"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n", "invalid source port"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 " + b"9" * 40 + b"\r\n", "invalid dest port"),
        (b"PROXY TCP4\r\n", "invalid v1 format"),
        (b"PROXY " + b"a" * 200, "v1 line too long"),
        (SIGNATURE[:8] + b"x" * 8, "invalid signature"),
        (SIGNATURE + b"\x31\x11\x00\x00", "invalid version 0x30"),
        (SIGNATURE + b"\x22\x11\x00\x00", "unknown PROXY protocol command: 0x02"),
        (SIGNATURE + b"\x21\x12\x00\x0c", "only STREAM protocol supported"),
        (SIGNATURE + b"\x21\x31\x00\x04", "unsupported address family 0x30"),
        (SIGNATURE + b"\x21\x11\x00\x04abcd", "IPv4 address data too short: 4 bytes"),
        (SIGNATURE + b"\x21\x21\x00\x0cabcd", "IPv6 address data too short: 12 bytes"),
    ],
)
def test_a_header_that_cannot_be_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        read_proxy_header(data)


@given(start=st.sampled_from([b"", b"PROXY ", SIGNATURE, SIGNATURE + b"\x21"]), rest=st.binary())
def test_no_bytes_are_met_with_anything_else(start: bytes, rest: bytes) -> None:
    try:
        found = read_proxy_header(start + rest)
    except FormatError:
        return

    assert found is None or found.size <= min(len(start + rest), PROXY_HEADER_BYTES_MAX)
