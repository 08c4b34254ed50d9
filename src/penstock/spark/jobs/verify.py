"""The job `verify`: every byte of stream directories is read and checked.

A task reads the blocks of one directory between two numbers, and checks each record's checksum,
that sequences rise, that a block goes on where the one before it ended, and that its index matches
it. The driver checks what concerns a whole directory: blocks that are gone, by indexes that are
left and by the stream's checkpoint.

Read-only, without a lock, also while a server writes. A run leaves nothing behind, so there is
nothing to resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession

from penstock.errors import CorruptStore, UnsupportedVersion, UsageError
from penstock.format.block_folder import BLOCK_MAX, INDEX_MISSING, INDEX_OLD, UNFINISHED
from penstock.format.damage import Damage
from penstock.format.files import ReadableFolder
from penstock.format.layout import (
    LEGACY_NAME,
    LOCK_NAME,
    STATE_NAME,
    block_name,
    block_number,
    index_name,
    index_number,
    is_stream_directory,
)
from penstock.format.sequence_set import SequenceSet
from penstock.format.state.checkpoint import decode_checkpoint
from penstock.limits import JOB_FINDINGS_MAX
from penstock.spark.blocks.scan import StreamDirectory
from penstock.spark.blocks.settings import read_settings
from penstock.spark.folder import open_folder
from penstock.spark.jobs.check_archive import compare_with_archive
from penstock.spark.jobs.inputs import BlockFormat, Input
from penstock.spark.jobs.job import Finding, OnProgress, Report, run_parts
from penstock.spark.plan import Splitting, Weighed, group_units

JOB = "verify"
MENDED_NOTES = (INDEX_MISSING, INDEX_OLD, UNFINISHED)
"""Notes of what opening the store repairs without a loss: an index is derived from its block."""


class VerifyTask(msgspec.Struct, frozen=True):
    """The blocks of a directory that one task verifies, from one number to another."""

    directory: StreamDirectory
    first_block: int
    last_block: int


class Verified(msgspec.Struct):
    """The result of a task."""

    blocks: int = 0
    bytes: int = 0
    messages: int = 0
    tail_bytes: int = 0
    """Bytes after the last whole record of a newest block: torn, or being written right now."""

    to_mend: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)
    findings_left_out: int = 0

    def find(self, kind: str, where: str, what: str) -> None:
        """Add a finding; beyond the most that are reported, findings are only counted."""
        if len(self.findings) < JOB_FINDINGS_MAX:
            self.findings.append(Finding(kind, where, what))
        else:
            self.findings_left_out += 1


def verify(
    spark: SparkSession,
    directories: Sequence[str],
    *,
    key_file: str = "",
    stream: str = "",
    archive: str = "",
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Verify directories; raise UsageError if one holds no stream, WrongKey, or OSError.

    With `archive` the one directory is compared with its archive, too.
    """
    if archive and len(directories) != 1:
        raise UsageError("an archive is of one stream: give its directory alone")
    opened = [
        read_settings({"path": path, "keyFile": key_file, "stream": stream}).directory
        for path in directories
    ]
    for directory in opened:
        check_is_stream(directory)
    tasks = [task for each in opened for task in tasks_of(each)]
    report = Report(JOB, ", ".join(directories), dry_run=dry_run, parts=len(tasks))
    if dry_run:
        report.add(bytes=sum(_size_of(each) for each in opened), directories=len(opened))
        return report
    found = [verify_layout(each) for each in opened if not each.is_go]
    found += run_parts(spark, verify_part, tasks, on_progress)
    report.add(directories=len(opened))
    for each in found:
        report.add(
            blocks=each.blocks,
            bytes=each.bytes,
            messages=each.messages,
            tail_bytes=each.tail_bytes,
            to_mend=each.to_mend,
            findings_left_out=each.findings_left_out,
        )
        report.findings += each.findings
    if archive:
        options = {"path": directories[0], "keyFile": key_file, "onCorruptRecord": "skip"}
        source = Input(BlockFormat, options | ({"stream": stream} if stream else {}))
        compare_with_archive(spark, source, archive, report, on_progress)
    return report


# In the driver


def check_is_stream(directory: StreamDirectory) -> None:
    """Raise UsageError for a folder without a stream: a report without findings would mislead."""
    if directory.is_go:
        return
    names = open_folder(directory.path).list_names()
    if LEGACY_NAME in names:
        raise UsageError(f"{directory.path}: an old JSON-lines store: migrate it first")
    # A stream that never had a message has only a lock.
    if not is_stream_directory(names) and LOCK_NAME not in names:
        raise UsageError(f"{directory.path}: no stream here")


def tasks_of(directory: StreamDirectory) -> list[VerifyTask]:
    """Return the tasks of a directory; every block number belongs to one of them."""
    groups = group_units(_weighed(directory), Splitting())
    starts = [0, *(group[0] for group in groups[1:])]
    ends = [*(start - 1 for start in starts[1:]), BLOCK_MAX]
    return [
        VerifyTask(directory, first, last)
        for first, last in zip(starts, ends, strict=True)
        if groups
    ]


def _weighed(directory: StreamDirectory) -> list[Weighed[int]]:
    """Return the numbers of the blocks, weighed by their lengths: no file is read for that."""
    if directory.is_go:
        sizes = [(each.number, each.bytes) for each in directory.open_go().blocks]
    else:
        sizes = list(_block_sizes(open_folder(directory.path)))
    return [Weighed(number, size, 1) for number, size in sizes]


def _block_sizes(folder: ReadableFolder) -> Iterator[tuple[int, int]]:
    for number in _numbers(folder):
        try:
            file = folder.open(block_name(number))
        except FileNotFoundError:
            continue
        try:
            yield number, file.size()
        finally:
            file.close()


def _numbers(folder: ReadableFolder) -> list[int]:
    names = (block_number(name) for name in folder.list_names())
    return sorted(number for number in names if number is not None)


def _size_of(directory: StreamDirectory) -> int:
    return sum(each.bytes for each in _weighed(directory))


def verify_layout(directory: StreamDirectory) -> Verified:
    """Find indexes without a block, and blocks of the checkpoint that are gone."""
    verified = Verified()
    folder = open_folder(directory.path)
    state = _read(folder, STATE_NAME)
    # An index is removed before its block, so an index alone means that the block was lost. A
    # listing is not atomic while a server writes, so two listings must agree.
    blocks = set(_numbers(folder))
    for number in sorted(_indexes_alone(folder) & _indexes_alone(folder)):
        path = f"{directory.path}/{index_name(number)}"
        verified.find("orphan", path, f"the index of block {number}, which is gone")
    if state is not None:
        _compare_checkpoint(verified, directory, folder, state, blocks)
    return verified


def _indexes_alone(folder: ReadableFolder) -> set[int]:
    names = folder.list_names()
    indexes = {number for name in names if (number := index_number(name)) is not None}
    return indexes - {block_number(name) for name in names}


def _compare_checkpoint(
    verified: Verified,
    directory: StreamDirectory,
    folder: ReadableFolder,
    state: bytes,
    blocks: set[int],
) -> None:
    path = f"{directory.path}/{STATE_NAME}"
    try:
        checkpoint = decode_checkpoint(state, path)
    except CorruptStore as error:
        verified.find("checkpoint", path, f"{error.reason}: it is made anew when opened")
        return
    except UnsupportedVersion as error:
        verified.find("checkpoint", path, str(error))
        return
    missing = [each for each in checkpoint.blocks if each.live and each.number not in blocks]
    # A store removes the checkpoint before it removes a block.
    if missing and _read(folder, STATE_NAME) == state:
        for each in missing:
            verified.find(
                "missing",
                f"{directory.path}/{block_name(each.number)}",
                f"block {each.number} is gone, with {each.live} messages of the sequences "
                f"{each.base_seq} to {each.last_seq}",
            )


def _read(folder: ReadableFolder, name: str) -> bytes | None:
    try:
        file = folder.open(name)
    except FileNotFoundError:
        return None
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


# In tasks


def verify_part(task: VerifyTask) -> Verified:
    """Verify the blocks of a task; raise WrongKey or OSError."""
    return _verify_go(task) if task.directory.is_go else _verify_ours(task)


def _verify_ours(task: VerifyTask) -> Verified:
    verified = Verified()
    reader = task.directory.open_blocks([], SequenceSet())
    for check in reader.verify(task.first_block, task.last_block):
        verified.blocks += 1
        verified.bytes += check.bytes
        verified.messages += check.messages
        if not check.damage:
            verified.tail_bytes += check.tail_bytes
        _note_damage(verified, task, check.damage)
        for note in check.notes:
            if note in MENDED_NOTES:
                verified.to_mend += 1
            else:
                kind = "index" if note.startswith("index") else "order"
                verified.find(kind, task.directory.path, f"block {check.number}: {note}")
    return verified


def _verify_go(task: VerifyTask) -> Verified:
    verified = Verified()
    reader = task.directory.open_go()
    for plan in reader.blocks:
        if task.first_block <= plan.number <= task.last_block:
            batch = reader.read_block(plan, headers=False, payloads=False)
            verified.blocks += 1
            verified.bytes += plan.bytes
            verified.messages += batch.count
            _note_damage(verified, task, reader.report.damage_by_block.get(plan.number, []))
    if task.first_block == 0:
        for problem in reader.report.files:
            verified.find("file", problem.path, problem.reason)
    return verified


def _note_damage(verified: Verified, task: VerifyTask, damage: list[Damage]) -> None:
    for each in damage:
        verified.find("damage", task.directory.path, str(each))
