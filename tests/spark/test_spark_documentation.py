"""The blocks of docs/spark.md run, one after the other, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.testing.servers import PENSTOCK, server_process

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_runs(spark: SparkSession, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
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

        copies = [(each.subject, each.payload) for each in streams.each("COPIES")]

    assert len(blocks) == 4
    assert sorted(copies) == sorted(
        (b"copies.orders.%d" % (number % 3), b"%d" % number) for number in range(20)
    )
