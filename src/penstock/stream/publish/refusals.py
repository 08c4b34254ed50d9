"""Why messages are refused, in words: for publishers, and for the traces of messages.

The compiled rules return the code of an error and what it is about; here that becomes the error.

Pure. Called by `rules` and `publishing`.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from penstock import error_codes
from penstock.errors import ApiError
from penstock.stream.publish.message import EXPECTED_LAST_ID, IncomingMessage
from penstock.text.quoting import quoted_bytes

if TYPE_CHECKING:
    from penstock.stream.publish.facts import StreamFacts

_ENTRIES: Final = {
    entry.err_code: entry
    for entry in (
        error_codes.STREAM_STORE_FAILED,
        error_codes.STREAM_SEALED,
        error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM,
        error_codes.STREAM_HEADER_EXCEEDS_MAXIMUM,
        error_codes.MESSAGE_INCR_INVALID,
        error_codes.MESSAGE_INCR_DISABLED,
        error_codes.MESSAGE_INCR_PAYLOAD,
        error_codes.MESSAGE_INCR_MISSING,
        error_codes.STREAM_NOT_MATCH,
        error_codes.MESSAGE_TTL_DISABLED,
        error_codes.MESSAGE_TTL_INVALID,
        error_codes.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID,
        error_codes.STREAM_WRONG_LAST_SEQUENCE,
        error_codes.STREAM_WRONG_LAST_MSG_ID,
        error_codes.MESSAGE_SOURCE_HDR_NOT_ALLOWED,
        error_codes.STREAM_ROLLUP_FAILED,
    )
}


class AlreadyStored(ApiError):
    """A message with the same id is stored under `seq`, or came before in the same batch (0)."""

    def __init__(self, seq: int) -> None:
        super().__init__(error_codes.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE)
        self.seq = seq


def refusal(err_code: int, *, seq: int, text: str | None) -> ApiError:
    """Return the error of a code; the sequence and the text are used where its words have them."""
    return ApiError(_ENTRIES[err_code], seq=seq, err=text, id=text)


def store_failed(cause: str) -> ApiError:
    """Return the error of a message that the disk did not take, in the system's words alone."""
    known = (os.strerror(each) for each in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS))
    words = next((each for each in known if each in cause), "write failed")
    return ApiError(error_codes.STREAM_STORE_FAILED, err=words[0].lower() + words[1:])


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
        return _wrong_sequence(message, facts)
    if error.err_code == error_codes.STREAM_WRONG_LAST_MSG_ID.err_code:
        last = facts.message_ids.last(facts.store.last_seq)
        expected = quoted_bytes(message.value(EXPECTED_LAST_ID))
        return f"last msgid mismatch: {expected} vs {quoted_bytes(last)}"
    return str(error)


def _wrong_sequence(message: IncomingMessage, facts: StreamFacts) -> str:
    expected = facts.rules.expected_subject_seq(message)
    if expected is not None:
        subject, seq = expected
        last_seq = facts.rules.last_seq_of(subject)
        if seq != last_seq:
            return f"last sequence by subject mismatch: {seq} vs {last_seq}"
    seq = facts.rules.expected_last_seq(message) or 0
    return f"last sequence mismatch: {seq} vs {facts.store.last_seq}"
