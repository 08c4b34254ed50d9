"""What every benchmark needs: rows, sizes, rounds, messages, and processes of their own.

Invariant: what is compared is measured in turns (ours, the other, ours, the other …), and a
ratio is the median of the rounds' ratios, so that a machine that slows down in between slows down
both. Memory is measured in a process that does nothing else.

Imports nothing of Penstock, so that a process can measure what importing it costs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BATCH_MESSAGES = 1_000
PAYLOAD_BYTES = 128
SUBJECTS = 100

Message = tuple[bytes, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Goal:
    """A lower or upper bound of a value."""

    bound: float
    at_least: bool

    def holds(self, value: float) -> bool:
        """Return True if a value keeps it."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


def at_least(bound: float) -> Goal:
    """Return the goal of at least `bound`."""
    return Goal(bound, at_least=True)


def at_most(bound: float) -> Goal:
    """Return the goal of at most `bound`."""
    return Goal(bound, at_least=False)


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """The processor time that two servers take for a message."""

    ours_ns: float
    theirs_ns: float
    times_less: float
    """Theirs over ours, as the median of the rounds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    bench: str
    what: str
    value: float
    unit: str
    goal: Goal | None = None
    detail: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)
    """What the value was made of, one number a round."""

    processor: ProcessorTime | None = None
    either: bool = False
    """The goal is reached as well if the processor time is so many times less."""

    @property
    def passed(self) -> bool | None:
        """Whether the goal was reached; None without one."""
        if self.goal is None:
            return None
        less = self.either and self.processor and self.goal.holds(self.processor.times_less)
        return bool(less) or self.goal.holds(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        plain = asdict(self)
        plain["goal"] = None if self.goal is None else str(self.goal)
        return plain | {"passed": self.passed}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    name: str
    rounds: int
    appended: int
    scanned: int
    loaded_from: int
    loads: int
    opened_small: int
    opened_large: int
    active: int
    distinct_subjects: int
    latencies: int
    """Single commits that are timed, in each round."""

    worked: int
    """Messages of each workload without a goal."""

    expiring: int
    server_seconds: float
    """How long one run of messages through a server takes, about."""

    idle_connections: int
    idle_subscriptions: int
    open_connections: int
    subscriptions: int
    """Of which one server has so many at once."""

    gotten_subjects: int
    """Subjects of the stream whose messages are gotten by subject."""

    starts: int
    """Starts of each server with nothing stored."""

    restarted: int
    restarted_streams: int
    stream_subjects: int
    consumed: int
    """Messages of a stream that consumers read."""

    filtered: int
    filtered_subjects: int
    """Of which a filter lets one in a hundred pass."""

    created_on: int
    """Messages of the stream that consumers are made on."""

    idle_consumers: int
    idle_seconds: float
    breadth_seconds: float
    """How long one run of a case of `breadth` or `kv` takes, about."""

    keys: int
    """Keys of a bucket."""

    objects: tuple[int, ...]
    """Bytes of the objects that are stored and read."""

    tool_messages: int
    """Messages of a run of the `nats` tool that publishes asynchronously."""

    waiting_pulls: int
    arrivals: int
    """Messages that arrive at waiting pulls, one after another, in all rounds."""


FULL = Sizes(
    "full",
    rounds=5,
    appended=300_000,
    scanned=2_000_000,
    loaded_from=1_500_000,
    loads=200_000,
    opened_small=1_000_000,
    opened_large=10_000_000,
    active=5_000_000,
    distinct_subjects=1_000_000,
    latencies=500,
    worked=1_000_000,
    expiring=100_000,
    server_seconds=1.5,
    idle_connections=1_000,
    idle_subscriptions=100_000,
    open_connections=5_000,
    subscriptions=1_000_000,
    gotten_subjects=1_000_000,
    starts=40,
    restarted=10_000_000,
    restarted_streams=100,
    stream_subjects=5_000_000,
    consumed=1_000_000,
    filtered=5_000_000,
    filtered_subjects=100_000,
    created_on=10_000_000,
    idle_consumers=10_000,
    idle_seconds=10.0,
    breadth_seconds=0.6,
    keys=10_000,
    objects=(10**6, 10**8, 10**9),
    tool_messages=100_000,
    waiting_pulls=1_000,
    arrivals=4_000,
)
QUICK = Sizes(
    "quick",
    rounds=3,
    appended=100_000,
    scanned=500_000,
    loaded_from=500_000,
    loads=50_000,
    opened_small=200_000,
    opened_large=2_000_000,
    active=2_000_000,
    distinct_subjects=200_000,
    latencies=200,
    worked=100_000,
    expiring=20_000,
    server_seconds=0.2,
    idle_connections=200,
    idle_subscriptions=20_000,
    open_connections=500,
    subscriptions=100_000,
    gotten_subjects=50_000,
    starts=10,
    restarted=500_000,
    restarted_streams=100,
    stream_subjects=200_000,
    consumed=200_000,
    filtered=500_000,
    filtered_subjects=10_000,
    created_on=1_000_000,
    idle_consumers=1_000,
    idle_seconds=2.0,
    breadth_seconds=0.15,
    keys=10_000,
    objects=(10**6, 10**7),
    tool_messages=20_000,
    waiting_pulls=1_000,
    arrivals=1_000,
)
TINY = Sizes(
    "tiny",
    rounds=1,
    appended=2_000,
    scanned=2_000,
    loaded_from=2_000,
    loads=100,
    opened_small=2_000,
    opened_large=4_000,
    active=2_000,
    distinct_subjects=1_000,
    latencies=5,
    worked=2_000,
    expiring=500,
    server_seconds=0.01,
    idle_connections=5,
    idle_subscriptions=50,
    open_connections=5,
    subscriptions=500,
    gotten_subjects=500,
    starts=1,
    restarted=2_000,
    restarted_streams=4,
    stream_subjects=1_000,
    consumed=2_000,
    filtered=20_000,
    filtered_subjects=200,
    created_on=20_000,
    idle_consumers=20,
    idle_seconds=0.05,
    breadth_seconds=0.01,
    keys=500,
    objects=(10**6,),
    tool_messages=1_000,
    waiting_pulls=10,
    arrivals=20,
)
SIZES = {sizes.name: sizes for sizes in (FULL, QUICK, TINY)}


def messages(
    count: int, *, subjects: int = SUBJECTS, payload_bytes: int = PAYLOAD_BYTES
) -> list[Message]:
    """Return messages with random payloads over some subjects; always the same for one count."""
    chance = random.Random(count)
    names = [f"orders.{place:05d}.created".encode() for place in range(subjects)]
    return [
        (names[chance.randrange(subjects)], b"", chance.randbytes(payload_bytes))
        for _ in range(count)
    ]


def batches(of: Sequence[Message], size: int = BATCH_MESSAGES) -> list[list[Message]]:
    """Cut messages into batches."""
    return [list(of[start : start + size]) for start in range(0, len(of), size)]


def take_turns(rounds: int, *actions: Callable[[], float]) -> list[list[float]]:
    """Call the actions one after another, `rounds` times; return each one's results."""
    results: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for place, action in enumerate(actions):
            results[place].append(action())
    return results


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


def timed(action: Callable[..., object], *arguments: object) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - started


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that so many percent lie below."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


@contextmanager
def folder_in(parent: Path, name: str) -> Iterator[Path]:
    """Return a new folder that is removed afterwards."""
    path = parent / name
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def block_files(path: Path) -> list[Path]:
    """Return a store's block files in order."""
    return sorted(path.glob("*.blk"))


def block_bytes(path: Path) -> int:
    """Return the bytes of all block files of a store."""
    return sum(file.stat().st_size for file in block_files(path))


# Processes of their own


def resident_bytes(process: int | str = "self") -> int:
    """Return the resident memory of this process, or of another."""
    return _status("VmRSS", process)


def peak_resident_bytes() -> int:
    """Return the most memory that this process ever had resident."""
    return _status("VmHWM")


def _status(name: str, process: int | str = "self") -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def read_bytes() -> int:
    """Return the bytes that this process has read from files so far, cached or not."""
    return int(Path("/proc/self/io").read_text().split()[1])


def in_own_process(task: str, *arguments: str | int) -> dict[str, float]:
    """Run a task of `benchmarks.child` in a fresh process; return what it measured."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", task, *map(str, arguments)],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def median_of(runs: Sequence[dict[str, float]], key: str) -> float:
    """Return the median of one measure."""
    return statistics.median(run[key] for run in runs)


def si(value: float, unit: str) -> str:
    """Return a number with a prefix, as in 1.25 Mmsg/s."""
    for bound, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= bound:
            return f"{value / bound:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def show_time(taken_ns: float) -> str:
    """Return a short time, as in 870 ns or 12 µs."""
    return f"{taken_ns:.0f} ns" if taken_ns < 10_000 else f"{taken_ns / 1e3:.0f} µs"
