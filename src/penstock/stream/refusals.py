"""Why a message was not stored, as traces tell it: in the reference server's words.

These are not the words that its publisher is answered with. Pure, but that it looks into the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock import error_codes
from penstock.errors import ApiError
from penstock.protocol.quoting import quoted
from penstock.stream import expectations
from penstock.stream.messages import EXPECTED_LAST_ID, Message

if TYPE_CHECKING:
    from penstock.stream.stream import Stream

DUPLICATE: Final = "msgid is duplicate"

_TOO_LARGE: Final = "maximum payload exceeded"
_OTHER_WORDS: Final = {
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


def reason_of(error: ApiError, message: Message, stream: Stream) -> str:
    """Tell why a message was refused."""
    if error.err_code in _OTHER_WORDS:
        return _OTHER_WORDS[error.err_code]
    if error.err_code in _WITHOUT_CODE:
        return error.description
    if error.err_code == error_codes.STREAM_WRONG_LAST_SEQUENCE.err_code:
        return _wrong_sequence(message, stream)
    if error.err_code == error_codes.STREAM_WRONG_LAST_MSG_ID.err_code:
        last = stream.publishing.known_ids().last(stream.store.last_seq)
        return f"last msgid mismatch: {quoted(message.value(EXPECTED_LAST_ID))} vs {quoted(last)}"
    return str(error)


def _wrong_sequence(message: Message, stream: Stream) -> str:
    expected = expectations.expected_subject_seq(message)
    if expected is not None:
        subject, seq = expected
        last_seq = expectations.last_seq_of(stream.store, subject)
        if seq != last_seq:
            return f"last sequence by subject mismatch: {seq} vs {last_seq}"
    seq = expectations.expected_last_seq(message) or 0
    return f"last sequence mismatch: {seq} vs {stream.store.last_seq}"
