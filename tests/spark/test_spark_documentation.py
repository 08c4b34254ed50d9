"""The blocks of the pages on Spark run, one after the other, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.testing.servers import PENSTOCK, server_process

PAGES = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", ["spark.md", "spark-jobs.md", "pipelines.md"])
def test_every_block_of_a_page_runs(spark: SparkSession, tmp_path: Path, page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    store = tmp_path / "store"
    with (
        server_process(PENSTOCK, store_dir=store) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        for name, subject in (("ORDERS", "orders.>"), ("COPIES", "copies.>")):
            streams.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject]})
        for number in range(20):
            streams.publish(b"orders.%d" % (number % 3), b"%d" % number)
        names = {"spark": spark, "url": server.url, "store": store, "folder": tmp_path}
        for block in blocks:
            exec(block, names)

        copies = sorted((each.subject, each.payload) for each in streams.each("COPIES"))

    assert blocks
    if page == "spark.md":
        assert copies == sorted(
            (b"copies.orders.%d" % (number % 3), b"%d" % number) for number in range(20)
        )
