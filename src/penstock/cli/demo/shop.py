"""The demo's shop: its order events, and a process that publishes them as a client of one make.

    python -m penstock.cli.demo.shop nats-py|penstock URL FIRST COUNT

The process prints how many of its events were acknowledged, and ends. Event n is always the same,
so that a reader can check that it comes back as it was published.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from penstock.client.client import Client
from penstock.client.row_publisher import Rows
from penstock.store.interface import NewMessage

if TYPE_CHECKING:
    import pyarrow as pa

REGIONS = ("eu", "us", "apac", "latam")
STEPS = ("placed", "paid", "packed", "shipped", "delivered")
EVENTS_A_SECOND = 50
IN_FLIGHT = 1_000
ROWS = 10_000
WAIT_S = 60


def event(number: int) -> NewMessage:
    """Return event `number`, counted from 1, as (subject, headers, payload)."""
    order = number * 2_654_435_761 % 1_000_003
    region = REGIONS[order % 11 % 4]
    step = STEPS[order // 7 % 5]
    hours, seconds = divmod(number // EVENTS_A_SECOND % 86_400, 3600)
    payload = (
        f'{{"order":{order},"customer":"C{order * 31 % 40_009:05d}","region":"{region}",'
        f'"step":"{step}","items":{order % 5 + 1},"cents":{order % 20_000 + 99},"event":{number},'
        f'"at":"2026-03-02T{hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}Z"}}'
    )
    return f"orders.{region}.{step}".encode(), b"", payload.encode()


def events(first: int, count: int) -> list[NewMessage]:
    """Return `count` events from number `first` on."""
    return [event(number) for number in range(first, first + count)]


async def publish_with_nats_py(url: str, first: int, count: int) -> int:
    """Publish events as any program with nats-py does; return how many were acknowledged."""
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
    """Publish events in columns; return how many were acknowledged."""
    import pyarrow as pa

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
