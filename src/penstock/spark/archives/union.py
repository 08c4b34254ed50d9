"""Reading the stream behind an archive in a task, while the stream may be losing its beginning.

What a task was to read from the server may have been archived and purged since it was planned, or
go while it reads: a server then passes over it without a word. So the stream is asked where it
begins after every batch, and a batch in front of which messages went is thrown away: what is gone
is read from the archive as it is by then, and the rest from the stream. Messages that neither has
any more fail the task, with both numbers.

What always holds: every message once, in order. Loaded by executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.client.jetstream import JetStream
from penstock.spark import schema
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import load_manifest
from penstock.spark.archives.scan import ArchivePart, scan_archive
from penstock.spark.blocks.scan import Wanted
from penstock.spark.connecting import streams_of
from penstock.spark.positions import DataLoss
from penstock.spark.schema import Column
from penstock.spark.streams.read import StreamRange, read_range


class LivePart(msgspec.Struct, frozen=True):
    """What one task reads of the stream, and the archive that it looks into where it must."""

    place: str
    live: StreamRange
    wanted: Wanted
    fail_on_data_loss: bool


class LivePartition(InputPartition):
    """A part, as Spark carries it to a task."""

    def __init__(self, part: LivePart) -> None:
        self.part = part


def read_live(part: LivePart, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a part; raises DataLoss where some are nowhere any more."""
    with streams_of(part.live.connection) as asking:
        yield from _Union(part, columns, asking).batches()


def hole_between(stream: str, archive_end: int, live_first: int) -> DataLoss:
    """Say that neither the archive nor the stream has what lies between them."""
    return DataLoss(
        f"stream {stream}: the archive ends before sequence {archive_end}, and the first that the "
        f"stream still has is {live_first}: nobody has what lies between"
    )


class _Union:
    """One task's reading."""

    def __init__(self, part: LivePart, columns: Sequence[Column], asking: JetStream) -> None:
        self._part = part
        self._columns = list(columns)
        # By its last sequence a batch tells how far we are, whether the user wants it or not.
        self._read = [*columns, msgspec.structs.replace(schema.SEQUENCE, shown_as="_at")]
        self._asking = asking
        self._at = part.live.first

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield everything, from here or from there."""
        end = self._part.live.end
        while self._at < end:
            yield from self._from_stream()
            if self._at < end:
                first = self._first_of_stream()
                yield from self._from_archive(min(first, end))

    def _first_of_stream(self) -> int:
        info = self._asking.call(f"STREAM.INFO.{self._part.live.stream}")
        if info["created"] != self._part.live.created:
            raise DataLoss(f"stream {self._part.live.stream} was made anew while it was read")
        first: int = info["state"]["first_seq"]
        return first

    def _from_stream(self) -> Iterator[pa.RecordBatch]:
        """Yield what the stream has, until its beginning overtakes us."""
        if self._first_of_stream() > self._at:
            return
        # Whether something is lost is for us to say, who know the archive.
        wanted = msgspec.structs.replace(self._part.live, first=self._at, fail_on_data_loss=False)
        for batch in read_range(wanted, self._read):
            if not batch.num_rows:
                continue
            if self._first_of_stream() > self._at:
                return
            self._at = batch.column("_at")[-1].as_py() + 1
            yield batch.select(batch.schema.names[:-1])
        if self._first_of_stream() <= self._at:
            self._at = wanted.end

    def _from_archive(self, end: int) -> Iterator[pa.RecordBatch]:
        if end <= self._at:
            return
        manifest = load_manifest(ArchiveFolder(self._part.place))
        if manifest.end < end and self._part.fail_on_data_loss:
            raise hole_between(manifest.stream, manifest.end, end)
        wanted = msgspec.structs.replace(self._part.wanted, first_seq=self._at, last_seq=end - 1)
        files = tuple(manifest.between(self._at, end - 1))
        yield from scan_archive(
            ArchivePart(self._part.place, manifest.stream, files, wanted), self._columns
        )
        self._at = end
