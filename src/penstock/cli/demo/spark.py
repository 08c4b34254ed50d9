"""The demo's main job: several clients publish, and Spark works on what the stream holds.

A pipeline aggregates the stream exactly once into a table and a bucket, though it is killed on its
way. SQL queries the raw stream. The stream is archived, and every byte of it checked. All of
it is done by ordinary commands, which are shown.

Watermarks are why the clients take turns: an event that is much older than one before it would be
late, and rightly left out of a window that is over.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.table import Table

from penstock.bench.servers import OURS, BenchServer
from penstock.cli.demo.shop import event
from penstock.cli.demo.stage import Stage
from penstock.cli.output import count, size
from penstock.client.client import Client
from penstock.client.jetstream import JetStream

STREAM = "ORDERS"
STREAM_FOLDER = Path("spark", "jetstream", "$G", "streams", STREAM, "msgs")
SHOPS = (("nats-py", 20_000), ("penstock", 130_000), ("nats-py", 20_000), ("penstock", 130_000))
NO_ORDERS = (b"", b"not an order", b'{"order":"none"}', b"[]")
WAIT_S = 60.0


def play_spark(stage: Stage) -> Path | None:
    """Play the main job; return the directory of the stream, which is no longer served.

    Return None without Spark, or without a client to publish with.
    """
    if any(importlib.util.find_spec(each) is None for each in ("nats", "pyspark", "pyarrow")):
        stage.heading("The main job: Spark over what the stream holds")
        stage.say("left out: it wants Spark and nats-py; pip install 'penstock[spark]' nats-py")
        return None
    with BenchServer("penstock", [*OURS, "-js", "-sd", str(stage.folder / "spark")]) as server:
        _publish(stage, server.url)
        _aggregate(stage, server.url)
        _ask(stage, server.url)
        _archive(stage, server.url)
    return stage.folder / STREAM_FOLDER


def events_in_all() -> int:
    """Return how many events the shops publish."""
    return sum(each for _, each in SHOPS)


def _publish(stage: Stage, url: str) -> None:
    stage.heading(f"{count(events_in_all())} order events from {len(SHOPS)} NATS clients")
    with Client.connect(url, timeout_s=WAIT_S) as client:
        streams = JetStream(client)
        for name, subjects in ((STREAM, ["orders.>"]), ("DEAD", ["dead.>", "_fence.DEAD.>"])):
            config = {"name": name, "subjects": subjects, "allow_atomic": True}
            streams.call(f"STREAM.CREATE.{name}", config)
        streams.call(
            "STREAM.CREATE.KV_TOTALS",
            {"name": "KV_TOTALS", "subjects": ["$KV.TOTALS.>"], "max_msgs_per_subject": 1},
        )
        acknowledged, first = 0, 1
        with stage.timed() as taken:
            for kind, wanted in SHOPS:
                words = [kind, url, str(first), str(wanted)]
                ended = _run([sys.executable, "-m", "penstock.cli.demo.shop", *words])
                acknowledged += int(ended.stdout or 0)
                first += wanted
    stage.check(
        acknowledged == events_in_all(),
        f"{count(acknowledged)} acknowledged, each on stable storage",
    )
    stage.say(f"{count(round(acknowledged / taken[0]))} events/s, nats-py and its start included")


def _aggregate(stage: Stage, url: str) -> None:
    stage.heading("A pipeline: Spark aggregates the stream into a table and a bucket, exactly once")
    file = stage.folder / "pipeline.py"
    shutil.copy(Path(__file__).with_name("demo_pipeline.py"), file)
    # Two parts are enough for so few groups: each is a task and a file of state in every batch.
    parts = ("--conf", "spark.sql.shuffle.partitions=2")
    command = ["run", file.name, "--once", "--server", url, "--json", *parts]
    killed = _killed_after_a_batch(stage, command)
    stage.check(killed, "killed with SIGKILL after its first batch")
    # The stream goes on meanwhile, so that there is a batch more: it ends the minutes before it.
    with Client.connect(url, timeout_s=WAIT_S) as client:
        for payload in NO_ORDERS:
            JetStream(client).publish(b"orders.eu.placed", payload)
    with stage.timed() as taken:
        reports = [json.loads(line) for line in _penstock(stage, *command).splitlines()]
    last = {each["flow"]: each for each in reports}
    stage.check(
        {each["state"] for each in last.values()} == {"done"} and len(last) == 2,
        f"started again it goes on where it was, and is done in {taken[0]:.0f} s",
    )
    expected = _expected_totals()
    stage.check(
        _bucket(url) == expected,
        f"bucket TOTALS: {len(expected)} keys, each event counted once",
    )
    _check_table(stage)
    with Client.connect(url, timeout_s=WAIT_S) as client:
        state = JetStream(client).call("STREAM.INFO.DEAD")["state"]
    stage.say(f"{state['messages']} dead letters: payloads that are no orders, and their fences")


def _killed_after_a_batch(stage: Stage, command: list[str]) -> bool:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *command],
        cwd=stage.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=_environ(),
    )
    assert process.stdout is not None
    done: Counter[str] = Counter()
    with process:
        for line in process.stdout:
            report = json.loads(line)
            done[report["flow"]] = report["batch"] + 1
            if sum(done.values()):
                break
        # The JVM is a process of its own: it ends with its driver.
        os.killpg(process.pid, signal.SIGKILL)
    return sum(done.values()) > 0


def _expected_totals() -> dict[str, tuple[int, int]]:
    events: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for number in range(1, events_in_all() + 1):
        told = json.loads(event(number)[2])
        key = f"{told['region']}.{told['step']}"
        events[key] += 1
        cents[key] += told["cents"]
    return {key: (events[key], cents[key]) for key in events}


def _bucket(url: str) -> dict[str, tuple[int, int]]:
    found = {}
    with Client.connect(url, timeout_s=WAIT_S) as client:
        for each in JetStream(client).each("KV_TOTALS"):
            told = json.loads(each.payload)
            key = each.subject.decode().removeprefix("$KV.TOTALS.")
            found[key] = (told["events"], told["cents"])
    return found


def _check_table(stage: Stage) -> None:
    import pyarrow.dataset

    rows = pyarrow.dataset.dataset(
        stage.folder / "minutes", format="parquet", exclude_invalid_files=True
    ).to_table()
    windows: Counter[tuple[str, str]] = Counter()
    for number in range(1, events_in_all() + 1):
        told = json.loads(event(number)[2])
        windows[(told["at"][:16], told["region"])] += 1
    found = {
        (f"{start:%Y-%m-%dT%H:%M}", region): events
        for start, region, events in zip(
            rows["start"].to_pylist(),
            rows["region"].to_pylist(),
            rows["events"].to_pylist(),
            strict=True,
        )
    }
    is_right = len(found) == len(rows) and all(
        windows[key] == events for key, events in found.items()
    )
    stage.check(
        is_right and len(found) > 0,
        f"table minutes: {count(len(rows))} rows, no minute twice and none wrong",
    )


def _ask(stage: Stage, url: str) -> None:
    stage.heading("SQL over the raw stream")
    statement = (
        "SELECT value:region::string AS region, count(*) AS events, "
        "sum(value:cents::bigint) AS cents FROM ORDERS "
        "WHERE subject LIKE 'orders.%.paid' GROUP BY 1 ORDER BY 1"
    )
    told = _penstock(stage, "sql", "--server", url, "--json", statement)
    rows = [json.loads(line) for line in told.splitlines()]
    table = Table("region", "paid orders", "cents", title_justify="left")
    for row in rows:
        table.add_row(row["region"], count(row["events"]), count(row["cents"]))
    stage.console.print(table)
    expected = {
        key.split(".")[0]: told for key, told in _expected_totals().items() if ".paid" in key
    }
    stage.check(
        {row["region"]: (row["events"], row["cents"]) for row in rows} == expected,
        "the same numbers as were published",
    )


def _archive(stage: Stage, url: str) -> None:
    stage.heading("The stream is archived as Parquet, and every byte of it is checked")
    archive = stage.folder / "archive"
    told = _penstock(stage, "spark", "archive", f"{url}/{STREAM}", archive.name, "--json")
    report = json.loads(told or "{}")
    total = events_in_all() + len(NO_ORDERS)
    stage.check(
        report.get("counts", {}).get("messages") == total,
        f"{count(total)} messages in {size(_bytes_of(archive))} of Parquet with a manifest",
    )
    told = _penstock(stage, "store", "verify", str(STREAM_FOLDER), "--json")
    report = json.loads(told or "{}")
    stage.check(
        bool(report.get("clean")) and [each["messages"] for each in report["streams"]] == [total],
        "every record of the store is sound, beside the running server",
    )


def _bytes_of(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _penstock(stage: Stage, *words: str) -> str:
    """Run a command as a user would, and show it; return what it prints."""
    stage.say(f"$ penstock {shlex.join(words)}")
    ended = _run([sys.executable, "-m", "penstock", *words], cwd=stage.folder)
    if ended.returncode not in (0, 1):
        stage.check(False, ended.stderr.strip().splitlines()[-1] if ended.stderr else "it failed")
    return ended.stdout


def _run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=_environ(), **options
    )


def _environ() -> dict[str, str]:
    # Each command is a new virtual machine with little to do, which ends before compiling its own
    # code for good would pay.
    quick = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    return quick | os.environ
