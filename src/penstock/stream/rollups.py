"""Messages that stand for all before them: `Nats-Rollup`, for their subject or the whole stream.

Pure.
"""

from __future__ import annotations

from penstock import error_codes
from penstock.errors import ApiError
from penstock.protocol.quoting import quoted
from penstock.stream.config import StreamConfig
from penstock.stream.messages import ROLLUP, ROLLUP_ALL, ROLLUP_SUBJECT, Message


def rollup_of(message: Message) -> str:
    """Give what a message asks for, in lower case; empty for nothing."""
    return message.value(ROLLUP).decode("utf-8", "surrogateescape").lower()


def is_allowed(config: StreamConfig) -> bool:
    """Tell whether messages may roll others up."""
    return config.allow_rollup_hdrs and not config.deny_purge


def check(message: Message, config: StreamConfig) -> None:
    """Note what a message rolls up; raise ApiError where it may not."""
    wanted = rollup_of(message)
    if not wanted:
        return
    if not is_allowed(config) and not message.is_sourced:
        raise refusal("rollup not permitted")
    if wanted not in (ROLLUP_SUBJECT, ROLLUP_ALL):
        raise refusal(f"rollup value invalid: {quoted(wanted.encode('utf-8', 'surrogateescape'))}")
    message.rollup = wanted


def refusal(reason: str) -> ApiError:
    """Give the refusal of a rollup."""
    return ApiError(error_codes.STREAM_ROLLUP_FAILED, err=reason)
