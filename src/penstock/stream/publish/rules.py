"""The publish rules one by one: each refuses a message for one reason, or leaves it as it is.

A rule is a small function of the message, the stream's configuration and, where it must, what the
stream holds (`StreamFacts`). The order in which rules are applied is not here: see `judge`.

Invariants: a rule changes nothing but the message. It refuses by raising ApiError. Sequences are
compared with what is stored, durable or not, since the next message comes behind all of it.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from penstock import error_codes
from penstock.clock import Clock
from penstock.errors import ApiError, CorruptStore, RecordNotFound
from penstock.limits import DUE_AT_ONCE_MAX, GO_RECORD_BYTES_MAX, MESSAGE_HEADERS_BYTES_MAX
from penstock.protocol.headers import FIRST_LINE, value_of, with_added, without
from penstock.store.filestore import FileStore
from penstock.store.interface import NEVER_NS
from penstock.stream.config.config import StorageType, StreamConfig
from penstock.stream.publish.message import (
    EXPECTED_LAST_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_STREAM,
    EXPECTED_SUBJECT,
    EXPECTED_SUBJECT_SEQ,
    MARKER_REASON,
    ROLLUP,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    STREAM_SOURCE,
    TTL,
    IncomingMessage,
    record_size,
    wrapped_number,
)
from penstock.stream.publish.message_ids import MessageIds
from penstock.subjects import SubjectFilter, is_valid_subject
from penstock.text.quoting import quoted_bytes
from penstock.text.times import SECOND_NS, format_duration, parse_duration


class StreamFacts:
    """What the rules may read of one stream. Only the stream's owner replaces `config`."""

    def __init__(
        self,
        config: StreamConfig,
        store: FileStore,
        clock: Clock,
        *,
        known_ids: Callable[[], MessageIds],
        reserve: Callable[[int], None],
        payload_bytes_max: Callable[[], int],
    ) -> None:
        """`known_ids` returns all message ids of the window, reading them first if it must.

        `reserve` takes bytes of what account and server have left, or raises ApiError.
        `payload_bytes_max` returns the size of the largest message that a client may publish.
        """
        self.config = config
        self.store = store
        self.now_ns = clock.now_ns
        self.known_ids = known_ids
        self.reserve = reserve
        self.payload_bytes_max = payload_bytes_max


# Sizes


def check_record(message: IncomingMessage, config: StreamConfig) -> None:
    """Refuse a message whose record would be larger than a block can hold."""
    is_file = config.storage is StorageType.FILE
    if is_file and record_size(message, config.storage) > GO_RECORD_BYTES_MAX:
        raise ApiError(error_codes.STREAM_STORE_FAILED, err="message too large")


def check_size(message: IncomingMessage, config: StreamConfig) -> None:
    """Refuse a message above `max_msg_size`, and headers above the server's bound."""
    if 0 <= config.max_msg_size < len(message.headers) + len(message.body):
        raise ApiError(error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    if len(message.headers) > MESSAGE_HEADERS_BYTES_MAX:
        raise ApiError(error_codes.STREAM_HEADER_EXCEEDS_MAXIMUM)


def check_counted(message: IncomingMessage, facts: StreamFacts) -> None:
    """Refuse a counter whose new value is larger than a message may be."""
    if len(message.headers) + len(message.body) > facts.payload_bytes_max():
        raise ApiError(error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    check_size(message, facts.config)


# What the stream allows at all


def check_sealed(config: StreamConfig) -> None:
    """Refuse every message if the stream is sealed."""
    if config.sealed:
        raise ApiError(error_codes.STREAM_SEALED)


def check_not_marked(message: IncomingMessage) -> None:
    """Refuse the header that only a sourcing stream may set."""
    if message.value(STREAM_SOURCE):
        raise ApiError(error_codes.MESSAGE_SOURCE_HDR_NOT_ALLOWED)


# What the publisher expects of the stream


def check_stream(message: IncomingMessage, config: StreamConfig) -> None:
    """Refuse a message that names another stream."""
    name = message.value(EXPECTED_STREAM)
    if name and name != config.name.encode():
        raise ApiError(error_codes.STREAM_NOT_MATCH)


def expected_subject_seq(message: IncomingMessage) -> tuple[bytes, int] | None:
    """Return the subject that is expected to end with a sequence, and that sequence (0: none).

    Return None if the message expects nothing of a subject.
    """
    digits = message.value(EXPECTED_SUBJECT_SEQ)
    subject = message.value(EXPECTED_SUBJECT)
    if not digits:
        if subject:
            raise ApiError(error_codes.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
        return None
    return subject or message.subject, wrapped_number(digits)


def check_subject_seq(message: IncomingMessage, store: FileStore) -> None:
    """Refuse a message if the subject that it names, or its own, ends with another sequence."""
    expected = expected_subject_seq(message)
    if expected is None:
        return
    subject, seq = expected
    last_seq = last_seq_of(store, subject)
    if last_seq != seq:
        raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=last_seq)


def expected_last_seq(message: IncomingMessage) -> int | None:
    """Return the sequence that the stream is expected to end with, or None."""
    digits = message.value(EXPECTED_LAST_SEQ)
    return wrapped_number(digits) if digits else None


def check_last_seq(message: IncomingMessage, last_seq: int) -> None:
    """Refuse a message if the stream ends with another sequence than expected."""
    seq = expected_last_seq(message)
    if seq is not None and seq != last_seq:
        raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=last_seq)


def check_last_id(message: IncomingMessage, facts: StreamFacts, last_seq: int) -> None:
    """Refuse a message if the stream's last message has another id than expected, or none."""
    expected = message.value(EXPECTED_LAST_ID)
    if not expected:
        return
    last_id = facts.known_ids().last(last_seq)
    if expected != last_id:
        shown = last_id.decode("utf-8", "replace")
        raise ApiError(error_codes.STREAM_WRONG_LAST_MSG_ID, id=shown)


def last_seq_of(store: FileStore, subject: bytes) -> int:
    """Return the last sequence of a subject or of all subjects of a pattern; 0 for none."""
    if not is_valid_subject(subject):
        return 0
    found = store.multi_last(SubjectFilter([subject]))
    return found[-1] if found else 0


# Rollups: a message that replaces all before it, of its subject or of the stream


def rollup_of(message: IncomingMessage) -> str:
    """Return the value of `Nats-Rollup` in lower case; empty if there is none."""
    return message.value(ROLLUP).decode("utf-8", "surrogateescape").lower()


def may_roll_up(config: StreamConfig) -> bool:
    """Return True if messages may roll others up."""
    return config.allow_rollup_hdrs and not config.deny_purge


def check_rollup(message: IncomingMessage, config: StreamConfig) -> None:
    """Note in the message what it rolls up; refuse it if that is not allowed."""
    wanted = rollup_of(message)
    if not wanted:
        return
    if not may_roll_up(config) and not message.is_sourced:
        raise rollup_refusal("rollup not permitted")
    if wanted not in (ROLLUP_SUBJECT, ROLLUP_ALL):
        shown = quoted_bytes(wanted.encode("utf-8", "surrogateescape"))
        raise rollup_refusal(f"rollup value invalid: {shown}")
    message.rollup = wanted


def rollup_refusal(reason: str) -> ApiError:
    """Return the refusal of a rollup."""
    return ApiError(error_codes.STREAM_ROLLUP_FAILED, err=reason)


# Time to live: `Nats-TTL`, and the markers that expiry leaves

NEVER_S = -1


def parse_ttl(text: bytes) -> int:
    """Return the seconds of a TTL: 0 for none, `NEVER_S` for ever. Raise ApiError."""
    if not text:
        return 0
    if text.lower() == b"never":
        return NEVER_S
    try:
        duration_ns = parse_duration(text.decode("utf-8", "surrogateescape"))
    except ValueError:
        if not text.isdigit():
            raise ApiError(error_codes.MESSAGE_TTL_INVALID) from None
        # A signed number of 64 bits, as the reference server reads it.
        seconds = int(text[-64:]) & 2**64 - 1
        if seconds >= 2**63:
            raise ApiError(error_codes.MESSAGE_TTL_INVALID) from None
        return seconds
    if duration_ns < SECOND_NS:
        raise ApiError(error_codes.MESSAGE_TTL_INVALID)
    return duration_ns // SECOND_NS


def check_ttl_allowed(message: IncomingMessage, config: StreamConfig) -> None:
    """Refuse a TTL if the stream allows none. A malformed one is refused when it is stored."""
    if message.is_sourced or config.allow_msg_ttl:
        return
    try:
        ttl_s = parse_ttl(message.value(TTL))
    except ApiError:
        return
    if ttl_s:
        raise ApiError(error_codes.MESSAGE_TTL_DISABLED)


def check_ttl(message: IncomingMessage, config: StreamConfig) -> None:
    """Refuse a TTL if the stream allows none, and a malformed one."""
    try:
        ttl_s = parse_ttl(message.value(TTL))
    except ApiError as error:
        if not config.allow_msg_ttl:
            raise ApiError(error_codes.MESSAGE_TTL_DISABLED) from error
        raise
    if ttl_s and not config.allow_msg_ttl:
        raise ApiError(error_codes.MESSAGE_TTL_DISABLED)


def settle_ttl(message: IncomingMessage, config: StreamConfig) -> None:
    """Set how long a message lives: not shorter than a delete marker of its subject."""
    message.ttl_s = parse_ttl(message.value(TTL))
    shortest_s = config.subject_delete_marker_ttl // SECOND_NS
    if 0 < message.ttl_s < shortest_s and config.max_msgs_per_subject != 1:
        message.ttl_s = shortest_s
        message.headers = with_added(without(message.headers, TTL), TTL, b"%d" % shortest_s)


def expires_ns(message: IncomingMessage, config: StreamConfig, now_ns: int) -> int:
    """Return when a message stored now expires; 0 if only the stream's limits count."""
    if not config.allow_msg_ttl or not message.ttl_s:
        return 0
    if message.ttl_s < 0:
        return NEVER_NS
    return min(now_ns + message.ttl_s * SECOND_NS, NEVER_NS - 1)


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


def take_expired(store: FileStore) -> Iterator[tuple[int, bytes]]:
    """Remove expired messages, except for each subject's last: yield its sequence and subject.

    The caller stores a marker and removes that message before it asks for the next one.
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


# Refusals in the words of traces, which are not those of the answers to publishers

DUPLICATE: Final = "msgid is duplicate"

_TOO_LARGE: Final = "maximum payload exceeded"
_TRACE_WORDS: Final = {
    error_codes.MESSAGE_TTL_DISABLED.err_code: "message TTL disabled",
    error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code: _TOO_LARGE,
    error_codes.STREAM_HEADER_EXCEEDS_MAXIMUM.err_code: _TOO_LARGE,
}
_WITHOUT_CODE: Final = frozenset(
    (
        error_codes.STREAM_NOT_MATCH.err_code,
        error_codes.STREAM_ROLLUP_FAILED.err_code,
        error_codes.STREAM_STORE_FAILED.err_code,
    )
)


def trace_reason(error: ApiError, message: IncomingMessage, facts: StreamFacts) -> str:
    """Return why a message was refused, in the reference server's words."""
    if error.err_code in _TRACE_WORDS:
        return _TRACE_WORDS[error.err_code]
    if error.err_code in _WITHOUT_CODE:
        return error.description
    if error.err_code == error_codes.STREAM_WRONG_LAST_SEQUENCE.err_code:
        return _wrong_sequence(message, facts.store)
    if error.err_code == error_codes.STREAM_WRONG_LAST_MSG_ID.err_code:
        last = facts.known_ids().last(facts.store.last_seq)
        expected = quoted_bytes(message.value(EXPECTED_LAST_ID))
        return f"last msgid mismatch: {expected} vs {quoted_bytes(last)}"
    return str(error)


def _wrong_sequence(message: IncomingMessage, store: FileStore) -> str:
    expected = expected_subject_seq(message)
    if expected is not None:
        subject, seq = expected
        last_seq = last_seq_of(store, subject)
        if seq != last_seq:
            return f"last sequence by subject mismatch: {seq} vs {last_seq}"
    seq = expected_last_seq(message) or 0
    return f"last sequence mismatch: {seq} vs {store.last_seq}"
