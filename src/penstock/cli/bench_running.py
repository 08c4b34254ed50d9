"""Running a bench on the servers that were asked for, once or in turns, and telling about it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from penstock.bench.crew import Crew
from penstock.bench.plan import STREAMED, Plan, Target
from penstock.bench.series import Series, in_turns, sized
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream
from penstock.cli.bench_report import tell_measured
from penstock.cli.connecting import Link
from penstock.cli.output import make_output, progress
from penstock.client.address import parse_url


class SyncWish(StrEnum):
    """When a compared server syncs what it acknowledged."""

    DEFAULT = "default"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a plan is to be run and told."""

    link: Link
    messages: int | None
    seconds: float
    runs: int
    compare: str | None
    as_json: bool
    sync: SyncWish = SyncWish.DEFAULT
    data: Path | None = None


def measure(plan: Plan, wanted: Wanted) -> None:
    """Run a bench, and print what came of it; raises UsageError and BenchFailed."""
    plan.check()
    output = make_output(as_json=wanted.as_json)
    shown = contextlib.nullcontext() if wanted.as_json else progress(plan.kind)
    with _servers(plan, wanted) as servers, Crew() as crew, shown as tell:
        measured = [
            Series(
                name,
                target,
                plan if wanted.messages else sized(crew, plan, target, wanted.seconds),
            )
            for name, target in servers
        ]
        in_turns(crew, measured, wanted.runs, tell)
    tell_measured(output, plan, measured)
    output.finish()


@contextlib.contextmanager
def _servers(plan: Plan, wanted: Wanted) -> Iterator[list[tuple[str, Target]]]:
    # Names and places of the servers to be measured, which are there for as long.
    if wanted.compare is None:
        link = wanted.link
        address = parse_url(link.server)
        # So that what is wrong is told once, with advice.
        link.connect().close()
        yield [(str(address), Target(link.server, link.credentials(), link.tls()))]
        return
    commands = [("penstock", [*OURS]), (wanted.compare, [find_executable(wanted.compare)])]
    with contextlib.ExitStack() as stack:
        if plan.kind in STREAMED:
            folder = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=wanted.data or ".")
            commands = _with_streams(commands, Path(stack.enter_context(folder)), wanted.sync)
        servers = [stack.enter_context(BenchServer(*each)) for each in commands]
        yield [(server.name, Target(server.url)) for server in servers]


def _with_streams(
    commands: list[tuple[str, list[str]]], folder: Path, sync: SyncWish
) -> list[tuple[str, list[str]]]:
    # Ours syncs before it acknowledges, unless it is told otherwise.
    (our_name, ours), (their_name, theirs) = commands
    their_sync = "always" if sync is SyncWish.ALWAYS else ""
    return [
        (our_name, with_jetstream(ours, folder / "ours")),
        (their_name, with_jetstream(theirs, folder / "theirs", sync=their_sync)),
    ]
