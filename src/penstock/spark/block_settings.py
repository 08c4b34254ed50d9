"""What the options of `penstock-blocks` say, and the plan that follows from them.

Used in the driver alone: a plan's stretches carry all that tasks need.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from penstock.errors import CorruptStore, UsageError
from penstock.format.golang.directory import is_go_stream_directory
from penstock.format.reader import BlockInfo, StreamReader
from penstock.spark.block_scan import Place, Stretch, Wanted, removed_within
from penstock.spark.folders import stream_name
from penstock.spark.options import Options
from penstock.spark.plan import Splitting, group_blocks
from penstock.spark.reading_options import (
    Batches,
    Content,
    Following,
    OnCorruptRecord,
    Range,
)
from penstock.spark.schema import SEQUENCE

FORMAT = "penstock-blocks"


class Layout(StrEnum):
    """Whose files they are."""

    AUTO = "auto"
    NATIVE = "native"
    GO = "go"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Which directory, and how it is to be read."""

    path: str = ""
    stream: str = ""
    layout: Layout = Layout.AUTO
    key_file: str = ""
    on_corrupt_record: OnCorruptRecord = OnCorruptRecord.FAIL


class Settings(msgspec.Struct, frozen=True):
    """Everything that the options say."""

    place: Place
    wanted: Wanted
    splitting: Splitting
    content: Content
    on_corrupt: OnCorruptRecord
    following: Following
    starts_at_end: bool


def read_settings(given: Mapping[str, str]) -> Settings:
    """Read the options of the format; raises UsageError."""
    options = Options(FORMAT, given)
    source = options.group(Source)
    wanted = options.group(Range)
    batches = options.group(Batches)
    splitting = options.group(Splitting)
    content = options.group(Content)
    following = options.group(Following)
    options.finish()
    if not source.path:
        raise UsageError(f"{FORMAT}: give the stream's directory: .load(path)")
    subjects = wanted.subjects()
    return Settings(
        Place(
            source.path,
            source.stream or stream_name(source.path),
            source.key_file,
            _is_go(source),
        ),
        Wanted(
            wanted.first_seq(),
            max(wanted.end_seq() - 1, 0),
            wanted.first_ns(),
            wanted.last_ns(),
            None if subjects is None else subjects.patterns,
            batches.arrow_batch_rows,
            batches.arrow_batch_bytes,
        ),
        splitting,
        content,
        source.on_corrupt_record,
        following,
        wanted.starts_at_end(),
    )


def _is_go(source: Source) -> bool:
    if source.layout is Layout.AUTO:
        return is_go_stream_directory(source.path)
    return source.layout is Layout.GO


def plan(settings: Settings) -> list[Stretch]:
    """Divide the wanted messages among tasks; raises CorruptStore where blocks cannot be read."""
    if settings.place.is_go:
        return _plan_go(settings)
    return plan_of(settings, settings.place.open())


def plan_of(settings: Settings, reader: StreamReader) -> list[Stretch]:
    """Divide among tasks what a reader found."""
    if reader.damage and settings.on_corrupt is OnCorruptRecord.FAIL:
        raise CorruptStore(settings.place.path, reader.damage[0].offset, str(reader.damage[0]))
    blocks = reader.in_range(settings.wanted.selection([SEQUENCE]))
    return [
        Stretch(settings.place, settings.wanted, tuple(part), removed_within(reader.removed, part))
        for part in group_blocks(blocks, settings.splitting)
    ]


def _plan_go(settings: Settings) -> list[Stretch]:
    reader = settings.place.open_go()
    wanted = settings.wanted
    blocks = [
        BlockInfo(
            each.number, 0, each.bytes, each.first_seq, each.last_seq,
            each.last_seq - each.first_seq + 1, 0, 0, 0, True, reader.encrypted,
        )
        for each in reader.blocks
        if each.first_seq <= wanted.last_seq and each.last_seq >= wanted.first_seq
    ]  # fmt: skip
    place = msgspec.structs.replace(settings.place, stream=reader.name)
    return [
        Stretch(place, wanted, tuple(part), b"")
        for part in group_blocks(blocks, settings.splitting)
    ]
