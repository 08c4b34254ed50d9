"""What every kind of Spark cluster is asked to do; run as a program, because a process has one.

    python -m tests.support.spark_work '{"master": …, "url": …, "blocks": …, "folder": …}'

Prints one JSON document: hashes of what was read both ways, of what a job's parts saw, an answer
of SQL, and where tasks ran. Leaves an archive of the stream in the folder, and a copy of it in the
stream COPIES.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.spark import schema
from penstock.spark.jobs.archive import archive
from penstock.spark.jobs.job import Input, run_parts
from penstock.spark.part import StreamPart
from penstock.spark.session import open_session
from penstock.spark.sql.catalog import SESSION_CONF, Catalog, tables_of_server
from penstock.spark.sql.results import Result

PARTS = 4
SEVERAL = (
    "SELECT subject, count(*) FROM ORDERS WHERE sequence > 10 GROUP BY subject "
    "UNION ALL SELECT 'all', count(*) FROM ORDERS ORDER BY subject"
)


class Asked(msgspec.Struct):
    """Where to work, and on what: a server with the stream ORDERS, whose blocks are there too."""

    url: str
    blocks: str
    folder: str
    master: str = "local[1]"
    remote: str = ""
    conf: dict[str, str] = {}


class Told(msgspec.Struct):
    """What came of it."""

    stream: str
    blocks: str
    parts: list[str]
    sql: list[tuple[str, int]]
    """What `SEVERAL` gave."""

    packages: list[str]
    """Where the tasks had their Penstock from."""

    processes: int
    """In how many processes the tasks ran."""


def hashed(rows: Iterable[tuple[int, str, bytes]]) -> str:
    """Return one text for rows, in whatever order they come."""
    lines = sorted(f"{seq} {subject} {data.hex()}" for seq, subject, data in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _hash(frame: DataFrame) -> str:
    rows = frame.select("sequence", "subject", "data").collect()
    return hashed((row[0], row[1], bytes(row[2])) for row in rows)


def work_on(part: StreamPart) -> tuple[str, str, int]:
    """Return a hash of a part's messages, where Penstock is from here, and this process."""
    rows = [
        (row["sequence"], row["subject"], row["data"])
        for batch in part.read([schema.SEQUENCE, schema.SUBJECT, schema.DATA])
        for row in batch.to_pylist()
    ]
    return hashed(rows), str(Path(penstock.__file__).parent), os.getpid()


def _copy(spark: SparkSession, asked: Asked) -> None:
    """Copy the stream into COPIES by a streaming query."""
    options = {"servers": asked.url, "stream": "ORDERS", "startingOffsets": "earliest"}
    query = (
        spark.readStream.format("penstock")
        .options(**options)
        .option("minPartitions", str(PARTS))
        .load()
        .selectExpr("concat('copies.', subject) as subject", "data")
        .writeStream.format("penstock")
        .option("servers", asked.url)
        .option("delivery", "dedupe")
        .option("checkpointLocation", f"{asked.folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run(spark: SparkSession, asked: Asked) -> Told:
    """Do it all."""
    parts = {"minPartitions": str(PARTS)}
    server = {"servers": asked.url, "stream": "ORDERS", **parts}
    stream = _hash(spark.read.format("penstock").options(**server).load())
    blocks = _hash(spark.read.format("penstock-blocks").options(**parts).load(asked.blocks))
    done = run_parts(spark, work_on, Input("penstock", server).parts())
    _copy(spark, asked)
    archive(spark, Input("penstock", server), f"{asked.folder}/archive")
    catalog = Catalog(spark, tables_of_server({"servers": asked.url}))
    return Told(
        stream,
        blocks,
        [each for each, _, _ in done],
        [(name, count) for name, count in Result(catalog.frame(SEVERAL)).rows()],
        sorted({package for _, package, _ in done}),
        len({pid for _, _, pid in done}),
    )


def main() -> None:
    """Work as the argument says."""
    asked = msgspec.json.decode(sys.argv[1], type=Asked)
    conf = asked.conf if asked.remote else {**SESSION_CONF, **asked.conf}
    spark = open_session(master=asked.master, remote=asked.remote, conf=conf)
    try:
        told = run(spark, asked)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(msgspec.to_builtins(told)) + "\n")


if __name__ == "__main__":
    main()
