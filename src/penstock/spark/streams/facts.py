"""A stream as its server tells of it. Asked for in the driver."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, UsageError

_NOT_FOUND = error_codes.STREAM_NOT_FOUND.err_code


class NoSuchStream(UsageError):
    """There is no stream of that name."""


class StreamFacts(msgspec.Struct, frozen=True):
    """What planning needs to know of a stream."""

    name: str
    created: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    takes_messages: bool
    """Whether its consumers take messages away."""

    is_direct: bool = False
    """Whether it may be read without a consumer."""

    replaces: bool = False
    """Whether new messages of a subject take the place of old ones, as in buckets of keys: then its
    first messages go all the time, and nobody lost anything."""

    @property
    def end(self) -> int:
        """The sequence behind its last message."""
        return self.last_seq + 1

    @property
    def is_dense(self) -> bool:
        """Whether every sequence from the first on is a message."""
        return self.messages == self.end - self.first_seq


def stream_facts(streams: JetStream, name: str) -> StreamFacts:
    """Ask for one stream; raises UsageError where there is none."""
    if not name or any(letter in name for letter in ".*> \t\r\n"):
        raise UsageError(f"{name!r} cannot be a stream's name")
    try:
        info = streams.call(f"STREAM.INFO.{name}")
    except ApiError as error:
        kind = NoSuchStream if error.err_code == _NOT_FOUND else UsageError
        raise kind(f"stream {name}: {error}") from None
    return facts_of(info)


def facts_of(info: dict[str, Any]) -> StreamFacts:
    """Read a server's answer."""
    state: dict[str, Any] = info["state"]
    config: dict[str, Any] = info["config"]
    return StreamFacts(
        config["name"],
        info["created"],
        state["first_seq"],
        state["last_seq"],
        state["messages"],
        state["bytes"],
        config.get("retention", "limits") != "limits",
        bool(config.get("allow_direct")),
        config.get("max_msgs_per_subject", -1) > 0,
    )
