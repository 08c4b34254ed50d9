"""The options of `penstock` for reading, and the plan that follows from them.

Used in the driver alone: the parts of a plan hold all that tasks need. A plan depends on what the
server says of the streams and on the options, never on the clock or on how many cores there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.format.reader import SEQ_MAX
from penstock.spark.connection import ALIASES, Connection, Milliseconds, ask
from penstock.spark.options import (
    Batches,
    Content,
    Following,
    Names,
    NoMatch,
    Options,
    Positive,
    Range,
    Rules,
    hint_of,
)
from penstock.spark.part import MessageSelection, Splitting, StreamPart, split_range
from penstock.spark.pushdown import Pushdown, PushedFilters, both
from penstock.spark.streams.facts import (
    NoSuchStream,
    StreamFacts,
    count_between,
    even_parts,
    position_at,
    stream_facts,
)
from penstock.spark.streams.read import ServerStream

FORMAT = "penstock"

SPARSE_PART = 2
"""A stream with less than one message in so many sequences is divided by counting."""

PASSED_OVER = {
    "nats.pull.consumer.create",
    "nats.pull.consumer.ack.wait",
    "nats.pull.consumer.max.ack.pending",
    "nats.pull.consumer.max.batch",
    "nats.pull.batcher.initial.delay",
    "nats.pull.batcher.frequency.secs",
    "nats.pull.wait.time",
}
"""Options of the official connector's consumer, which are ignored: reading has no such consumer."""


_NO_NAME = re.compile(r"[.*>/\\\s\x00-\x1f\x7f]")


class ReadMode(StrEnum):
    """How messages are requested from a server."""

    AUTO = "auto"
    CONSUMER = "consumer"
    DIRECT = "direct"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Options: which streams, and how their messages are requested."""

    stream: str = ""
    streams: Names | None = None
    stream_pattern: str = ""
    fetch_batch: Positive = 2000
    read_mode: ReadMode = ReadMode.AUTO
    poll_timeout_ms: Milliseconds = 120_000
    ack_consumer: str = ""


class Settings(msgspec.Struct, frozen=True):
    """All options of one use of the format, checked."""

    connection: Connection
    source: Source
    wanted: Range
    batches: Batches
    splitting: Splitting
    content: Content
    following: Following
    pushdown: Pushdown = Pushdown()
    pushed: PushedFilters = PushedFilters()
    """What is left by a query's own filters."""


def read_settings(given: Mapping[str, str]) -> Settings:
    """Return the checked options of the format; raise UsageError."""
    options = Options(FORMAT, _without_official(given), ALIASES)
    settings = Settings(
        options.group(Connection),
        options.group(Source),
        options.group(Range),
        options.group(Batches),
        options.group(Splitting),
        options.group(Content),
        options.group(Following),
        options.group(Pushdown),
    )
    options.finish()
    settings.connection.api_prefix()
    source = settings.source
    if sum(map(bool, (source.stream, source.streams, source.stream_pattern))) != 1:
        raise UsageError(f"{FORMAT}: give one of stream, streams and streamPattern{hint_of(given)}")
    if source.ack_consumer and _NO_NAME.search(source.ack_consumer):
        raise UsageError(f"option ackConsumer: {source.ack_consumer!r} can be no consumer's name")
    settings.wanted.subjects()
    settings.wanted.start_times()
    settings.wanted.end_times()
    return settings


def _without_official(given: Mapping[str, str]) -> dict[str, str]:
    # The official connector has options for host and port, and for a consumer that is not
    # used here.
    options = {
        name.lower(): text for name, text in given.items() if name.lower() not in PASSED_OVER
    }
    host, port = options.pop("nats.host", ""), options.pop("nats.port", "4222")
    if host:
        options.setdefault("servers", f"nats://{host}:{port}")
    return options


def find_streams(settings: Settings, maybe_gone: Container[str] = ()) -> list[StreamFacts]:
    """Return the streams that the options name; raise UsageError if one is missing.

    Missing streams of `maybe_gone` are left out instead.
    """

    def find(streams: JetStream) -> list[StreamFacts]:
        found = []
        for name in _names(streams, settings.source):
            try:
                found.append(stream_facts(streams, name))
            except NoSuchStream:
                if name not in maybe_gone:
                    raise
        return found

    return ask(settings.connection, find)


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


def bounds_of(settings: Settings, facts: StreamFacts) -> tuple[int, int]:
    """Return the first sequence that a batch reads of a stream, and the one behind the last.

    A time counts over a sequence; the server is asked where it lies.
    """
    wanted, pushed = settings.wanted, settings.pushed
    first = begin_of(settings, facts, "earliest")
    end = named_position(wanted.ending_offsets, "endingOffsets", facts, "latest")
    if wanted.ending_timestamp:
        end = _at_time(settings, facts, wanted.last_ns() + 1, facts.end)
    elif facts.name in (times := wanted.end_times()):
        end = _at_time(settings, facts, times[facts.name], facts.end)
    first = max(first, facts.first_seq, pushed.first_seq)
    return first, min(end, facts.end, pushed.last_seq + 1)


def begin_of(settings: Settings, facts: StreamFacts, default: str) -> int:
    """Return the sequence at which the options begin a stream; raise UsageError."""
    wanted = settings.wanted
    if wanted.starting_timestamp:
        return _at_time(settings, facts, wanted.first_ns(), facts.end)
    times = wanted.start_times()
    if facts.name not in times:
        return named_position(wanted.starting_offsets, "startingOffsets", facts, default)
    found = _at_time(settings, facts, times[facts.name], None)
    if found is None:
        if wanted.starting_offsets_by_timestamp_strategy is NoMatch.ERROR:
            raise UsageError(
                f"option startingOffsetsByTimestamp: stream {facts.name} has no message from then "
                "on; with startingOffsetsByTimestampStrategy=latest it begins at its end"
            )
        return facts.end
    return found


Default = TypeVar("Default", int, None)


def _at_time(
    settings: Settings, facts: StreamFacts, time_ns: int, default: Default
) -> int | Default:
    found = ask(settings.connection, lambda streams: position_at(streams, facts, time_ns))
    return default if found is None else found


def named_position(text: str, option: str, facts: StreamFacts, default: str) -> int:
    """Return a position of a stream: earliest, latest, a sequence, or JSON with one for each
    stream.

    In JSON -2 stands for the earliest and -1 for the latest, as with Kafka. Raise UsageError.
    """
    if text.startswith("{"):
        text = _position_in(text, option, facts.name, default)
    text = text or default
    if text in ("earliest", "-2"):
        return facts.first_seq
    if text in ("latest", "-1"):
        return facts.end
    if not text.isdecimal() or int(text) > SEQ_MAX:
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


def plan(settings: Settings) -> list[StreamPart]:
    """Return the parts of all streams that the options name; raise UsageError."""
    return [
        part
        for facts in find_streams(settings)
        for part in plan_stream(settings, facts, *bounds_of(settings, facts))
    ]


def plan_stream(settings: Settings, facts: StreamFacts, first: int, end: int) -> list[StreamPart]:
    """Return the parts of a stream's sequences from `first` up to `end`; raise UsageError."""
    wanted, pushed = settings.wanted, settings.pushed
    subjects = both(tuple(wanted.subject) if wanted.subject else None, pushed.subjects)
    if pushed.is_nothing or subjects == ():
        return []
    server = ServerStream(
        settings.connection,
        facts.name,
        facts.created,
        settings.source.fetch_batch,
        _reads_direct(settings.source.read_mode, facts),
        facts.is_direct,
        settings.source.poll_timeout_ms,
    )
    whole = MessageSelection(
        first,
        end - 1,
        max(wanted.first_ns(), pushed.first_ns),
        min(wanted.last_ns(), pushed.last_ns),
        None if subjects is None else tuple(each.encode() for each in subjects),
        settings.batches.arrow_batch_rows,
        settings.batches.arrow_batch_bytes,
        settings.content.payload_compression,
        rules_of(settings, facts).fail_on_data_loss,
    )
    return [
        StreamPart(
            server, msgspec.structs.replace(whole, first_seq=part_first, last_seq=part_end - 1)
        )
        for part_first, part_end in _divisions(settings, facts, server, whole)
    ]


def rules_of(settings: Settings, facts: StreamFacts) -> Rules:
    """Return which losses the options accept in a stream."""
    rules = settings.following.rules
    return msgspec.structs.replace(
        rules, fail_on_data_loss=rules.fail_on_data_loss and not facts.replaces
    )


def _reads_direct(mode: ReadMode, facts: StreamFacts) -> bool:
    if mode is ReadMode.CONSUMER and facts.takes_messages:
        raise UsageError(
            f"stream {facts.name}: a consumer would take its messages; readMode is auto or direct"
        )
    if mode is ReadMode.DIRECT and not facts.is_direct:
        raise UsageError(f"stream {facts.name} does not allow direct gets: readMode=direct")
    return facts.takes_messages or mode is ReadMode.DIRECT


def _divisions(
    settings: Settings, facts: StreamFacts, server: ServerStream, whole: MessageSelection
) -> list[tuple[int, int]]:
    first, end = whole.first_seq, whole.end
    span = facts.end - facts.first_seq
    share = (end - first) / span if span > 0 else 0
    records = round(facts.messages * share)
    divisions = _divided(settings, facts, whole, records)
    # Counting takes a consumer, which a client that reads without one may not be allowed to make.
    if len(divisions) > 1 and whole.subjects and not server.without_consumer:
        # A task costs more than it costs a server to find the few messages of a filter.
        subjects = whole.subject_texts()
        selected = ask(
            settings.connection,
            lambda streams: count_between(streams, facts, first, end, subjects),
        )
        divisions = _divided(settings, facts, whole, min(selected, records))
    # In a stream with large gaps some divisions would be empty, and others would have everything.
    is_sparse = facts.messages * SPARSE_PART < span and not server.without_consumer
    if len(divisions) < 2 or not is_sparse:
        return divisions
    return ask(
        settings.connection,
        lambda streams: even_parts(streams, facts, (first, end), len(divisions)),
    )


def _divided(
    settings: Settings, facts: StreamFacts, whole: MessageSelection, records: int
) -> list[tuple[int, int]]:
    return split_range(
        whole.first_seq,
        whole.end,
        records=records,
        size=records * facts.bytes // max(facts.messages, 1),
        splitting=settings.splitting,
    )
