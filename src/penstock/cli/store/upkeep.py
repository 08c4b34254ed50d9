"""`penstock store repair`, `compact` and `import`: the commands that write a stream's directory.

`repair` and `compact` hold the directory's lock while they work, and say who holds it if they
cannot. `import` makes a new directory from one of Go's nats-server or from JSON lines: the source
is only read, and the target appears whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.arguments import (
    KEY_VARIABLE,
    AsJson,
    KeyFile,
    StreamFolder,
    StreamName,
    load_key,
    load_secret,
)
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
from penstock.cli.store.inspect import DAMAGE_COLUMNS, damage_rows, verified
from penstock.cli.store.sources import (
    GO,
    JSON_LINES,
    PenstockSource,
    disk_bytes,
    layout_of,
    require_penstock,
    stream_name,
)
from penstock.errors import UsageError
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, StoreKey
from penstock.format.reader import StreamReader
from penstock.format.summary import find_sealing
from penstock.store.filestore import FileStore
from penstock.store.imports.build import ImportReport
from penstock.store.imports.from_go import import_go_stream
from penstock.store.imports.from_json_lines import import_json_lines
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
    """Open a Penstock directory to change it, with the encryption and compression it has.

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
    """Free the disk space of removed messages.

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


_FACTS = (
    Column("source", "from"),
    Column("layout", "layout"),
    Column("target", "to"),
    Column("messages", "messages", count),
    Column("consumers", "consumers", listed),
    Column("first_seq", "first sequence"),
    Column("last_seq", "last sequence"),
)


def import_stream(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A stream's directory of Go's nats-server, or one with a messages.jsonl.",
            exists=True,
            file_okay=False,
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="The new directory: not there yet, or empty.")
    ],
    stream: StreamName = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"The key of an encrypted source; or set {KEY_VARIABLE} to the key itself.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    target_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Encrypt the new store with this key (ChaCha20-Poly1305).",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring a stream over from Go's nats-server, or from JSON lines, into a new directory.

    \b
    penstock store import /var/lib/nats/jetstream/'$G'/streams/ORDERS ./ORDERS
    penstock store import ./old-store ./ORDERS

    Sequences, times, headers and consumers' states stay as they are; the source is only read. Stop
    its server first. Ends with 1 where something could not be brought over; the rest is then there.
    """
    output = make_output(as_json=as_json)
    layout = layout_of(str(source))
    if layout not in (GO, JSON_LINES):
        raise UsageError(f"{source}: neither a stream of Go's nats-server nor a messages.jsonl")
    key = None if target_key_file is None else load_key(target_key_file)
    config = StoreConfig(
        name=stream or stream_name(str(target)),
        cipher=Cipher.NONE if key is None else Cipher.CHACHA20_POLY1305,
    )
    if layout == GO:
        done = import_go(str(source), str(target), config, key, load_secret(key_file))
    else:
        done = _imported(import_json_lines(str(source), str(target), config, key=key))
    output.facts(
        {"source": str(source), "target": str(target), "layout": layout, **_told(done)}, _FACTS
    )
    for line in [*(str(each) for each in done.damage), *done.notes]:
        output.say(line)
    output.finish()
    if not done.whole:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Imported:
    """What was imported, and what was not."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    missing: int
    consumers: list[str]
    damage: list[Damage]
    notes: list[str]
    whole: bool


def _told(done: Imported) -> dict[str, Value]:
    return {
        "messages": done.messages,
        "bytes": done.bytes,
        "first_seq": done.first_seq,
        "last_seq": done.last_seq,
        "missing": done.missing,
        "consumers": done.consumers,
        "damage": damage_rows(done.damage),
        "notes": done.notes,
        "whole": done.whole,
    }


def import_go(
    source: str, target: str, config: StoreConfig, key: StoreKey | None, go_key: bytes | None
) -> Imported:
    """Import a stream of Go's nats-server."""
    with progress(f"importing {source}") as tell:
        return _imported(
            import_go_stream(source, target, config, key=key, go_key=go_key, progress=tell)
        )


def _imported(report: ImportReport) -> Imported:
    return Imported(
        messages=report.messages,
        bytes=report.bytes,
        first_seq=report.first_seq,
        last_seq=report.last_seq,
        missing=report.missing,
        consumers=report.consumers,
        damage=report.damage,
        notes=report.problems + [f"not carried over: {each}" for each in report.unsupported],
        whole=report.is_whole,
    )
