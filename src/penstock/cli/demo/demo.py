"""`penstock demo`: the main job end to end, in two or three minutes.

It starts a server, and a client of another make talks through it. That client publishes to a
stream, the server is killed meanwhile, and everything acknowledged is found. Then several clients
publish order events, and Spark aggregates, queries, archives and checks what the stream holds. In
the end a byte is damaged on purpose. Every claim is checked; a check that fails
makes the exit code 1.

The data is written below the working directory, so that it goes to a real disk, and is removed
afterwards unless it is to be kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.demo.other_client import play_jetstream, play_server
from penstock.cli.demo.spark import STREAM, play_spark
from penstock.cli.demo.stage import Stage
from penstock.cli.output import count, people_console, printable
from penstock.errors import CorruptStore, RecordNotFound
from penstock.format.columns import MessageRow
from penstock.format.layout import block_name
from penstock.format.reader import StreamReader
from penstock.format.summary import summarize, top_subjects
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Leave the data in this new directory.", show_default=False
        ),
    ] = None,
) -> None:
    """See it work: publish, kill, aggregate, query, archive, damage. Takes two or three minutes.

    \b
    penstock demo
    penstock demo --keep demo-data && penstock sql --path demo-data 'SELECT count(*) FROM ORDERS'
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-", dir=Path.cwd()) as folder:
            failed = play(Stage(people_console(), Path(folder)))
    else:
        keep.mkdir(parents=True)
        failed = play(Stage(people_console(), keep), kept=True)
    if failed:
        raise typer.Exit(1)


def play(stage: Stage, *, kept: bool = False) -> list[str]:
    """Play every part; return the claims that did not hold."""
    play_server(stage)
    play_jetstream(stage)
    orders = play_spark(stage)
    if orders is not None:
        _damage_a_byte(stage, orders)
        _show_where_to_look(stage, orders, kept=kept)
    if stage.failed:
        stage.console.print(f"\n{len(stage.failed)} checks FAILED", style="bold red")
    else:
        stage.console.print("\nAll checks hold.", style="bold green")
    return stage.failed


def _messages(path: Path) -> Iterator[MessageRow]:
    for batch in StreamReader(str(path), stream=STREAM).batches():
        yield from batch.messages()


def _damage_a_byte(stage: Stage, path: Path) -> None:
    stage.heading("One byte on the disk is changed")
    before = sum(1 for _ in _messages(path))
    # A batch has the block and the offset of each message.
    batch = next(StreamReader(str(path), stream=STREAM).batches())
    victim = list(batch.messages())[len(batch) // 2]
    with (path / block_name(batch.block)).open("r+b") as file:
        file.seek(victim.offset + 20)
        byte = file.read(1)
        file.seek(victim.offset + 20)
        file.write(bytes([byte[0] ^ 1]))
    reader = StreamReader(str(path), stream=STREAM)
    damage = [each for check in reader.verify() for each in check.damage]
    for each in damage:
        stage.say(f"verify: {each}")
    stage.check(
        len(damage) == 1 and damage[0].first_seq == damage[0].last_seq == victim.seq,
        f"found: block, offset and sequence {count(victim.seq)}",
    )
    stage.check(sum(1 for _ in _messages(path)) == before - 1, "only that one event is lost")
    with FileStore.open(str(path), StoreConfig(name=STREAM)) as store:
        neighbours = [store.load(seq).seq for seq in (victim.seq - 1, victim.seq + 1)]
        try:
            store.load(victim.seq)
            refused = False
        except (CorruptStore, RecordNotFound):
            refused = True
        repaired = store.repair()
    stage.check(refused and len(neighbours) == 2, "it is refused, and its neighbours are served")
    checks = list(StreamReader(str(path), stream=STREAM).verify())
    stage.check(
        not any(check.damage for check in checks) and len(repaired.losses) == 1,
        "after a repair all is sound; the damaged bytes are kept in quarantine/",
    )


def _show_where_to_look(stage: Stage, path: Path, *, kept: bool) -> None:
    stage.heading("The stream as it is now")
    summary = summarize(StreamReader(str(path), stream=STREAM))
    stage.say(
        f"sequences {count(summary.first_seq)} to {count(summary.last_seq)}, "
        f"{count(summary.messages)} messages, {count(summary.deleted)} lost or deleted"
    )
    table = Table("subject", "messages", title="Top subjects", title_justify="left")
    table.columns[1].justify = "right"
    for subject, messages in top_subjects(summary, 5):
        table.add_row(printable(subject), count(messages))
    stage.console.print(table)
    shown = path if kept else "DIR"
    stage.console.print("\nLook further:")
    for command in ("info {} --blocks --subjects 10", "verify {}", "cat {} --limit 5 --json"):
        stage.console.print(f"  penstock store {command.format(shown)}")
    stage.console.print("  README.md, docs/spark.md, docs/jetstream.md, docs/store.md")
