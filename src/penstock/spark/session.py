"""Opening a Spark session for our own commands: local, on a cluster, or through Spark Connect.

Programs with a session of their own call `penstock.spark.register` and need nothing from here.
What is set is what our formats run best with; whatever the caller sets counts over it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.errors import UsageError
from penstock.spark.registration import register

DEFAULT_MASTER = "local[*]"

_EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    # Half the cost of a Python task is its socket: files of the machine are the faster ones.
    "spark.python.unix.domain.socket.enabled": "true",
}

_HERE = {
    **_EVERYWHERE,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's own 200 are for clusters: every one is a task, and a file of a query's state.
    "spark.sql.shuffle.partitions": "4",
}
"""For a session that lives in this process alone: it is not to be reached from elsewhere."""


def open_session(
    *,
    master: str = DEFAULT_MASTER,
    remote: str = "",
    name: str = "penstock",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Give a session that knows our formats; `remote` is the address of a Spark Connect server."""
    # Workers must run what the driver runs, or our compiled modules are not there.
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
    """Read `key=value` settings; raises UsageError."""
    settings = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise UsageError(f"a setting of Spark is spark.…=value, not {each!r}")
        settings[key] = value
    return settings
