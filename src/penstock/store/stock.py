"""Taking stock: a ledger from a checkpoint, where one can be believed, and from the blocks.

A checkpoint is held against the files that it tells of, and what it covers is not counted again: of
its last block, which may have grown since, only what is new. It is in doubt where they disagree;
then the blocks alone are added up.

What always holds: nothing is written.

Called by recovery.
"""

from __future__ import annotations

from penstock.errors import FormatError
from penstock.format.block_summary import BlockSummary
from penstock.format.damage import Damage
from penstock.format.sequence_set import SequenceSet
from penstock.format.state import Checkpoint
from penstock.format.subject_table import SubjectTable
from penstock.store.block_account import Block
from penstock.store.block_scan import FoundBlock, Known, Stock, header_of, open_blocks
from penstock.store.block_survey import Survey, missing_block
from penstock.store.engine import Engine


class CheckpointInDoubt(Exception):
    """The checkpoint and the files disagree: add up the files instead."""


def take_stock(
    engine: Engine, survey: Survey, known: Known, checkpoint: Checkpoint | None
) -> Stock:
    """Fill the ledger from the checkpoint, where there is one, and from the blocks it lacks."""
    stock = Stock()
    numbers = _acknowledged(survey, known, stock)
    goes_on = False
    if checkpoint is not None:
        numbers = _restore(engine, survey, checkpoint, numbers)
        goes_on = bool(engine.ledger.blocks) and not _is_at_rest(survey, checkpoint)
    found = stock.found = open_blocks(engine, survey, known, stock, numbers)
    for place, each in enumerate(found):
        first = 0
        if goes_on and place == 0:
            first = _go_on(engine, each)
        else:
            engine.ledger.add_block(each.block)
            each.block.index = each.index
        engine.ledger.fold(each.block, each.index, first)
    removed = removed_sequences(survey, found)
    for each in found:
        for damage in each.index.damage:
            _report_damage(engine, stock, damage, removed)
    for low, high in removed.ranges():
        engine.ledger.remove_range(low, high)
    engine.ledger.removed.clear()
    if checkpoint is None or not checkpoint.messages or checkpoint.first_seq in removed:
        # To look for the first message takes the index of its block.
        engine.ledger.settle()
    _fill_wheel(engine, found)
    return stock


def _acknowledged(survey: Survey, known: Known, stock: Stock) -> list[int]:
    """Give the blocks to be opened: all that can be read, less a last one never finished.

    The first commit of a block writes its header. Where nothing but that commit was written, and
    nothing tells that it was acknowledged, a last block without its header is no loss.
    """
    ours = [head for head in survey.heads.values() if not head.is_foreign]
    last = ours[-1] if ours else None
    if (
        last is not None
        and (last.header is None or last.has_one_commit)
        and last.last_seq < last.first_seq
        and known.durable_bytes(last) == 0
    ):
        last.header = None
        stock.never_acknowledged.append(last)
    return survey.readable


def _go_on(engine: Engine, each: FoundBlock) -> int:
    """Match the last block of a checkpoint with its file; give how many entries were counted."""
    counted = engine.ledger.blocks[-1]
    if each.block.number != counted.number:
        raise CheckpointInDoubt("its last block is not there")
    if each.index.count < counted.count or each.index.block_bytes < counted.bytes:
        raise CheckpointInDoubt("it tells of records that the last block lacks")
    if any(damage.offset < counted.bytes for damage in each.index.damage):
        # Entries are counted by their number, and some have none any more.
        raise CheckpointInDoubt("the last block is damaged")
    counted.index = each.index
    counted.header = each.block.header
    each.block = counted
    return counted.count


def _report_damage(engine: Engine, stock: Stock, damage: Damage, removed: SequenceSet) -> None:
    """Report a damaged stretch; one that held only removed messages is no loss.

    An erasure that was interrupted leaves such a stretch.
    """
    size = damage.last_seq - damage.first_seq + 1
    if size > 0 and removed.count_between(damage.first_seq, damage.last_seq) == size:
        stock.notes.append(f"{damage}; removed before")
    else:
        engine.report_damage(damage)


def removed_sequences(survey: Survey, found: list[FoundBlock]) -> SequenceSet:
    """Give all that the tombstones of the blocks tell of."""
    removed = survey.tombstones.copy()
    for each in found:
        removed.update(each.index.tombstones)
    return removed


def _restore(
    engine: Engine, survey: Survey, checkpoint: Checkpoint, numbers: list[int]
) -> list[int]:
    """Take over a checkpoint; give the blocks that it does not cover wholly."""
    listed = {summary.number for summary in checkpoint.blocks}
    last = max(listed, default=0)
    blocks = [
        _restored_block(engine, survey, summary, is_last=summary.number == last)
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
        engine.ledger.add_block(block)
    engine.ledger.restore(
        messages=checkpoint.messages,
        bytes=checkpoint.bytes,
        first_seq=checkpoint.first_seq,
        first_time_ns=checkpoint.first_time_ns,
        last_seq=checkpoint.last_seq,
        last_time_ns=checkpoint.last_time_ns,
        table=table,
    )
    for damage in checkpoint.damage:
        engine.report_damage(damage)
    first = last + 1 if _is_at_rest(survey, checkpoint) else last
    return [number for number in numbers if number >= first]


def _is_at_rest(survey: Survey, checkpoint: Checkpoint) -> bool:
    """Tell whether the last block that a checkpoint tells of is sealed, and as it was then."""
    if not checkpoint.blocks:
        return False
    last = checkpoint.blocks[-1]
    head = survey.heads.get(last.number)
    return head is not None and head.size == last.bytes and last.number in survey.indexed


def _restored_block(
    engine: Engine, survey: Survey, summary: BlockSummary, *, is_last: bool
) -> Block:
    """Hold a block's file against what the checkpoint tells of it, and take that over."""
    head = survey.heads.get(summary.number)
    if head is None:
        head = missing_block(engine, summary.number)
        survey.heads = dict(sorted([*survey.heads.items(), (summary.number, head)]))
    difference = head.differs_from(
        summary, is_indexed=summary.number in survey.indexed, is_last=is_last
    )
    if difference:
        if head.header is None and summary.live:
            head.first_seq, head.last_seq = summary.base_seq, summary.last_seq
        raise CheckpointInDoubt(f"block {summary.number}{difference}")
    return Block.restored(summary, header_of(head), head.path)


def _fill_wheel(engine: Engine, found: list[FoundBlock]) -> None:
    fresh = {each.block.number: each.index for each in found}
    for block in engine.ledger.blocks:
        index = fresh.get(block.number)
        if index is None and block.expiring:
            index = engine.cache.index_of(block)
        if index is None:
            continue
        for ordinal, seq, expires_ns in index.expiring():
            if not block.dead_at(ordinal):
                engine.expiries.remember(seq, expires_ns)
