"""Looking at stream directories: `penstock store ls | info | verify | cat`.

These commands take no lock, change nothing, and work beside a process that writes.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.arguments import AsJson, KeyFile, StreamFolder, StreamName, parse_time
from penstock.cli.output import (
    Column,
    Format,
    Output,
    Value,
    count,
    make_output,
    moment,
    printable,
    progress,
    rfc3339,
    size,
    write_message,
    yes_or_no,
)
from penstock.cli.store.sources import (
    JSON_LINES,
    StreamFacts,
    StreamSource,
    disk_bytes,
    find_streams,
    holder_of,
    open_source,
    quarantined,
    subject_filter,
)
from penstock.clock import SystemClock
from penstock.errors import PenstockError, UsageError
from penstock.format.damage import Damage
from penstock.format.reader import SEQ_MAX, TIME_MAX, TIME_MIN, Selection

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Look at, check and mend stream directories; no server is needed.

    \b
    penstock store ls /var/lib/penstock           every stream in a tree
    penstock store info DIR --blocks              one stream in detail
    penstock store verify DIR && echo sound       read every byte
    penstock store cat DIR --limit 5 --json       messages
    penstock store repair DIR --dry-run           what a repair would do
    penstock store compact DIR                    give disk space back
    penstock store import GO_DIR TARGET           from Go's nats-server, or JSON lines

    ls, info, verify and cat take no lock and work beside a process that writes. They read the
    directories of Go's nats-server too.

    \b
    Exit codes:
      0  done
      1  failed, or damage was found
      2  wrong usage
      3  could not open: in use, wrong key, or written by a newer version
    """,
)

DAMAGE_COLUMNS = (
    Column("block", "block", right=True),
    Column("offset", "offset", count, right=True),
    Column("length", "bytes", count, right=True),
    Column("sequences", "sequences"),
    Column("reason", "what is wrong"),
)

_LS_COLUMNS = (
    Column("path", "path"),
    Column("layout", "layout"),
    Column("messages", "messages", count, right=True),
    Column("bytes", "bytes", size, right=True),
    Column("first_seq", "first", right=True),
    Column("last_seq", "last", right=True),
    Column("first_time", "first time", moment),
    Column("last_time", "last time", moment),
    Column("blocks", "blocks", count, right=True),
    Column("subjects", "subjects", count, right=True),
    Column("damage_count", "damage", count, right=True),
    Column("error", "note"),
)

_INFO_FACTS = (
    Column("path", "directory"),
    Column("stream", "stream"),
    Column("layout", "layout"),
    Column("messages", "messages", count),
    Column("bytes", "bytes", size),
    Column("disk_bytes", "on disk", size),
    Column("first_seq", "first sequence"),
    Column("first_time", "first time", moment),
    Column("last_seq", "last sequence"),
    Column("last_time", "last time", moment),
    Column("deleted", "deleted", count),
    Column("subjects", "subjects", count),
    Column("blocks_count", "blocks", count),
    Column("encryption", "encryption"),
    Column("compression", "compression"),
    Column("held_by", "open in process"),
    Column("quarantined_files", "kept aside", lambda files: f"{len(files)} files in quarantine/"),  # type: ignore[arg-type]  # a list
    Column("damage_count", "damage", count),
)

_BLOCK_COLUMNS = (
    Column("number", "block", right=True),
    Column("bytes", "bytes", size, right=True),
    Column("messages", "messages", count, right=True),
    Column("first_seq", "from", right=True),
    Column("last_seq", "to", right=True),
    Column("first_time", "first time", moment),
    Column("last_time", "last time", moment),
    Column("sealed", "sealed", yes_or_no),
    Column("encrypted", "encrypted", yes_or_no),
    Column("generation", "rewrites", right=True),
)

_SUBJECT_COLUMNS = (
    Column("subject", "subject"),
    Column("messages", "messages", count, right=True),
)

_VERIFY_COLUMNS = (
    Column("path", "path"),
    Column("blocks", "blocks", count, right=True),
    Column("bytes", "bytes read", size, right=True),
    Column("messages", "records", count, right=True),
    Column("damage_count", "damage", count, right=True),
    Column("clean", "sound", yes_or_no),
)


def damage_rows(damage: Iterable[Damage]) -> list[dict[str, Value]]:
    """Return damage as rows; both ends are None if no sequence is missing."""
    rows: list[dict[str, Value]] = []
    for each in damage:
        missing = each.first_seq <= each.last_seq
        one = each.first_seq == each.last_seq
        between = f"{each.first_seq}" if one else f"{each.first_seq} to {each.last_seq}"
        rows.append(
            {
                "block": each.block,
                "offset": each.offset,
                "length": each.length,
                "reason": each.reason,
                "first_seq": each.first_seq if missing else None,
                "last_seq": each.last_seq if missing else None,
                "sequences": between if missing else "none missing",
            }
        )
    return rows


def _numbers(facts: StreamFacts) -> dict[str, Value]:
    return {
        "messages": facts.messages,
        "bytes": facts.bytes,
        "first_seq": facts.first_seq,
        "first_time": rfc3339(facts.first_time_ns),
        "last_seq": facts.last_seq,
        "last_time": rfc3339(facts.last_time_ns),
        "subjects": facts.subjects,
    }


@app.command("ls")
def list_streams(folder: StreamFolder, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List every stream in a directory tree, ours and those of Go's nats-server.

    \b
    penstock store ls .
    penstock store ls /var/lib/nats --json | jq '.streams[].path'

    Damage is what is known without reading every byte; `verify` does that.
    """
    output = make_output(as_json=as_json)
    rows = [_listed(path, layout, key_file) for path, layout in find_streams(str(folder))]
    output.rows("streams", _LS_COLUMNS, rows)
    if not rows:
        output.say("no streams here")
    output.finish()


def _listed(path: str, layout: str, key_file: Path | None) -> dict[str, Value]:
    row: dict[str, Value] = dict.fromkeys((column.name for column in _LS_COLUMNS), None)
    row |= {"path": path, "layout": layout}
    if layout == JSON_LINES:
        return row | {"error": "old layout: import it"}
    try:
        source = open_source(path, name=None, key_file=key_file)
        facts = source.facts()
    except (PenstockError, OSError) as error:
        return row | {"error": str(error)}
    return row | _numbers(facts) | {"blocks": facts.blocks, "damage_count": len(source.damage)}


@app.command()
def info(
    folder: StreamFolder,
    blocks: Annotated[bool, typer.Option("--blocks", help="Show every block.")] = False,
    subjects: Annotated[
        int, typer.Option(metavar="N", help="Show the N subjects with the most messages.", min=0)
    ] = 0,
    stream: StreamName = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show one stream in detail: numbers, encryption, who has it open, known damage.

    \b
    penstock store info DIR --blocks --subjects 10
    """
    output = make_output(as_json=as_json)
    source = open_source(str(folder), name=stream, key_file=key_file)
    facts = source.facts()
    output.facts(
        {
            "path": source.path,
            "stream": source.name,
            "layout": source.layout,
            **_numbers(facts),
            "deleted": facts.deleted,
            "blocks_count": facts.blocks,
            "encryption": facts.encryption,
            "compression": facts.compression,
            "disk_bytes": disk_bytes(source.path),
            "held_by": holder_of(source.path),
            "quarantined_files": quarantined(source.path),
            "damage_count": len(source.damage),
        },
        _INFO_FACTS,
    )
    if blocks:
        _show_blocks(output, source)
    if subjects:
        rows: list[dict[str, Value]] = [
            {"subject": printable(subject), "messages": messages}
            for subject, messages in source.top_subjects(subjects)
        ]
        output.rows("top_subjects", _SUBJECT_COLUMNS, rows, title="Subjects")
    if source.damage or as_json:
        output.rows("damage", DAMAGE_COLUMNS, damage_rows(source.damage), title="Damage")
    output.finish()


def _show_blocks(output: Output, source: StreamSource) -> None:
    rows: list[dict[str, Value]] = [
        {
            "number": block.number,
            "bytes": block.bytes,
            "messages": block.messages,
            "first_seq": block.first_seq,
            "last_seq": block.last_seq,
            "first_time": rfc3339(block.first_time_ns),
            "last_time": rfc3339(block.last_time_ns),
            "sealed": block.sealed,
            "encrypted": block.encrypted,
            "generation": block.generation,
        }
        for block in source.blocks()
    ]
    output.rows("blocks", _BLOCK_COLUMNS, rows, title="Blocks")


@app.command()
def verify(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Directories of streams.", exists=True, file_okay=False
        ),
    ],
    stream: StreamName = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Read every byte of streams; print block, offset and sequences of all damage.

    \b
    penstock store verify DIR
    penstock store verify /var/lib/penstock/* --json

    Ends with 1 if there is damage.
    """
    output = make_output(as_json=as_json)
    rows = []
    for folder in folders:
        source = open_source(str(folder), name=stream, key_file=key_file)
        rows.append(verified(source))
    output.rows("streams", _VERIFY_COLUMNS, rows)
    for row in rows:
        _tell_findings(output, row)
    clean = all(row["clean"] for row in rows)
    output.facts({"clean": clean}, ())
    output.finish()
    if not clean:
        raise typer.Exit(1)


def verified(source: StreamSource) -> dict[str, Value]:
    """Read a whole stream; return what was found as a row."""
    blocks = size_bytes = messages = tail_bytes = 0
    notes = []
    total = source.facts().blocks
    with progress(f"verifying {source.path}") as tell:
        for check in source.checks():
            blocks += 1
            size_bytes += check.bytes
            messages += check.messages
            tail_bytes += check.tail_bytes
            notes += [f"block {check.number}: {note}" for note in check.notes]
            tell(blocks, total)
    notes += source.problems
    return {
        "path": source.path,
        "layout": source.layout,
        "blocks": blocks,
        "bytes": size_bytes,
        "messages": messages,
        "tail_bytes": tail_bytes,
        "damage_count": len(source.damage),
        "damage": damage_rows(source.damage),
        "notes": notes,
        "clean": not source.damage and not source.problems,
    }


def _tell_findings(output: Output, row: dict[str, Value]) -> None:
    damage, notes = row["damage"], row["notes"]
    assert isinstance(damage, list)
    assert isinstance(notes, list)
    if damage:
        # As JSON the damage stands with its stream.
        for each in damage:
            output.say(
                f"{row['path']}: block {each['block']}, offset {each['offset']}, "
                f"{each['length']} bytes: {each['reason']} (sequences: {each['sequences']})",
                style="red",
            )
    for note in notes:
        output.say(f"{row['path']}: {note}")
    if row["tail_bytes"]:
        output.say(
            f"{row['path']}: {row['tail_bytes']} bytes after the last whole record: "
            "being written, or torn by a crash and never acknowledged"
        )


@app.command("cat")
def print_messages(
    folder: StreamFolder,
    first: Annotated[int, typer.Option(metavar="SEQ", help="From this sequence on.", min=0)] = 0,
    last: Annotated[
        int, typer.Option(metavar="SEQ", help="Up to this sequence.", min=0, show_default=False)
    ] = SEQ_MAX,
    subject: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only subjects like this; may be repeated."),
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="Not before; or ago, as 2h.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Not after; or ago, as 15m.")] = "",
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most this many messages (0: all).", min=0)
    ] = 0,
    how: Annotated[Format, typer.Option("--format", help="What a message becomes.")] = Format.TEXT,
    headers: Annotated[bool, typer.Option("--headers", help="Print headers too.")] = False,
    stream: StreamName = None,
    key_file: KeyFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="As --format json.")] = False,
) -> None:
    """Print messages to stdout, one a line.

    \b
    penstock store cat DIR --first 100 --last 200
    penstock store cat DIR --subject 'orders.*.eu' --subject refunds.eu --headers
    penstock store cat DIR --since 2026-07-20T12:00:00Z --until 15m --json | jq .payload

    raw prints payloads as they are, each with a line end after it. Damage goes to stderr, and the
    command then ends with 1.
    """
    if first > last:
        raise UsageError(f"--first {first} is after --last {last}")
    now_ns = SystemClock().now_ns()
    wanted = Selection(
        first_seq=first,
        last_seq=last,
        first_ns=parse_time(since, now_ns) if since else TIME_MIN,
        last_ns=parse_time(until, now_ns) if until else TIME_MAX,
        subjects=subject_filter(subject or []),
        headers=headers,
    )
    source = open_source(str(folder), name=stream, key_file=key_file)
    found = source.messages(wanted)
    target = sys.stdout.buffer
    for message in itertools.islice(found, limit) if limit else found:
        write_message(target, message, Format.JSON if as_json else how, headers=headers)
    target.flush()
    for damage in source.damage:
        sys.stderr.write(f"penstock: {source.path}: {damage}\n")
    if source.damage:
        raise typer.Exit(1)
