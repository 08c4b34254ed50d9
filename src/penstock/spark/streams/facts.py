"""What a server says of a stream: its state, how many messages a range holds, where a time lies.

A consumer that is created and removed at once says how many messages are pending, and where it
starts. Two of them say how many messages lie between. A work queue allows no second consumer: there
each sequence counts as a message. No message is read. Used in the driver alone.
"""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import msgspec

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, UsageError

_NOT_FOUND = error_codes.STREAM_NOT_FOUND.err_code


class NoSuchStream(UsageError):
    """There is no stream of that name."""


class StreamFacts(msgspec.Struct, frozen=True):
    """The facts of a stream that planning needs."""

    name: str
    created: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    takes_messages: bool
    """Whether acknowledgements of its consumers remove messages."""

    is_direct: bool = False
    """Whether it allows direct gets."""

    replaces: bool = False
    """Whether new messages of a subject replace old ones, as in buckets. Its first messages then go
    all the time, and that is no loss."""

    @property
    def end(self) -> int:
        """The sequence behind its last message."""
        return self.last_seq + 1

    @property
    def is_dense(self) -> bool:
        """Whether every sequence from the first on is a message."""
        return self.messages == self.end - self.first_seq


def stream_facts(streams: JetStream, name: str) -> StreamFacts:
    """Return a stream's facts; raise UsageError if there is none of that name."""
    if not name or any(letter in name for letter in ".*> \t\r\n"):
        raise UsageError(f"{name!r} cannot be a stream's name")
    try:
        info = streams.call(f"STREAM.INFO.{name}")
    except ApiError as error:
        kind = NoSuchStream if error.err_code == _NOT_FOUND else UsageError
        raise kind(f"stream {name}: {error}") from None
    return facts_of(info)


def facts_of(info: dict[str, Any]) -> StreamFacts:
    """Return the facts in a server's answer."""
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


CONSUMER_IDLE_NS = 5_000_000_000


def count_from(streams: JetStream, stream: str, seq: int, subjects: tuple[str, ...] = ()) -> int:
    """Return how many messages a stream has from a sequence on; without subjects, of all."""
    asked = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(seq, 1)}
    made = _made(streams, stream, asked | filtered_by(subjects))
    pending: int = made["num_pending"]
    return pending


def filtered_by(subjects: tuple[str, ...]) -> dict[str, Any]:
    """Return the part of a consumer's configuration for these subjects; none means all."""
    if len(subjects) == 1:
        return {"filter_subject": subjects[0]}
    return {"filter_subjects": list(subjects)} if subjects else {}


def count_between(
    streams: JetStream, facts: StreamFacts, begin: int, end: int, subjects: tuple[str, ...]
) -> int:
    """Return how many messages of some subjects lie from `begin` up to `end`, exclusive."""
    count = count_from(streams, facts.name, begin, subjects)
    return count if end >= facts.end else count - count_from(streams, facts.name, end, subjects)


def position_at(streams: JetStream, facts: StreamFacts, time_ns: int) -> int | None:
    """Return the first sequence that is not before a time, by the server; None if there is none."""
    if facts.takes_messages:
        # Such a stream is read message by message, and each one's time is compared.
        return facts.first_seq
    asked = {"deliver_policy": "by_start_time", "opt_start_time": rfc3339(time_ns)}
    made = _made(streams, facts.name, asked)
    position: int = made["delivered"]["stream_seq"] + 1
    return position if made["num_pending"] else None


def _made(streams: JetStream, stream: str, start: dict[str, Any]) -> dict[str, Any]:
    config = {
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": CONSUMER_IDLE_NS,
    }
    made = streams.call(
        f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config | start}
    )
    streams.call(f"CONSUMER.DELETE.{stream}.{made['name']}")
    return made


def rfc3339(time_ns: int) -> str:
    """Return a time as servers read it, bounded by the first and the last that can be written."""
    bounded = min(max(time_ns, 0), 253_402_300_799_999_999_999)
    seconds, rest = divmod(bounded, 1_000_000_000)
    moment = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def end_of_rows(
    streams: JetStream, facts: StreamFacts, begin: int, end: int, rows: int
) -> tuple[int, int]:
    """Return where `rows` messages from `begin` on end, at most `end`, and how many they are."""
    if facts.is_dense or facts.takes_messages:
        # Without gaps every sequence is a message.
        taken = min(rows, end - begin)
        return begin + taken, taken
    from_begin = count_from(streams, facts.name, begin)
    within = from_begin - count_from(streams, facts.name, end)
    if within <= rows:
        return end, within
    return _mark(streams, facts.name, (begin, end), from_begin - rows), rows


def even_parts(
    streams: JetStream, facts: StreamFacts, bounds: tuple[int, int], parts: int
) -> list[tuple[int, int]]:
    """Return divisions of a sparse range with about the same number of messages each."""
    begin, end = bounds
    from_begin, from_end = (count_from(streams, facts.name, seq) for seq in bounds)
    within = from_begin - from_end
    if within <= 0:
        return [bounds]
    marks = [begin]
    for place in range(1, min(parts, within)):
        left = from_begin - within * place // parts
        marks.append(_mark(streams, facts.name, (marks[-1], end), left))
    return list(itertools.pairwise([*dict.fromkeys(marks), end]))


def _mark(streams: JetStream, stream: str, bounds: tuple[int, int], left: int) -> int:
    # Binary search: the number of messages from a sequence on only falls with it.
    low, high = bounds
    while low + 1 < high:
        middle = (low + high) // 2
        if count_from(streams, stream, middle) > left:
            low = middle
        else:
            high = middle
    return high
