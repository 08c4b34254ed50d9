"""The same work on every kind of Spark: threads, executors of their own, a real cluster, Connect.

Each runs in processes of its own, on free ports of the loopback. What is read, published and worked
must be what the server itself says, wherever tasks run.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyspark
import pytest

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.spark.packaging import pack
from penstock.testing.servers import PENSTOCK, ServerProcess, environ, server_process
from tests.spark.test_pipelines_command import ORDERS, run_with_kills
from tests.support.archives import archive_here, server_input
from tests.support.spark_work import PARTS, Asked, Told, hashed, work_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.exhaustive]

COUNT = 200
WAIT_S = 800
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SMALL = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Place(msgspec.Struct):
    """A server with the streams ORDERS and COPIES, and what is in the first."""

    url: str
    blocks: Path
    rows: list[tuple[int, str, bytes]]


@contextlib.contextmanager
def connected(url: str) -> Iterator[JetStream]:
    """Connect for a moment: a server drops a client that does not answer while Spark works."""
    with Client.connect(url, timeout_s=60) as client:
        yield JetStream(client)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    store = tmp_path_factory.mktemp("store")
    with server_process(PENSTOCK, store_dir=store) as server:
        with connected(server.url) as streams:
            for name in ("ORDERS", "COPIES"):
                subjects = [f"{name.lower()}.>"]
                streams.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects})
            for number in range(COUNT):
                streams.publish(b"orders.%d" % (number % 7), b"payload %d" % number)
            stored = list(streams.each("ORDERS"))
        rows = [(each.seq, each.subject.decode(), each.payload) for each in stored]
        yield Place(server.url, store / "jetstream" / "$G" / "streams" / "ORDERS", rows)


def work(place: Place, folder: Path, python: str = sys.executable, **asked: object) -> Told:
    """Run the work in a process, and compare its result with the server."""
    with connected(place.url) as streams:
        streams.call("STREAM.PURGE.COPIES")
    asked = {"url": place.url, "blocks": str(place.blocks), "folder": str(folder), **asked}
    words = msgspec.json.encode(msgspec.convert(asked, Asked)).decode()
    # The work is a program of the tests, which lie above the package.
    paths = os.pathsep.join([str(Path(__file__).parents[2]), environ()["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_work", words],
        env=environ() | {"PYSPARK_PYTHON": python, "PYTHONPATH": paths},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    told_lines = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(told_lines[-50:])
    told = msgspec.json.decode(done.stdout.splitlines()[-1], type=Told)
    assert told.stream == told.blocks == hashed(place.rows)
    with connected(place.url) as streams:
        copies = [(each.subject.decode(), each.payload) for each in streams.each("COPIES")]
    assert sorted(copies) == sorted((f"copies.{subject}", data) for _, subject, data in place.rows)
    late = Counter(subject for seq, subject, _ in place.rows if seq > 10)
    assert told.sql == sorted([*late.items(), ("all", COUNT)])
    source = server_input(place.url, "ORDERS", minPartitions=str(PARTS))
    assert told.parts == [work_on(part)[0] for part in source.parts()]
    archive_here(source, folder / "archived here")
    assert contents(folder / "archive") == contents(folder / "archived here")
    return told


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of an archive: wherever it was made, manifests and data are the same."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert len(files) > PARTS
    return {str(each.relative_to(folder)): each.read_bytes() for each in files}


@contextlib.contextmanager
def spark_process(*words: str, ready: str) -> Iterator[tuple[ServerProcess, str]]:
    """Run a part of Spark itself until the block is left; gives what it said when it was ready."""
    command = ["env", f"PYSPARK_PYTHON={sys.executable}", str(SPARK_CLASS), *words]
    with ServerProcess(command) as process:
        yield process, process.wait_for(ready)


@contextlib.contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Run a master and two workers; gives the master's address."""
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    deploy = "org.apache.spark.deploy"
    with spark_process(f"{deploy}.master.Master", *here, ready="Starting Spark master") as (
        _,
        line,
    ):
        address = line.rpartition(" ")[2].strip()
        worker = (f"{deploy}.worker.Worker", address, *here, "-c", "1", "-m", "1g", "-d")
        with (
            spark_process(*worker, str(folder / "first"), ready="Successfully registered"),
            spark_process(*worker, str(folder / "second"), ready="Successfully registered"),
        ):
            yield address


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a Spark Connect server; gives its address."""
    settings = {
        **SMALL,
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    submit = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "--class"]
    submit += ["org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        submit += ["--conf", f"{name}={value}"]
    ready = "Spark Connect server started at"
    with spark_process(*submit, "spark-internal", ready=ready) as (_, line):
        yield f"sc://127.0.0.1:{line.strip().rpartition(':')[2]}"


def test_executors_of_their_own_do_what_threads_do(place: Place, tmp_path: Path) -> None:
    told = work(place, tmp_path, master="local-cluster[2,1,1024]", conf=SMALL)

    assert told.processes >= 2
    assert len(told.parts) >= 2


def test_spark_connect_does_what_threads_do(place: Place, tmp_path: Path) -> None:
    with connect_server(tmp_path) as address:
        work(place, tmp_path, remote=address)
        last = run_with_kills(tmp_path, [], where=("--remote", address))

    assert sum(each["rows"] for each in last.values()) == 3 * ORDERS


@pytest.mark.soak
def test_a_standalone_cluster_does_what_threads_do(place: Place, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as master:
        told = work(place, tmp_path, master=master, conf=SMALL)

    assert told.processes == 2


@pytest.mark.soak
def test_executors_that_have_only_the_packed_archive_do_what_threads_do(
    place: Place, tmp_path: Path
) -> None:
    archive = tmp_path / "env.tar.gz"
    pack(archive)
    # The driver plans with the same Python, so that it too must find it there.
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "env", filter="data")

    told = work(
        place,
        tmp_path,
        "./env/bin/python",
        master="local-cluster[2,1,1024]",
        conf=SMALL | {"spark.archives": f"{archive}#env"},
    )

    assert told.packages
    assert all(each.endswith("/env/lib/penstock") for each in told.packages)
    assert not any(each.startswith(str(tmp_path)) for each in told.packages)
