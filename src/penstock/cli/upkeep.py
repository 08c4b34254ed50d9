"""Changing stream directories: `penstock store repair | compact`.

These commands hold the directory's lock while they work, and say who holds it where they cannot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.arguments import AsJson, KeyFile, StreamFolder, StreamName, load_key
from penstock.cli.output import (
    Column,
    Output,
    Value,
    count,
    listed,
    make_output,
    progress,
    size,
    yes_or_no,
)
from penstock.cli.sources import (
    PenstockSource,
    disk_bytes,
    require_penstock,
    stream_name,
)
from penstock.cli.store import DAMAGE_COLUMNS, damage_rows, verified
from penstock.format.reader import StreamReader
from penstock.format.summary import find_sealing
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

_REPAIR_FACTS = (
    Column("path", "directory"),
    Column("rebuilt_indexes", "indexes rebuilt", listed),
    Column("torn_bytes", "torn bytes cut", count),
    Column("rewritten_blocks", "blocks rewritten", listed),
    Column("unreadable_blocks", "blocks moved aside", listed),
    Column("messages", "messages", count),
    Column("clean", "sound", yes_or_no),
)

_COMPACT_FACTS = (
    Column("path", "directory"),
    Column("messages", "messages", count),
    Column("disk_bytes_before", "before", size),
    Column("disk_bytes_after", "after", size),
    Column("given_back_bytes", "given back", size),
)


def _open(path: str, name: str | None, key_file: Path | None) -> FileStore:
    """Open a directory of ours to change it, going on to seal records as they are sealed now.

    The stream's limits are not known here, so none is applied.
    """
    require_penstock(path)
    name = name or stream_name(path)
    key = load_key(key_file)
    compression, cipher = find_sealing(StreamReader(path, stream=name, key=key))
    config = StoreConfig(name=name, compression=compression, cipher=cipher)
    return FileStore.open(path, config, key=key)


def repair(
    folder: StreamFolder,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is wrong; take no lock.")
    ] = False,
    stream: StreamName = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Mend a stream: rebuild indexes, cut a torn tail, rewrite damaged blocks.

    \b
    penstock store repair DIR --dry-run
    penstock store repair DIR

    Every whole record is kept. Damaged bytes are moved to quarantine/ in the directory, and the
    sequences that are lost are listed. Afterwards `verify` finds nothing.
    """
    path = str(folder)
    output = make_output(as_json=as_json)
    if dry_run:
        clean = _tell_what_is_wrong(output, path, stream, key_file)
    else:
        clean = _repair(output, path, stream, key_file)
    output.finish()
    if not clean:
        raise typer.Exit(1)


def _tell_what_is_wrong(
    output: Output, path: str, stream: str | None, key_file: Path | None
) -> bool:
    require_penstock(path)
    source = PenstockSource(path, stream or stream_name(path), key_file)
    row = verified(source)
    facts = {"dry_run": True, **{name: row[name] for name in ("path", "tail_bytes", "clean")}}
    shown = (
        Column("path", "directory"),
        Column("tail_bytes", "torn bytes", count),
        Column("clean", "sound", yes_or_no),
    )
    output.facts(facts, shown)
    _tell_losses(output, damage_rows(source.damage), row["notes"])
    return bool(row["clean"])


def _repair(output: Output, path: str, stream: str | None, key_file: Path | None) -> bool:
    with _open(path, stream, key_file) as store:
        with progress(f"repairing {path}") as tell:
            total = store.report.blocks
            report = store.repair(lambda check: tell(check.number, total))
        messages = store.state().messages
    after = verified(PenstockSource(path, stream or stream_name(path), key_file))
    output.facts(
        {
            "path": path,
            "dry_run": False,
            "rebuilt_indexes": sorted(set(report.rebuilt_indexes)),
            "torn_bytes": report.torn_bytes,
            "rewritten_blocks": report.rewritten_blocks,
            "unreadable_blocks": report.unreadable_blocks,
            "messages": messages,
            "clean": after["clean"],
        },
        _REPAIR_FACTS,
    )
    _tell_losses(output, damage_rows(report.losses), report.notes)
    return bool(after["clean"])


def _tell_losses(output: Output, losses: list[dict[str, Value]], notes: object) -> None:
    assert isinstance(notes, list)
    if losses:
        output.rows("losses", DAMAGE_COLUMNS, losses, title="What is damaged, and what it cost")
    else:
        output.facts({"losses": []}, ())
    output.facts({"notes": notes}, ())
    for note in notes:
        output.say(note)


def compact(
    folder: StreamFolder,
    stream: StreamName = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Give the disk space of removed messages back.

    \b
    penstock store compact DIR

    Every block that holds anything removed is rewritten without it, at no time losing the old one
    before the new one is on the disk. A running store does the same by itself once half a block is
    gone.
    """
    path = str(folder)
    output = make_output(as_json=as_json)
    require_penstock(path)
    before = disk_bytes(path)
    with _open(path, stream, key_file) as store:
        store.reclaim(thorough=True)
        messages = store.state().messages
    after = disk_bytes(path)
    output.facts(
        {
            "path": path,
            "messages": messages,
            "disk_bytes_before": before,
            "disk_bytes_after": after,
            "given_back_bytes": before - after,
        },
        _COMPACT_FACTS,
    )
    output.finish()
