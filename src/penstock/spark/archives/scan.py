"""Reading an archive in tasks: its files, and the stream that goes on behind them.

Files, and groups of rows within them, that hold no selected message are skipped by their smallest
and largest sequence and time. They are skipped by subject after their subjects were read, which are
few and stored apart.

An `ArchiveUnion` reads the stream behind the archive. What a task was to read from the server may
have been archived and purged since it was planned, or be purged while the task reads: the server
then skips it silently. So the task asks for the stream's first sequence after every batch, and
drops a batch before which messages went. Those are read from the archive as it is by then, and the
rest from the stream. Messages that neither has any more fail the task, with both numbers.

Invariant: every message comes once, in order. Loaded by executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.client.jetstream import JetStream
from penstock.format.columns import ColumnBatch
from penstock.format.reader import SEQ_MAX
from penstock.spark import schema
from penstock.spark.archives.folder import ArchiveFolder, FileEntry, load_manifest
from penstock.spark.archives.parquet import binary_buffers, column_numbers, opened
from penstock.spark.arrow import Converter
from penstock.spark.connection import streams_of
from penstock.spark.part import MessageSelection
from penstock.spark.position import DataLoss
from penstock.spark.schema import Column
from penstock.spark.streams.read import ServerStream, read_stream

_STORED: dict[str, tuple[str, ...]] = {
    schema.SUBJECT.holds: ("subject",),
    schema.SEQUENCE.holds: ("sequence",),
    schema.TIMESTAMP.holds: ("time_ns",),
    schema.TIME_NS.holds: ("time_ns",),
    schema.HEADER_MAP.holds: ("headers",),
    schema.RAW_HEADERS.holds: ("headers",),
    schema.DATA.holds: ("data",),
    schema.VALUE.holds: ("data",),
    schema.SIZE.holds: ("headers", "data"),
}
"""The columns of a file that a column of the table is made of; others are the same in every row."""


class ArchiveFiles(msgspec.Struct, frozen=True):
    """Files of an archive: a source of a `StreamPart`."""

    folder: str
    stream: str
    files: tuple[FileEntry, ...]

    @property
    def last_seq(self) -> int:
        """The last sequence that the files answer for."""
        return self.files[-1].last

    @property
    def count(self) -> int:
        """How many messages the files hold."""
        return sum(each.messages for each in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes of headers and payloads the files hold."""
        return sum(each.bytes for each in self.files)

    def read(
        self, selection: MessageSelection, columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected messages; raise CorruptStore if a file is damaged."""
        folder = ArchiveFolder(self.folder)
        converter = Converter(columns, self.stream)
        for entry in self.files:
            with opened(folder, entry) as file:
                for batch in _FileScan(file, entry, selection, columns).batches():
                    if batch.num_rows:
                        yield converter.convert(_as_columns(batch))


class _FileScan:
    """Reads the selected messages of one file."""

    def __init__(
        self,
        file: pq.ParquetFile,
        entry: FileEntry,
        selection: MessageSelection,
        columns: Sequence[Column],
    ) -> None:
        self._file = file
        self._selection = selection
        self._cuts = selection.first_seq > entry.first or selection.last_seq < entry.last
        self._by_time = selection.selects_times
        self._subjects = selection.subject_filter()
        names = {name for each in columns for name in _STORED.get(each.holds, ())}
        names |= {"sequence"} if self._cuts or not names else set()
        names |= {"time_ns"} if self._by_time else set()
        names |= {"subject"} if self._subjects is not None else set()
        self._names = [name for name in file.schema_arrow.names if name in names]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the stored columns that are needed, of the selected messages."""
        groups = [each for each in range(self._file.num_row_groups) if self._may_match(each)]
        if not groups:
            return
        for batch in self._file.iter_batches(
            self._selection.rows_max, row_groups=groups, columns=self._names, use_threads=False
        ):
            mask = self._mask(batch)
            yield batch if mask is None else batch.filter(mask)

    def _may_match(self, group: int) -> bool:
        metadata = self._file.metadata.row_group(group)
        selection = self._selection
        for name, low, high in (
            ("sequence", selection.first_seq, selection.last_seq),
            ("time_ns", selection.first_ns, selection.last_ns),
        ):
            column = metadata.column(self._file.schema_arrow.get_field_index(name))
            found = column.statistics
            if found is not None and found.has_min_max and (found.max < low or found.min > high):
                return False
        if self._subjects is None:
            return True
        table = self._file.read_row_group(group, columns=["subject"], use_threads=False)
        return any(self._has_subject(each) for each in table.column(0).chunks)

    def _has_subject(self, subjects: pa.DictionaryArray) -> bool:
        return any(pc.unique(self._matches(subjects)).to_pylist())

    def _matches(self, subjects: pa.DictionaryArray) -> pa.Array:
        """Return for each row whether its subject is selected; each subject is matched once."""
        assert self._subjects is not None, "only called with a filter"
        known = [self._subjects.matches(each.encode()) for each in subjects.dictionary.to_pylist()]
        return pa.array(known, pa.bool_()).take(subjects.indices)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array | None:
        masks = []
        if self._cuts:
            masks += _within(
                batch.column("sequence"), self._selection.first_seq, self._selection.last_seq
            )
        if self._by_time:
            masks += _within(
                batch.column("time_ns"), self._selection.first_ns, self._selection.last_ns
            )
        if self._subjects is not None:
            masks.append(self._matches(batch.column("subject")))
        found = None
        for each in masks:
            found = each if found is None else pc.and_(found, each)
        return found


def _within(numbers: pa.Array, low: int, high: int) -> list[pa.Array]:
    # Sequences of a store are unsigned; those of the file are signed.
    most = pa.scalar(min(high, 2**63 - 1), pa.int64())
    return [pc.greater_equal(numbers, pa.scalar(low, pa.int64())), pc.less_equal(numbers, most)]


def _as_columns(batch: pa.RecordBatch) -> ColumnBatch:
    """Return rows in the form that readers of blocks yield; only headers are copied."""
    names = set(batch.schema.names)

    def numbers(name: str) -> memoryview:
        return column_numbers(batch.column(name)).cast("B") if name in names else memoryview(b"")

    def texts(name: str) -> tuple[memoryview, memoryview]:
        if name not in names:
            return memoryview(bytes(4 * (batch.num_rows + 1))), memoryview(b"")
        column = batch.column(name)
        plain = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        offsets, data = binary_buffers(plain)
        return offsets.cast("B"), data

    subjects, headers, payloads = texts("subject"), texts("headers"), texts("data")
    # All but the compiled builder of header maps take any buffer; that one takes `bytes`.
    return ColumnBatch(
        0,
        batch.num_rows,
        cast(bytes, numbers("sequence")),
        cast(bytes, numbers("time_ns")),
        b"",
        cast(bytes, subjects[0]),
        cast(bytes, subjects[1]),
        bytes(headers[0]),
        bytes(headers[1]),
        cast(bytes, payloads[0]),
        cast(bytes, payloads[1]),
    )


class ArchiveUnion(msgspec.Struct, frozen=True):
    """A stream behind its archive: a source of a `StreamPart`."""

    folder: str
    """The archive, for what the stream loses meanwhile."""

    server: ServerStream

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.server.stream

    @property
    def last_seq(self) -> int:
        """The last sequence that a stream can have: a selection says where a part ends."""
        return SEQ_MAX

    @property
    def count(self) -> int:
        """0: only the server knows."""
        return 0

    @property
    def bytes(self) -> int:
        """0: only the server knows."""
        return 0

    def read(
        self, selection: MessageSelection, columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected messages; raise DataLoss if some are in neither of the two."""
        with streams_of(self.server.connection) as streams:
            yield from _UnionReader(self, selection, columns, streams).batches()


def hole_between(stream: str, archive_end: int, live_first: int) -> DataLoss:
    """Return the error that neither the archive nor the stream has what lies between them."""
    return DataLoss(
        f"stream {stream}: the archive ends before sequence {archive_end}, and the first that the "
        f"stream still has is {live_first}: nobody has what lies between"
    )


class _UnionReader:
    """Reads an `ArchiveUnion` in one task."""

    def __init__(
        self,
        union: ArchiveUnion,
        selection: MessageSelection,
        columns: Sequence[Column],
        streams: JetStream,
    ) -> None:
        self._union = union
        self._selection = selection
        self._columns = list(columns)
        # A batch's last sequence says how far the task is, whether the user reads it or not.
        self._read = [*columns, msgspec.structs.replace(schema.SEQUENCE, shown_as="_at")]
        self._streams = streams
        self._at = selection.first_seq

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield everything, from the stream or from the archive."""
        end = self._selection.end
        while self._at < end:
            yield from self._from_stream()
            if self._at < end:
                first = self._first_of_stream()
                yield from self._from_archive(min(first, end))

    def _first_of_stream(self) -> int:
        server = self._union.server
        info = self._streams.call(f"STREAM.INFO.{server.stream}")
        if info["created"] != server.created:
            raise DataLoss(f"stream {server.stream} was made anew while it was read")
        first: int = info["state"]["first_seq"]
        return first

    def _from_stream(self) -> Iterator[pa.RecordBatch]:
        """Yield messages of the stream until its first sequence is behind the next to be read."""
        if self._first_of_stream() > self._at:
            return
        # Only this reader knows the archive, so it decides whether messages are lost.
        selection = msgspec.structs.replace(
            self._selection, first_seq=self._at, fail_on_data_loss=False
        )
        for batch in read_stream(self._union.server, selection, self._read):
            if not batch.num_rows:
                continue
            if self._first_of_stream() > self._at:
                return
            self._at = batch.column("_at")[-1].as_py() + 1
            yield batch.select(batch.schema.names[:-1])
        if self._first_of_stream() <= self._at:
            self._at = selection.end

    def _from_archive(self, end: int) -> Iterator[pa.RecordBatch]:
        if end <= self._at:
            return
        manifest = load_manifest(ArchiveFolder(self._union.folder))
        if manifest.end < end and self._selection.fail_on_data_loss:
            raise hole_between(manifest.stream, manifest.end, end)
        selection = msgspec.structs.replace(self._selection, first_seq=self._at, last_seq=end - 1)
        entries = tuple(manifest.between(self._at, end - 1))
        files = ArchiveFiles(self._union.folder, manifest.stream, entries)
        yield from files.read(selection, self._columns)
        self._at = end
