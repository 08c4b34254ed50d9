"""The options of `penstock-blocks`, the plan that follows from them, and positions in a directory.

Used in the driver alone: the parts of a plan hold all that tasks need. Positions (the first
message, a time, a number of messages) are found by block headers and indexes, without reading
messages. Removed messages do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from penstock.errors import UsageError
from penstock.format.golang.directory import is_go_stream_directory
from penstock.format.index.block_index import BlockIndex
from penstock.format.reader import BlockInfo, StreamReader
from penstock.spark.blocks.scan import (
    BlockRange,
    StreamDirectory,
    handle_damage,
    removed_within,
)
from penstock.spark.folder import folder_at, stream_name
from penstock.spark.options import (
    Batches,
    Content,
    Following,
    NoMatch,
    OnCorruptRecord,
    Options,
    Range,
    hint_of,
)
from penstock.spark.part import (
    MessageSelection,
    Splitting,
    StreamPart,
    Weighed,
    group_units,
    weigh_block,
)
from penstock.spark.pushdown import Pushdown, PushedFilters, both
from penstock.spark.schema import ALL_BLOCK_COLUMNS, BLOCK_COLUMNS, SEQUENCE, Column

FORMAT = "penstock-blocks"


# Options


class Layout(StrEnum):
    """Which server wrote the files."""

    AUTO = "auto"
    NATIVE = "native"
    GO = "go"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Which directory, and how it is read."""

    path: str = ""
    stream: str = ""
    layout: Layout = Layout.AUTO
    key_file: str = ""
    on_corrupt_record: OnCorruptRecord = OnCorruptRecord.FAIL
    quarantine_path: str = ""
    include_deleted: bool = False


class Settings(msgspec.Struct, frozen=True):
    """All options of one use of the format, checked."""

    directory: StreamDirectory
    selection: MessageSelection
    splitting: Splitting
    content: Content
    on_corrupt: OnCorruptRecord
    following: Following
    starts_at_end: bool
    pushdown: Pushdown = Pushdown()
    start_ns: int | None = None
    """The time of the first message. It counts over the first sequence of `selection`."""

    end_ns: int | None = None
    no_match: NoMatch = NoMatch.ERROR

    def columns(self) -> tuple[Column, ...]:
        """Return the columns that the table can have."""
        known = ALL_BLOCK_COLUMNS if self.selection.include_deleted else BLOCK_COLUMNS
        return self.content.known(known)


def read_settings(given: Mapping[str, str]) -> Settings:
    """Return the checked options of the format; raise UsageError if one is wrong."""
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
    directory = StreamDirectory(
        source.path, name, source.key_file, _is_go(source), source.quarantine_path
    )
    if directory.is_go and source.include_deleted:
        raise UsageError(
            f"{FORMAT}: option includeDeleted is for our own layout, and {source.path} is of "
            "Go's server"
        )
    selection = MessageSelection.of(
        wanted, batches, content.payload_compression, following.fail_on_data_loss
    )
    return Settings(
        directory,
        msgspec.structs.replace(selection, include_deleted=source.include_deleted),
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


def narrowed(settings: Settings, by: PushedFilters) -> Settings | None:
    """Return the settings narrowed by a query's filters; None if no message can match."""
    selection = settings.selection
    known = None if selection.subjects is None else selection.subject_texts()
    subjects = both(known, by.subjects)
    if by.is_nothing or subjects == ():
        return None
    narrower = msgspec.structs.replace(
        selection.between(by.first_seq, by.last_seq),
        first_ns=max(selection.first_ns, by.first_ns),
        last_ns=min(selection.last_ns, by.last_ns),
        subjects=None if subjects is None else tuple(each.encode() for each in subjects),
    )
    return msgspec.structs.replace(settings, selection=narrower)


# The plan


def plan(settings: Settings) -> list[StreamPart]:
    """Return the parts of the directory; raise CorruptStore if blocks cannot be read."""
    if settings.directory.is_go:
        return _plan_go(settings)
    reader = settings.directory.open()
    return plan_of(times_as_sequences(settings, reader), reader)


def times_as_sequences(settings: Settings, reader: StreamReader) -> Settings:
    """Return the settings with the sequences that their times stand for; raise UsageError."""
    selection = settings.selection
    if settings.start_ns is not None:
        first = position_at(reader, settings.start_ns)
        if first is None and settings.no_match is NoMatch.ERROR:
            raise UsageError(
                f"option startingOffsetsByTimestamp: {settings.directory.stream} has no message "
                "from then on; with startingOffsetsByTimestampStrategy=latest it begins at its end"
            )
        first = reader.last_seq + 1 if first is None else first
        selection = msgspec.structs.replace(selection, first_seq=first)
    if settings.end_ns is not None and (end := position_at(reader, settings.end_ns)) is not None:
        selection = msgspec.structs.replace(selection, last_seq=end - 1)
    return msgspec.structs.replace(settings, selection=selection)


def plan_of(settings: Settings, reader: StreamReader) -> list[StreamPart]:
    """Return the parts of a directory that was opened already."""
    handle_damage(reader.damage, settings.directory, settings.on_corrupt)
    found = reader.candidates(settings.selection.for_reader([SEQUENCE]))
    weighed = [weigh_block(block, selected) for block, selected in found]
    return [
        StreamPart(
            BlockRange(
                settings.directory,
                tuple(blocks),
                removed_within(reader.removed, blocks),
                settings.on_corrupt,
            ),
            settings.selection,
        )
        for blocks in group_units(weighed, settings.splitting)
    ]


def _plan_go(settings: Settings) -> list[StreamPart]:
    if settings.start_ns is not None or settings.end_ns is not None:
        raise UsageError(
            f"{FORMAT}: of a directory of Go's server times are wanted by startingTimestamp and "
            "endingTimestamp"
        )
    reader = settings.directory.open_go()
    selection = settings.selection
    blocks = [
        BlockInfo(
            each.number, 0, each.bytes, each.first_seq, each.last_seq,
            each.last_seq - each.first_seq + 1, 0, 0, 0, True, reader.encrypted,
        )
        for each in reader.blocks
        if each.first_seq <= selection.last_seq and each.last_seq >= selection.first_seq
    ]  # fmt: skip
    weighed = [Weighed(each, each.bytes, each.count) for each in blocks]
    directory = msgspec.structs.replace(settings.directory, stream=reader.name)
    return [
        StreamPart(BlockRange(directory, tuple(group), b"", settings.on_corrupt), selection)
        for group in group_units(weighed, settings.splitting)
    ]


# Positions


def end_of_rows(reader: StreamReader, begin: int, rows: int) -> int:
    """Return the first sequence behind `rows` live messages from `begin` on."""
    end = begin
    for block in reader.blocks:
        if block.last_seq < begin or not block.count:
            continue
        first, behind = max(begin, block.base_seq), block.last_seq + 1
        index = reader.load_index(block.number)
        live = _count_live(reader, index, first, behind)
        if live > rows:
            return _end_within(reader, index, (first, behind), rows)
        rows -= live
        end = behind
    return end


def _count_live(reader: StreamReader, index: BlockIndex, first: int, end: int) -> int:
    # The index of a rewritten block has no entries for messages that were removed before.
    ordinal = index.first_ordinal_from
    removed = sum(
        ordinal(high + 1) - ordinal(low)
        for low, high in reader.removed.ranges_between(first, end - 1)
    )
    return ordinal(end) - ordinal(first) - removed


def _end_within(reader: StreamReader, index: BlockIndex, bounds: tuple[int, int], rows: int) -> int:
    # Binary search: the number of live messages up to a sequence only grows with it.
    first, _ = bounds
    low, high = bounds
    while low + 1 < high:
        middle = (low + high) // 2
        if _count_live(reader, index, first, middle) < rows:
            low = middle
        else:
            high = middle
    return high


def first_seq(reader: StreamReader) -> int:
    """Return the first sequence that was not removed; one behind the last if all were."""
    for block in reader.blocks:
        index = reader.load_index(block.number)
        ordinal = 0
        while ordinal < index.count:
            seq = index.entry(ordinal)[0]
            removed = next(reader.removed.ranges_between(seq, block.last_seq), (seq + 1, 0))
            if removed[0] > seq:
                return seq
            ordinal = index.first_ordinal_from(removed[1] + 1)
    return reader.last_seq + 1


def identity(reader: StreamReader) -> str:
    """Return the stream's salt, which every block's header has; "" if there is no block."""
    if not reader.blocks:
        return ""
    number = reader.blocks[-1].number
    _, header = reader.start(number)
    return f"{reader.header(number, header).salt:016x}"


def position_at(reader: StreamReader, time_ns: int) -> int | None:
    """Return the first sequence that is not before a time; None if all are."""
    for block in reader.blocks:
        if not block.count or block.last_time_ns < time_ns:
            continue
        index = reader.load_index(block.number)
        for ordinal in range(index.count):
            seq, _, _, timestamp_ns, *_ = index.entry(ordinal)
            if timestamp_ns >= time_ns and seq not in reader.removed:
                return seq
    return None
