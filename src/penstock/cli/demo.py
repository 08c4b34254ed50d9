"""`penstock demo`: what Penstock does today, end to end, in under a minute.

It starts a server and has a client of another make talk through it; has that client publish to a
stream, kills the server meanwhile and finds everything that was acknowledged; it writes order
events from several threads with group commit, kills a writer in the middle of its work, damages a
byte on purpose, and reads the files back in columns without a server. Everything that is claimed is
checked; one check that fails makes the exit code 1.

The data is written below the working directory, so that it goes to a real disk, and is removed
afterwards unless it is to be kept.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.demo_events import BATCH_EVENTS, event, events
from penstock.cli.demo_jetstream import play_jetstream
from penstock.cli.demo_server import play_server
from penstock.cli.output import count, people_console, printable, size
from penstock.cli.stage import Stage
from penstock.errors import CorruptStore, RecordNotFound
from penstock.format.columns import Message
from penstock.format.layout import block_name
from penstock.format.reader import Selection, StreamReader
from penstock.format.summary import summarize, top_subjects
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter

WRITERS = 4
EVENTS_OF_A_WRITER = 75_000
ACKED_BEFORE_KILL = 50_000


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Leave the data in this new directory.", show_default=False
        ),
    ] = None,
) -> None:
    """See it work: talk, write, kill, damage, read back. Takes less than a minute.

    \b
    penstock demo
    penstock demo --keep demo-data && penstock store info demo-data/orders --blocks
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
    """Play every part; give the claims that did not hold."""
    play_server(stage)
    play_jetstream(stage)
    orders = stage.folder / "orders"
    _write_from_threads(stage, orders)
    _kill_a_writer(stage, stage.folder / "killed")
    _read_in_columns(stage, orders)
    _damage_a_byte(stage, orders)
    _show_where_to_look(stage, orders, kept=kept)
    return stage.failed


def _write_from_threads(stage: Stage, path: Path) -> None:
    total = WRITERS * EVENTS_OF_A_WRITER
    stage.heading(f"{count(total)} order events from {WRITERS} threads, each batch acknowledged")
    commits: list[int] = []
    store = FileStore.open(str(path), StoreConfig(name="orders"), on_durable=commits.append)

    def write(writer: int) -> None:
        first = writer * EVENTS_OF_A_WRITER + 1
        for start in range(first, first + EVENTS_OF_A_WRITER, BATCH_EVENTS):
            store.store_batch(events(start, BATCH_EVENTS))
            # Returns when an fdatasync has covered the batch: only now it counts as acknowledged.
            store.flush()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    with stage.timed() as taken:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    state = store.state()
    store.stop()
    stage.check(state.messages == total, f"{count(state.messages)} events are on stable storage")
    stage.say(
        f"{count(round(total / taken[0]))} acknowledged events/s, in {count(len(commits))} commits"
    )
    stage.say(f"{size(state.bytes)} on {count(state.subjects)} subjects")


def _kill_a_writer(stage: Stage, path: Path) -> None:
    stage.heading("A writer process is killed with SIGKILL in the middle of its work")
    command = [sys.executable, "-m", "penstock.cli.demo_events", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acked = 0
        for line in writer.stdout:
            acked = int(line)
            if acked >= ACKED_BEFORE_KILL:
                writer.send_signal(signal.SIGKILL)
                break
        # What it managed to acknowledge before it died is held to the same promise.
        for line in writer.stdout:
            acked = int(line) if line.endswith("\n") else acked
    stage.check(
        writer.returncode == -signal.SIGKILL and acked >= ACKED_BEFORE_KILL,
        f"killed, after it had acknowledged {count(acked)} events",
    )
    with FileStore.open(str(path), StoreConfig(name="orders")) as store:
        report, state = store.report, store.state()
    whole = _count_as_written(path)
    stage.check(whole >= acked, "every acknowledged event is there, byte for byte")
    stage.check(whole == state.messages, "and nothing that was never written")
    stage.say(
        f"{count(state.messages)} recovered in {report.duration_ns / 1e6:.0f} ms, "
        f"{count(report.torn_bytes)} bytes of a torn write cut off"
    )


def _count_as_written(path: Path) -> int:
    """Count the messages from sequence 1 on that are the events they should be."""
    good = 0
    for message in _messages(path):
        subject, headers, payload = event(message.seq)
        if message.seq != good + 1 or (message.subject, message.headers, message.payload) != (
            subject,
            headers,
            payload,
        ):
            break
        good += 1
    return good


def _messages(path: Path) -> Iterator[Message]:
    for batch in StreamReader(str(path), stream="orders").batches():
        yield from batch.messages()


def _read_in_columns(stage: Stage, path: Path) -> None:
    stage.heading("The files are read in columns, without a server: what Spark does")
    with stage.timed() as taken:
        reader = StreamReader(str(path), stream="orders")
        rows = sum(batch.count for batch in reader.batches())
    stage.check(rows == WRITERS * EVENTS_OF_A_WRITER, f"{count(rows)} rows, checksums verified")
    stage.say(f"{count(round(rows / taken[0]))} rows/s on one core, ready to be Arrow arrays")
    shipped = SubjectFilter([b"orders.eu.shipped"])
    rows = sum(batch.count for batch in reader.batches(Selection(subjects=shipped)))
    with FileStore.open(str(path), StoreConfig(name="orders")) as store:
        counted = store.filtered_state(shipped).messages
    stage.check(rows == counted, f"{count(rows)} of them are orders.eu.shipped")


def _damage_a_byte(stage: Stage, path: Path) -> None:
    stage.heading("One byte on the disk is changed")
    before = sum(1 for _ in _messages(path))
    # A batch tells the block and the place of each message in it.
    batch = next(StreamReader(str(path), stream="orders").batches())
    victim = list(batch.messages())[len(batch) // 2]
    with (path / block_name(batch.block)).open("r+b") as file:
        file.seek(victim.offset + 20)
        byte = file.read(1)
        file.seek(victim.offset + 20)
        file.write(bytes([byte[0] ^ 1]))
    reader = StreamReader(str(path), stream="orders")
    damage = [each for check in reader.verify() for each in check.damage]
    for each in damage:
        stage.say(f"verify: {each}")
    stage.check(
        len(damage) == 1 and damage[0].first_seq == damage[0].last_seq == victim.seq,
        f"found: block, offset and sequence {count(victim.seq)}",
    )
    stage.check(sum(1 for _ in _messages(path)) == before - 1, "only that one event is lost")
    with FileStore.open(str(path), StoreConfig(name="orders")) as store:
        neighbours = [store.load(seq).seq for seq in (victim.seq - 1, victim.seq + 1)]
        try:
            store.load(victim.seq)
            refused = False
        except (CorruptStore, RecordNotFound):
            refused = True
        repaired = store.repair()
    stage.check(refused and len(neighbours) == 2, "it is refused, and its neighbours are served")
    checks = list(StreamReader(str(path), stream="orders").verify())
    stage.check(
        not any(check.damage for check in checks) and len(repaired.losses) == 1,
        "after a repair all is sound; the damaged bytes are kept in quarantine/",
    )


def _show_where_to_look(stage: Stage, path: Path, *, kept: bool) -> None:
    stage.heading("The stream as it is now")
    summary = summarize(StreamReader(str(path), stream="orders"))
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
    stage.console.print("  README.md, docs/jetstream.md, docs/store.md, docs/format.md")
    if stage.failed:
        stage.console.print(f"\n{len(stage.failed)} checks FAILED", style="bold red")
    else:
        stage.console.print("\nAll checks hold.", style="bold green")
