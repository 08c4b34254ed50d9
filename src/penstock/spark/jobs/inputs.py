"""What jobs read: a stream of a server, or a directory of blocks, in the parts of its own plan.

The formats plan and read; here is the one door through which jobs reach both. Options are those of
the formats, under the same names. Tasks load `read_part` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from penstock.errors import UsageError
from penstock.spark import block_settings, stream_settings
from penstock.spark.block_scan import Stretch, scan
from penstock.spark.reading_options import OnCorruptRecord
from penstock.spark.schema import Column
from penstock.spark.stream_read import StreamRange, read_range

BlockFormat = block_settings.FORMAT
StreamFormat = stream_settings.FORMAT


class InputPart(msgspec.Struct, frozen=True):
    """What one task reads of an input."""

    source: Stretch | StreamRange
    on_corrupt: OnCorruptRecord = OnCorruptRecord.FAIL

    @property
    def stream(self) -> str:
        """Give the stream's name."""
        return self.source.place.stream if isinstance(self.source, Stretch) else self.source.stream


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

    def parts(self) -> list[InputPart]:
        """Divide it among tasks; raises UsageError, CorruptStore, OSError."""
        if self.format == BlockFormat:
            settings = block_settings.read_settings(self.options)
            return [InputPart(each, settings.on_corrupt) for each in block_settings.plan(settings)]
        if self.format == StreamFormat:
            return [InputPart(each) for each in _ranges(self.options)]
        raise UsageError(f"a job reads {StreamFormat} or {BlockFormat}, not {self.format!r}")


def _ranges(options: Mapping[str, str]) -> Iterator[StreamRange]:
    settings = stream_settings.read_settings(options)
    for facts in stream_settings.find_streams(settings):
        bounds = stream_settings.bounds_of(settings, facts)
        yield from stream_settings.ranges_of(settings, facts, *bounds)


def read_part(part: InputPart, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a part; in a task."""
    if isinstance(part.source, Stretch):
        yield from scan(part.source, list(columns), part.on_corrupt)
    else:
        yield from read_range(part.source, list(columns))
