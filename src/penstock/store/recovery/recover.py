"""Opening a store: from checkpoint, indexes and blocks to a ledger, and a report of the findings.

The log is the truth: the entries of the blocks, less what tombstones remove. A checkpoint saves
adding up what it covers; an index saves scanning its block; a last block without an index is
scanned. `format.directory` finds what is wrong, and this module acts on its findings: a missing
derived file is built again, in parallel; a torn end was never acknowledged and is cut off, after a
copy was kept; a damaged header is written again; other damage is stepped over and reported. Files
of a newer format or a wrong key end the opening before anything is changed.

Invariant: first everything is read, then everything is mended, and an interruption of either leaves
a directory that is recovered to the same messages. What recovery takes over is on stable storage
when it is done, also what a killed process had written and not synced.

Runs once, before any other code has the store's parts.
"""

from __future__ import annotations

from functools import partial

from penstock.format.block import ScannedBlock, encode_block_header
from penstock.format.directory import (
    OnDiskState,
    Survey,
    find_losses,
    missing_log_end,
    read_state,
    survey_directory,
)
from penstock.format.envelope import Cipher, unsealer
from penstock.format.files import read_file
from penstock.format.layout import block_name, index_name
from penstock.store.commit.commit import HighWaterMark
from penstock.store.directory import StoreDirectory
from penstock.store.interface import RecoveryReport
from penstock.store.log.active_block import ActiveBlock
from penstock.store.log.block import Block
from penstock.store.log.log import Log
from penstock.store.recovery.adopt_checkpoint import CheckpointInDoubt, fill_ledger
from penstock.store.recovery.block_scan import (
    EarlyWalk,
    Opened,
    OpenedBlock,
    StoreFolder,
    header_of,
)
from penstock.store.upkeep.checkpoint import Checkpoints
from penstock.store.upkeep.limits import enforce_all
from penstock.store.vfs import write_all


def recover(
    log: Log, high_water: HighWaterMark, checkpoints: Checkpoints, *, threaded: bool
) -> RecoveryReport:
    """Bring a log up from its directory; return what was found.

    With `threaded` the last block may be read in a thread while the others are looked at.
    """
    started = log.settings.clock.monotonic_ns()
    report = RecoveryReport(log.directory.path)
    folder = StoreFolder(log.directory.files, log.directory.path)
    state = read_state(folder)
    checkpoints.note_found(is_on_disk=state.has_checkpoint_file)
    if state.mark is not None:
        high_water.go_on_after(state.mark.turn)
    last, last_bytes = state.last_block
    # A sealed last block is not walked, if it is as it was.
    is_sealed = log.directory.files.exists(log.directory.file_path(index_name(last)))
    early = None
    if threaded and last_bytes >= log.settings.config.resting_bytes_min and not is_sealed:
        early = EarlyWalk(folder, last)
    try:
        read_starts = partial(log.directory.files.read_starts, log.directory.path)
        survey = survey_directory(folder, state, read_starts)
        _check_keys(log, survey)
        _recover(log, high_water, checkpoints, report, survey, early)
    finally:
        if early is not None:
            early.wait()
    report.duration_ns = log.settings.clock.monotonic_ns() - started
    return report


def _check_keys(log: Log, survey: Survey) -> None:
    """Raise WrongKey if an encrypted block does not open."""
    for scanned in survey.blocks.values():
        header = scanned.header
        if header is not None and header.cipher:
            unsealer(header, log.settings.config.name.encode(), log.settings.key, scanned.path)


def _recover(
    log: Log,
    high_water: HighWaterMark,
    checkpoints: Checkpoints,
    report: RecoveryReport,
    survey: Survey,
    early: EarlyWalk | None,
) -> None:
    state = survey.state
    log.use_salt(survey.salt)
    report.notes += state.notes
    is_doubted = False
    try:
        opened = fill_ledger(log, survey, early, state.checkpoint)
        report.checkpoint_used = state.checkpoint is not None
    except CheckpointInDoubt as doubt:
        report.notes.append(f"checkpoint not used: {doubt}")
        is_doubted = True
        log.start_over()
        opened = fill_ledger(log, survey, early, None)
        _carry_damage(log, survey)
    report.notes += survey.notes
    report.scanned_blocks, report.rebuilt_indexes = opened.scanned, opened.rebuilt
    losses = find_losses(survey, opened.contents, last_seq=log.ledger.last_seq)
    for damage in losses.damage:
        log.health.report_damage(damage)
    report.notes += losses.notes
    if not log.salt:
        log.use_salt(int.from_bytes(log.settings.random_bytes(8), "little") or 1)
    used = max([0 if state.mark is None else state.mark.block, *survey.blocks])
    log.number_after(used)
    if is_doubted:
        # When the last block is sealed, nothing would give rise to the doubt again.
        checkpoints.drop()
    _mend(log, high_water, report, survey, opened)
    _recall_last_time(log, state, opened)
    _raise_to_high_water(log, report, state)
    _renew_mark(log, high_water, state)
    report.blocks = len(log.ledger.blocks)
    enforce_all(log)
    report.damage = list(log.health.damage)


def _carry_damage(log: Log, survey: Survey) -> None:
    """Go on reporting blocks that were lost before, and that only a checkpoint remembers."""
    checkpoint = survey.state.checkpoint
    for damage in checkpoint.damage if checkpoint is not None else ():
        if damage.block not in survey.blocks:
            log.health.report_damage(damage)


def _raise_to_high_water(log: Log, report: RecoveryReport, state: OnDiskState) -> None:
    """Never assign a sequence twice: if the end is lost, go on after what was acknowledged."""
    found, recorded = log.ledger.last_seq, state.last_seq
    if recorded <= found:
        return
    last = log.ledger.blocks[-1] if log.ledger.blocks else None
    end = (0, 0) if last is None else (last.number, last.bytes)
    damage = missing_log_end(state, log.health.damage, last_seq=found, end=end)
    if damage is not None:
        log.health.report_damage(damage)
    report.notes.append(
        f"the last sequence was {recorded} and the log ends at {found}: going on after it"
    )
    log.append_skip(found + 1, recorded - found)
    log.raise_last_time(state.last_time_ns)


def _recall_last_time(log: Log, state: OnDiskState, opened: Opened) -> None:
    """Take the last message's time from the mark if its record was given back to the disk."""
    mark = state.mark
    counted = state.checkpoint.last_seq if state.checkpoint is not None else 0
    indexes = [each.index for each in opened.contents]
    newest = max((index.entry(index.count - 1)[0] for index in indexes if index.count), default=0)
    if mark is not None and max(counted, newest) <= mark.last_seq <= log.ledger.last_seq:
        log.ledger.end_at(log.ledger.last_seq, mark.last_time_ns)


def _renew_mark(log: Log, high_water: HighWaterMark, state: OnDiskState) -> None:
    """Record what was found in the mark: later it may be all that remembers the last message."""
    last = (log.ledger.last_seq, log.ledger.last_time_ns)
    mark = state.mark
    if log.settings.is_volatile or not log.ledger.last_seq:
        return
    if mark is None or (mark.last_seq, mark.last_time_ns) != last:
        high_water.write(*last, log.salt)


def _mend(
    log: Log, high_water: HighWaterMark, report: RecoveryReport, survey: Survey, opened: Opened
) -> None:
    """Do all that changes files; each step may be the last before a crash."""
    for name in survey.temporaries:
        log.directory.files.unlink(log.directory.file_path(name))
    for scanned in survey.blocks.values():
        if scanned.header is not None and scanned.reason:
            _mend_header(log.directory, report, scanned)
    for scanned in survey.never_acknowledged:
        _set_aside(log.directory, report, survey, scanned)
    if opened.blocks:
        _take_up(log, high_water, report, survey, opened.blocks[-1])
    elif log.ledger.blocks:
        last = log.ledger.blocks[-1]
        high_water.stand_at(last.number, last.bytes)
    for each in opened.blocks[:-1]:
        _keep_index(log.directory, report, each)


def _mend_header(directory: StoreDirectory, report: RecoveryReport, scanned: ScannedBlock) -> None:
    """Write a damaged header again, after a copy of what was there is kept."""
    name = block_name(scanned.number)
    directory.quarantine(f"{name}-header", scanned.image)
    file = directory.files.open(directory.file_path(name), "update")
    try:
        write_all(file, 0, encode_block_header(header_of(scanned)))
        file.sync_data()
    finally:
        file.close()
    report.notes.append(f"{name}: {scanned.reason}; mended")


def _set_aside(
    directory: StoreDirectory, report: RecoveryReport, survey: Survey, scanned: ScannedBlock
) -> None:
    """Remove a block that was never acknowledged, after a copy of it is kept."""
    name = block_name(scanned.number)
    data = read_file(survey.folder, name)
    if data:
        directory.quarantine(name, data)
        report.torn_bytes += len(data)
    directory.files.unlink(directory.file_path(name))
    directory.files.sync_dir(directory.path)
    report.notes.append(f"{name}: never finished, moved aside")


def _keep_index(directory: StoreDirectory, report: RecoveryReport, each: OpenedBlock) -> None:
    """Write an index that was rebuilt, and free its memory: a server has many streams."""
    index = each.contents.index
    if each.contents.is_walked:
        index.freeze()
        try:
            directory.replace_index(index.number, index.encode())
        except OSError as error:
            report.notes.append(f"{index_name(index.number)}: not written: {error}")
            each.block.index_pinned = True
            return
    each.block.index = None
    each.block.expiring = index.expiry_count


def _take_up(
    log: Log, high_water: HighWaterMark, report: RecoveryReport, survey: Survey, last: OpenedBlock
) -> None:
    """Go on writing in the last block, or seal it where that is not wise."""
    block, contents, index = last.block, last.contents, last.contents.index
    if contents.torn:
        log.directory.quarantine(f"{block.number:06d}-{index.block_bytes}-torn", contents.torn)
        report.torn_bytes += len(contents.torn)
    file = log.directory.files.open(block.path, "update")
    try:
        if file.size() > index.block_bytes:
            # What is torn, and the room behind what was written.
            file.truncate(index.block_bytes)
        if contents.written:
            # A failed sync leaves bytes that can be read, and that no later sync puts on stable
            # storage: what may not be durable is written again.
            write_all(file, index.block_bytes - len(contents.written), contents.written)
        if not _is_settled(survey.state, last):
            file.sync_data()
            log.directory.files.sync_dir(log.directory.path)
    except OSError:
        file.close()
        raise
    high_water.stand_at(block.number, index.block_bytes)
    # An encrypted block is not gone on with: what was cut off must not be sealed again under the
    # same key and sequence. A damaged one is left as it is.
    ciphers = {_cipher(block), log.settings.config.cipher}
    is_short = index.block_bytes < log.settings.config.resting_bytes_min
    is_indexed = block.number in survey.indexed
    if ciphers == {Cipher.NONE} and not index.damage and not is_indexed and is_short:
        index.adopt(log.ledger.table)
        log.attach(block, ActiveBlock(index, block.path, block.seed, file))
        return
    file.close()
    _keep_index(log.directory, report, last)


def _is_settled(state: OnDiskState, last: OpenedBlock) -> bool:
    """Return True if the checkpoint covers all of the last block: the store was stopped."""
    if state.checkpoint is None or not state.checkpoint.blocks:
        return False
    entry = state.checkpoint.blocks[-1]
    return (entry.number, entry.bytes) == (last.block.number, last.contents.index.block_bytes)


def _cipher(block: Block) -> Cipher:
    assert block.header is not None, "a block that was opened has its header"
    return Cipher(block.header.cipher)
