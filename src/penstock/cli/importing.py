"""`penstock store import`: streams from Go's nats-server and from JSON lines, in a new directory.

The source is only read. The target is built beside its place and appears whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.arguments import KEY_VARIABLE, AsJson, StreamName, load_key, load_secret
from penstock.cli.output import Column, Value, count, listed, make_output, progress
from penstock.cli.sources import GO, JSON_LINES, layout_of, stream_name
from penstock.cli.store import damage_rows
from penstock.errors import UsageError
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, StoreKey
from penstock.store.go_import import ImportReport, import_go_stream
from penstock.store.interface import StoreConfig
from penstock.store.json_import import import_json_lines

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
    """What came over, and what did not."""

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
