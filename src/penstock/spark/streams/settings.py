"""What the options of `penstock` say for reading, and the plan that follows from them.

Used in the driver alone: ranges carry all that tasks need. A plan depends on what the server says
of the streams and on the options, never on the clock or on how many cores there are.
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
from penstock.spark.connecting import ALIASES, Connection, Milliseconds, ask
from penstock.spark.options import Names, Options, hint_of
from penstock.spark.plan import Splitting, split_range
from penstock.spark.positions import Rules
from penstock.spark.pushdown import Narrowed, Pushdown, both
from penstock.spark.reading_options import Batches, Content, Following, NoMatch, Positive, Range
from penstock.spark.streams.counts import count_between, even_parts, position_at
from penstock.spark.streams.facts import NoSuchStream, StreamFacts, stream_facts
from penstock.spark.streams.read import StreamRange

FORMAT = "penstock"

SPARSE_PART = 2
"""A stream of which less than one sequence in these is a message is divided by counting."""

PASSED_OVER = {
    "nats.pull.consumer.create",
    "nats.pull.consumer.ack.wait",
    "nats.pull.consumer.max.ack.pending",
    "nats.pull.consumer.max.batch",
    "nats.pull.batcher.initial.delay",
    "nats.pull.batcher.frequency.secs",
    "nats.pull.wait.time",
}
"""Options of the official connector's consumer: reading has none that could be set."""


_NO_NAME = re.compile(r"[.*>/\\\s\x00-\x1f\x7f]")


class ReadMode(StrEnum):
    """How a server is asked for messages."""

    AUTO = "auto"
    CONSUMER = "consumer"
    DIRECT = "direct"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Which streams, and how they are asked for messages."""

    stream: str = ""
    streams: Names | None = None
    stream_pattern: str = ""
    fetch_batch: Positive = 2000
    read_mode: ReadMode = ReadMode.AUTO
    poll_timeout_ms: Milliseconds = 120_000
    ack_consumer: str = ""


class Settings(msgspec.Struct, frozen=True):
    """Everything that the options say."""

    connection: Connection
    source: Source
    wanted: Range
    batches: Batches
    splitting: Splitting
    content: Content
    following: Following
    pushdown: Pushdown = Pushdown()
    narrowed: Narrowed = Narrowed()
    """What a query's own filters leave to be read."""


def read_settings(given: Mapping[str, str]) -> Settings:
    """Read the options of the format; raises UsageError."""
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
    # The official connector has host and port apart, and settings of a consumer that we have not.
    options = {
        name.lower(): text for name, text in given.items() if name.lower() not in PASSED_OVER
    }
    host, port = options.pop("nats.host", ""), options.pop("nats.port", "4222")
    if host:
        options.setdefault("servers", f"nats://{host}:{port}")
    return options


def find_streams(settings: Settings, maybe_gone: Container[str] = ()) -> list[StreamFacts]:
    """Ask the server for the streams that are meant; raises UsageError where one is missing.

    Those of `maybe_gone` are left out where they are.
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
    """Give the first sequence that a batch reads of a stream, and the one that ends it.

    A time counts over a sequence; where both ends are given by times, they are looked for.
    """
    wanted, narrowed = settings.wanted, settings.narrowed
    first = begin_of(settings, facts, "earliest")
    end = named_position(wanted.ending_offsets, "endingOffsets", facts, "latest")
    if wanted.ending_timestamp:
        end = _at_time(settings, facts, wanted.last_ns() + 1, facts.end)
    elif facts.name in (times := wanted.end_times()):
        end = _at_time(settings, facts, times[facts.name], facts.end)
    first = max(first, facts.first_seq, narrowed.first_seq)
    return first, min(end, facts.end, narrowed.last_seq + 1)


def begin_of(settings: Settings, facts: StreamFacts, default: str) -> int:
    """Give where the options have a stream begin; raises UsageError."""
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
    """Read a position of a stream: earliest, latest, a sequence, or JSON with one for each stream.

    In JSON -2 stands for the earliest and -1 for the latest, as with Kafka.
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


def ranges_of(settings: Settings, facts: StreamFacts, first: int, end: int) -> list[StreamRange]:
    """Divide a stretch of a stream among tasks; raises UsageError."""
    wanted, narrowed = settings.wanted, settings.narrowed
    subjects = both(tuple(wanted.subject) if wanted.subject else None, narrowed.subjects)
    if narrowed.is_nothing or subjects == ():
        return []
    whole = StreamRange(
        settings.connection,
        facts.name,
        facts.created,
        first,
        end,
        subjects or (),
        max(wanted.first_ns(), narrowed.first_ns),
        min(wanted.last_ns(), narrowed.last_ns),
        settings.source.fetch_batch,
        settings.batches.arrow_batch_rows,
        settings.batches.arrow_batch_bytes,
        _is_gotten(settings.source.read_mode, facts),
        rules_of(settings, facts).fail_on_data_loss,
        facts.is_direct,
        settings.source.poll_timeout_ms,
        settings.content.payload_compression,
    )
    return [
        msgspec.structs.replace(whole, first=part_first, end=part_end)
        for part_first, part_end in _parts(settings, facts, whole)
    ]


def rules_of(settings: Settings, facts: StreamFacts) -> Rules:
    """Give what the options put up with in a stream."""
    rules = settings.following.rules
    return msgspec.structs.replace(
        rules, fail_on_data_loss=rules.fail_on_data_loss and not facts.replaces
    )


def _is_gotten(mode: ReadMode, facts: StreamFacts) -> bool:
    if mode is ReadMode.CONSUMER and facts.takes_messages:
        raise UsageError(
            f"stream {facts.name}: a consumer would take its messages; readMode is auto or direct"
        )
    if mode is ReadMode.DIRECT and not facts.is_direct:
        raise UsageError(f"stream {facts.name} does not allow direct gets: readMode=direct")
    return facts.takes_messages or mode is ReadMode.DIRECT


def _parts(settings: Settings, facts: StreamFacts, whole: StreamRange) -> list[tuple[int, int]]:
    first, end = whole.first, whole.end
    span = facts.end - facts.first_seq
    share = (end - first) / span if span > 0 else 0
    records = round(facts.messages * share)
    parts = _divided(settings, facts, whole, records)
    # Counting takes a consumer, which whoever reads without one may not be allowed to make.
    if len(parts) > 1 and whole.subjects and not whole.takes_messages:
        # A task costs more than a server's finding the few messages that a filter wants.
        wanted = ask(
            settings.connection,
            lambda streams: count_between(streams, facts, first, end, whole.subjects),
        )
        parts = _divided(settings, facts, whole, min(wanted, records))
    # Of a stream with large holes some parts would be empty, and others would have it all.
    is_sparse = facts.messages * SPARSE_PART < span and not whole.takes_messages
    if len(parts) < 2 or not is_sparse:
        return parts
    return ask(
        settings.connection,
        lambda streams: even_parts(streams, facts, (first, end), len(parts)),
    )


def _divided(
    settings: Settings, facts: StreamFacts, whole: StreamRange, records: int
) -> list[tuple[int, int]]:
    return split_range(
        whole.first,
        whole.end,
        records=records,
        size=records * facts.bytes // max(facts.messages, 1),
        splitting=settings.splitting,
    )
