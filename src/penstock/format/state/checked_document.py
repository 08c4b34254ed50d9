"""Documents with a checksum: a stream's or a consumer's configuration, as JSON.

The last field of such a document is `checksum`, written exactly like this:

    {"version":2,…,"checksum":"0123456789abcdef"}

It is the XXH64, in hexadecimal digits, of all bytes before the comma in front of it. Documents of
version 1 have none. Whether one of a later version has lost its checksum, its reader checks.

Pure; any thread.
"""

from __future__ import annotations

import re

from penstock.errors import FormatError
from penstock.format.hashing import xxh64

CHECKED_VERSION = 2
"""The version of documents that have a checksum."""

_START = b',"checksum":"'
_END = re.compile(rb'([0-9a-f]{16})"\}\s*\Z')


def with_checksum(document: bytes) -> bytes:
    """Return a JSON object that has fields with a checksum behind them."""
    body = document.removesuffix(b"}")
    return b'%b%b%016x"}' % (body, _START, xxh64(body))


def without_checksum(document: bytes) -> tuple[bytes, bool]:
    """Return a document without its checksum, and whether it had one; raise FormatError."""
    body, start, end = document.rpartition(_START)
    found = _END.match(end)
    if not start or found is None:
        return document, False
    if xxh64(body) != int(found[1], 16):
        raise FormatError("checksums do not match")
    return body + b"}", True


def check_version(version: int, *, has_checksum: bool) -> None:
    """Raise FormatError if a document has lost its checksum."""
    if version >= CHECKED_VERSION and not has_checksum:
        raise FormatError("the checksum is missing")
