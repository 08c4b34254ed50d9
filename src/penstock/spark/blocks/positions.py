"""Places in a block directory: its first message, a time, so many messages on.

By heads and indexes alone, removed messages left out. Used in the driver.
"""

from __future__ import annotations

from penstock.format.block import decode_block_header
from penstock.format.block_index import BlockIndex
from penstock.format.reader import StreamReader


def end_of_rows(reader: StreamReader, begin: int, rows: int) -> int:
    """Give the first sequence behind `rows` live messages from `begin` on."""
    end = begin
    for block in reader.blocks:
        if block.last_seq < begin or not block.count:
            continue
        first, behind = max(begin, block.base_seq), block.last_seq + 1
        index = reader.load_index(block.number)
        live = _count_live(reader, index, first, behind)
        if live > rows:
            return _end_within(reader, index, (first, behind), rows)
        rows -= live
        end = behind
    return end


def _count_live(reader: StreamReader, index: BlockIndex, first: int, end: int) -> int:
    # A rewritten block has no entries any more of what was removed from it.
    ordinal = index.first_ordinal_from
    removed = sum(
        ordinal(high + 1) - ordinal(low)
        for low, high in reader.removed.ranges_between(first, end - 1)
    )
    return ordinal(end) - ordinal(first) - removed


def _end_within(reader: StreamReader, index: BlockIndex, bounds: tuple[int, int], rows: int) -> int:
    # Halving: how many live messages there are up to a sequence only grows with it.
    first, _ = bounds
    low, high = bounds
    while low + 1 < high:
        middle = (low + high) // 2
        if _count_live(reader, index, first, middle) < rows:
            low = middle
        else:
            high = middle
    return high


def first_seq(reader: StreamReader) -> int:
    """Give the first message that is still there; one behind the last for none."""
    for block in reader.blocks:
        index = reader.load_index(block.number)
        ordinal = 0
        while ordinal < index.count:
            seq = index.entry(ordinal)[0]
            removed = next(reader.removed.ranges_between(seq, block.last_seq), (seq + 1, 0))
            if removed[0] > seq:
                return seq
            ordinal = index.first_ordinal_from(removed[1] + 1)
    return reader.last_seq + 1


def identity(reader: StreamReader) -> str:
    """Give what tells the stream from another: its salt, which every block's header has."""
    if not reader.blocks:
        return ""
    header = reader.header_bytes(reader.blocks[-1].number)
    return f"{decode_block_header(header, reader.folder.path).salt:016x}"


def position_at(reader: StreamReader, time_ns: int) -> int | None:
    """Give the first message that is not before a time; None where all are."""
    for block in reader.blocks:
        if not block.count or block.last_time_ns < time_ns:
            continue
        index = reader.load_index(block.number)
        for ordinal in range(index.count):
            seq, _, _, timestamp_ns, *_ = index.entry(ordinal)
            if timestamp_ns >= time_ns and seq not in reader.removed:
                return seq
    return None
