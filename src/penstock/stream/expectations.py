"""What a publisher expects of a stream before its message may come in: its name, its last message.

Sequences are compared with what is stored, be it durable or not: a message that was refused for it
could never have been the next one. Called for each message, on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock import error_codes
from penstock.errors import ApiError
from penstock.store.filestore import FileStore
from penstock.stream.config import StreamConfig
from penstock.stream.message_ids import MessageIds
from penstock.stream.messages import (
    EXPECTED_LAST_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_STREAM,
    EXPECTED_SUBJECT,
    EXPECTED_SUBJECT_SEQ,
    Message,
    wrapped_number,
)
from penstock.subjects import SubjectFilter, is_valid_subject


def check_stream(message: Message, config: StreamConfig) -> None:
    """Refuse what was meant for another stream."""
    name = message.value(EXPECTED_STREAM)
    if name and name != config.name.encode():
        raise ApiError(error_codes.STREAM_NOT_MATCH)


def expected_subject_seq(message: Message) -> tuple[bytes, int] | None:
    """Give the subject that must end with a sequence, and that sequence; 0 for no message."""
    digits = message.value(EXPECTED_SUBJECT_SEQ)
    subject = message.value(EXPECTED_SUBJECT)
    if not digits:
        if subject:
            raise ApiError(error_codes.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
        return None
    return subject or message.subject, wrapped_number(digits)


def check_subject_seq(message: Message, store: FileStore) -> None:
    """Refuse a message whose subject, or the one that it names, ends with another sequence."""
    expected = expected_subject_seq(message)
    if expected is None:
        return
    subject, seq = expected
    last_seq = last_seq_of(store, subject)
    if last_seq != seq:
        raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=last_seq)


def expected_last_seq(message: Message) -> int | None:
    """Give the sequence with which the stream must end."""
    digits = message.value(EXPECTED_LAST_SEQ)
    return wrapped_number(digits) if digits else None


def check_last_seq(message: Message, last_seq: int) -> None:
    """Refuse a message where the stream ends with another sequence."""
    seq = expected_last_seq(message)
    if seq is not None and seq != last_seq:
        raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=last_seq)


def check_last_id(message: Message, known_ids: Callable[[], MessageIds], last_seq: int) -> None:
    """Refuse a message where the stream's last one had another id, or none.

    `known_ids` is asked only where it matters: the ids may have to be looked for first.
    """
    expected = message.value(EXPECTED_LAST_ID)
    if not expected:
        return
    last_id = known_ids().last(last_seq)
    if expected != last_id:
        shown = last_id.decode("utf-8", "replace")
        raise ApiError(error_codes.STREAM_WRONG_LAST_MSG_ID, id=shown)


def last_seq_of(store: FileStore, subject: bytes) -> int:
    """Give the last sequence of a subject, or of all that a pattern selects; 0 for none."""
    if not is_valid_subject(subject):
        return 0
    found = store.multi_last(SubjectFilter([subject]))
    return found[-1] if found else 0
