"""Reading an archive's files in tasks: which groups of rows, which columns, which messages.

Files, and groups of rows within them, that can hold nothing of what is wanted are passed over by
their smallest and largest sequence and time; by subject once their subjects were looked at, which
are few and stand apart. Loaded by executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from penstock.format.columns import ColumnBatch
from penstock.format.reader import TIME_MAX, TIME_MIN
from penstock.spark import schema
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FileEntry
from penstock.spark.archives.rows import binary_buffers, column_numbers, opened
from penstock.spark.arrow import Converter
from penstock.spark.blocks.scan import Wanted
from penstock.spark.schema import Column
from penstock.subjects import SubjectFilter

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
"""What a column of the table is made of; others are the same in every row."""


class ArchivePart(msgspec.Struct, frozen=True):
    """What one task reads of an archive."""

    place: str
    stream: str
    files: tuple[FileEntry, ...]
    wanted: Wanted


class ArchivePartition(InputPartition):
    """A part, as Spark carries it to a task."""

    def __init__(self, part: ArchivePart) -> None:
        self.part = part


def scan_archive(part: ArchivePart, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the wanted messages of a part; raises CorruptStore where a file is damaged."""
    folder = ArchiveFolder(part.place)
    converter = Converter(columns, part.stream)
    for entry in part.files:
        with opened(folder, entry) as file:
            for batch in _Picking(file, entry, part.wanted, columns).batches():
                if batch.num_rows:
                    yield converter.convert(_as_columns(batch))


class _Picking:
    """What is wanted of one file."""

    def __init__(
        self, file: pq.ParquetFile, entry: FileEntry, wanted: Wanted, columns: Sequence[Column]
    ) -> None:
        self._file = file
        self._wanted = wanted
        self._cuts = wanted.first_seq > entry.first or wanted.last_seq < entry.last
        self._by_time = (wanted.first_ns, wanted.last_ns) != (TIME_MIN, TIME_MAX)
        self._subjects = None if wanted.subjects is None else SubjectFilter(wanted.subjects)
        names = {name for each in columns for name in _STORED.get(each.holds, ())}
        names |= {"sequence"} if self._cuts or not names else set()
        names |= {"time_ns"} if self._by_time else set()
        names |= {"subject"} if self._subjects is not None else set()
        self._names = [name for name in file.schema_arrow.names if name in names]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns that are needed of the messages that are wanted."""
        groups = [each for each in range(self._file.num_row_groups) if self._is_wanted(each)]
        if not groups:
            return
        for batch in self._file.iter_batches(
            self._wanted.rows_max, row_groups=groups, columns=self._names, use_threads=False
        ):
            mask = self._mask(batch)
            yield batch if mask is None else batch.filter(mask)

    def _is_wanted(self, group: int) -> bool:
        metadata = self._file.metadata.row_group(group)
        wanted = self._wanted
        for name, low, high in (
            ("sequence", wanted.first_seq, wanted.last_seq),
            ("time_ns", wanted.first_ns, wanted.last_ns),
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
        """Tell of each row whether its subject is wanted; each subject is looked at once."""
        assert self._subjects is not None, "asked for only with a filter"
        known = [self._subjects.matches(each.encode()) for each in subjects.dictionary.to_pylist()]
        return pa.array(known, pa.bool_()).take(subjects.indices)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array | None:
        masks = []
        if self._cuts:
            masks += _within(
                batch.column("sequence"), self._wanted.first_seq, self._wanted.last_seq
            )
        if self._by_time:
            masks += _within(batch.column("time_ns"), self._wanted.first_ns, self._wanted.last_ns)
        if self._subjects is not None:
            masks.append(self._matches(batch.column("subject")))
        found = None
        for each in masks:
            found = each if found is None else pc.and_(found, each)
        return found


def _within(numbers: pa.Array, low: int, high: int) -> list[pa.Array]:
    # Sequences have no sign in a store, and more bits than Arrow's numbers here.
    most = pa.scalar(min(high, 2**63 - 1), pa.int64())
    return [pc.greater_equal(numbers, pa.scalar(low, pa.int64())), pc.less_equal(numbers, most)]


def _as_columns(batch: pa.RecordBatch) -> ColumnBatch:
    """Give rows as readers of blocks give them; nothing is copied but headers."""
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
    # Whoever takes columns takes any bytes; to the compiled maker of maps they must be `bytes`.
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
