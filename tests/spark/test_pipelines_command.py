"""`penstock run`: killed and started again it loses nothing and writes nothing twice."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.testing.servers import PENSTOCK, environ, server_process
from tests.spark.orders import (
    SCHEMA,
    copies_of,
    found,
    found_totals,
    is_good,
    make_streams,
    order,
    publish,
    totals_of,
)

pytestmark = pytest.mark.exhaustive

ORDERS = 1000
PIPELINE = """
pipeline: orders
sources:
  orders:
    stream: ORDERS
    schema: {schema}
    dead_letters: dead.orders
    max_messages: 150
flows:
  copies:
    from: orders
    steps:
      - map: {{id: id, region: region}}
    to: {{stream: OUT, subject: "out.{{region}}"}}
  totals:
    from: orders
    steps:
      - aggregate: {{total: cast(sum(price) as double), orders: count(*)}}
        by: [region]
    to: {{kv: TOTALS, key: "{{region}}"}}
    mode: update
  rows:
    from: orders
    to: {{table: {table}, partition_by: [region]}}
"""


def write_pipeline(folder: Path) -> Path:
    file = folder / "orders.yaml"
    file.write_text(PIPELINE.format(schema=SCHEMA, table=folder / "table"))
    return file


HERE = (
    *("--master", "local[2]"),
    *("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.memory=1g"),
)


@contextlib.contextmanager
def running(
    file: Path, url: str, *options: str, where: Sequence[str] = HERE
) -> Iterator[subprocess.Popen[str]]:
    """Run a pipeline as a process; its output is a line of JSON for each report."""
    words = ["run", str(file), "-s", url, "--checkpoint", str(file.parent / "checkpoints")]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *words, "--json", *options, *where],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(),
    ) as process:
        said: list[str] = []
        assert process.stderr is not None
        listening = threading.Thread(target=said.extend, args=(process.stderr,))
        listening.start()
        try:
            yield process
        except BaseException as error:
            process.kill()
            listening.join()
            error.add_note("".join(said)[-5000:])
            raise
        finally:
            process.kill()
            listening.join()


def reports(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def kill_after(file: Path, url: str, count: int) -> None:
    """Run a pipeline and kill it after so many reports of batches."""
    with running(file, url, "--once") as process:
        seen = 0
        for each in reports(process):
            seen += each["batch"] >= 0
            if seen >= count:
                process.kill()
                break
        assert seen == count, "it ended before"


def check(streams: JetStream, table: Path, orders: int) -> None:
    """Look whether everything is there, and once."""
    assert found(streams, "OUT", "out.>") == copies_of(range(orders))
    assert found_totals(streams) == totals_of(range(orders))
    rows = pq.read_table(committed(table), columns=["id"])["id"].to_pylist()
    assert sorted(rows) == [number for number in range(orders) if is_good(number)]
    letters = [payload for _, payload in found(streams, "DEAD", "dead.>")]
    assert letters == [order(number) for number in range(orders) if not is_good(number)]


def committed(table: Path) -> list[str]:
    """Return the files of a table that Spark's own log names: others are of batches that failed."""
    names = set()
    for log in (table / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            names |= {json.loads(line)["path"] for line in log.read_text().splitlines()[1:]}
    return [each.removeprefix("file://") for each in names]


@contextlib.contextmanager
def streams_at(url: str) -> Iterator[JetStream]:
    # Anew each time: a client that says nothing for some minutes is taken for dead.
    with Client.connect(url, timeout_s=60) as client:
        yield JetStream(client)


def run_with_kills(
    folder: Path, kills: list[int], where: Sequence[str] = HERE, orders: int = ORDERS
) -> dict[str, dict[str, Any]]:
    """Run a pipeline that is killed again and again; give the last reports, once all is checked."""
    file = write_pipeline(folder)
    with server_process(PENSTOCK, store_dir=folder / "store") as server:
        with streams_at(server.url) as streams:
            make_streams(streams)
            publish(streams, range(orders))
        for count in kills:
            kill_after(file, server.url, count)
        with running(file, server.url, "--once", where=where) as process:
            last = {each["flow"]: each for each in reports(process)}

            assert process.wait() == 0
        with streams_at(server.url) as streams:
            check(streams, folder / "table", orders)
        return last


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pipeline_that_was_killed_goes_on_exactly(tmp_path: Path) -> None:
    last = run_with_kills(tmp_path, [5])

    assert {each["state"] for each in last.values()} == {"done"}
    assert last["copies"]["rows"] < ORDERS


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_pipeline_that_is_killed_again_and_again_goes_on_exactly(tmp_path: Path) -> None:
    choose = random.Random(7)

    # Enough that there is something left after the last kill.
    run_with_kills(tmp_path, [choose.randint(1, 3) for _ in range(12)], orders=4 * ORDERS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_interrupt_stops_a_pipeline_and_is_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "copy.py"
    file.write_text(
        "from penstock.spark.pipelines import Pipeline, from_stream, to_stream\n"
        "pipeline = Pipeline('copy', every='100 milliseconds')\n"
        "@pipeline.flow(from_stream('ORDERS'), to_stream('OUT', subject='out.{subject}',\n"
        "               payload='data', headers='headers'))\n"
        "def copies(frame): return frame\n"
    )
    with server_process(PENSTOCK, store_dir=tmp_path / "store") as server:
        with streams_at(server.url) as streams:
            make_streams(streams)
            publish(streams, range(5))
        with running(file, server.url) as process:
            every = reports(process)
            assert next(each for each in every if each["rows"] == 5)["state"] == "running"
            with streams_at(server.url) as streams:
                publish(streams, range(5, 8))
            assert next(each for each in every if each["rows"] == 8)["lag_messages"] == 0
            process.send_signal(signal.SIGINT)

            assert process.wait() == 0
        with streams_at(server.url) as streams:
            sent = found(streams, "OUT", "out.>")
    assert sent == [("out.orders.new", order(number)) for number in range(8)]


# Without Spark


def test_a_dry_run_says_what_a_pipeline_does(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path)

    shown = CliRunner().invoke(app, ["run", str(file), "--dry-run", "--json"])

    document = json.loads(shown.stdout)
    assert shown.exit_code == 0
    assert document["pipeline"] == "orders"
    assert document["flows"][0] == {
        "flow": "copies",
        "from": "ORDERS",
        "to": "stream OUT, subject out.{region}",
        "mode": "append",
        "dead_letters": "dead.orders",
        "checkpoint": "checkpoints/orders/copies",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pipelin: x", ":1: no key 'pipelin'; did you mean pipeline?"),
        ("pipeline: x\nflows: {}", ":2: flows: there is no flow"),
    ],
)
def test_a_file_that_is_wrong_ends_with_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)

    ended = CliRunner().invoke(app, ["run", str(file)])

    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"penstock: {file}{told}")
    assert ended.stderr.count("\n") == 1


def test_a_server_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path)

    ended = CliRunner().invoke(app, ["run", str(file), "-s", "nats://127.0.0.1:1"])

    assert ended.exit_code == 1
    assert "127.0.0.1" in ended.stderr
    assert ended.stderr.count("\n") == 1
