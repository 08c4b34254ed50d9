"""Which messages a folder of blocks holds: by its index.db, or by a scan of every block.

index.db is believed only if it describes these very files: its last record's hash is the one at the
end of its last block, no later block exists, every block that it lists does, and its sums agree.
Otherwise the blocks are scanned, newest first, because a tombstone always stands in the message's
own block or a later one, and because limits keep the newest. A stale index still tells the highest
sequence given out and the lowest that lived, and neither ever falls.

Reads only; raises WrongKey, and reports everything else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import FormatError
from penstock.format.columns import ColumnBuilder
from penstock.format.damage import Damage
from penstock.format.golang.blocks import BlockFolder
from penstock.format.golang.highway import named_key
from penstock.format.golang.index_db import GoIndex, decode_index
from penstock.format.golang.keys import AssetKey
from penstock.format.golang.records import DamagedBytes, GoBlock
from penstock.format.golang.retention import Kept, Retention
from penstock.format.golang.state import (
    BlockPlan,
    FileProblem,
    ReadReport,
    StreamState,
    flat_ranges,
    locate_damage,
)
from penstock.format.sequence_set import SequenceSet

_SEQ_MAX = 2**62 - 1

# What Go makes of the year 1 in nanoseconds since 1970, which overflow: its way to say "no time".
_NO_TIMESTAMP_NS = -6_795_364_578_871_345_152


def recover(
    blocks: BlockFolder,
    report: ReadReport,
    *,
    stream: str,
    key: AssetKey | None,
    config: Mapping[str, Any],  # Any: a JSON document
    now_ns: int | None,
) -> tuple[StreamState, list[BlockPlan]]:
    """Give a stream's state and what to read of each block; fills in the report."""
    index, problem = _load_index(blocks, report, stream, key)
    if index is not None and problem is None:
        problem = _misfit(index, blocks)
        if problem is None:
            return index.state, [plan for plan in index.blocks if plan.messages]
    report.index_problem = problem
    stale = index.state if index else StreamState(0, 0, 0, 0, 0, 0)
    scan = _Scan(blocks, Retention(config, now_ns), report, stale)
    scan.run()
    return scan.state(config), scan.plans


def _load_index(
    blocks: BlockFolder, report: ReadReport, stream: str, key: AssetKey | None
) -> tuple[GoIndex | None, str | None]:
    data = blocks.load_index()
    if data is None:
        return None, "there is no index.db"
    try:
        return decode_index(data, named_key(stream), key), None
    except FormatError as error:
        report.files.append(FileProblem(os.path.join(blocks.path, "index.db"), str(error)))
        return None, str(error)


def _misfit(index: GoIndex, blocks: BlockFolder) -> str | None:
    """Say why the index does not describe these blocks, or None if it does."""
    listed = [plan.number for plan in index.blocks]
    if not listed or listed[-1] != index.last_block or listed != sorted(set(listed)):
        return "index.db does not end with its last block"
    missing = sorted(set(listed) - set(blocks.numbers))
    if missing:
        return f"block {missing[0]} is missing"
    if blocks.numbers[-1] > index.last_block:
        return "there are blocks later than index.db"
    state = index.state
    sums = (sum(plan.messages for plan in index.blocks), sum(plan.bytes for plan in index.blocks))
    last_seq = max(plan.last_seq for plan in index.blocks)
    if sums != (state.messages, state.bytes) or last_seq != state.last_seq:
        return "index.db does not add up"
    try:
        if blocks.load_last_hash(index.last_block) != index.last_record_hash:
            return "the last block has changed since index.db was written"
    except FormatError as error:
        return error.reason
    return None


class _Edges(msgspec.Struct):
    """What a scanned block tells its neighbours."""

    first_ordered_seq: int = 0
    last_ordered_seq: int = 0
    damage: list[DamagedBytes] = msgspec.field(default_factory=list)


class _Scan:
    """One scan over the blocks, newest first."""

    def __init__(
        self, blocks: BlockFolder, retention: Retention, report: ReadReport, stale: StreamState
    ) -> None:
        self._blocks = blocks
        self._retention = retention
        self._report = report
        self._stale = stale
        self._tombstones = SequenceSet()
        self._edges: dict[int, _Edges] = {}
        self._highest = (0, 0)
        self._oldest = Kept()
        self.plans: list[BlockPlan] = []

    def run(self) -> None:
        """Scan; afterwards `plans` rise and the report has the damage."""
        ceiling = _SEQ_MAX
        for number in reversed(self._blocks.numbers):
            try:
                block = self._blocks.load_records(number)
            except FormatError as error:
                size = self._blocks.block_bytes(number)
                self._edges[number] = _Edges(damage=[DamagedBytes(0, size, error.reason, 0, 0)])
                continue
            self._note(number, block)
            if block.row_count and block.last_seq >= self._stale.first_seq:
                self._plan(number, block, ceiling)
                ceiling = min(ceiling, block.first_seq - 1)
        self.plans.reverse()
        self._report_damage()

    def _note(self, number: int, block: GoBlock) -> None:
        for seq in block.tombstones:
            self._tombstones.add(seq)
        self._edges[number] = _Edges(
            block.first_ordered_seq, block.last_ordered_seq, list(block.damage)
        )
        seq, timestamp_ns = self._highest
        if block.highest_seq > seq or (block.highest_seq == seq and not timestamp_ns):
            known_ns = block.highest_timestamp_ns
            self._highest = (block.highest_seq, 0 if known_ns == _NO_TIMESTAMP_NS else known_ns)

    def _plan(self, number: int, block: GoBlock, ceiling: int) -> None:
        first_seq = max(block.first_seq, self._stale.first_seq)
        last_seq = min(block.last_seq, ceiling)
        if block.last_seq > ceiling:
            overlap = DamagedBytes(0, 0, "sequences stand in a later block again", ceiling, ceiling)
            self._edges[number].damage.append(overlap)
        deleted = SequenceSet()
        for first, last in self._tombstones.ranges_between(first_seq, last_seq):
            deleted.add_range(first, last)
        builder = ColumnBuilder(payloads=False)
        sizes = block.fill(builder, first_seq, last_seq, flat_ranges(deleted, first_seq, last_seq))
        kept = self._retention.apply(builder.take(number), memoryview(sizes).cast("I"))
        self._report.limits_removed += len(kept.removed)
        if kept.messages:
            deleted.update(kept.removed)
            self._oldest = kept
            self.plans.append(
                BlockPlan(number, kept.messages, kept.bytes, first_seq, last_seq, deleted)
            )

    def _report_damage(self) -> None:
        # A neighbour without ordered records says nothing: the next one that has some does.
        after_seq = 0
        for number in self._blocks.numbers:
            edges = self._edges[number]
            if edges.damage:
                before_seq = self._first_after(number)
                self._report.damage_by_block[number] = [
                    self._locate(number, damaged, after_seq, before_seq) for damaged in edges.damage
                ]
            after_seq = edges.last_ordered_seq or after_seq

    def _first_after(self, number: int) -> int:
        for later in self._blocks.numbers:
            if later > number and self._edges[later].first_ordered_seq:
                return self._edges[later].first_ordered_seq
        return self._stale.last_seq + 1

    def _locate(
        self, number: int, damaged: DamagedBytes, after_seq: int, before_seq: int
    ) -> Damage:
        # Past the last record that is known, at least one may have stood.
        before_seq = max(before_seq, max(damaged.seq_before, after_seq) + 2)
        return locate_damage(
            number,
            damaged,
            after_seq=after_seq,
            before_seq=before_seq,
            removed=self._tombstones,
        )

    def state(self, config: Mapping[str, Any]) -> StreamState:
        """Add the plans up; a stale index and `first_seq` may know of higher sequences."""
        last_seq, last_timestamp_ns = self._highest
        if self._stale.last_seq > last_seq:
            last_seq, last_timestamp_ns = self._stale.last_seq, self._stale.last_timestamp_ns
        configured_first_seq = config.get("first_seq")
        if isinstance(configured_first_seq, int):
            last_seq = max(last_seq, configured_first_seq - 1)
        return StreamState(
            messages=sum(plan.messages for plan in self.plans),
            bytes=sum(plan.bytes for plan in self.plans),
            first_seq=self._oldest.first_seq or last_seq + 1,
            first_timestamp_ns=self._oldest.first_timestamp_ns,
            last_seq=last_seq,
            last_timestamp_ns=last_timestamp_ns,
        )
