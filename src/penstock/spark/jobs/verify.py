"""The job `verify`: every byte of stream directories is read and held against what it should be.

A part is a run of blocks of one directory; a task reads them whole and checks each record's
checksum, that sequences rise, that a block goes on where the one before it ended, and that its
index says just what is in it. What takes a look at a whole directory is done in the driver: blocks
that are gone, by the indexes that they left and by what the stream's checkpoint counts.

Read-only, without a lock, also beside a server that writes. A run leaves nothing behind, so there
is nothing to resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession

from penstock.errors import CorruptStore, UnsupportedVersion, UsageError
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
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
from penstock.format.reader import (
    BLOCK_MAX,
    INDEX_MISSING,
    INDEX_OLD,
    UNFINISHED,
    BlockInfo,
    StreamReader,
)
from penstock.format.sequence_set import SequenceSet
from penstock.format.state import decode_checkpoint
from penstock.limits import JOB_FINDINGS_MAX
from penstock.spark.blocks.scan import Place
from penstock.spark.blocks.settings import read_settings
from penstock.spark.folders import open_folder
from penstock.spark.jobs.inputs import BlockFormat, Input
from penstock.spark.jobs.report import Finding, Report
from penstock.spark.jobs.verify_archive import compare_with_archive
from penstock.spark.jobs.work import Tell, run_parts
from penstock.spark.plan import Splitting, group_blocks

JOB = "verify"
MENDED_NOTES = (INDEX_MISSING, INDEX_OLD, UNFINISHED)
"""What opening the store mends without a loss: an index is derived from its block."""


class VerifyPart(msgspec.Struct, frozen=True):
    """What one task reads: the blocks of a directory from one number to another."""

    place: Place
    first_block: int
    last_block: int


class Verified(msgspec.Struct):
    """What a task found."""

    blocks: int = 0
    bytes: int = 0
    messages: int = 0
    tail_bytes: int = 0
    """Bytes after the last whole record of a newest block: torn, or being written right now."""

    to_mend: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)
    findings_left_out: int = 0

    def find(self, kind: str, where: str, what: str) -> None:
        """Note a finding; of very many the first are told and the others counted."""
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
    tell: Tell | None = None,
) -> Report:
    """Verify directories; raises UsageError where one holds no stream, WrongKey, OSError.

    With `archive` the one directory is held against its archive, too.
    """
    if archive and len(directories) != 1:
        raise UsageError("an archive is of one stream: give its directory alone")
    places = [
        read_settings({"path": path, "keyFile": key_file, "stream": stream}).place
        for path in directories
    ]
    for place in places:
        check_is_stream(place)
    parts = [part for place in places for part in parts_of(place)]
    report = Report(JOB, ", ".join(directories), dry_run=dry_run, parts=len(parts))
    if dry_run:
        report.add(bytes=sum(_size_of(place) for place in places), directories=len(places))
        return report
    found = [verify_layout(place) for place in places if not place.is_go]
    found += run_parts(spark, verify_part, parts, tell)
    report.add(directories=len(places))
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
        compare_with_archive(spark, source, archive, report, tell)
    return report


# In the driver


def check_is_stream(place: Place) -> None:
    """Refuse a folder without a stream: that nothing is wrong there would say nothing."""
    if place.is_go:
        return
    names = open_folder(place.path).list_names()
    if LEGACY_NAME in names:
        raise UsageError(f"{place.path}: an old JSON-lines store: migrate it first")
    # A stream that never had a message has a lock.
    if not is_stream_directory(names) and LOCK_NAME not in names:
        raise UsageError(f"{place.path}: no stream here")


def parts_of(place: Place) -> list[VerifyPart]:
    """Divide a directory among tasks, so that every block number belongs to one of them."""
    groups = group_blocks(_weights(place), Splitting())
    starts = [0, *(group[0].number for group in groups[1:])]
    ends = [*(start - 1 for start in starts[1:]), BLOCK_MAX]
    return [
        VerifyPart(place, first, last) for first, last in zip(starts, ends, strict=True) if groups
    ]


def _weights(place: Place) -> list[BlockInfo]:
    # Their lengths are all that counts here, and they cost no look into the files.
    if place.is_go:
        sizes = [(each.number, each.bytes) for each in place.open_go().blocks]
    else:
        sizes = list(_block_sizes(open_folder(place.path)))
    return [BlockInfo(number, 0, size, 0, 0, 1, 0, 0, 0, True, False) for number, size in sizes]


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


def _size_of(place: Place) -> int:
    return sum(each.bytes for each in _weights(place))


def verify_layout(place: Place) -> Verified:
    """Look for indexes without a block, and for blocks that the checkpoint counts and are gone."""
    verified = Verified()
    folder = open_folder(place.path)
    state = _read(folder, STATE_NAME)
    # An index is removed before its block: one that is left alone tells that the block was lost. A
    # listing beside a writer is no moment's view, though, so that two must agree.
    blocks = set(_numbers(folder))
    for number in sorted(_indexes_alone(folder) & _indexes_alone(folder)):
        path = f"{place.path}/{index_name(number)}"
        verified.find("orphan", path, f"the index of block {number}, which is gone")
    if state is not None:
        _compare_checkpoint(verified, place, folder, state, blocks)
    return verified


def _indexes_alone(folder: ReadableFolder) -> set[int]:
    names = folder.list_names()
    indexes = {number for name in names if (number := index_number(name)) is not None}
    return indexes - {block_number(name) for name in names}


def _compare_checkpoint(
    verified: Verified, place: Place, folder: ReadableFolder, state: bytes, blocks: set[int]
) -> None:
    path = f"{place.path}/{STATE_NAME}"
    try:
        checkpoint = decode_checkpoint(state, path)
    except CorruptStore as error:
        verified.find("checkpoint", path, f"{error.reason}: it is made anew when opened")
        return
    except UnsupportedVersion as error:
        verified.find("checkpoint", path, str(error))
        return
    missing = [each for each in checkpoint.blocks if each.live and each.number not in blocks]
    # A writer takes the checkpoint away before it removes a block.
    if missing and _read(folder, STATE_NAME) == state:
        for each in missing:
            verified.find(
                "missing",
                f"{place.path}/{block_name(each.number)}",
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


def verify_part(part: VerifyPart) -> Verified:
    """Read the blocks of a part; raises WrongKey, OSError."""
    return _verify_go(part) if part.place.is_go else _verify_ours(part)


def _verify_ours(part: VerifyPart) -> Verified:
    verified = Verified()
    secret = part.place.secret()
    reader = StreamReader.of_stock(
        open_folder(part.place.path),
        [],
        SequenceSet(),
        stream=part.place.stream,
        key=None if secret is None else StoreKey(secret),
    )
    for check in reader.verify(part.first_block, part.last_block):
        verified.blocks += 1
        verified.bytes += check.bytes
        verified.messages += check.messages
        if not check.damage:
            verified.tail_bytes += check.tail_bytes
        _note_damage(verified, part, check.damage)
        for note in check.notes:
            if note in MENDED_NOTES:
                verified.to_mend += 1
            else:
                kind = "index" if note.startswith("index") else "order"
                verified.find(kind, part.place.path, f"block {check.number}: {note}")
    return verified


def _verify_go(part: VerifyPart) -> Verified:
    verified = Verified()
    reader = part.place.open_go()
    for plan in reader.blocks:
        if part.first_block <= plan.number <= part.last_block:
            batch = reader.read_block(plan, headers=False, payloads=False)
            verified.blocks += 1
            verified.bytes += plan.bytes
            verified.messages += batch.count
            _note_damage(verified, part, reader.report.damage_by_block.get(plan.number, []))
    if part.first_block == 0:
        for problem in reader.report.files:
            verified.find("file", problem.path, problem.reason)
    return verified


def _note_damage(verified: Verified, part: VerifyPart, damage: list[Damage]) -> None:
    for each in damage:
        verified.find("damage", part.place.path, str(each))
