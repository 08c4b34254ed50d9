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
from penstock.testing.servers import BOTH, server_process


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Collect what Spark's own client leaves open, so that no later test is told of it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give a session that knows our formats."""
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
    """Give the address of our server, and of the real one."""
    folder = tmp_path_factory.mktemp("streams")
    with server_process(request.param, store_dir=folder) as server:
        yield server.url


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Give JetStream; every stream that a test made is removed."""
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        yield made
        for name in list(made.pages("STREAM.NAMES", "streams", {})):
            made.call(f"STREAM.DELETE.{name}")
