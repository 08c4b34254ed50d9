"""Opening a Spark session for our own commands, and registering the formats with a session.

A session is local, on a cluster, or through Spark Connect. Programs with their own session call
`penstock.spark.register` and need nothing else from here. The settings are those that our formats
run best with; the caller's settings count over them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.errors import UsageError
from penstock.spark.archives.source import ArchiveSource
from penstock.spark.blocks.source import BlockSource
from penstock.spark.kv.source import KvSource
from penstock.spark.meta.source import MetaSource
from penstock.spark.streams.source import StreamSource

FORMATS = (ArchiveSource, BlockSource, KvSource, MetaSource, StreamSource)


def register(spark: SparkSession) -> None:
    """Register every format of Penstock with a session."""
    for each in FORMATS:
        spark.dataSource.register(each)


DEFAULT_MASTER = "local[*]"

_EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    # Half the cost of a Python task is its socket; Unix sockets are faster.
    "spark.python.unix.domain.socket.enabled": "true",
}

_HERE = {
    **_EVERYWHERE,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's default of 200 is for clusters: each is a task, and a file of a query's state.
    "spark.sql.shuffle.partitions": "4",
}
"""For a session in this process alone: it listens on the loopback address."""


def open_session(
    *,
    master: str = DEFAULT_MASTER,
    remote: str = "",
    name: str = "penstock",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with our formats; `remote` is the address of a Spark Connect server."""
    # Workers must run the driver's Python, or our compiled modules are missing.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = dict(_HERE if master.startswith("local") else _EVERYWHERE)
    builder = SparkSession.builder.appName(name)
    if remote:
        builder = builder.remote(remote)
        settings = {"spark.sql.session.timeZone": "UTC"}
    else:
        builder = builder.master(master)
    for key, value in {**settings, **(conf or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not remote:
        spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def parse_conf(given: list[str]) -> dict[str, str]:
    """Return `key=value` settings as a dict; raise UsageError."""
    settings = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise UsageError(f"a setting of Spark is spark.…=value, not {each!r}")
        settings[key] = value
    return settings
