"""The headers of a message that ask for a trace.

    Nats-Trace-Dest: where the trace goes
    Nats-Trace-Only: true           the message is not delivered
    traceparent: …-01               as if with a destination, if the account has one

Headers are read as the reference server reads them: names are case-sensitive except `traceparent`,
values are trimmed, and a header without a value is ignored.

Pure; any thread.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.monitor.query import shown
from penstock.protocol.headers import FIRST_LINE, with_added, with_value, without

DESTINATION: Final = b"Nats-Trace-Dest"
ORIGIN: Final = b"Nats-Trace-Origin-Account"

_DISABLED: Final = b"trace disabled"
_PARENT: Final = b"traceparent"
_ONLY: Final = "Nats-Trace-Only"
_ONLY_VALUES: Final = ("1", "true", "on")
_ACCEPTED: Final = "Accept-Encoding"
_SAMPLED: Final = 1


class TraceRequest(msgspec.Struct, frozen=True):
    """What a message asks for; without a `destination` it is the account's that counts."""

    headers: dict[str, list[str]]
    destination: str
    is_only: bool

    @property
    def origin(self) -> bytes:
        """What an old server says of the account it came from; empty where none does."""
        return self.headers.get(ORIGIN.decode(), [""])[0].encode()

    @property
    def accepted_encoding(self) -> str:
        """How the trace may be compressed; empty where it may not."""
        return self.headers.get(_ACCEPTED, [""])[0].lower()


def read_request(block: bytes) -> TraceRequest | None:
    """Read headers; None where they do not ask to be traced."""
    pairs = _pairs(block)
    destinations = [value for name, value in pairs if name == DESTINATION]
    if _DISABLED in destinations[:1]:
        return None
    is_sampled = any(name.lower() == _PARENT and _is_sampled(value) for name, value in pairs)
    if not destinations and not is_sampled:
        return None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(shown(name), []).append(shown(value))
    is_only = bool(destinations) and found.get(_ONLY, [""])[0].lower() in _ONLY_VALUES
    destination = shown(destinations[0]) if destinations else ""
    return TraceRequest(dict(sorted(found.items())), destination, is_only)


def without_trace(block: bytes) -> bytes:
    """Return headers that turn off tracing for the rest of the way."""
    return with_destination(block, _DISABLED)


def stored_without_trace(block: bytes) -> bytes:
    """Return headers as a stream stores them: tracing is turned off where the destination was."""
    return with_value(block, DESTINATION, _DISABLED)


def with_destination(block: bytes, destination: bytes) -> bytes:
    """Return headers with another trace destination, behind the others."""
    return with_added(without(block, DESTINATION), DESTINATION, destination)


def _pairs(block: bytes) -> list[tuple[bytes, bytes]]:
    pairs: list[tuple[bytes, bytes]] = []
    if not block.startswith(FIRST_LINE):
        return pairs
    at = len(FIRST_LINE)
    while (colon := block.find(b":", at)) >= 0:
        # A line without a colon is a part of the next one's name.
        name = block[at:colon]
        start = colon + 1
        while block[start : start + 1] in (b" ", b"\t"):
            start += 1
        end = block.find(b"\r\n", start)
        if end < 0:
            break
        value = block[start:end].rstrip(b" \t")
        if name and value:
            pairs.append((name, value))
        at = end + 2
    return pairs


def _is_sampled(value: bytes) -> bool:
    parts = value.split(b"-")
    if len(parts) != 4 or len(parts[3]) != 2:
        return False
    try:
        flags = int(parts[3], 16)
    except ValueError:
        return False
    # The reference server reads them as a signed byte.
    return flags < 0x80 and bool(flags & _SAMPLED)
