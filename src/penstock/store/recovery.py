"""Opening a store: from checkpoint, indexes and blocks to a ledger, and a report of what was found.

The log is the truth: entries of the blocks, less what tombstones tell of. A checkpoint saves adding
up what it covers; an index saves scanning its block; a last block without one is scanned. What is
derived and missing is built again, in parallel; what is torn at the very end was never
acknowledged and is cut off, after it was kept aside; what is damaged elsewhere is stepped over and
reported. Files of a newer format or a wrong key end the opening before anything is changed.

What always holds: first everything is read, then everything is mended, and an interruption of
either leaves a directory that is recovered to the same messages. What recovery takes over is on
stable storage when it is done, also what a process that was killed had written and not synced.

Runs once, before anybody else has the engine.
"""

from __future__ import annotations

from penstock.errors import CorruptStore
from penstock.format.block import encode_block_header
from penstock.format.envelope import Cipher
from penstock.format.layout import HIGH_WATER_NAME, STATE_NAME, block_name, index_name
from penstock.format.state import Checkpoint, HighWater, decode_checkpoint, decode_high_water
from penstock.store.active_block import ActiveBlock
from penstock.store.block_account import Block
from penstock.store.block_head import BlockHead
from penstock.store.block_scan import EarlyWalk, FoundBlock, Known, Stock, header_of
from penstock.store.block_survey import Survey, read_file, survey_directory
from penstock.store.checkpoint import drop_checkpoint
from penstock.store.engine import Engine
from penstock.store.interface import RecoveryReport
from penstock.store.losses import carry_damage, raise_to_high_water, report_losses
from penstock.store.retention import enforce_all
from penstock.store.stock import CheckpointInDoubt, take_stock
from penstock.store.vfs import write_all


def recover(engine: Engine) -> RecoveryReport:
    """Bring an engine up from its directory."""
    started = engine.clock.monotonic_ns()
    report = RecoveryReport(engine.path)
    known = Known(_read_checkpoint(engine, report), _read_high_water(engine))
    last, last_bytes = known.last_block
    # One that is sealed is not walked through, if it is as it was.
    is_sealed = engine.files.exists(engine.file_path(index_name(last)))
    if engine.threaded and last_bytes >= engine.config.resting_bytes_min and not is_sealed:
        known.early = EarlyWalk(engine, last)
    try:
        return _recover(engine, report, known, started)
    finally:
        if known.early is not None:
            known.early.wait()


def _recover(engine: Engine, report: RecoveryReport, known: Known, started: int) -> RecoveryReport:
    survey = survey_directory(engine, known.salt)
    engine.salt = survey.salt
    if known.mark is not None and known.mark.salt not in (0, survey.salt):
        report.notes.append("high.water is of another stream and not used")
        known.mark = None
    if known.checkpoint is not None and known.checkpoint.salt not in (0, survey.salt):
        report.notes.append("checkpoint not used: it is of another stream")
        known.checkpoint = None
    is_doubted = False
    try:
        stock = take_stock(engine, survey, known, known.checkpoint)
        report.checkpoint_used = known.checkpoint is not None
    except CheckpointInDoubt as doubt:
        report.notes.append(f"checkpoint not used: {doubt}")
        is_doubted = True
        engine.start_over()
        stock = take_stock(engine, survey, known, None)
        carry_damage(engine, survey, known)
    report.notes += survey.notes + stock.notes
    report.scanned_blocks, report.rebuilt_indexes = stock.scanned, stock.rebuilt
    report_losses(engine, report, survey, known, stock)
    if not engine.salt:
        engine.salt = int.from_bytes(engine.random_bytes(8), "little") or 1
    used = max([0 if known.mark is None else known.mark.block, *survey.heads])
    engine.next_number = used + 1
    if is_doubted:
        # When the last block is sealed, nothing would give rise to the doubt again.
        drop_checkpoint(engine)
    _mend(engine, report, survey, known, stock)
    _recall_last_time(engine, known, stock)
    raise_to_high_water(engine, report, known)
    _renew_mark(engine, known)
    engine.durable_seq = engine.ledger.last_seq
    report.blocks = len(engine.ledger.blocks)
    enforce_all(engine)
    report.damage = list(engine.damage)
    report.duration_ns = engine.clock.monotonic_ns() - started
    return report


def _read_checkpoint(engine: Engine, report: RecoveryReport) -> Checkpoint | None:
    data = read_file(engine, STATE_NAME)
    if data is None:
        return None
    engine.checkpoint_on_disk = True
    try:
        return decode_checkpoint(data, engine.file_path(STATE_NAME))
    except CorruptStore as error:
        report.notes.append(f"checkpoint not used: {error.reason}")
        return None


def _read_high_water(engine: Engine) -> HighWater | None:
    data = read_file(engine, HIGH_WATER_NAME)
    if data is None:
        return None
    mark = decode_high_water(data, engine.file_path(HIGH_WATER_NAME))
    if mark is not None:
        engine.high_water.turn = mark.turn
    return mark


def _recall_last_time(engine: Engine, known: Known, stock: Stock) -> None:
    """Take the last message's time from the mark where its record was given back to the disk."""
    mark = known.mark
    counted = known.checkpoint.last_seq if known.checkpoint is not None else 0
    newest = max(
        (each.index.entry(each.index.count - 1)[0] for each in stock.found if each.index.count),
        default=0,
    )
    if mark is not None and max(counted, newest) <= mark.last_seq <= engine.ledger.last_seq:
        engine.ledger.last_time_ns = mark.last_time_ns


def _renew_mark(engine: Engine, known: Known) -> None:
    """Have the mark tell what was found: later it may be all that remembers the last message."""
    told = (engine.ledger.last_seq, engine.ledger.last_time_ns)
    mark = known.mark
    if engine.volatile or not engine.ledger.last_seq:
        return
    if mark is None or (mark.last_seq, mark.last_time_ns) != told:
        engine.high_water.write(*told, engine.salt)


def _mend(
    engine: Engine, report: RecoveryReport, survey: Survey, known: Known, stock: Stock
) -> None:
    """Do all that changes files; each step may be the last before a crash."""
    for name in survey.temporaries:
        engine.files.unlink(engine.file_path(name))
    for head in survey.heads.values():
        if head.header is not None and head.reason:
            _mend_header(engine, report, head)
    for head in stock.never_acknowledged:
        _set_aside(engine, report, head)
    if stock.found:
        _take_up(
            engine, report, known, stock.found[-1], stock.found[-1].block.number in survey.indexed
        )
    elif engine.ledger.blocks:
        last = engine.ledger.blocks[-1]
        engine.high_water.place = (last.number, last.bytes)
    for each in stock.found[:-1]:
        _keep_index(engine, report, each)


def _mend_header(engine: Engine, report: RecoveryReport, head: BlockHead) -> None:
    """Write a header again that was damaged, after what was there is kept aside."""
    name = block_name(head.number)
    engine.quarantine(f"{name}-header", head.image)
    file = engine.files.open(engine.file_path(name), "update")
    try:
        write_all(file, 0, encode_block_header(header_of(head)))
        file.sync_data()
    finally:
        file.close()
    report.notes.append(f"{name}: {head.reason}; mended")


def _set_aside(engine: Engine, report: RecoveryReport, head: BlockHead) -> None:
    """Take a block away that was never acknowledged; what there is of it is kept."""
    name = block_name(head.number)
    data = read_file(engine, name)
    if data:
        engine.quarantine(name, data)
        report.torn_bytes += len(data)
    engine.files.unlink(engine.file_path(name))
    engine.files.sync_dir(engine.path)
    report.notes.append(f"{name}: never finished, moved aside")


def _keep_index(engine: Engine, report: RecoveryReport, each: FoundBlock) -> None:
    """Write an index that was rebuilt, and let its memory go: a server has many streams."""
    index = each.index
    if each.is_scanned:
        index.freeze()
        try:
            engine.replace_index(index.number, index.encode())
        except OSError as error:
            report.notes.append(f"{index_name(index.number)}: not written: {error}")
            each.block.index_pinned = True
            return
    each.block.index = None
    each.block.expiring = index.expiry_count


def _take_up(
    engine: Engine, report: RecoveryReport, known: Known, last: FoundBlock, is_indexed: bool
) -> None:
    """Go on writing in the last block, or seal it where that is not wise."""
    block = last.block
    if last.torn:
        whole = last.index.block_bytes
        engine.quarantine(f"{block.number:06d}-{whole}-torn", last.torn)
        report.torn_bytes += len(last.torn)
    file = engine.files.open(block.path, "update")
    try:
        if last.torn:
            file.truncate(last.index.block_bytes)
        if last.written:
            # A failed sync leaves bytes that can be read, and that no later sync puts on stable
            # storage: what nobody vouches for is written again.
            write_all(file, last.index.block_bytes - len(last.written), last.written)
        if not known.is_settled(last):
            file.sync_data()
            engine.files.sync_dir(engine.path)
    except OSError:
        file.close()
        raise
    engine.high_water.place = (block.number, last.index.block_bytes)
    # An encrypted block is not gone on with: what was cut off must not be sealed again under the
    # same key and sequence. A damaged one is left as it is.
    ciphers = {_cipher(block), engine.config.cipher}
    is_short = last.index.block_bytes < engine.config.resting_bytes_min
    if ciphers == {Cipher.NONE} and not last.index.damage and not is_indexed and is_short:
        last.index.adopt(engine.ledger.table)
        engine.attach(block, ActiveBlock(last.index, block.path, block.seed, file))
        return
    file.close()
    _keep_index(engine, report, last)


def _cipher(block: Block) -> Cipher:
    assert block.header is not None, "a block that was opened has its header"
    return Cipher(block.header.cipher)
