"""The job `compact`: disk space of removed messages is given back, in place or by a copy.

In place each directory is opened as a store, under its own lock, and rewritten by the store's own
compaction: no old block is removed before the new one is on the disk. A directory that another
process has open, such as a running server, is a finding and stays as it is.

A copy is a new directory of blocks with the live messages alone, with their sequences, times and
expiries, compressed and encrypted as the options say. The source is only read, also while a server
writes. A copy appears whole or not at all, so that a second run makes the missing ones.

A task has one directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession

from penstock.clock import SystemClock
from penstock.errors import CorruptStore, StoreLocked, UsageError
from penstock.format.columns import ColumnBatch
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.files import LocalFolder
from penstock.format.layout import block_number, index_number
from penstock.format.reader import Selection, StreamReader
from penstock.format.summary import find_sealing, summarize
from penstock.spark.blocks.scan import StreamDirectory
from penstock.spark.blocks.settings import read_settings
from penstock.spark.folder import open_folder
from penstock.spark.jobs.job import Finding, OnProgress, Report, run_parts
from penstock.spark.rows import raw_messages
from penstock.store.filestore import FileStore
from penstock.store.imports.build import StoreBuilder, StoreEnvironment, folder_beside, make_folders
from penstock.store.interface import RawMessage, StoreConfig
from penstock.store.vfs import OsFileSystem

JOB = "compact"


class CopyOptions(msgspec.Struct, frozen=True):
    """Where copies go, and how they are compressed and encrypted."""

    target: str
    compression: Compression = Compression.NONE
    cipher: Cipher = Cipher.NONE
    key_file: str = ""


class CompactTask(msgspec.Struct, frozen=True):
    """One directory, and its copy if one is made."""

    directory: StreamDirectory
    copying: CopyOptions | None = None

    @property
    def target(self) -> str:
        """The folder of the copy; "" in place."""
        return os.path.join(self.copying.target, self.directory.stream) if self.copying else ""


class Compacted(msgspec.Struct):
    """The result for a directory."""

    messages: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)


def compact(
    spark: SparkSession,
    directories: Sequence[str],
    *,
    copying: CopyOptions | None = None,
    key_file: str = "",
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Compact directories of our layout; raise UsageError for others, WrongKey, or OSError."""
    tasks = [_task(path, key_file, copying) for path in directories]
    if copying is not None and len({task.target for task in tasks}) < len(tasks):
        raise UsageError("two of the directories have one name: copies of them need two targets")
    files = OsFileSystem()
    missing = [task for task in tasks if copying is None or not files.exists(task.target)]
    report = Report(JOB, ", ".join(directories), dry_run=dry_run, parts=len(tasks))
    report.parts_skipped = len(tasks) - len(missing)
    report.outputs = [task.target or task.directory.path for task in missing]
    if dry_run:
        for task in missing:
            report.add(**_estimate(task.directory))
        return report
    for each in run_parts(spark, compact_part, missing, on_progress):
        report.add(
            messages=each.messages,
            bytes_before=each.bytes_before,
            bytes_after=each.bytes_after,
        )
        report.findings += each.findings
    return report


# In the driver


def _task(path: str, key_file: str, copying: CopyOptions | None) -> CompactTask:
    directory = read_settings({"path": path, "keyFile": key_file}).directory
    if directory.is_go:
        raise UsageError(f"{path}: written by Go's nats-server, and never changed: migrate it")
    if "://" in path:
        raise UsageError(f"{path}: a store is written on a disk of the machine")
    return CompactTask(directory, copying)


def _estimate(directory: StreamDirectory) -> dict[str, int]:
    reader = directory.open()
    stored = sum(block.count for block in reader.blocks)
    live = summarize(reader).messages
    return {"messages": live, "removed_messages": stored - live}


# In tasks


def compact_part(task: CompactTask) -> Compacted:
    """Compact a directory, or copy it; raise CorruptStore, WrongKey or OSError."""
    folder = open_folder(task.directory.path)
    done = Compacted(bytes_before=_block_bytes(folder.path))
    try:
        # An existing copy was made by another attempt at this task.
        if task.copying is not None and not OsFileSystem().exists(task.target):
            _copy(task, task.copying, done)
        elif task.copying is None:
            _reclaim(task.directory, folder.path, done)
    except StoreLocked as error:
        done.findings.append(Finding("in use", task.directory.path, str(error)))
    done.bytes_after = _block_bytes(task.target or folder.path)
    return done


def _block_bytes(path: str) -> int:
    folder, total = LocalFolder(path), 0
    for name in folder.list_names():
        if block_number(name) is not None or index_number(name) is not None:
            file = folder.open(name)
            total += file.size()
            file.close()
    return total


def _reclaim(directory: StreamDirectory, path: str, done: Compacted) -> None:
    compression, cipher = find_sealing(directory.open())
    config = StoreConfig(name=directory.stream, compression=compression, cipher=cipher)
    with FileStore.open(path, config, key=_key(directory.secret())) as store:
        store.reclaim(thorough=True)
        done.messages = store.state().messages


def _copy(task: CompactTask, copying: CopyOptions, done: Compacted) -> None:
    files = OsFileSystem()
    reader = task.directory.open()
    make_folders(files, copying.target)
    secret = StreamDirectory("", "", copying.key_file).secret()
    config = StoreConfig(
        name=task.directory.stream, compression=copying.compression, cipher=copying.cipher
    )
    environment = StoreEnvironment(files, SystemClock(), os.urandom, _key(secret))
    builder = StoreBuilder(folder_beside(task.target, "compacting"), config, environment)
    try:
        for messages in _messages(reader):
            builder.add(messages)
        _refuse_damage(reader, task.directory.path)
        last_ns = max((block.last_time_ns for block in reader.blocks), default=0)
        built = builder.finish(last_seq=reader.last_seq, last_time_ns=last_ns)
        builder.put_in_place(task.target)
    except BaseException:
        builder.abandon()
        raise
    done.messages = built.messages


def _refuse_damage(reader: StreamReader, path: str) -> None:
    if reader.damage:
        raise CorruptStore(path, reader.damage[0].offset, str(reader.damage[0]))


def _messages(reader: StreamReader) -> Iterator[list[RawMessage]]:
    for block in reader.blocks:
        expiries: dict[int, int] = {}
        for batch in reader.block_batches(block, Selection()):
            if not expiries:
                index = reader.load_index(block.number)
                expiries = {seq: expires_ns for _, seq, expires_ns in index.expiring()}
            messages = raw_messages(*_columns(batch))
            if expiries:
                messages = [(*each[:5], expiries.get(each[0], 0)) for each in messages]
            yield messages


def _columns(batch: ColumnBatch) -> tuple[memoryview, memoryview, _Texts, _Texts, _Texts]:
    return (
        memoryview(batch.sequences).cast("Q"),
        memoryview(batch.timestamps).cast("q"),
        (memoryview(batch.subject_offsets).cast("i"), memoryview(batch.subjects)),
        (memoryview(batch.header_offsets).cast("i"), memoryview(batch.headers)),
        (memoryview(batch.payload_offsets).cast("i"), memoryview(batch.payloads)),
    )


_Texts = tuple[memoryview, memoryview]


def _key(secret: bytes | None) -> StoreKey | None:
    return None if secret is None else StoreKey(secret)
