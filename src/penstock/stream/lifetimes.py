"""How long a message lives, by its own word: `Nats-TTL`, and the markers that expiry leaves.

With delete markers, the last message of a subject does not just vanish when its time has come: a
marker takes its place, which itself lives as long as the stream's configuration says.

Called on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock import error_codes
from penstock.config.durations import SECOND_NS, format_duration, parse_duration
from penstock.errors import ApiError, CorruptStore, RecordNotFound
from penstock.store.filestore import FileStore
from penstock.store.interface import NEVER_NS
from penstock.stream.config import StreamConfig
from penstock.stream.headers import FIRST_LINE, value_of, with_added, without
from penstock.stream.messages import MARKER_REASON, ROLLUP, ROLLUP_SUBJECT, TTL, Message
from penstock.subjects import SubjectFilter

NEVER_S = -1
DUE_AT_ONCE_MAX = 4096
"""Messages that are looked at in one go when their time has come, so that others get a turn."""


def parse_ttl(text: bytes) -> int:
    """Give the seconds that a TTL stands for: 0 for none, `NEVER_S` for ever; raise ApiError."""
    if not text:
        return 0
    if text.lower() == b"never":
        return NEVER_S
    try:
        duration_ns = parse_duration(text.decode("utf-8", "surrogateescape"))
    except ValueError:
        if not text.isdigit():
            raise ApiError(error_codes.MESSAGE_TTL_INVALID) from None
        # Sixty-four bits, of which the highest is the sign.
        seconds = int(text[-64:]) & 2**64 - 1
        if seconds >= 2**63:
            raise ApiError(error_codes.MESSAGE_TTL_INVALID) from None
        return seconds
    if duration_ns < SECOND_NS:
        raise ApiError(error_codes.MESSAGE_TTL_INVALID)
    return duration_ns // SECOND_NS


def check_allowed(message: Message, config: StreamConfig) -> None:
    """Refuse a time to live where the stream knows of none; what is no TTL is judged later."""
    if message.is_sourced or config.allow_msg_ttl:
        return
    try:
        ttl_s = parse_ttl(message.value(TTL))
    except ApiError:
        return
    if ttl_s:
        raise ApiError(error_codes.MESSAGE_TTL_DISABLED)


def check_strictly(message: Message, config: StreamConfig) -> None:
    """Refuse a time to live where the stream knows of none, and what is no TTL."""
    try:
        ttl_s = parse_ttl(message.value(TTL))
    except ApiError as error:
        if not config.allow_msg_ttl:
            raise ApiError(error_codes.MESSAGE_TTL_DISABLED) from error
        raise
    if ttl_s and not config.allow_msg_ttl:
        raise ApiError(error_codes.MESSAGE_TTL_DISABLED)


def settle(message: Message, config: StreamConfig) -> None:
    """Find out how long a message lives: not shorter than the markers of its subject do."""
    message.ttl_s = parse_ttl(message.value(TTL))
    shortest_s = config.subject_delete_marker_ttl // SECOND_NS
    if 0 < message.ttl_s < shortest_s and config.max_msgs_per_subject != 1:
        message.ttl_s = shortest_s
        message.headers = with_added(without(message.headers, TTL), TTL, b"%d" % shortest_s)


def expires_ns(message: Message, config: StreamConfig, now_ns: int) -> int:
    """Give when a message that is stored now expires; 0 where only the stream's limits count."""
    if not config.allow_msg_ttl or not message.ttl_s:
        return 0
    if message.ttl_s < 0:
        return NEVER_NS
    return min(now_ns + message.ttl_s * SECOND_NS, NEVER_NS - 1)


def marker_for(subject: bytes, config: StreamConfig) -> Message:
    """Give the marker that takes the place of a subject's last message."""
    ttl = format_duration(config.subject_delete_marker_ttl // SECOND_NS * SECOND_NS)
    headers = FIRST_LINE + b"\r\n"
    for name, value in (
        (MARKER_REASON, b"MaxAge"),
        (TTL, ttl.encode()),
        (ROLLUP, ROLLUP_SUBJECT.encode()),
    ):
        headers = with_added(headers, name, value)
    return Message(subject, headers, b"", is_sourced=True)


def is_marker(headers: bytes) -> bool:
    """Tell whether a message only says that there is none: a marker, or a key that was purged."""
    return bool(value_of(headers, MARKER_REASON)) or value_of(headers, b"KV-Operation") == b"PURGE"


def take_expired(store: FileStore) -> Iterator[tuple[int, bytes]]:
    """Remove what has expired, but the last message of a subject: give its sequence and subject.

    It is to be removed before the next one is asked for; a marker takes its place.
    """
    for seq in store.due(DUE_AT_ONCE_MAX):
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
