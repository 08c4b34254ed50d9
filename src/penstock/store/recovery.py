"""Opening a store: from checkpoint, indexes and blocks to a ledger, and a report of what was found.

The log is the truth: entries of the blocks, less what tombstones tell of. A checkpoint saves adding
up what it covers; an index saves scanning its block; only the last block is always scanned. What is
derived and missing is built again, in parallel; what is torn at the very end was never
acknowledged and is cut off, after it was kept aside; what is damaged elsewhere is stepped over and
reported. Files of a newer format or a wrong key end the opening before anything is changed.

Runs once, before anybody else has the engine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.errors import CorruptStore, FormatError
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    decode_block_header,
    encode_block_header,
    record_seed,
)
from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import unsealer
from penstock.format.block_walker import BlockWalker
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher
from penstock.format.layout import (
    HIGH_WATER_NAME,
    STATE_NAME,
    block_name,
    block_number,
    index_name,
    index_number,
    is_temporary,
)
from penstock.format.state import (
    Checkpoint,
    HighWater,
    decode_checkpoint,
    decode_high_water,
)
from penstock.format.subject_table import SubjectTable
from penstock.store.active_block import ActiveBlock
from penstock.store.engine import Engine
from penstock.store.interface import RecoveryReport
from penstock.store.ledger import Block
from penstock.store.retention import enforce_all

GENERATIONS_TRIED = 64
"""A block whose header is damaged is tried with these many generations of its checksum seed."""


@dataclass(slots=True)
class _Found:
    """A block file as recovery finds it."""

    block: Block
    index: BlockIndex
    walker: BlockWalker | None = None
    """Set where the block was scanned."""

    data: bytes = b""


class _CheckpointInDoubt(Exception):
    """The checkpoint and the files disagree: add up the files instead."""

    def __init__(self, why: str, damage: Sequence[Damage] = ()) -> None:
        super().__init__(why)
        self.damage = damage


def recover(engine: Engine) -> RecoveryReport:
    """Bring an engine up from its directory."""
    started = engine.clock.monotonic_ns()
    report = RecoveryReport(engine.path)
    numbers = _survey(engine, report)
    checkpoint = _read_checkpoint(engine, report)
    mark = _read_high_water(engine)
    if checkpoint is not None and (mark is None or mark.last_seq < checkpoint.last_seq):
        # The mark is not synced with every commit; the checkpoint is, with what it tells of.
        mark = HighWater(0, checkpoint.last_seq, checkpoint.last_time_ns)
    try:
        _build(engine, report, numbers, checkpoint)
    except _CheckpointInDoubt as doubt:
        report.notes.append(f"checkpoint not used: {doubt}")
        engine.start_over()
        _build(engine, report, numbers, None)
        for damage in doubt.damage:
            engine.report_damage(damage)
    if not engine.salt:
        engine.salt = int.from_bytes(engine.random_bytes(8), "little") or 1
    engine.next_number = max(numbers, default=0) + 1
    _raise_to_high_water(engine, report, mark)
    engine.durable_seq = engine.ledger.last_seq
    report.blocks = len(engine.ledger.blocks)
    enforce_all(engine)
    report.damage = list(engine.damage)
    report.duration_ns = engine.clock.monotonic_ns() - started
    return report


def _survey(engine: Engine, report: RecoveryReport) -> list[int]:
    """List the blocks, clear away what interrupted writes of ours left, and note the rest."""
    numbers = []
    names = engine.files.list_names(engine.path)
    for name in names:
        number = block_number(name)
        if number is not None:
            numbers.append(number)
        elif is_temporary(name):
            engine.files.unlink(engine.file_path(name))
    blocks = set(numbers)
    for name in names:
        number = index_number(name)
        if number is not None and number not in blocks:
            report.notes.append(f"{name}: an index without its block, left alone")
    return sorted(numbers)


def _read_all(engine: Engine, name: str) -> bytes | None:
    try:
        file = engine.files.open(engine.file_path(name), "read")
    except FileNotFoundError:
        return None
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def _read_checkpoint(engine: Engine, report: RecoveryReport) -> Checkpoint | None:
    data = _read_all(engine, STATE_NAME)
    if data is None:
        return None
    engine.checkpoint_on_disk = True
    try:
        return decode_checkpoint(data, engine.file_path(STATE_NAME))
    except CorruptStore as error:
        report.notes.append(f"checkpoint not used: {error.reason}")
        return None


def _read_high_water(engine: Engine) -> HighWater | None:
    data = _read_all(engine, HIGH_WATER_NAME)
    if data is None:
        return None
    mark = decode_high_water(data, engine.file_path(HIGH_WATER_NAME))
    if mark is not None:
        engine.high_water_turn = mark.turn
    return mark


def _build(
    engine: Engine, report: RecoveryReport, numbers: list[int], checkpoint: Checkpoint | None
) -> None:
    """Fill the ledger from the checkpoint, where there is one, and from the blocks it lacks."""
    fresh = numbers
    if checkpoint is not None:
        fresh = _restore(engine, numbers, checkpoint)
        report.checkpoint_used = True
    else:
        report.checkpoint_used = False
    found = _open_blocks(engine, report, fresh, scan_last=True)
    for place, each in enumerate(found):
        known = engine.ledger.blocks[-1] if checkpoint is not None and place == 0 else None
        first = 0
        if known is not None and known.number == each.block.number:
            # The block that was being written when the checkpoint was taken: what the
            # checkpoint counted of it is not counted again.
            first = known.count
            if each.index.count < first or each.index.block_bytes < known.bytes:
                raise _CheckpointInDoubt("it tells of records that the last block lacks")
            if each.block.generation != known.generation:
                raise _CheckpointInDoubt("the last block was rewritten since")
            known.index = each.index
            known.header = each.block.header
            each.block = known
        else:
            engine.ledger.add_block(each.block)
            each.block.index = each.index
        engine.ledger.fold(each.block, each.index, first)
        for damage in each.index.damage:
            engine.report_damage(damage)
    for each in found:
        for low, high in each.index.tombstones.ranges():
            engine.ledger.remove_range(low, high)
    engine.ledger.removed.clear()
    engine.ledger.settle()
    _fill_wheel(engine, found)
    _keep_indexes(engine, report, found)
    if found:
        _take_up(engine, report, found[-1])


def _restore(engine: Engine, numbers: list[int], checkpoint: Checkpoint) -> list[int]:
    """Take over a checkpoint; give the blocks that it does not cover wholly."""
    there = set(numbers)
    listed = {block.number for block in checkpoint.blocks}
    last = max(listed, default=0)
    missing = sorted(listed - there)
    if missing:
        lost = [
            Damage(
                block.number, 0, block.bytes, "block file is missing", block.base_seq, block.last_seq
            )
            for block in checkpoint.blocks
            if block.number in missing and block.live
        ]
        raise _CheckpointInDoubt(f"block {missing[0]} is gone", lost)
    unknown = sorted(number for number in there - listed if number < last)
    if unknown:
        raise _CheckpointInDoubt(f"block {unknown[0]} was to be removed and is still there")
    table = SubjectTable()
    try:
        table.decode_into(checkpoint.subjects)
    except FormatError as error:
        raise _CheckpointInDoubt(error.reason) from error
    engine.salt = checkpoint.salt
    for summary in checkpoint.blocks:
        block = Block(
            summary.number,
            summary.generation,
            summary.base_seq,
            record_seed(checkpoint.salt, summary.number, summary.generation),
            engine.file_path(block_name(summary.number)),
        )
        block.restore(
            count=summary.count,
            bytes=summary.bytes,
            last_seq=summary.last_seq,
            live=summary.live,
            live_bytes=summary.live_bytes,
            live_disk_bytes=summary.live_disk_bytes,
            first_time_ns=summary.first_time_ns,
            last_time_ns=summary.last_time_ns,
            dead=summary.dead,
        )
        block.expiring = summary.expiring
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
    return [number for number in numbers if number >= last]


# Blocks


def _open_blocks(
    engine: Engine, report: RecoveryReport, numbers: list[int], *, scan_last: bool
) -> list[_Found]:
    """Open blocks by their indexes, scanning those that have none, on all cores."""
    headers = _read_headers(engine, report, numbers)
    found: dict[int, _Found] = {}
    to_scan: list[tuple[int, BlockHeader, bytes]] = []
    for number in numbers:
        header = headers.get(number)
        if header is None:
            continue
        block = _block_of(engine, header)
        is_last = scan_last and number == numbers[-1]
        index = None if is_last else engine.cache.read_index(block)
        if index is None:
            to_scan.append((number, header, encode_block_header(header)))
            if not is_last:
                report.rebuilt_indexes.append(number)
        else:
            found[number] = _Found(block, index)
    report.scanned_blocks += [number for number, _, _ in to_scan]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for each in pool.map(lambda item: _scan(engine, item[1], item[2]), to_scan):
            found[each.block.number] = each
    return [found[number] for number in numbers if number in found]


def _block_of(engine: Engine, header: BlockHeader) -> Block:
    path = engine.file_path(block_name(header.number))
    block = Block(header.number, header.generation, header.base_seq, header.seed, path)
    block.header = header
    return block


def _scan(engine: Engine, header: BlockHeader, image: bytes) -> _Found:
    block = _block_of(engine, header)
    data = _read_all(engine, block_name(header.number)) or b""
    index = BlockIndex(header.number, header.generation, header.base_seq, image, SubjectTable())
    walker = BlockWalker(
        data, block=header.number, seed=header.seed, base_seq=header.base_seq
    )
    walker.index_into(index)
    return _Found(block, index, walker, data)


def _read_headers(
    engine: Engine, report: RecoveryReport, numbers: list[int]
) -> dict[int, BlockHeader]:
    """Read every block's header; mend what is damaged from the index or from its neighbours."""
    headers: dict[int, BlockHeader] = {}
    damaged: dict[int, str] = {}
    for number in numbers:
        path = engine.file_path(block_name(number))
        data = _head(engine, path)
        try:
            header = decode_block_header(data, path)
            if header.number != number:
                raise CorruptStore(path, 0, f"the header says block {header.number}")
            headers[number] = header
        except CorruptStore as error:
            damaged[number] = error.reason
    if headers:
        engine.salt = next(iter(headers.values())).salt
    for number, reason in damaged.items():
        header_or_none = _mended_header(engine, number, headers)
        if header_or_none is not None:
            headers[number] = header_or_none
            report.notes.append(f"{block_name(number)}: {reason}; taken from elsewhere")
        else:
            _give_up_block(engine, report, number, reason, last=number == numbers[-1])
    for header in headers.values():
        if header.cipher != Cipher.NONE:
            path = engine.file_path(block_name(header.number))
            unsealer(header, engine.config.name.encode(), engine.key, path)
    return headers


def _head(engine: Engine, path: str) -> bytes:
    file = engine.files.open(path, "read")
    try:
        return file.read_at(0, HEADER_BYTES)
    finally:
        file.close()


def _mended_header(
    engine: Engine, number: int, headers: dict[int, BlockHeader]
) -> BlockHeader | None:
    data = _read_all(engine, index_name(number))
    if data is not None:
        try:
            index = BlockIndex.load(data, index_name(number))
            return decode_block_header(index.header, index_name(number))
        except (CorruptStore, FormatError):
            pass
    # Without the index: the salt of the neighbours and the generation that makes a record check
    # out. An encrypted block's key is lost with its header.
    if not engine.salt:
        return None
    blk = _read_all(engine, block_name(number)) or b""
    before = [header for other, header in headers.items() if other < number]
    base_seq = max((header.base_seq for header in before), default=1)
    for generation in range(GENERATIONS_TRIED):
        seed = record_seed(engine.salt, number, generation)
        walker = BlockWalker(blk, block=number, seed=seed, base_seq=base_seq)
        probe = BlockIndex(number, generation, base_seq, bytes(HEADER_BYTES), SubjectTable())
        walker.index_into(probe)
        if probe.count or probe.tombstones:
            return BlockHeader(number, engine.salt, base_seq, 0, generation)
    return None


def _give_up_block(
    engine: Engine, report: RecoveryReport, number: int, reason: str, *, last: bool
) -> None:
    """Report a block that cannot be read at all; one that was never finished is moved aside."""
    path = engine.file_path(block_name(number))
    data = _read_all(engine, block_name(number)) or b""
    if last and len(data) <= HEADER_BYTES:
        # Created, and the power failed before its header was written.
        if data:
            engine.quarantine(block_name(number), data)
        engine.files.unlink(path)
        engine.files.sync_dir(engine.path)
        report.notes.append(f"{block_name(number)}: never finished, moved aside")
        return
    engine.report_damage(Damage(number, 0, len(data), f"unreadable block: {reason}", 1, 0))


def _keep_indexes(engine: Engine, report: RecoveryReport, found: list[_Found]) -> None:
    """Write the indexes that were rebuilt, and let the memory of all but the last go."""
    for each in found[:-1]:
        index = each.index
        if each.walker is not None:
            index.freeze()
            image = index.encode()
            try:
                engine.replace_file(index_name(index.number), image)
            except OSError as error:
                report.notes.append(f"{index_name(index.number)}: not written: {error}")
                each.block.index_pinned = True
                continue
            index = BlockIndex.load(image, each.block.path)
        each.block.index = index
        each.block.expiring = index.expiry_count
        engine.cache.admit(each.block)


def _take_up(engine: Engine, report: RecoveryReport, last: _Found) -> None:
    """Go on writing in the last block, or seal it where that is not wise."""
    walker = last.walker
    assert walker is not None, "the last block is always scanned"
    block = last.block
    torn = len(last.data) - walker.whole_bytes
    if torn > 0:
        engine.quarantine(
            f"{block.number:06d}-{walker.whole_bytes}-torn", last.data[walker.whole_bytes :]
        )
        report.torn_bytes = torn
    file = engine.files.open(block.path, "update")
    try:
        if torn > 0:
            file.truncate(walker.whole_bytes)
            file.sync_data()
        if last.data[:HEADER_BYTES] != last.index.header:
            file.write_at(0, last.index.header)
            file.sync_data()
    except OSError:
        file.close()
        raise
    # An encrypted block is not gone on with: what was cut off must not be sealed again under the
    # same key and sequence. A damaged one is left as it is.
    has_index = engine.files.exists(engine.file_path(index_name(block.number)))
    if block.header.cipher == Cipher.NONE and not walker.damage and not has_index:
        last.index.adopt(engine.ledger.table)
        engine.attach(block, ActiveBlock(last.index, block.path, block.seed, file))
        return
    file.close()
    last.index.freeze()
    image = last.index.encode()
    engine.replace_file(index_name(block.number), image)
    block.index = BlockIndex.load(image, block.path)
    block.expiring = block.index.expiry_count
    engine.cache.admit(block)


def _fill_wheel(engine: Engine, found: list[_Found]) -> None:
    fresh = {each.block.number: each.index for each in found}
    for block in engine.ledger.blocks:
        index = fresh.get(block.number)
        if index is None and block.expiring:
            index = engine.cache.index_of(block)
        if index is None:
            continue
        for ordinal, seq, expires_ns in index.expiring():
            if not block.dead_at(ordinal):
                engine.wheel.add(seq, expires_ns)


def _raise_to_high_water(
    engine: Engine, report: RecoveryReport, mark: HighWater | None
) -> None:
    """Never give a sequence twice: where the tail is lost, go on after what was acknowledged."""
    found = engine.ledger.last_seq
    if mark is None or mark.last_seq <= found:
        return
    last_block = engine.ledger.blocks[-1].number if engine.ledger.blocks else 0
    engine.report_damage(
        Damage(
            last_block,
            engine.ledger.blocks[-1].bytes if engine.ledger.blocks else 0,
            0,
            "the end of the log is missing",
            found + 1,
            mark.last_seq,
        )
    )
    report.notes.append(
        f"the last sequence was {mark.last_seq} and the log ends at {found}: going on after it"
    )
    engine.append_skip(found + 1, mark.last_seq - found)
    engine.ledger.last_time_ns = max(engine.ledger.last_time_ns, mark.last_time_ns)
