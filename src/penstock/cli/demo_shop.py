"""A shop of the demo: a process of its own that publishes events, as a client of one make.

    python -m penstock.cli.demo_shop nats-py|penstock URL FIRST COUNT

It prints how many of its events were acknowledged, and ends.
"""

from __future__ import annotations

import asyncio
import sys

import pyarrow as pa

from penstock.cli.demo_events import event, events
from penstock.client.client import Client
from penstock.client.rows import Rows

IN_FLIGHT = 1_000
ROWS = 10_000
WAIT_S = 60


async def publish_with_nats_py(url: str, first: int, count: int) -> int:
    """Publish events as any program with nats-py does; give how many were acknowledged."""
    import nats

    client = await nats.connect(url, connect_timeout=WAIT_S)
    try:
        jetstream = client.jetstream(timeout=WAIT_S, publish_async_max_pending=IN_FLIGHT)
        futures = []
        for number in range(first, first + count):
            subject, _, payload = event(number)
            futures.append(await jetstream.publish_async(subject.decode(), payload))
        return len(await asyncio.gather(*futures))
    finally:
        await client.close()


def publish_with_penstock(url: str, first: int, count: int) -> int:
    """Publish events in columns; give how many were acknowledged."""
    end = first + count
    with (
        Client.connect(url, timeout_s=WAIT_S) as client,
        client.publishing_rows(in_flight=IN_FLIGHT) as rows,
    ):
        for start in range(first, end, ROWS):
            batch = events(start, min(ROWS, end - start))
            subjects = pa.array([each[0] for each in batch], pa.binary())
            payloads = pa.array([each[2] for each in batch], pa.binary())
            rows.publish(Rows(_column(subjects), None, _column(payloads)))
    return count


def _column(values: pa.Array) -> tuple[memoryview, memoryview]:
    _, offsets, data = values.buffers()
    return memoryview(offsets).cast("B")[: 4 * (len(values) + 1)].cast("i"), memoryview(data).cast(
        "B"
    )


if __name__ == "__main__":
    kind, url, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if kind == "nats-py":
        acknowledged = asyncio.run(publish_with_nats_py(url, first, count))
    else:
        acknowledged = publish_with_penstock(url, first, count)
    sys.stdout.write(f"{acknowledged}\n")
