"""The journal of an account's consumers: its bytes.

    head:   magic `PNSTKJNL`, version u16, zero u16, zero u32, salt u64, XXH64 u64
    frame:  size of the body u32, XXH64 of the body u64, body

    body:   kind u8, zero u8, size of the stream's name u16, size of the consumer's name u16,
            zero u16, when the stream was created i64 (ns), the names, the rest

Little-endian. The checksum of a frame is seeded with the salt and the place of the frame in the
file, so that bytes of another file, or of another place, never pass. The kinds:

    1   the consumer has this configuration: the rest is the content of its `consumer.json`
    2   the consumer was removed; there is no rest

A later frame of a consumer counts, an earlier one does not. A stream's time of creation tells it
from an earlier stream of the same name, whose frames concern nobody any more.

The file grows by whole frames. What ends it and does not check was being written when the server
died, and nobody was answered about it.

Pure; any thread.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from penstock.errors import FormatError, UnsupportedVersion
from penstock.format.hashing import xxh64

JOURNAL_NAME = re.compile(r"consumers\.([0-9]{1,10})\.journal\Z")
"""The name of a journal's file in the account's folder, with its number: later files count more."""

MAGIC = b"PNSTKJNL"
VERSION = 1
HEAD_BYTES = 32

_HEAD = struct.Struct("<8sH6xQ")
_FRAME = struct.Struct("<IQ")
_BODY = struct.Struct("<BxHHxxq")
_CHECKSUM = struct.Struct("<Q")
_DOCUMENT = 1
_REMOVED = 2
_U64_MAX = 2**64 - 1


class JournalEntry(NamedTuple):
    """A consumer that was created, changed or removed."""

    stream: str
    stream_ns: int
    """When the stream was created."""

    consumer: str
    document: bytes | None
    """The content of `consumer.json`; None if the consumer was removed."""


class JournalContent(NamedTuple):
    """What a journal holds."""

    entries: list[JournalEntry]
    end: int
    """Where the last whole frame ends; what follows does not check."""


def encode_head(salt: int) -> bytes:
    """Return the start of a journal's file."""
    head = _HEAD.pack(MAGIC, VERSION, salt)
    return head + _CHECKSUM.pack(xxh64(head))


def encode_frame(entry: JournalEntry, *, salt: int, place: int) -> bytes:
    """Return the bytes of an entry that stands at a place of the file."""
    stream, consumer = entry.stream.encode(), entry.consumer.encode()
    kind = _REMOVED if entry.document is None else _DOCUMENT
    body = b"".join(
        (
            _BODY.pack(kind, len(stream), len(consumer), entry.stream_ns),
            stream,
            consumer,
            entry.document or b"",
        )
    )
    return _FRAME.pack(len(body), xxh64(body, _seed(salt, place))) + body


def decode_journal(data: bytes, *, path: str) -> JournalContent:
    """Return the entries of a journal's file, up to the first frame that does not check.

    Raise FormatError if it is no journal, UnsupportedVersion if a later Penstock wrote it.
    """
    if not data:
        # Its file was made, and the server died.
        return JournalContent([], 0)
    if data[: len(MAGIC)] != MAGIC or len(data) < HEAD_BYTES:
        raise FormatError("not a journal")
    _, version, salt = _HEAD.unpack_from(data)
    if _CHECKSUM.unpack_from(data, _HEAD.size)[0] != xxh64(data[: _HEAD.size]):
        raise FormatError("journal checksum differs")
    if version != VERSION:
        raise UnsupportedVersion(path, version, VERSION)
    entries: list[JournalEntry] = []
    place = HEAD_BYTES
    while place + _FRAME.size <= len(data):
        size, checksum = _FRAME.unpack_from(data, place)
        start = place + _FRAME.size
        body = data[start : start + size]
        if len(body) < max(size, _BODY.size) or xxh64(body, _seed(salt, place)) != checksum:
            break
        entries.append(_decoded(body, place))
        place = start + size
    return JournalContent(entries, place)


def _decoded(body: bytes, place: int) -> JournalEntry:
    kind, stream_size, consumer_size, stream_ns = _BODY.unpack_from(body)
    names_end = _BODY.size + stream_size + consumer_size
    if kind not in (_DOCUMENT, _REMOVED) or names_end > len(body):
        raise FormatError(f"a frame of kind {kind} that is not known", offset=place)
    try:
        stream = body[_BODY.size : _BODY.size + stream_size].decode()
        consumer = body[_BODY.size + stream_size : names_end].decode()
    except UnicodeDecodeError:
        raise FormatError("a name that is no text", offset=place) from None
    return JournalEntry(
        stream, stream_ns, consumer, body[names_end:] if kind == _DOCUMENT else None
    )


def _seed(salt: int, place: int) -> int:
    return (salt + place) & _U64_MAX
