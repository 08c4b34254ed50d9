"""A Spark source that reads a stream through nats-py, for comparison.

A good one: a consumer without acknowledgements, batches of a thousand that are asked for
by pulls, and Arrow batches, not tuples, for Spark. Pickled by value, so that executors need not
have this folder.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

NAME = "nats-py"
SCHEMA = "subject string, sequence long, time_ns long, headers map<string,string>, data binary"
BATCH = 1000
ROWS = 10_000

_ARROW = pa.schema(
    [
        ("subject", pa.string()),
        ("sequence", pa.int64()),
        ("time_ns", pa.int64()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("data", pa.binary()),
    ]
)


class NatsReader(DataSourceReader):
    """Reads one stream, in parts of equal length."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = dict(options)

    def partitions(self) -> list[InputPartition]:
        """Divide the sequences evenly."""
        parts, last = int(self._options.get("parts", "1")), int(self._options["last"])
        marks = [1 + last * place // parts for place in range(parts + 1)]
        return [InputPartition(pair) for pair in itertools.pairwise(marks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a part."""
        first, end = partition.value
        loop = asyncio.new_event_loop()
        try:
            messages = _messages(self._options["servers"], self._options["stream"], first, end)
            rows: list[Any] = []
            while True:
                try:
                    rows += loop.run_until_complete(messages.__anext__())
                except StopAsyncIteration:
                    break
                if len(rows) >= ROWS:
                    yield _batch(rows)
                    rows = []
            if rows:
                yield _batch(rows)
        finally:
            loop.close()


async def _messages(servers: str, stream: str, first: int, end: int) -> Any:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

    client = await nats.connect(servers)
    try:
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first,
            ack_policy=AckPolicy.NONE,
        )
        pulling = await client.jetstream().pull_subscribe(">", stream=stream, config=config)
        last = 0
        while last < end - 1:
            fetched = await pulling.fetch(BATCH, timeout=60)
            last = fetched[-1].metadata.sequence.stream
            yield [each for each in fetched if each.metadata.sequence.stream < end]
    finally:
        await client.close()


def _batch(rows: list[Any]) -> pa.RecordBatch:
    known = [each.metadata for each in rows]
    return pa.record_batch(
        [
            [each.subject for each in rows],
            [each.sequence.stream for each in known],
            [int(each.timestamp.timestamp() * 1e9) for each in known],
            [None if each.headers is None else list(each.headers.items()) for each in rows],
            [each.data for each in rows],
        ],
        schema=_ARROW,
    )


class NatsSource(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def reader(self, schema: Any) -> NatsReader:
        """Return what reads; the columns are always the same."""
        assert len(schema) == len(_ARROW)
        return NatsReader(dict(self.options))
