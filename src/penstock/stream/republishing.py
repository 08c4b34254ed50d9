"""Stored messages published again under another subject, for those who follow without a consumer.

They go out when they are durable, behind the acknowledgements of what came before them. Called on
the event loop's thread.
"""

from __future__ import annotations

import random

from penstock.documents.times import timestamp
from penstock.errors import UsageError
from penstock.routing.transforms import SubjectTransform
from penstock.stream.config import RePublish, SubjectTransformConfig
from penstock.stream.headers import FIRST_LINE
from penstock.stream.messages import Message
from penstock.subjects import is_literal, is_valid_subject


def transform_of(config: SubjectTransformConfig | RePublish | None) -> SubjectTransform | None:
    """Give what becomes of subjects; None where nothing does."""
    if config is None:
        return None
    try:
        return SubjectTransform(config.src, config.dest)
    except UsageError:
        # An older server may have kept what a newer one would refuse: it selects nothing.
        return None


def renamed(transform: SubjectTransform | None, subject: bytes) -> bytes | None:
    """Give the new subject; None where there is none."""
    return None if transform is None else transform.find(subject, random.randrange)


def destination(transform: SubjectTransform | None, subject: bytes) -> bytes | None:
    """Give where a message is published again; None for nowhere."""
    found = renamed(transform, subject)
    if found is None or not is_valid_subject(found) or not is_literal(found):
        return None
    return found


def copy_of(
    message: Message, stream_name: str, *, seq: int, time_ns: int, last_seq: int, is_empty: bool
) -> tuple[bytes, bytes]:
    """Give headers and body of the copy, which tells of the original; `is_empty` leaves the body.

    `last_seq` is that of the subject's message before it; 0 for none.
    """
    before = message.headers[:-2] if message.headers else FIRST_LINE
    told = (
        f"Nats-Stream: {stream_name}\r\n".encode(),
        b"Nats-Subject: %b\r\n" % message.subject,
        b"Nats-Sequence: %d\r\n" % seq,
        f"Nats-Time-Stamp: {timestamp(time_ns)}\r\n".encode(),
        b"Nats-Last-Sequence: %d\r\n" % last_seq,
        b"Nats-Msg-Size: %d\r\n" % len(message.body) if is_empty else b"",
    )
    return before + b"".join(told) + b"\r\n", b"" if is_empty else message.body
