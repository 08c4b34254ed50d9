"""Filling the ledger: from a checkpoint that agrees with the files, and from the blocks.

A checkpoint is compared with the files that it lists, and what it covers is not counted again: of
its last block, which may have grown since, only what is new. If they disagree, the checkpoint is in
doubt, and the blocks alone are added up.

Invariant: nothing is written.

Called by recovery, before any other code has the log.
"""

from __future__ import annotations

from penstock.errors import FormatError
from penstock.format.block import BlockSummary
from penstock.format.directory import Survey, missing_block, removed_sequences
from penstock.format.state.checkpoint import Checkpoint
from penstock.format.subject_table import SubjectTable
from penstock.store.log.block import Block
from penstock.store.log.log import Log
from penstock.store.recovery.block_scan import (
    EarlyWalk,
    Opened,
    OpenedBlock,
    header_of,
    open_blocks,
)


class CheckpointInDoubt(Exception):
    """The checkpoint and the files disagree: add up the files instead."""


def fill_ledger(
    log: Log, survey: Survey, early: EarlyWalk | None, checkpoint: Checkpoint | None
) -> Opened:
    """Fill the ledger from the checkpoint, if there is one, and from the blocks it lacks.

    Raises CheckpointInDoubt; the log must start over then.
    """
    numbers = survey.readable
    goes_on = False
    if checkpoint is not None:
        numbers = _restore(log, survey, checkpoint, numbers)
        goes_on = bool(log.ledger.blocks) and not _is_at_rest(survey, checkpoint)
    opened = open_blocks(log.cache, survey, early, numbers)
    for place, each in enumerate(opened.blocks):
        first = 0
        if goes_on and place == 0:
            first = _go_on(log, each)
        else:
            log.ledger.add_block(each.block)
            each.block.index = each.contents.index
        log.ledger.fold(each.block, each.contents.index, first)
    removed = removed_sequences(survey, opened.contents)
    for low, high in removed.ranges():
        log.ledger.remove_range(low, high)
    log.ledger.removed.clear()
    if checkpoint is None or not checkpoint.messages or checkpoint.first_seq in removed:
        # To look for the first message takes the index of its block.
        log.ledger.settle()
    _fill_wheel(log, opened)
    return opened


def _go_on(log: Log, each: OpenedBlock) -> int:
    """Match a checkpoint's last block with its file; return how many entries were counted."""
    counted, index = log.ledger.blocks[-1], each.contents.index
    if each.block.number != counted.number:
        raise CheckpointInDoubt("its last block is not there")
    if index.count < counted.count or index.block_bytes < counted.bytes:
        raise CheckpointInDoubt("it tells of records that the last block lacks")
    if any(damage.offset < counted.bytes for damage in index.damage):
        # Entries are counted by their number, and some have none any more.
        raise CheckpointInDoubt("the last block is damaged")
    counted.index = index
    counted.header = each.block.header
    each.block = counted
    return counted.count


def _restore(log: Log, survey: Survey, checkpoint: Checkpoint, numbers: list[int]) -> list[int]:
    """Take over a checkpoint; return the blocks that it does not cover wholly."""
    listed = {summary.number for summary in checkpoint.blocks}
    last = max(listed, default=0)
    blocks = [
        _restored_block(survey, summary, is_last=summary.number == last)
        for summary in checkpoint.blocks
    ]
    unknown = [number for number in numbers if number < last and number not in listed]
    if unknown:
        raise CheckpointInDoubt(f"block {unknown[0]} was to be removed and is still there")
    table = SubjectTable()
    try:
        table.decode_into(checkpoint.subjects)
    except FormatError as error:
        raise CheckpointInDoubt(error.reason) from error
    for block in blocks:
        log.ledger.add_block(block)
    log.ledger.restore(
        messages=checkpoint.messages,
        bytes=checkpoint.bytes,
        first_seq=checkpoint.first_seq,
        first_time_ns=checkpoint.first_time_ns,
        last_seq=checkpoint.last_seq,
        last_time_ns=checkpoint.last_time_ns,
        table=table,
    )
    for damage in checkpoint.damage:
        log.health.report_damage(damage)
    first = last + 1 if _is_at_rest(survey, checkpoint) else last
    return [number for number in numbers if number >= first]


def _is_at_rest(survey: Survey, checkpoint: Checkpoint) -> bool:
    """Return True if the last block of a checkpoint is sealed, and as long as it was then."""
    if not checkpoint.blocks:
        return False
    last = checkpoint.blocks[-1]
    scanned = survey.blocks.get(last.number)
    return scanned is not None and scanned.size == last.bytes and last.number in survey.indexed


def _restored_block(survey: Survey, summary: BlockSummary, *, is_last: bool) -> Block:
    """Compare a block's file with its entry in the checkpoint, and take the entry over."""
    scanned = survey.blocks.get(summary.number)
    if scanned is None:
        scanned = missing_block(survey.folder, summary.number)
        survey.blocks = dict(sorted([*survey.blocks.items(), (summary.number, scanned)]))
    difference = scanned.differs_from(
        summary, is_indexed=summary.number in survey.indexed, is_last=is_last
    )
    if difference:
        if scanned.header is None and summary.live:
            scanned.first_seq, scanned.last_seq = summary.base_seq, summary.last_seq
        raise CheckpointInDoubt(f"block {summary.number}{difference}")
    return Block.restored(summary, header_of(scanned), scanned.path)


def _fill_wheel(log: Log, opened: Opened) -> None:
    fresh = {each.block.number: each.contents.index for each in opened.blocks}
    for block in log.ledger.blocks:
        index = fresh.get(block.number)
        if index is None and block.expiring:
            index = log.cache.index_of(block)
        if index is None:
            continue
        for ordinal, seq, expires_ns in index.expiring():
            if not block.dead_at(ordinal):
                log.expiries.remember(seq, expires_ns)
