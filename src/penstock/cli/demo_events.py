"""The order events that the demo writes: made up, but alike those of a shop.

Event n is always the same, so that whoever reads it back can tell whether it is as it was written.
Also run as a process of its own, which writes events until it is killed:

    python -m penstock.cli.demo_events DIR

Each line that it prints is a sequence up to which everything is on stable storage.
"""

from __future__ import annotations

import itertools
import sys

from penstock.store.filestore import FileStore
from penstock.store.interface import NewMessage, StoreConfig

REGIONS = ("eu", "us", "apac", "latam")
STEPS = ("placed", "paid", "packed", "shipped", "delivered")
BATCH_EVENTS = 200


def event(number: int) -> NewMessage:
    """Give event `number`, which counts from 1, as (subject, headers, payload)."""
    order = number * 2_654_435_761 % 1_000_003
    region = REGIONS[order % 11 % 4]
    step = STEPS[order // 7 % 5]
    payload = (
        f'{{"order":{order},"customer":"C{order * 31 % 40_009:05d}","region":"{region}",'
        f'"step":"{step}","items":{order % 5 + 1},"cents":{order % 20_000 + 99},"event":{number}}}'
    )
    return f"orders.{region}.{step}".encode(), b"", payload.encode()


def events(first: int, count: int) -> list[NewMessage]:
    """Give `count` events from number `first` on."""
    return [event(number) for number in range(first, first + count)]


def write_until_killed(path: str) -> None:
    """Write events, and print each durable sequence, for as long as there is a process."""

    def report(seq: int) -> None:
        sys.stdout.write(f"{seq}\n")
        sys.stdout.flush()

    store = FileStore.open(path, StoreConfig(name="orders"), on_durable=report)
    for first in itertools.count(1, BATCH_EVENTS):
        store.store_batch(events(first, BATCH_EVENTS))


if __name__ == "__main__":
    write_until_killed(sys.argv[1])
