"""What jobs read: a stream of a server, a directory of blocks or an archive, by its own plan.

The formats plan and read; here is the one door through which jobs reach them. Options are those of
the formats, under the same names. Tasks load `read_part` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from penstock.errors import UsageError
from penstock.spark.archives import manifest as archive_manifest
from penstock.spark.archives import settings as archive_settings
from penstock.spark.archives.scan import ArchivePart, scan_archive
from penstock.spark.blocks import settings as block_settings
from penstock.spark.blocks.scan import Stretch, scan
from penstock.spark.reading_options import OnCorruptRecord
from penstock.spark.schema import Column
from penstock.spark.streams import settings as stream_settings
from penstock.spark.streams.read import StreamRange, read_range

BlockFormat = block_settings.FORMAT
StreamFormat = stream_settings.FORMAT
ArchiveFormat = archive_manifest.FORMAT

SELECTING = ("subject", "startingtimestamp", "endingtimestamp", "oncorruptrecord")
"""Options that leave messages out, but for the sequences to begin and end with."""


class InputPart(msgspec.Struct, frozen=True):
    """What one task reads of an input."""

    source: Stretch | StreamRange | ArchivePart
    on_corrupt: OnCorruptRecord = OnCorruptRecord.FAIL

    @property
    def stream(self) -> str:
        """Give the stream's name."""
        return self.source.place.stream if isinstance(self.source, Stretch) else self.source.stream

    def narrowed(self, first: int, last: int) -> InputPart:
        """Give the part that reads no sequence below `first` or above `last`."""
        source = self.source
        if isinstance(source, StreamRange):
            bounds = {"first": max(source.first, first), "end": min(source.end, last + 1)}
            return replace(self, source=replace(source, **bounds))
        wanted = replace(
            source.wanted,
            first_seq=max(source.wanted.first_seq, first),
            last_seq=min(source.wanted.last_seq, last),
        )
        return replace(self, source=replace(source, wanted=wanted))


class Input(msgspec.Struct, frozen=True):
    """A stream or a directory, as options name it."""

    format: str
    options: Mapping[str, str]

    @property
    def shown(self) -> str:
        """Say what it is, for people; nothing secret."""
        names = ("path", "stream", "streams", "streampattern")
        found = {name.lower(): text for name, text in self.options.items()}
        return next((found[name] for name in names if name in found), self.format)

    def whole(self) -> Input:
        """Give the input without what leaves messages of its stream out."""
        kept = {name: text for name, text in self.options.items() if name.lower() not in SELECTING}
        return Input(self.format, kept)

    def parts(self) -> list[InputPart]:
        """Divide it among tasks; raises UsageError, CorruptStore, OSError."""
        if self.format == BlockFormat:
            settings = block_settings.read_settings(self.options)
            return [InputPart(each, settings.on_corrupt) for each in block_settings.plan(settings)]
        if self.format == StreamFormat:
            return [InputPart(each) for each in _ranges(self.options)]
        if self.format == ArchiveFormat:
            return [InputPart(each) for each in _archived(self.options)]
        raise UsageError(
            f"a job reads {StreamFormat}, {BlockFormat} or {ArchiveFormat}, not {self.format!r}"
        )


def _ranges(options: Mapping[str, str]) -> Iterator[StreamRange]:
    settings = stream_settings.read_settings(options)
    for facts in stream_settings.find_streams(settings):
        bounds = stream_settings.bounds_of(settings, facts)
        yield from stream_settings.ranges_of(settings, facts, *bounds)


def _archived(options: Mapping[str, str]) -> Iterator[ArchivePart]:
    for each in archive_settings.plan(archive_settings.read_settings(options)):
        if not isinstance(each, ArchivePart):
            raise UsageError("a job reads an archive, or a stream: leave out union")
        yield each


def read_part(part: InputPart, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a part; in a task."""
    if isinstance(part.source, Stretch):
        yield from scan(part.source, list(columns), part.on_corrupt)
    elif isinstance(part.source, ArchivePart):
        yield from scan_archive(part.source, columns)
    else:
        yield from read_range(part.source, list(columns))
