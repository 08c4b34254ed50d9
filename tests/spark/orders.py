"""Orders for tests of pipelines: messages, of which some fit no schema, and what they become."""

from __future__ import annotations

import json
from collections.abc import Iterable

from penstock.client.jetstream import JetStream

SCHEMA = "id long not null, region string, price decimal(10,2)"
REGIONS = ("eu", "us", "asia")
BAD = (b"no JSON", b'{"id":"x"}', b'{"region":"eu"}', b'{"id":7} {"id":8}')


def is_good(number: int) -> bool:
    return number % 10 != 9


def order(number: int) -> bytes:
    """Return a message; each tenth does not fit the schema."""
    if not is_good(number):
        return BAD[number // 10 % len(BAD)]
    fields = {"id": number, "region": REGIONS[number % 3], "price": number / 4}
    return json.dumps(fields).encode()


def publish(streams: JetStream, numbers: Iterable[int]) -> None:
    """Publish orders, and wait until they are stored."""
    list(streams.publish_all(b"orders.new", (order(number) for number in numbers)))


def make_streams(streams: JetStream) -> None:
    """Make ORDERS, OUT, DEAD and the bucket TOTALS."""
    for name, subject in (("OUT", "out"), ("DEAD", "dead")):
        config = {
            "name": name,
            "subjects": [f"{subject}.>", f"_fence.{name}.>"],
            "allow_atomic": True,
            "allow_direct": True,
        }
        streams.call(f"STREAM.CREATE.{name}", config)
    streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    bucket = {"name": "KV_TOTALS", "subjects": ["$KV.TOTALS.>"], "max_msgs_per_subject": 1}
    streams.call("STREAM.CREATE.KV_TOTALS", {**bucket, "allow_rollup_hdrs": True})


def copies_of(numbers: Iterable[int]) -> list[tuple[str, bytes]]:
    """Return the messages published for good orders: the subject, and id and region as JSON."""
    return [
        (f"out.{region}", b'{"id":%d,"region":"%b"}' % (number, region.encode()))
        for number in numbers
        if is_good(number)
        for region in [REGIONS[number % 3]]
    ]


def totals_of(numbers: Iterable[int]) -> dict[str, dict[str, object]]:
    """Return the totals of good orders, as the bucket holds them."""
    totals: dict[str, dict[str, object]] = {}
    for place, region in enumerate(REGIONS):
        own = [number for number in numbers if is_good(number) and number % 3 == place]
        totals[region] = {"region": region, "total": sum(own) / 4, "orders": len(own)}
    return totals


def found(streams: JetStream, stream: str, pattern: str) -> list[tuple[str, bytes]]:
    """Return subjects and payloads of a stream."""
    return [(each.subject.decode(), each.payload) for each in streams.each(stream, pattern)]


def found_totals(streams: JetStream) -> dict[str, dict[str, object]]:
    """Return the keys and values of a bucket."""
    return {
        subject.removeprefix("$KV.TOTALS."): json.loads(payload)
        for subject, payload in found(streams, "KV_TOTALS", ">")
    }
