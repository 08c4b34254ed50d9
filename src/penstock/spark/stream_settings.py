"""What the options of `penstock` say for reading, and the plan that follows from them.

Used in the driver alone: ranges carry all that tasks need. A plan depends on what the server says
of the streams and on the options, never on the clock or on how many cores there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, UsageError
from penstock.spark.connecting import ALIASES, Connection, streams_of
from penstock.spark.options import Names, Options
from penstock.spark.plan import Splitting, split_range
from penstock.spark.reading_options import Batches, Content, Following, Positive, Range
from penstock.spark.stream_read import StreamRange

FORMAT = "penstock"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Which streams, and how they are asked for messages."""

    stream: str = ""
    streams: Names | None = None
    stream_pattern: str = ""
    fetch_batch: Positive = 2000


class StreamFacts(msgspec.Struct, frozen=True):
    """A stream as its server tells of it."""

    name: str
    created: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    takes_messages: bool


class Settings(msgspec.Struct, frozen=True):
    """Everything that the options say."""

    connection: Connection
    source: Source
    wanted: Range
    batches: Batches
    splitting: Splitting
    content: Content
    following: Following


def read_settings(given: Mapping[str, str]) -> Settings:
    """Read the options of the format; raises UsageError."""
    options = Options(FORMAT, _with_host(given), ALIASES)
    settings = Settings(
        options.group(Connection),
        options.group(Source),
        options.group(Range),
        options.group(Batches),
        options.group(Splitting),
        options.group(Content),
        options.group(Following),
    )
    options.finish()
    source = settings.source
    if sum(map(bool, (source.stream, source.streams, source.stream_pattern))) != 1:
        raise UsageError(f"{FORMAT}: give one of stream, streams and streamPattern")
    settings.wanted.subjects()
    return settings


def _with_host(given: Mapping[str, str]) -> dict[str, str]:
    # The official connector has host and port apart.
    options = {name.lower(): text for name, text in given.items()}
    host, port = options.pop("nats.host", ""), options.pop("nats.port", "4222")
    if host:
        options.setdefault("servers", f"nats://{host}:{port}")
    return options


def find_streams(settings: Settings) -> list[StreamFacts]:
    """Ask the server for the streams that are meant; raises UsageError where there are none."""
    with streams_of(settings.connection) as streams:
        return [stream_facts(streams, name) for name in _names(streams, settings.source)]


def _names(streams: JetStream, source: Source) -> list[str]:
    if source.stream:
        return [source.stream]
    if source.streams is not None:
        return sorted(set(source.streams))
    try:
        pattern = re.compile(source.stream_pattern)
    except re.error as error:
        raise UsageError(f"option streamPattern: {source.stream_pattern!r}: {error}") from None
    found = sorted(n for n in streams.pages("STREAM.NAMES", "streams", {}) if pattern.fullmatch(n))
    if not found:
        raise UsageError(f"no stream's name matches {source.stream_pattern!r}")
    return found


def stream_facts(streams: JetStream, name: str) -> StreamFacts:
    """Ask for one stream; raises UsageError where there is none."""
    if not name or any(letter in name for letter in ".*> \t\r\n"):
        raise UsageError(f"{name!r} cannot be a stream's name")
    try:
        info = streams.call(f"STREAM.INFO.{name}")
    except ApiError as error:
        raise UsageError(f"stream {name}: {error}") from None
    state: dict[str, Any] = info["state"]
    return StreamFacts(
        name,
        info["created"],
        state["first_seq"],
        state["last_seq"],
        state["messages"],
        state["bytes"],
        info["config"].get("retention", "limits") != "limits",
    )


def bounds_of(settings: Settings, facts: StreamFacts) -> tuple[int, int]:
    """Give the first sequence that a batch reads of a stream, and the one that ends it."""
    first = named_position(settings.wanted.starting_offsets, "startingOffsets", facts, "earliest")
    end = named_position(settings.wanted.ending_offsets, "endingOffsets", facts, "latest")
    return max(first, facts.first_seq), min(end, facts.last_seq + 1)


def named_position(text: str, option: str, facts: StreamFacts, default: str) -> int:
    """Read a position of a stream: earliest, latest, a sequence, or JSON with one for each stream.

    In JSON -2 stands for the earliest and -1 for the latest, as with Kafka.
    """
    if text.startswith("{"):
        text = _position_in(text, option, facts.name, default)
    text = text or default
    if text in ("earliest", "-2"):
        return facts.first_seq
    if text in ("latest", "-1"):
        return facts.last_seq + 1
    if not text.isdecimal():
        raise UsageError(
            f"option {option}: {text!r} is neither earliest, latest, a sequence nor JSON with one "
            "for each stream"
        )
    return int(text)


def _position_in(text: str, option: str, stream: str, default: str) -> str:
    try:
        named = json.loads(text)
        return str(named.get(stream, default))
    except (ValueError, AttributeError) as error:
        raise UsageError(f"option {option}: {text!r}: {error}") from None


def ranges_of(settings: Settings, facts: StreamFacts, first: int, end: int) -> list[StreamRange]:
    """Divide a stretch of a stream among tasks."""
    wanted = settings.wanted
    whole = facts.last_seq + 1 - facts.first_seq
    share = (end - first) / whole if whole > 0 else 0
    return [
        StreamRange(
            settings.connection,
            facts.name,
            facts.created,
            part_first,
            part_end,
            tuple(wanted.subject or ()),
            wanted.first_ns(),
            wanted.last_ns(),
            settings.source.fetch_batch,
            settings.batches.arrow_batch_rows,
            settings.batches.arrow_batch_bytes,
            facts.takes_messages,
            settings.following.fail_on_data_loss,
        )
        for part_first, part_end in split_range(
            first,
            end,
            records=round(facts.messages * share),
            size=round(facts.bytes * share),
            splitting=settings.splitting,
        )
    ]
