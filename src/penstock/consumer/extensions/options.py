"""What a consumer's metadata may ask for that other servers do not have.

    penstock.dead_letter    the subject that messages go to when they are given up
    penstock.key_token      the position of the token in the subject that is a message's key

They stand in the metadata so that every client library can set them, and every server keeps them.
`dead_letters` and `key_order` implement them.

Invariant: an option that is not understood is refused rather than ignored.

Pure; any thread.
"""

from __future__ import annotations

import re
from typing import Final

from penstock import error_codes
from penstock.consumer.config.config import AckPolicy, ConsumerConfig, DeliverPolicy, ReplayPolicy
from penstock.errors import ApiError
from penstock.limits import KEY_TOKEN_MAX
from penstock.stream.config.config import StreamConfig
from penstock.stream.config.subjects import invalid, is_publish_subject
from penstock.subjects import matches

PREFIX: Final = "penstock."
DEAD_LETTER: Final = "penstock.dead_letter"
KEY_TOKEN: Final = "penstock.key_token"

_KNOWN: Final = (DEAD_LETTER, KEY_TOKEN)
_POSITION: Final = re.compile(r"[1-9][0-9]?", re.ASCII)
_RESERVED: Final = ("$JS.", "$SYS.", "$NRG.")
"""Publishing to subjects with these prefixes makes a server act."""


def dead_letter_subject(config: ConsumerConfig) -> bytes:
    """Return the subject for messages that are given up; empty if there is none."""
    return config.metadata.get(DEAD_LETTER, "").encode()


def key_token(config: ConsumerConfig) -> int:
    """Return the position of the token that is a message's key, from 1 on; 0 if there is none.

    Raise ApiError if the metadata has no valid position.
    """
    text = config.metadata.get(KEY_TOKEN)
    if text is None:
        return 0
    if _POSITION.fullmatch(text) is None or int(text) > KEY_TOKEN_MAX:
        reason = f"must be the position of a token, 1 to {KEY_TOKEN_MAX}"
        raise invalid(f"consumer metadata {KEY_TOKEN} {reason}")
    return int(text)


def check_extensions(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Raise ApiError if the metadata asks for something that cannot be done."""
    for name in config.metadata:
        if name.startswith(PREFIX) and name not in _KNOWN:
            known = ", ".join(_KNOWN)
            raise invalid(f"consumer metadata {name} is not known, of its kind are {known}")
    if DEAD_LETTER in config.metadata:
        _check_dead_letter(config, stream)
    if key_token(config):
        _check_key_token(config)


def check_extensions_update(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """Raise ApiError if an update changes what is fixed for a consumer's life."""
    if key_token(old) != key_token(new):
        # Messages of one key, by the new token, may be on their way to several clients.
        reason = f"metadata {KEY_TOKEN} can not be updated"
        raise ApiError(error_codes.CONSUMER_CREATE, err=reason)


def _check_dead_letter(config: ConsumerConfig, stream: StreamConfig) -> None:
    subject = config.metadata[DEAD_LETTER]
    if not is_publish_subject(subject):
        raise invalid(f"consumer metadata {DEAD_LETTER} must be a subject without wildcards")
    if subject.startswith(_RESERVED):
        raise invalid(f"consumer metadata {DEAD_LETTER} must not be a subject of the server's own")
    _check_acknowledged(config, DEAD_LETTER)
    if _is_matched(subject, stream.subjects) and (
        not config.filters or _is_matched(subject, config.filters)
    ):
        raise invalid(f"consumer metadata {DEAD_LETTER} forms a cycle")


def _check_key_token(config: ConsumerConfig) -> None:
    if config.is_push:
        raise invalid(f"consumer metadata {KEY_TOKEN} requires a pull based consumer")
    _check_acknowledged(config, KEY_TOKEN)
    if config.max_ack_pending < 0:
        raise invalid(f"consumer metadata {KEY_TOKEN} requires max ack pending")
    if config.replay_policy is ReplayPolicy.ORIGINAL:
        raise invalid(f"consumer metadata {KEY_TOKEN} requires replay policy instant")
    if config.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT:
        raise invalid(f"consumer metadata {KEY_TOKEN} excludes deliver policy last per subject")


def _check_acknowledged(config: ConsumerConfig, name: str) -> None:
    if config.ack_policy is not AckPolicy.EXPLICIT:
        raise invalid(f"consumer metadata {name} requires explicit acks")


def _is_matched(subject: str, patterns: tuple[str, ...]) -> bool:
    return any(matches(pattern.encode(), subject.encode()) for pattern in patterns)
