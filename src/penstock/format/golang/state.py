"""What is known of a stream of Go's nats-server: its state, its blocks, and what is wrong with it.

Values only. Built by index_db.py and recovery.py, shown by directory.py.
"""

from __future__ import annotations

from array import array
from typing import Protocol

import msgspec

from penstock.format.damage import Damage
from penstock.format.golang.records import DamagedBytes
from penstock.format.sequence_set import SequenceSet


class SubjectMatcher(Protocol):
    """Decides which subjects are read."""

    def matches(self, subject: bytes, /) -> bool:
        """Tell whether messages of this subject are wanted."""
        ...


class StreamState(msgspec.Struct, frozen=True):
    """A stream as the server reports it; an empty stream's first sequence is the next to come."""

    messages: int
    bytes: int
    first_seq: int
    first_timestamp_ns: int
    last_seq: int
    last_timestamp_ns: int


class BlockPlan(msgspec.Struct, frozen=True):
    """What to read of one block: first to last sequence, less the deleted ones."""

    number: int
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    deleted: SequenceSet = msgspec.field(default_factory=SequenceSet)


class FileProblem(msgspec.Struct, frozen=True):
    """A file that could not be used as it is, and why."""

    path: str
    reason: str


class ReadReport(msgspec.Struct):
    """What was found wrong so far; reading every block completes it.

    `index_problem` says why index.db was not used (None: it was). Without it the blocks were
    scanned, and `limits_removed` messages left out because the stream's limits remove them, which
    leaves no trace in the blocks.
    """

    index_problem: str | None = None
    limits_removed: int = 0
    files: list[FileProblem] = msgspec.field(default_factory=list)
    damage_by_block: dict[int, list[Damage]] = msgspec.field(default_factory=dict)

    @property
    def damage(self) -> list[Damage]:
        """Give all damage to blocks, in order."""
        in_order = sorted(self.damage_by_block)
        return [each for number in in_order for each in self.damage_by_block[number]]

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing wrong was found."""
        return not self.files and not any(self.damage_by_block.values())


def flat_ranges(removed: SequenceSet, first_seq: int, last_seq: int) -> array[int]:
    """Give the removed ranges between two sequences as first, last, first, last, ..."""
    flat = array("Q")
    for pair in removed.ranges_between(first_seq, last_seq):
        flat.extend(pair)
    return flat


def locate_damage(
    block: int, damaged: DamagedBytes, *, after_seq: int, before_seq: int, removed: SequenceSet
) -> Damage:
    """Say which sequences a damaged stretch may have held.

    Its neighbours in the block bound it; at the block's edges `after_seq` and `before_seq` do.
    Sequences known to be removed are not missed.
    """
    first_seq = max(damaged.seq_before, after_seq) + 1
    last_seq = (damaged.seq_after or before_seq) - 1
    missing = SequenceSet()
    if first_seq <= last_seq:
        missing.add_range(first_seq, last_seq)
        for first, last in removed.ranges_between(first_seq, last_seq):
            missing.remove_range(first, last)
    if missing.first is not None and missing.last is not None:
        first_seq, last_seq = missing.first, missing.last
    else:
        last_seq = first_seq - 1
    return Damage(block, damaged.offset, damaged.length, damaged.reason, first_seq, last_seq)
