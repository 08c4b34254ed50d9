"""The order events that the demo writes: made up, but alike those of a shop.

Event n is always the same, so that whoever reads it back can tell whether it is as it was written.
"""

from __future__ import annotations

from penstock.store.interface import NewMessage

REGIONS = ("eu", "us", "apac", "latam")
STEPS = ("placed", "paid", "packed", "shipped", "delivered")
BATCH_EVENTS = 200
EVENTS_A_SECOND = 50


def event(number: int) -> NewMessage:
    """Give event `number`, which counts from 1, as (subject, headers, payload)."""
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
    """Give `count` events from number `first` on."""
    return [event(number) for number in range(first, first + count)]
