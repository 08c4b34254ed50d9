"""Delete markers: what takes the place of a subject's last message when that expires.

Thread: the event loop's. `Publishing` calls it when messages have expired.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import CorruptStore, RecordNotFound
from penstock.protocol.headers import FIRST_LINE, value_of, with_added
from penstock.store.filestore import FileStore
from penstock.stream.config.config import StreamConfig
from penstock.stream.publish.message import (
    MARKER_REASON,
    ROLLUP,
    ROLLUP_SUBJECT,
    TTL,
    IncomingMessage,
)
from penstock.subjects import SubjectFilter
from penstock.text.times import SECOND_NS, format_duration


def marker_for(subject: bytes, config: StreamConfig) -> IncomingMessage:
    """Return the delete marker that replaces a subject's last message when it expires."""
    ttl = format_duration(config.subject_delete_marker_ttl // SECOND_NS * SECOND_NS)
    headers = FIRST_LINE + b"\r\n"
    for name, value in (
        (MARKER_REASON, b"MaxAge"),
        (TTL, ttl.encode()),
        (ROLLUP, ROLLUP_SUBJECT.encode()),
    ):
        headers = with_added(headers, name, value)
    return IncomingMessage(subject, headers, b"", is_sourced=True)


def is_marker(headers: bytes) -> bool:
    """Return True for a delete marker, and for the purge of a key in a bucket."""
    return bool(value_of(headers, MARKER_REASON)) or value_of(headers, b"KV-Operation") == b"PURGE"


def take_expired(store: FileStore, due: list[int]) -> Iterator[tuple[int, bytes]]:
    """Remove expired messages, except for each subject's last: yield its sequence and subject.

    The caller stores a marker and removes that message before it asks for the next one.
    """
    for seq in due:
        try:
            message = store.load(seq)
        except RecordNotFound:
            continue
        except CorruptStore:
            store.remove(seq)
            continue
        left = store.subjects_totals(SubjectFilter([message.subject]))[message.subject]
        if left > 1 or is_marker(message.headers):
            store.remove(seq)
        else:
            yield seq, message.subject
