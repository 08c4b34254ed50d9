"""Messages in Parquet: how an archive's files are written, checked and read again.

A file holds its messages in order of sequence, in groups of rows, with everything that a message
has: `sequence`, `time_ns` (exact), `timestamp` (the same to a microsecond, for other engines),
`subject`, `headers` as they were sent, `data`. A subject that is no UTF-8 is in `subject_raw` as
well. The file's own facts are stored under the key `penstock`, so that a whole file that no
manifest names yet can be told from half of one.

Payloads are most of a file. If they shrink, they are compressed with zstd. If they do not (random,
encrypted, compressed before), zstd would take a third of a task's time for nothing: they are
written with snappy, which gives up at once and still shrinks later payloads that do compress.

Invariant: the same messages in the same batches make the same bytes; how they are compressed
follows from a file's first group of rows alone. Loaded by executors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import CorruptStore
from penstock.limits import ARCHIVE_GROUP_BYTES_MAX
from penstock.spark import schema
from penstock.spark.archives.folder import ArchiveFolder, FileEntry, HashingFile, hex_of
from penstock.spark.rows import hash_rows

# How columns are compressed

_NUMBERS = ("sequence", "timestamp", "time_ns")
"""Stored as differences, they are small: there is nothing left to compress."""

_ZSTD_LEVEL = 1
"""The next levels take half as long again and save a few per cent."""

_SAMPLES = 8
_SAMPLE_ROWS = 64
_SAMPLE_BYTES = 1024
"""Of each payload. All samples are some hundred KiB and take less than a millisecond."""

_WORTHWHILE = 0.9
"""The part of their size that zstd must bring payloads down to."""


def writer_options(first: pa.Table) -> dict[str, Any]:
    """Return the options of Parquet's writer, chosen by the first rows of a file."""
    codecs = {
        **dict.fromkeys((*_NUMBERS, "subject_raw"), "none"),
        **dict.fromkeys(("subject", "headers"), "zstd"),
        "data": "zstd" if shrinks(first.column("data")) else "snappy",
    }
    return {
        "compression": codecs,
        "compression_level": {
            name: _ZSTD_LEVEL for name, codec in codecs.items() if codec == "zstd"
        },
        "use_dictionary": ["subject"],
        "column_encoding": dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
        "write_statistics": [*_NUMBERS, "subject"],
        "write_page_checksum": True,
    }


def shrinks(payloads: pa.ChunkedArray) -> bool:
    """Return True if compressing payloads is worthwhile, by samples from all over the column."""
    step = max(len(payloads) // _SAMPLES, 1)
    taken = [
        payload
        for start in range(0, len(payloads), step)
        for payload in pc.binary_slice(
            # No row twice: repeated samples always shrink.
            payloads.slice(start, min(step, _SAMPLE_ROWS)),
            0,
            _SAMPLE_BYTES,
        ).to_pylist()
    ]
    sample = b"".join(taken)
    if not sample:
        return True
    packed = pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(sample, asbytes=True)
    return len(packed) < _WORTHWHILE * len(sample)


# Writing, checking and reading files

DATA = "data"
"""The folder of the files, below the archive's folder."""

GROUP_ROWS = 128 * 1024
GROUP_BYTES = 64 * 1024 * 1024
"""A group of rows is held in memory as a whole while it is written or read."""


SOURCE_COLUMNS = (
    schema.SEQUENCE,
    schema.TIME_NS,
    schema.SUBJECT_RAW,
    schema.RAW_HEADERS,
    schema.DATA,
)
"""The columns that are read to archive messages."""

FILE_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("time_ns", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("subject_raw", pa.binary()),
        pa.field("headers", pa.binary()),
        pa.field("data", pa.binary()),
    ]
)

EXACT_COLUMNS = ["sequence", "time_ns", "subject", "subject_raw", "headers", "data"]

Texts = tuple[memoryview, memoryview]
RowColumns = tuple[memoryview, memoryview, Texts, Texts, Texts]

_KEY = b"penstock"


class FileFacts(msgspec.Struct):
    """The facts of a file, as stored in it."""

    stream: str
    created: str
    first: int
    last: int
    messages: int = 0
    bytes: int = 0
    first_ns: int = 0
    last_ns: int = 0
    rows_hash: str = ""


class FileTask(msgspec.Struct, frozen=True):
    """Which messages a file holds, and how many rows its groups have."""

    stream: str
    created: str
    first: int
    last: int
    group_rows: int = GROUP_ROWS

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{DATA}/{self.first:020d}-{self.last:020d}.parquet"


def group_rows_for(messages: int, size: int) -> int:
    """Return how many rows a group has, by the number and the size of all messages."""
    average = max(size // max(messages, 1), 1)
    return min(max(GROUP_BYTES // average, 1), GROUP_ROWS)


# Writing


def write_file(
    folder: ArchiveFolder, task: FileTask, batches: Iterator[pa.RecordBatch]
) -> FileEntry:
    """Write messages (`SOURCE_COLUMNS`) into a file and return its entry; it appears whole or
    not."""
    facts = FileFacts(task.stream, task.created, task.first, task.last)
    file_hash = folder.write(task.name, lambda file: _write_groups(file, facts, task, batches))
    return _entry(facts, task.name, folder.size(task.name), file_hash)


def _entry(facts: FileFacts, name: str, file_bytes: int, file_hash: int) -> FileEntry:
    return FileEntry(
        name,
        facts.first,
        facts.last,
        facts.messages,
        facts.bytes,
        facts.first_ns,
        facts.last_ns,
        facts.rows_hash,
        file_bytes,
        hex_of(file_hash),
    )


def _write_groups(
    file: HashingFile, facts: FileFacts, task: FileTask, batches: Iterator[pa.RecordBatch]
) -> None:
    counting = _RowTotals()
    tables = map(_as_table, groups(counting.passing(batches), task.group_rows))
    table = next(tables, None)
    with pq.ParquetWriter(
        file,
        FILE_SCHEMA,
        store_schema=False,
        sorting_columns=[pq.SortingColumn(0)],
        **writer_options(FILE_SCHEMA.empty_table() if table is None else table),
    ) as writer:
        while table is not None:
            writer.write_table(table)
            # Released before the next is read: one group at a time is in memory.
            table = None
            table = next(tables, None)
        counting.tell(facts)
        writer.add_key_value_metadata({_KEY.decode(): msgspec.json.encode(facts).decode()})


def _as_table(group: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(map(_as_stored, group))


def groups(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield messages in groups of so many rows, however they come; nothing is copied."""
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        while batch.num_rows:
            taken = batch.slice(0, rows - count)
            batch = batch.slice(taken.num_rows)
            waiting.append(taken)
            count += taken.num_rows
            size += taken.nbytes
            if count == rows or size >= ARCHIVE_GROUP_BYTES_MAX:
                yield waiting
                waiting, count, size = [], 0, 0
    if waiting:
        yield waiting


def _as_stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    subjects, raw = _subjects(batch.column("subject_raw"))
    times = batch.column("time_ns")
    moments = times.cast(pa.timestamp("ns", tz="UTC")).cast(FILE_SCHEMA.types[1], safe=False)
    return pa.RecordBatch.from_arrays(
        [
            batch.column("sequence"),
            moments,
            times,
            subjects,
            raw,
            batch.column("headers_raw"),
            batch.column("data"),
        ],
        schema=FILE_SCHEMA,
    )


def _subjects(raw: pa.Array) -> tuple[pa.Array, pa.Array]:
    try:
        return raw.cast(pa.string()), pa.nulls(len(raw), pa.binary())
    except pa.ArrowInvalid:
        every = raw.to_pylist()
        texts = [each.decode(errors="replace") for each in every]
        marked = [
            each if text.encode() != each else None for each, text in zip(every, texts, strict=True)
        ]
        return pa.array(texts, pa.string()), pa.array(marked, pa.binary())


class _RowTotals:
    """The totals of messages: their number, bytes, hash and times."""

    def __init__(self) -> None:
        self.messages = self.bytes = self.hash = 0
        self._first_ns: int | None = None
        self._last_ns = 0

    def passing(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches and count them while they are in the processor's cache."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Count messages (`SOURCE_COLUMNS`)."""
        if not batch.num_rows:
            return
        self.messages += batch.num_rows
        for name in ("headers_raw", "data"):
            at = _places(batch.column(name))
            self.bytes += at[len(at) - 1] - at[0]
        self.hash = (self.hash + hash_of_rows(batch)) % 2**64
        times = pc.min_max(batch.column("time_ns"))
        first_ns, last_ns = times["min"].as_py(), times["max"].as_py()
        is_first = self._first_ns is None
        self._first_ns = first_ns if self._first_ns is None else min(self._first_ns, first_ns)
        self._last_ns = last_ns if is_first else max(self._last_ns, last_ns)

    def tell(self, facts: FileFacts) -> None:
        """Write the totals into a file's facts."""
        facts.messages = self.messages
        facts.bytes = self.bytes
        facts.first_ns = self._first_ns or 0
        facts.last_ns = self._last_ns
        facts.rows_hash = hex_of(self.hash)


def hash_of_rows(batch: pa.RecordBatch) -> int:
    """Return the hash of messages (`SOURCE_COLUMNS`)."""
    return hash_rows(*row_columns(batch))


def row_columns(batch: pa.RecordBatch) -> RowColumns:
    """Return messages (`SOURCE_COLUMNS`) as the functions of `spark.rows` take them."""
    return (
        column_numbers(batch.column("sequence")).cast("B").cast("Q"),
        column_numbers(batch.column("time_ns")),
        binary_buffers(batch.column("subject_raw")),
        binary_buffers(batch.column("headers_raw")),
        binary_buffers(batch.column("data")),
    )


def column_numbers(column: pa.Array) -> memoryview:
    """Return a column's 64-bit numbers without a copy."""
    _, data = column.buffers()
    view = memoryview(b"" if data is None else data).cast("B")
    return view[column.offset * 8 : (column.offset + len(column)) * 8].cast("q")


def _places(column: pa.Array) -> memoryview:
    offsets = column.buffers()[1]
    view = memoryview(b"\0" * 4 if offsets is None else offsets).cast("B")
    return view[column.offset * 4 : (column.offset + len(column) + 1) * 4].cast("i")


def binary_buffers(column: pa.Array) -> Texts:
    """Return a column's offsets (int32) and the bytes that they point into."""
    data = column.buffers()[2]
    return _places(column), memoryview(b"" if data is None else data).cast("B")


# Checking


def find_written(folder: ArchiveFolder, task: FileTask) -> FileEntry | None:
    """Return the entry of a file that an earlier run left, if it is whole; else None."""
    size = folder.size(task.name)
    if size < 0:
        return None
    try:
        with folder.open(task.name) as file:
            facts = _facts_in(pq.ParquetFile(file).metadata)
        wanted = (task.stream, task.created, task.first, task.last)
        if facts is None or (facts.stream, facts.created, facts.first, facts.last) != wanted:
            return None
        entry = _entry(facts, task.name, size, folder.hash_of(task.name))
        check_rows(folder, entry)
    except (pa.ArrowException, OSError, CorruptStore):
        return None
    return entry


def _facts_in(metadata: pq.FileMetaData) -> FileFacts | None:
    try:
        return msgspec.json.decode((metadata.metadata or {}).get(_KEY, b""), type=FileFacts)
    except msgspec.DecodeError:
        return None


def check_file(folder: ArchiveFolder, entry: FileEntry) -> None:
    """Read a whole file; raise CorruptStore if it differs from its entry."""
    path = folder.full(entry.name)
    size = folder.size(entry.name)
    if size != entry.file_bytes:
        found = "is gone" if size < 0 else f"has {size} bytes"
        raise CorruptStore(path, 0, f"the file {found}, and the manifest says {entry.file_bytes}")
    if hex_of(folder.hash_of(entry.name)) != entry.file_hash:
        raise CorruptStore(path, 0, "the file's hash differs from the manifest's")
    check_rows(folder, entry)


def check_rows(folder: ArchiveFolder, entry: FileEntry) -> None:
    """Compare a file's messages with its entry; raise CorruptStore if they differ."""
    for _ in read_exact(folder, [entry]):
        pass


def _last_of_rising(path: str, sequences: pa.Array, before: int) -> int:
    first, last = sequences[0].as_py(), sequences[-1].as_py()
    rises = pc.all(pc.less(sequences[:-1], sequences[1:])).as_py()
    if first <= before or rises is False:
        raise CorruptStore(path, 0, f"sequences do not rise from {max(first, before)} on")
    found: int = last
    return found


# Reading


def read_exact(
    folder: ArchiveFolder, entries: Sequence[FileEntry], rows_max: int = 16_384
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of files as `SOURCE_COLUMNS`, exactly as they were archived.

    Raise CorruptStore if a file has other messages than its entry says. That is known only behind
    the last message: a caller that cannot undo its work calls `check_file` first.
    """
    for entry in entries:
        path = folder.full(entry.name)
        counting = _RowTotals()
        last = entry.first - 1
        with opened(folder, entry) as file:
            for stored in file.iter_batches(rows_max, columns=EXACT_COLUMNS, use_threads=False):
                batch = _as_given(stored)
                last = _last_of_rising(path, batch.column("sequence"), last)
                counting.add(batch)
                yield batch
        if last > entry.last or hex_of(counting.hash) != entry.rows_hash:
            raise CorruptStore(path, 0, "its messages are others than those that were archived")


def _as_given(batch: pa.RecordBatch) -> pa.RecordBatch:
    raw = batch.column("subject_raw")
    subjects = batch.column("subject").cast(pa.string()).cast(pa.binary())
    if raw.null_count < len(raw):
        subjects = pc.coalesce(raw, subjects)
    return pa.RecordBatch.from_arrays(
        [
            batch.column("sequence"),
            batch.column("time_ns"),
            subjects,
            batch.column("headers"),
            batch.column("data"),
        ],
        schema=schema.arrow_schema(SOURCE_COLUMNS),
    )


@contextlib.contextmanager
def opened(folder: ArchiveFolder, entry: FileEntry) -> Iterator[pq.ParquetFile]:
    """Open a file, its subjects as a dictionary; raise CorruptStore if it is damaged."""
    path = folder.full(entry.name)
    try:
        with folder.open(entry.name) as inner:
            file = pq.ParquetFile(
                inner, read_dictionary=["subject"], page_checksum_verification=True
            )
            _check_metadata(path, file.metadata, entry)
            yield file
    except (pa.ArrowException, OSError) as error:
        # Arrow raises either for bytes that are no Parquet.
        raise CorruptStore(path, 0, f"the file cannot be read: {error}") from None


def _check_metadata(path: str, metadata: pq.FileMetaData, entry: FileEntry) -> None:
    if metadata.num_rows != entry.messages:
        raise CorruptStore(
            path, 0, f"{metadata.num_rows} messages, and the manifest says {entry.messages}"
        )
    found = metadata.schema.to_arrow_schema()
    if not found.equals(FILE_SCHEMA):
        raise CorruptStore(path, 0, f"its columns are others: {', '.join(found.names)}")
