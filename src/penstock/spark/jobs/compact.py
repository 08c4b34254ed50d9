"""The job `compact`: disk space of removed messages is given back, in place or by a copy.

In place each directory is opened as a store, under its own lock, and rewritten by the store's own
compaction: at no moment is an old block gone before the new one is on the disk. A directory that
somebody has open, as a running server, is a finding and stays as it is.

A copy is a new directory of blocks with the live messages alone, under their sequences, times and
expiries, compressed and encrypted as asked for; the source is only read, also beside a server that
writes. It appears whole or not at all, so that a run that is done again makes what is missing.

A directory is a part.
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
from penstock.spark.blocks.scan import Place
from penstock.spark.blocks.settings import read_settings
from penstock.spark.folders import open_folder
from penstock.spark.jobs.report import Finding, Report
from penstock.spark.jobs.work import Tell, run_parts
from penstock.spark.rows import raw_messages
from penstock.store.building import StoreBuilder, Surroundings, folder_beside, make_folders
from penstock.store.filestore import FileStore
from penstock.store.interface import RawMessage, StoreConfig
from penstock.store.vfs import OsFileSystem

JOB = "compact"


class Copying(msgspec.Struct, frozen=True):
    """Where copies go, and how they are sealed."""

    target: str
    compression: Compression = Compression.NONE
    cipher: Cipher = Cipher.NONE
    key_file: str = ""


class CompactPart(msgspec.Struct, frozen=True):
    """One directory, and its copy where one is made."""

    place: Place
    copying: Copying | None = None

    @property
    def target(self) -> str:
        """Where the copy goes."""
        return os.path.join(self.copying.target, self.place.stream) if self.copying else ""


class Compacted(msgspec.Struct):
    """What became of a directory."""

    messages: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)


def compact(
    spark: SparkSession,
    directories: Sequence[str],
    *,
    copying: Copying | None = None,
    key_file: str = "",
    dry_run: bool = False,
    tell: Tell | None = None,
) -> Report:
    """Compact directories of ours; raises UsageError where one is not, WrongKey, OSError."""
    parts = [_part(path, key_file, copying) for path in directories]
    if copying is not None and len({part.target for part in parts}) < len(parts):
        raise UsageError("two of the directories have one name: copies of them need two targets")
    files = OsFileSystem()
    missing = [part for part in parts if copying is None or not files.exists(part.target)]
    report = Report(JOB, ", ".join(directories), dry_run=dry_run, parts=len(parts))
    report.parts_skipped = len(parts) - len(missing)
    report.outputs = [part.target or part.place.path for part in missing]
    if dry_run:
        for part in missing:
            report.add(**_estimate(part.place))
        return report
    for each in run_parts(spark, compact_part, missing, tell):
        report.add(
            messages=each.messages,
            bytes_before=each.bytes_before,
            bytes_after=each.bytes_after,
        )
        report.findings += each.findings
    return report


# In the driver


def _part(path: str, key_file: str, copying: Copying | None) -> CompactPart:
    place = read_settings({"path": path, "keyFile": key_file}).place
    if place.is_go:
        raise UsageError(f"{path}: written by Go's nats-server, and never changed: migrate it")
    if "://" in path:
        raise UsageError(f"{path}: a store is written on a disk of the machine")
    return CompactPart(place, copying)


def _estimate(place: Place) -> dict[str, int]:
    reader = place.open()
    stored = sum(block.count for block in reader.blocks)
    live = summarize(reader).messages
    return {"messages": live, "removed_messages": stored - live}


# In tasks


def compact_part(part: CompactPart) -> Compacted:
    """Compact a directory, or copy it; raises CorruptStore, WrongKey, OSError."""
    folder = open_folder(part.place.path)
    done = Compacted(bytes_before=_block_bytes(folder.path))
    try:
        # One that is there was made by another attempt at this part.
        if part.copying is not None and not OsFileSystem().exists(part.target):
            _copy(part, part.copying, done)
        elif part.copying is None:
            _reclaim(part.place, folder.path, done)
    except StoreLocked as error:
        done.findings.append(Finding("in use", part.place.path, str(error)))
    done.bytes_after = _block_bytes(part.target or folder.path)
    return done


def _block_bytes(path: str) -> int:
    folder, total = LocalFolder(path), 0
    for name in folder.list_names():
        if block_number(name) is not None or index_number(name) is not None:
            file = folder.open(name)
            total += file.size()
            file.close()
    return total


def _reclaim(place: Place, path: str, done: Compacted) -> None:
    compression, cipher = find_sealing(place.open())
    config = StoreConfig(name=place.stream, compression=compression, cipher=cipher)
    with FileStore.open(path, config, key=_key(place.secret())) as store:
        store.reclaim(thorough=True)
        done.messages = store.state().messages


def _copy(part: CompactPart, copying: Copying, done: Compacted) -> None:
    files = OsFileSystem()
    reader = part.place.open()
    make_folders(files, copying.target)
    secret = Place("", "", copying.key_file).secret()
    config = StoreConfig(
        name=part.place.stream, compression=copying.compression, cipher=copying.cipher
    )
    surroundings = Surroundings(files, SystemClock(), os.urandom, _key(secret))
    builder = StoreBuilder(folder_beside(part.target, "compacting"), config, surroundings)
    try:
        for messages in _messages(reader):
            builder.add(messages)
        _refuse_damage(reader, part.place.path)
        last_ns = max((block.last_time_ns for block in reader.blocks), default=0)
        built = builder.finish(last_seq=reader.last_seq, last_time_ns=last_ns)
        builder.put_in_place(part.target)
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
