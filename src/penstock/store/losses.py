"""What is missing: blocks that cannot be read, and sequences that no block accounts for.

A block tells where it begins, which is where the one before ended. So what is missing between two
blocks that follow on each other is lost, unless a tombstone tells that it was removed; between two
that do not, a block may have been removed with all that it held, and nothing is said.

Works on the ledger after stock was taken. Called by recovery.
"""

from __future__ import annotations

from itertools import pairwise

from penstock.format.damage import Damage
from penstock.format.layout import block_name
from penstock.format.sequence_set import SequenceSet
from penstock.store.block_head import BlockHead
from penstock.store.block_scan import Known, Stock
from penstock.store.block_survey import Survey
from penstock.store.engine import Engine
from penstock.store.interface import RecoveryReport
from penstock.store.stock import removed_sequences

_SEQ_DELTA_MAX = 2**32 - 1
"""No block spans more sequences; a wider gap between two was left on purpose."""


def report_losses(
    engine: Engine, report: RecoveryReport, survey: Survey, known: Known, stock: Stock
) -> None:
    """Report the blocks that cannot be read, and sequences that no block accounts for."""
    removed = removed_sequences(survey, stock.found)
    told: set[int] = {head.number for head in stock.never_acknowledged}
    for before, after in pairwise(stock.found):
        first = before.index.last_seq + 1
        ends = [each.last_seq for each in before.index.damage]
        first = max(first, max(ends, default=0) + 1)
        last = after.block.base_seq - 1
        lost = _lost_between(survey, before.block.number, after.block.number)
        next_in_line = after.block.number == before.block.number + 1
        missing = last - first + 1
        if missing <= 0 or missing >= _SEQ_DELTA_MAX or not (lost or next_in_line):
            continue
        if removed.count_between(first, last) == missing:
            continue
        told.update(head.number for head in lost)
        if lost:
            place, reason = (lost[0].number, 0, lost[0].size), lost[0].reason
        else:
            place = (before.block.number, before.index.block_bytes, 0)
            reason = "the end of the block is missing"
        engine.report_damage(Damage(*place, reason, first, last))
    for head in survey.heads.values():
        if head.header is None and head.number not in told:
            _report_lost_block(engine, report, known, stock, head, removed)
    _report_missing_end(engine, survey, known)


def _lost_between(survey: Survey, before: int, after: int) -> list[BlockHead]:
    return [
        head
        for head in survey.heads.values()
        if head.header is None and before < head.number < after
    ]


def _report_lost_block(
    engine: Engine,
    report: RecoveryReport,
    known: Known,
    stock: Stock,
    head: BlockHead,
    removed: SequenceSet,
) -> None:
    first, last = head.first_seq, head.last_seq
    if first > last:
        # Nothing tells what it held, but the blocks around it do not hold it.
        numbers = [each.block.number for each in stock.found]
        if not numbers or head.number > numbers[-1]:
            first, last = engine.ledger.last_seq + 1, known.last_seq
        elif head.number < numbers[0]:
            first, last = 1, stock.found[0].block.base_seq - 1
    size = max(last - first + 1, 0)
    if size and removed.count_between(first, last) == size:
        first, last, size = 1, 0, 0
    if head.is_foreign and not size:
        report.notes.append(f"{block_name(head.number)}: {head.reason}, left alone")
        return
    engine.report_damage(Damage(head.number, 0, head.size, head.reason, first, last))


def _report_missing_end(engine: Engine, survey: Survey, known: Known) -> None:
    """Report a last block that is gone or shorter than it was, where only removals went with it."""
    mark = known.mark
    if mark is None or mark.last_seq > engine.ledger.last_seq or not mark.block:
        return
    head = survey.heads.get(mark.block)
    if head is None and mark.block > max(survey.heads, default=0):
        engine.report_damage(Damage(mark.block, 0, 0, "the block file is missing", 1, 0))
    elif head is not None and head.number == max(survey.heads) and head.size < mark.block_bytes:
        engine.report_damage(
            Damage(mark.block, head.size, 0, "the end of the block is missing", 1, 0)
        )


def carry_damage(engine: Engine, survey: Survey, known: Known) -> None:
    """Go on telling of blocks that were lost before, and that only a checkpoint remembers."""
    for damage in known.checkpoint.damage if known.checkpoint is not None else ():
        if damage.block not in survey.heads:
            engine.report_damage(damage)


def raise_to_high_water(engine: Engine, report: RecoveryReport, known: Known) -> None:
    """Never give a sequence twice: where the tail is lost, go on after what was acknowledged."""
    found, told = engine.ledger.last_seq, known.last_seq
    if told <= found:
        return
    if not any(each.first_seq <= found + 1 and each.last_seq >= told for each in engine.damage):
        last = engine.ledger.blocks[-1] if engine.ledger.blocks else None
        place = (0, 0, 0) if last is None else (last.number, last.bytes, 0)
        engine.report_damage(Damage(*place, "the end of the log is missing", found + 1, told))
    report.notes.append(
        f"the last sequence was {told} and the log ends at {found}: going on after it"
    )
    engine.append_skip(found + 1, told - found)
    engine.ledger.last_time_ns = max(engine.ledger.last_time_ns, known.last_time_ns)
