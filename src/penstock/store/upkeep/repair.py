"""Mending what damage left behind, so that a stream verifies clean again; losses are listed.

Recovery steps over damage and leaves it where it is. A repair goes further: every byte is read,
each damaged block is rewritten with its whole records, and a block of which nothing can be read is
taken out. What is cut away stays in quarantine/ for people.

Called by `FileStore.repair`, after everything derived was built again, before anything else is
written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from penstock.format.block_folder import BlockCheck
from penstock.format.damage import Damage
from penstock.format.layout import block_name, index_name
from penstock.format.reader import StreamReader
from penstock.store.directory import StoreDirectory
from penstock.store.interface import RecoveryReport
from penstock.store.log.log import Log
from penstock.store.upkeep.compaction import Compaction


class RepairReport(msgspec.Struct):
    """What a repair found and did."""

    rebuilt_indexes: list[int] = msgspec.field(default_factory=list)
    torn_bytes: int = 0
    rewritten_blocks: list[int] = msgspec.field(default_factory=list)
    unreadable_blocks: list[int] = msgspec.field(default_factory=list)
    """Blocks of which nothing could be read: moved to quarantine/."""

    losses: list[Damage] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


def repair_blocks(
    log: Log,
    compaction: Compaction,
    recoveries: Sequence[RecoveryReport],
    found: Sequence[Damage],
    progress: Callable[[BlockCheck], None] | None = None,
) -> RepairReport:
    """Rewrite every damaged block; `recoveries` and `found` are what opening the store found.

    The caller flushes afterwards.
    """
    report = RepairReport()
    for recovery in recoveries:
        report.rebuilt_indexes += recovery.rebuilt_indexes
        report.torn_bytes += recovery.torn_bytes
        report.notes += recovery.notes
    checks = _verify(log, progress)
    with compaction.rewriting:
        for check in checks:
            _mend(log, compaction, check, report)
    for damage in [*found, *log.health.damage]:
        if not _is_told(damage, report.losses):
            report.losses.append(damage)
    with log.lock:
        log.health.forget_all_damage()
    return report


def _is_told(damage: Damage, losses: list[Damage]) -> bool:
    """Return True if damage that was found before is part of a loss that verifying found."""
    return any(
        loss.block == damage.block
        and loss.first_seq <= damage.first_seq
        and damage.last_seq <= loss.last_seq
        for loss in losses
    )


def _mend(log: Log, compaction: Compaction, check: BlockCheck, report: RepairReport) -> None:
    block = next((each for each in log.ledger.blocks if each.number == check.number), None)
    report.losses += check.damage
    if block is None:
        _take_out(log.directory, check.number)
        report.unreadable_blocks.append(check.number)
        return
    for damage in check.damage:
        log.health.report_damage(damage)
    compaction.rewrite(block)
    report.rewritten_blocks.append(check.number)


def _verify(log: Log, progress: Callable[[BlockCheck], None] | None) -> list[BlockCheck]:
    reader = StreamReader(log.directory.path, stream=log.settings.config.name, key=log.settings.key)
    damaged = []
    for check in reader.verify():
        if progress is not None:
            progress(check)
        if check.damage:
            damaged.append(check)
    return damaged


def _take_out(directory: StoreDirectory, number: int) -> None:
    """Move a block that cannot be read, and what is left of its index, to quarantine/."""
    for name in (block_name(number), index_name(number)):
        with contextlib.suppress(FileNotFoundError):
            file = directory.files.open(directory.file_path(name), "read")
            try:
                data = file.read_at(0, file.size())
            finally:
                file.close()
            if data:
                directory.quarantine(name, data)
            directory.files.unlink(directory.file_path(name))
    directory.files.sync_dir(directory.path)
