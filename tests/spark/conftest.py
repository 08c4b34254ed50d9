"""A Spark session for the tests of this folder: one for each process, on two cores."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import penstock.spark
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.testing.servers import BOTH, REFERENCE, server_process


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-all` what needs a Spark session or the real server.

    One test of each promise stays, with our server.
    """
    for item in items:
        if "spark" not in item.path.parts:
            continue
        parameters = (
            item.callspec.params
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else {}
        )
        is_real = REFERENCE in parameters.values()
        needs_spark = "spark" in getattr(item, "fixturenames", ())
        if is_real or (needs_spark and item.get_closest_marker("promise") is None):
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what Spark's own client leaves open, so that no later test is told of it."""
    yield
    # A collection takes half a second where Spark is loaded.
    if "spark" in request.fixturenames:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session that knows our formats."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("penstock tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    penstock.spark.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module", params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of our server, and of the real one."""
    folder = tmp_path_factory.mktemp("streams")
    with server_process(request.param, store_dir=folder) as server:
        yield server.url


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Yield JetStream; every stream that a test made is removed."""
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        yield made
        for name in list(made.pages("STREAM.NAMES", "streams", {})):
            made.call(f"STREAM.DELETE.{name}")
