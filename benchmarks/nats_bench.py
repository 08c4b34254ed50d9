"""The `nats` tool's own benchmark, `nats bench`, on our server and on nats-server in turns.

This is the first figure that many users of NATS see. The tool is written in Go and takes more
processor time than either server, so on two processors its rates say as much about the tool. With
one message in flight ("sync", and every KV operation) the tool waits for each answer: Penstock's
after a sync of the disk, nats-server's before.

`tools/install_nats_tool.sh` builds the tool; without Go this benchmark has no rows and says so.
"""

from __future__ import annotations

import contextlib
import csv
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.compared import Runs, compared_row, metered, servers_with_streams
from benchmarks.measure import ROOT, Row, Sizes, at_least
from penstock.bench.runs import Run
from penstock.bench.servers import BenchServer
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import BenchFailed

TOOL = ROOT / "build" / "nats-tool" / "nats"
INSTALL = ROOT / "tools" / "install_nats_tool.sh"
GOAL = at_least(2)
ROUNDS_MAX = 3
STREAM = "benchstream"
SUBJECT = "bench.tool"
SYNC_PART = 20
"""One in so many messages for commands that have one in flight."""

WAIT_S = 120.0
LOOK_S = 0.02
NOBODY = b"NATS/1.0 503"
"""What a server answers to a request while nobody is there to answer it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `nats bench`: the words before its flags, and how many messages it has."""

    words: str
    one_in: int = 1
    flags: tuple[str, ...] = ()
    reads: bool = False
    """It reads the stream through a consumer, which must be new."""


COMMANDS = [
    Command(f"js pub sync {SUBJECT}", SYNC_PART, ("--create", "--purge")),
    # The last to publish, so that there is something to read.
    Command(f"js pub async {SUBJECT}", 1, ("--create", "--purge", "--batch", "500")),
    Command("js fetch", reads=True),
    Command("js consume", reads=True),
    Command("js ordered", reads=True),
    Command("kv put", SYNC_PART),
    Command("kv get", SYNC_PART),
    Command(f"service request {SUBJECT}.service", SYNC_PART),
]


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table; none without the tool."""
    if not install():
        return []
    measured: dict[str, tuple[Runs, Runs]] = {}
    with servers_with_streams(folder, "nats-bench") as servers, contextlib.ExitStack() as stack:
        tools = [Tool(server, folder) for server in servers]
        for tool in tools:
            stack.enter_context(tool.serving())
        for _ in range(min(sizes.rounds, ROUNDS_MAX)):
            for command in COMMANDS:
                sides = measured.setdefault(
                    _name(command), (Runs(servers[0].name), Runs(servers[1].name))
                )
                for tool, side in zip(tools, sides, strict=True):
                    side.runs.append(tool.run(command, sizes.tool_messages))
    return [
        compared_row("nats-bench", name, *sides, GOAL, either=True)
        for name, sides in measured.items()
    ]


def _name(command: Command) -> str:
    words = " ".join(word for word in command.words.split() if not word.startswith(SUBJECT))
    batch = " --batch 500" if "--batch" in command.flags else ""
    return f"nats bench {words}{batch}"


def install() -> bool:
    """Build the tool if it is not there; return False, and say why, if that fails."""
    try:
        subprocess.run([INSTALL], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except subprocess.CalledProcessError as error:
        print(f"nats-bench is left out: {error.stderr.decode().strip()}", file=sys.stderr)
        return False
    return True


@dataclass(frozen=True, slots=True)
class Tool:
    """The tool, for one server; its settings and results go to a folder."""

    server: BenchServer
    folder: Path

    def run(self, command: Command, messages: int) -> Run:
        """Run a command; return the rate that the tool shows, and the server's processor time."""
        messages = max(messages // command.one_in, 1)
        if command.reads:
            self._remove_consumers()
        results = self.folder / "results.csv"
        words = [*command.words.split(), "--no-progress", "--csv", str(results)]
        words += ["--msgs", str(messages), *command.flags]

        def call() -> int:
            done = subprocess.run(
                self._call(words), env=self._environment(), capture_output=True, timeout=WAIT_S
            )
            if done.returncode or not results.exists():
                raise BenchFailed(f"nats bench {' '.join(words)}", done.stderr.decode().strip())
            return messages

        run = metered(self.server, call)
        rate = read_rate(results.read_text())
        results.unlink()
        return replace(run, seconds=messages / rate)

    def _call(self, words: list[str]) -> list[str]:
        return [str(TOOL), "--no-context", "--server", self.server.url, "bench", *words]

    def _environment(self) -> dict[str, str]:
        # The tool keeps its settings below these folders.
        return os.environ | {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}

    def _remove_consumers(self) -> None:
        with Client.connect(self.server.url) as client:
            streams = JetStream(client)
            for name in list(streams.pages(f"CONSUMER.NAMES.{STREAM}", "consumers", {})):
                streams.call(f"CONSUMER.DELETE.{STREAM}.{name}")

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Have the tool answer requests; wait until it does."""
        service = subprocess.Popen(
            self._call(["service", "serve", f"{SUBJECT}.service", "--no-progress"]),
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with Client.connect(self.server.url) as client:
                while client.request(f"{SUBJECT}.service".encode()).headers.startswith(NOBODY):
                    if service.poll() is not None:
                        raise BenchFailed("nats bench service serve", "it ended")
                    time.sleep(LOOK_S)
            yield
        finally:
            service.terminate()
            service.wait()


def read_rate(text: str) -> float:
    """Return the messages per second of the tool's CSV file, all clients together."""
    return sum(float(row["MsgsPerSec"]) for row in csv.DictReader(text.splitlines()))
