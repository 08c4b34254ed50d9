"""Run the benchmarks: `python -m benchmarks.run [--quick] [--only NAME] [--json FILE]`.

Prints a table and writes it as JSON, with the machine that it was measured on. Every run is kept by
its date in `results/local`. A whole run at full size also becomes `results/latest.json`, from which
`benchmarks.report` writes docs/benchmarks.md, its charts and README's figures.

Data goes to a folder beside the results, or in `--data`, and is removed. The exit code is 1 if a
goal was missed. A whole run takes about half an hour on two cores, `--quick` some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import rich.box
from rich.console import Console
from rich.table import Table

from benchmarks import (
    api_requests,
    breadth,
    consumers,
    consumers_idle,
    consumers_waiting,
    creation,
    jetstream_publish,
    jetstream_restart,
    kv,
    nats_bench,
    objects,
    one_in_flight,
    server_memory,
    server_throughput,
    spark_archive,
    spark_jobs,
    spark_read,
    spark_sink,
    start,
    store_append,
    store_latency,
    store_load,
    store_memory,
    store_open,
    store_scan,
    store_workloads,
    transports,
)
from benchmarks.compared import REFERENCE
from benchmarks.measure import FULL, QUICK, SIZES, Row, Sizes
from benchmarks.report import (
    LATEST,
    RESULTS,
    show_goal,
    show_processor,
    show_value,
    title,
    write_pages,
)
from penstock.bench.servers import find_executable

FREE_BYTES_MIN = {"full": 8 * 10**9, "quick": 2 * 10**9, "tiny": 10**8}
"""The large store, its indexes, and one other store beside it."""

BENCHES: dict[str, Callable[[Sizes, Path], list[Row]]] = {
    "append": store_append.run,
    "scan": store_scan.run,
    "load": store_load.run,
    "open": store_open.run,
    "memory": store_memory.run,
    "latency": store_latency.run,
    "workloads": store_workloads.run,
    "server": server_throughput.run,
    "server-memory": server_memory.run,
    "start": start.run,
    "transports": transports.run,
    "jetstream": jetstream_publish.run,
    "jetstream-restart": jetstream_restart.run,
    "breadth": breadth.run,
    "api": api_requests.run,
    "creation": creation.run,
    "kv": kv.run,
    "one-in-flight": one_in_flight.run,
    "objects": objects.run,
    "nats-bench": nats_bench.run,
    "consumers": consumers.run,
    "consumers-waiting": consumers_waiting.run,
    "consumers-idle": consumers_idle.run,
    "spark-read": spark_read.run,
    "spark-sink": spark_sink.run,
    "spark-jobs": spark_jobs.run,
    "spark-archive": spark_archive.run,
}


def describe_machine(folder: Path) -> dict[str, Any]:
    """Return what the numbers are measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": os.getloadavg()[0],
        "kernel": platform.release(),
        "disk": _disk(folder),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "nats_server": _nats_server(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _disk(folder: Path) -> str:
    """Return device and file system of the innermost mount point that holds the folder."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [mount for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    device, point, kind = max(holding, key=lambda mount: len(mount[1]))[:3]
    return f"{device} ({kind}) on {point}"


def _nats_server() -> str:
    """Return the version of the server that Penstock is compared with."""
    command = [find_executable(REFERENCE), "--version"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return answer.stdout.rpartition("v")[2].strip()


def measure(names: list[str], sizes: Sizes, folder: Path, console: Console) -> dict[str, Any]:
    """Run benchmarks; return the document that is written as JSON."""
    machine = describe_machine(folder)
    started = datetime.now(UTC)
    before = time.perf_counter()
    rows: list[Row] = []
    for place, name in enumerate(names, 1):
        told = f"{name} ({place} of {len(names)}, after {time.perf_counter() - before:.0f} s)"
        if console.is_terminal:
            with console.status(f"{told} …"):
                rows += BENCHES[name](sizes, folder)
        else:
            console.print(told)
            rows += BENCHES[name](sizes, folder)
    return {
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - before, 1),
        "sizes": sizes.name,
        "machine": machine,
        "rows": [row.as_json() for row in rows],
    }


def as_table(document: dict[str, Any]) -> Table:
    """Return the results as a table for the terminal, in the order they were measured."""
    table = Table(box=rich.box.SIMPLE_HEAD, title=title(document), title_justify="left")
    for heading in ("", "what", "value", "processor", "goal", "of which"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    bench = ""
    for row in document["rows"]:
        name = "" if row["bench"] == bench else row["bench"]
        bench = row["bench"]
        style = "red" if row["passed"] is False else ""
        table.add_row(
            name,
            row["what"],
            show_value(row),
            show_processor(row),
            show_goal(row),
            row["detail"],
            style=style,
        )
    return table


def write_json(document: dict[str, Any], *, whole: bool, path: Path | None) -> Path:
    """Write the results to `path`; without it by their date, and a whole run to the pages too.

    Return the path of the JSON file.
    """
    text = json.dumps(document, indent=2) + "\n"
    if path is not None:
        path.write_text(text)
        return path
    dated = RESULTS / "local" / f"{document['started'].replace(':', '')}.json"
    dated.parent.mkdir(parents=True, exist_ok=True)
    dated.write_text(text)
    if whole:
        LATEST.write_text(text)
        write_pages(document)
    return dated


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, some minutes")
    parser.add_argument("--size", choices=SIZES, help="sizes by name, instead of --quick")
    parser.add_argument("--only", action="append", choices=BENCHES, help="only this one (again)")
    parser.add_argument("--json", type=Path, help="write the results here alone")
    parser.add_argument("--data", type=Path, help="a folder on the disk to be measured")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write."""
    options = parse(arguments)
    sizes = SIZES[options.size] if options.size else QUICK if options.quick else FULL
    parent = options.data or RESULTS / "local"
    parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(parent).free < FREE_BYTES_MIN[sizes.name]:
        sys.exit(f"{parent} needs {FREE_BYTES_MIN[sizes.name] / 1e9:g} GB of free space")
    console = Console(width=None if sys.stdout.isatty() else 200)
    with tempfile.TemporaryDirectory(dir=parent, prefix="data-") as folder:
        document = measure(options.only or list(BENCHES), sizes, Path(folder), console)
    console.print(as_table(document))
    whole = sizes is FULL and not options.only
    console.print(f"written to {write_json(document, whole=whole, path=options.json)}")
    missed = [row for row in document["rows"] if row["passed"] is False]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
