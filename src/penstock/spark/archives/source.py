"""The format `penstock-archive`: an archived stream as a table, alone or with the stream behind it.

    spark.read.format("penstock-archive").load("/archive/ORDERS")
    spark.read.format("penstock-archive").option("union", "true").option("servers", url).load(…)

Columns and options are those of `penstock`. A table holds what the newest manifest named when it
was planned; with `union` also what the stream held then, without a gap and without a message twice:
the archive up to its end, and the stream itself from there on. Both must be of the same stream.

Options are read and plans are made in the driver: the parts of a plan hold all that tasks need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.spark.archives.folder import FORMAT, ArchiveFolder, Manifest, load_manifest
from penstock.spark.archives.scan import ArchiveFiles, ArchiveUnion, hole_between
from penstock.spark.connection import ALIASES, Connection
from penstock.spark.options import Batches, Content, Following, Options, Range
from penstock.spark.part import (
    MessageSelection,
    Splitting,
    StreamPart,
    Weighed,
    group_units,
    partitions_of,
    read_partition,
)
from penstock.spark.position import DataLoss
from penstock.spark.schema import MESSAGE_COLUMNS, Column, requested, spark_schema
from penstock.spark.streams import settings as stream_settings
from penstock.spark.streams.read import ServerStream

# Options and plans

_LIVE_ONLY = {
    field.encode_name.lower()
    for kind in (Connection, stream_settings.Source)
    for field in msgspec.structs.fields(kind)
}
_OURS = {"path", "union"}
_OF_STREAMS = (
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "payloadCompression",
    "schemaStyle",
)
"""Options of streams and directories that have no meaning here. Ignored silently, they would give
other rows than the user asked for."""


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Options: which archive, and whether the stream is read behind it."""

    path: str = ""
    union: bool = False


class Settings(msgspec.Struct, frozen=True):
    """All options of one use of the format, checked."""

    folder: str
    selection: MessageSelection
    starts_at_end: bool
    splitting: Splitting
    content: Content
    following: Following
    live: dict[str, str] | None
    """The options of `penstock` for the stream behind the archive; None without union."""


def read_settings(given: Mapping[str, str]) -> Settings:
    """Return the checked options of the format; raise UsageError."""
    options = Options(FORMAT, given, ALIASES)
    source = options.group(Source)
    wanted = options.group(Range)
    batches = options.group(Batches)
    splitting = options.group(Splitting)
    content = options.group(Content)
    following = options.group(Following)
    options.group(Connection)
    options.group(stream_settings.Source)
    options.finish()
    if not source.path:
        raise UsageError(f"{FORMAT}: give the archive's folder: .load(path)")
    _refuse_of_streams(given)
    live = None
    if source.union:
        live = {name: text for name, text in given.items() if name.lower() not in _OURS}
    else:
        _refuse_live(given)
    return Settings(
        source.path,
        MessageSelection.of(wanted, batches),
        wanted.starts_at_end(),
        splitting,
        content,
        following,
        live,
    )


def _refuse_of_streams(given: Mapping[str, str]) -> None:
    meant = {ALIASES.get(name.lower(), name).lower() for name in given}
    for name in _OF_STREAMS:
        if name.lower() in meant:
            raise UsageError(f"{FORMAT}: option {name} is for streams and directories")


def _refuse_live(given: Mapping[str, str]) -> None:
    for name in given:
        if ALIASES.get(name.lower(), name).lower() in _LIVE_ONLY:
            raise UsageError(f"{FORMAT}: option {name} is for reading on in the stream: union=true")


def plan(settings: Settings) -> list[StreamPart]:
    """Return the parts of the archive and of the stream behind it.

    Raise UsageError, CorruptStore, or DataLoss if messages are missing between the two.
    """
    folder = ArchiveFolder(settings.folder)
    manifest = load_manifest(folder)
    if settings.live is None:
        return _plan_files(settings, manifest)
    live = _live_settings(settings, settings.live, manifest.stream)
    facts = stream_settings.find_streams(live)[0]
    # Messages are purged from a stream after they were archived: with the manifest loaded last,
    # none is missed that is purged just now.
    manifest = load_manifest(folder)
    if facts.created != manifest.created:
        raise DataLoss(
            f"stream {facts.name} was made {facts.created}, and the archive is of the one that "
            f"was made {manifest.created}"
        )
    first = max(manifest.end, settings.selection.first_seq)
    end = min(facts.last_seq, settings.selection.last_seq) + 1
    if settings.following.fail_on_data_loss:
        _refuse_holes(manifest, settings.selection)
        if facts.first_seq > first and first < end:
            raise hole_between(manifest.stream, manifest.end, facts.first_seq)
    behind = stream_settings.plan_stream(live, facts, max(first, facts.first_seq), end)
    return [
        *_plan_files(settings, manifest),
        *(_with_archive(settings, each) for each in behind),
    ]


def _with_archive(settings: Settings, part: StreamPart) -> StreamPart:
    assert isinstance(part.source, ServerStream), "planned by the format of servers"
    return StreamPart(
        ArchiveUnion(settings.folder, part.source),
        msgspec.structs.replace(
            part.selection, fail_on_data_loss=settings.following.fail_on_data_loss
        ),
    )


def _plan_files(settings: Settings, manifest: Manifest) -> list[StreamPart]:
    first = manifest.end if settings.starts_at_end else settings.selection.first_seq
    selection = msgspec.structs.replace(settings.selection, first_seq=first)
    files = [
        Weighed(each, each.bytes, each.messages)
        for each in manifest.between(selection.first_seq, selection.last_seq)
        if each.messages
        and each.first_ns <= selection.last_ns
        and each.last_ns >= selection.first_ns
    ]
    return [
        StreamPart(ArchiveFiles(settings.folder, manifest.stream, tuple(group)), selection)
        for group in group_units(files, settings.splitting)
    ]


def _refuse_holes(manifest: Manifest, selection: MessageSelection) -> None:
    for first, last in manifest.holes():
        if first <= selection.last_seq and last >= selection.first_seq:
            raise DataLoss(
                f"the archive of {manifest.stream} has nothing of the sequences from {first} to "
                f"{last}; with failOnDataLoss=false the rest is read"
            )


def _live_settings(
    settings: Settings, given: dict[str, str], stream: str
) -> stream_settings.Settings:
    named = next((text for name, text in given.items() if name.lower() == "stream"), stream)
    if named != stream:
        raise UsageError(f"{settings.folder} is an archive of {stream}, not of {named}")
    options = {name: text for name, text in given.items() if name.lower() != "stream"}
    return stream_settings.read_settings({**options, "stream": stream})


# The format


class ArchiveReader(DataSourceReader):
    """Reads an archive once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the archive, and of the stream behind it."""
        return partitions_of(plan(self._settings))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        return read_partition(partition, self._columns)


class ArchiveSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that the options ask for; raise UsageError if there is no archive."""
        settings = read_settings(self.options)
        load_manifest(ArchiveFolder(settings.folder))
        return spark_schema(settings.content.choose(MESSAGE_COLUMNS))

    def reader(self, schema: StructType) -> ArchiveReader:
        """Return a reader for one batch."""
        return ArchiveReader(read_settings(self.options), requested(schema, MESSAGE_COLUMNS))
