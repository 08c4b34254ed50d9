"""The job `verify`: every byte of stream directories is read and checked; also of archives.

A task reads the blocks of one directory between two numbers, and checks each record's checksum,
that sequences rise, that a block goes on where the one before it ended, and that its index matches
it. The driver checks what concerns a whole directory: blocks that are gone, by indexes that are
left and by the stream's checkpoint.

An archive by itself (`check_archive`): a task reads one file and compares its length, its hash, and
the hash of its messages, which was taken when they were read from the stream. Against the directory
of its stream (`compare_with_archive`): the manifest has for each file the number of its messages
and the sum of their hashes, and tasks add up the same of the directory. Of the archive only the
manifest is read. Files whose messages were purged from the directory are skipped.

Read-only, without a lock, also while a server writes. A run leaves nothing behind, so there is
nothing to resume.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from functools import partial

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
from penstock.spark.archives.folder import ArchiveFolder, FileEntry, hex_of, load_manifest
from penstock.spark.archives.parquet import SOURCE_COLUMNS, check_file, column_numbers, hash_of_rows
from penstock.spark.blocks.scan import StreamDirectory
from penstock.spark.blocks.settings import read_settings
from penstock.spark.folder import open_folder
from penstock.spark.jobs.job import (
    BlockFormat,
    Finding,
    Input,
    OnProgress,
    Report,
    find_origin,
    run_parts,
)
from penstock.spark.part import Splitting, StreamPart, Weighed, group_units

# Archives


class CheckTask(msgspec.Struct, frozen=True):
    """One file to check."""

    place: str
    entry: FileEntry


def check_archive(
    spark: SparkSession, place: str, *, dry_run: bool = False, on_progress: OnProgress | None = None
) -> Report:
    """Check every file of an archive, and report ranges that no file answers for."""
    manifest = load_manifest(ArchiveFolder(place))
    report = Report("check-archive", place, dry_run=dry_run, parts=len(manifest.files))
    if not dry_run:
        report.findings = check_files(spark, place, manifest.files, on_progress)
    report.findings += [
        Finding("hole", f"{first}-{last}", "gone before anybody archived them")
        for first, last in manifest.holes()
    ]
    report.add(
        files=len(manifest.files),
        messages=manifest.messages,
        bytes=manifest.bytes,
        first=manifest.first,
        end=manifest.end,
    )
    return report


def check_files(
    spark: SparkSession,
    place: str,
    files: Sequence[FileEntry],
    on_progress: OnProgress | None = None,
) -> list[Finding]:
    """Return a finding for each file that differs from the manifest."""
    tasks = [CheckTask(place, each) for each in files]
    found = run_parts(spark, check_part, tasks, on_progress)
    return [each for each in found if each is not None]


def check_part(task: CheckTask) -> Finding | None:
    """Return a finding if a file is damaged; in a task."""
    try:
        check_file(ArchiveFolder(task.place), task.entry)
    except CorruptStore as error:
        return Finding("damaged", task.entry.name, error.reason)
    return None


Sums = dict[int, tuple[int, int]]
"""By the first sequence of a file: how many messages, and the sum of their hashes."""


def compare_with_archive(
    spark: SparkSession,
    source: Input,
    archive: str,
    report: Report,
    on_progress: OnProgress | None = None,
) -> None:
    """Add differences of a directory and its archive to a report; raise UsageError."""
    manifest = load_manifest(ArchiveFolder(archive))
    origin = find_origin(source.whole())
    if manifest.created != origin.created:
        raise UsageError(
            f"{archive} is of the stream {manifest.stream} that was made {manifest.created}, and "
            f"{source.shown} is {origin.stream}, which was made {origin.created}"
        )
    entries = [each for each in manifest.files if each.first >= origin.first]
    report.add(archive_files=len(entries), archive_files_passed=len(manifest.files) - len(entries))
    if manifest.end > origin.end:
        report.findings.append(
            Finding(
                "archive",
                archive,
                f"it goes up to sequence {manifest.end - 1}, and the directory to {origin.end - 1}",
            )
        )
    firsts = tuple(each.first for each in entries)
    lasts = tuple(each.last for each in entries)
    parts = source.parts() if entries else []
    found = _total(run_parts(spark, partial(add_up, firsts, lasts), parts, on_progress))
    report.findings += [
        finding for each in entries if (finding := _compared(each, found, archive)) is not None
    ]


def _total(parts: Sequence[Sums]) -> Sums:
    total: Sums = {}
    for sums in parts:
        for first, (count, hashed) in sums.items():
            known = total.get(first, (0, 0))
            total[first] = (known[0] + count, (known[1] + hashed) % 2**64)
    return total


def _compared(entry: FileEntry, found: Sums, archive: str) -> Finding | None:
    count, hashed = found.get(entry.first, (0, 0))
    if count == entry.messages and hex_of(hashed) == entry.rows_hash:
        return None
    what = "other messages" if count == entry.messages else f"{count} messages"
    return Finding(
        "archive",
        f"{archive}/{entry.name}",
        f"the directory has {what} from {entry.first} to {entry.last}; archived were "
        f"{entry.messages}",
    )


def add_up(firsts: Sequence[int], lasts: Sequence[int], part: StreamPart) -> Sums:
    """Return the sums of a part's messages by file; in a task."""
    sums: Sums = {}
    for batch in part.read(SOURCE_COLUMNS):
        sequences = column_numbers(batch.column("sequence"))
        if not len(batch):
            continue
        place = bisect.bisect_left(lasts, sequences[0])
        while place < len(firsts) and firsts[place] <= sequences[-1]:
            first = firsts[place]
            begin = bisect.bisect_left(sequences, first)
            count = bisect.bisect_right(sequences, lasts[place]) - begin
            known = sums.get(first, (0, 0))
            hashed = known[1] + hash_of_rows(batch.slice(begin, count))
            sums[first] = (known[0] + count, hashed % 2**64)
            place += 1
    return sums


# Directories

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
