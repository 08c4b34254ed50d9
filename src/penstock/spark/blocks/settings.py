"""What the options of `penstock-blocks` say, and the plan that follows from them.

Used in the driver alone: a plan's stretches carry all that tasks need.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from penstock.errors import UsageError
from penstock.format.golang.directory import is_go_stream_directory
from penstock.format.reader import BlockInfo, StreamReader
from penstock.spark.blocks.positions import position_at
from penstock.spark.blocks.scan import Place, Stretch, Wanted, removed_within, treat
from penstock.spark.folders import folder_at, stream_name
from penstock.spark.options import Options, hint_of
from penstock.spark.plan import Splitting, group_blocks, picked_block
from penstock.spark.pushdown import Narrowed, Pushdown, both
from penstock.spark.reading_options import (
    Batches,
    Content,
    Following,
    NoMatch,
    OnCorruptRecord,
    Range,
)
from penstock.spark.schema import ALL_BLOCK_COLUMNS, BLOCK_COLUMNS, SEQUENCE, Column

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
    quarantine_path: str = ""
    include_deleted: bool = False


class Settings(msgspec.Struct, frozen=True):
    """Everything that the options say."""

    place: Place
    wanted: Wanted
    splitting: Splitting
    content: Content
    on_corrupt: OnCorruptRecord
    following: Following
    starts_at_end: bool
    pushdown: Pushdown = Pushdown()
    start_ns: int | None = None
    """The time that the first message is looked for by, over the sequence that is wanted first."""

    end_ns: int | None = None
    no_match: NoMatch = NoMatch.ERROR

    def columns(self) -> tuple[Column, ...]:
        """Give the columns that there are."""
        known = ALL_BLOCK_COLUMNS if self.wanted.include_deleted else BLOCK_COLUMNS
        return self.content.known(known)


def read_settings(given: Mapping[str, str]) -> Settings:
    """Read the options of the format; raises UsageError."""
    options = Options(FORMAT, given)
    source = options.group(Source)
    wanted = options.group(Range)
    batches = options.group(Batches)
    splitting = options.group(Splitting)
    content = options.group(Content)
    following = options.group(Following)
    pushdown = options.group(Pushdown)
    options.finish()
    if not source.path:
        raise UsageError(f"{FORMAT}: give the stream's directory: .load(path){hint_of(given)}")
    if bool(source.quarantine_path) != (source.on_corrupt_record is OnCorruptRecord.QUARANTINE):
        raise UsageError(f"{FORMAT}: onCorruptRecord=quarantine and quarantinePath go together")
    name = source.stream or stream_name(source.path)
    place = Place(source.path, name, source.key_file, _is_go(source), source.quarantine_path)
    if place.is_go and source.include_deleted:
        raise UsageError(
            f"{FORMAT}: option includeDeleted is for our own layout, and {source.path} is of "
            "Go's server"
        )
    found = Wanted.of(wanted, batches, content.payload_compression, following.fail_on_data_loss)
    return Settings(
        place,
        msgspec.structs.replace(found, include_deleted=source.include_deleted),
        splitting,
        content,
        source.on_corrupt_record,
        following,
        wanted.starts_at_end(),
        pushdown,
        wanted.start_times().get(name),
        wanted.end_times().get(name),
        wanted.starting_offsets_by_timestamp_strategy,
    )


def _is_go(source: Source) -> bool:
    if source.layout is Layout.AUTO:
        return is_go_stream_directory(source.path, open_folder=folder_at)
    return source.layout is Layout.GO


def plan(settings: Settings) -> list[Stretch]:
    """Divide the wanted messages among tasks; raises CorruptStore where blocks cannot be read."""
    if settings.place.is_go:
        return _plan_go(settings)
    reader = settings.place.open()
    return plan_of(placed(settings, reader), reader)


def placed(settings: Settings, reader: StreamReader) -> Settings:
    """Give the settings with sequences in place of the times that they name; raises UsageError."""
    wanted = settings.wanted
    if settings.start_ns is not None:
        first = position_at(reader, settings.start_ns)
        if first is None and settings.no_match is NoMatch.ERROR:
            raise UsageError(
                f"option startingOffsetsByTimestamp: {settings.place.stream} has no message from "
                "then on; with startingOffsetsByTimestampStrategy=latest it begins at its end"
            )
        first = reader.last_seq + 1 if first is None else first
        wanted = msgspec.structs.replace(wanted, first_seq=first)
    if settings.end_ns is not None and (end := position_at(reader, settings.end_ns)) is not None:
        wanted = msgspec.structs.replace(wanted, last_seq=end - 1)
    return msgspec.structs.replace(settings, wanted=wanted)


def narrowed(settings: Settings, by: Narrowed) -> Settings | None:
    """Give the settings with what a query's filters leave; None for nothing."""
    wanted = settings.wanted
    known = None if wanted.subjects is None else tuple(each.decode() for each in wanted.subjects)
    subjects = both(known, by.subjects)
    if by.is_nothing or subjects == ():
        return None
    narrower = msgspec.structs.replace(
        wanted,
        first_seq=max(wanted.first_seq, by.first_seq),
        last_seq=min(wanted.last_seq, by.last_seq),
        first_ns=max(wanted.first_ns, by.first_ns),
        last_ns=min(wanted.last_ns, by.last_ns),
        subjects=None if subjects is None else tuple(each.encode() for each in subjects),
    )
    return msgspec.structs.replace(settings, wanted=narrower)


def plan_of(settings: Settings, reader: StreamReader) -> list[Stretch]:
    """Divide among tasks what a reader found."""
    treat(reader.damage, settings.place, settings.on_corrupt)
    found = reader.candidates(settings.wanted.selection([SEQUENCE]))
    weighed = [picked_block(block, wanted) for block, wanted in found]
    parts = ([each.block for each in part] for part in group_blocks(weighed, settings.splitting))
    return [
        Stretch(settings.place, settings.wanted, tuple(part), removed_within(reader.removed, part))
        for part in parts
    ]


def _plan_go(settings: Settings) -> list[Stretch]:
    if settings.start_ns is not None or settings.end_ns is not None:
        raise UsageError(
            f"{FORMAT}: of a directory of Go's server times are wanted by startingTimestamp and "
            "endingTimestamp"
        )
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
