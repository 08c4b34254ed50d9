"""How many messages a stretch of a stream holds, asked of its server without reading them.

A consumer that is made and removed at once tells how many messages are waiting for it: those from
its start on. Two of them tell what lies between. Used in the driver alone.
"""

from __future__ import annotations

from penstock.client.jetstream import JetStream
from penstock.spark.stream_settings import StreamFacts

CONSUMER_IDLE_NS = 5_000_000_000


def count_from(streams: JetStream, stream: str, seq: int) -> int:
    """Give how many messages a stream has from a sequence on."""
    config = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(seq, 1),
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": CONSUMER_IDLE_NS,
    }
    made = streams.call(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
    streams.call(f"CONSUMER.DELETE.{stream}.{made['name']}")
    pending: int = made["num_pending"]
    return pending


def end_of_rows(
    streams: JetStream, facts: StreamFacts, begin: int, end: int, rows: int
) -> tuple[int, int]:
    """Give where `rows` messages from `begin` on end, at most `end`, and how many they are."""
    if facts.messages == facts.last_seq + 1 - facts.first_seq or facts.takes_messages:
        # Without gaps a message is a sequence.
        taken = min(rows, end - begin)
        return begin + taken, taken
    from_begin = count_from(streams, facts.name, begin)
    within = from_begin - count_from(streams, facts.name, end)
    if within <= rows:
        return end, within
    low, high = begin, end
    while low + 1 < high:
        middle = (low + high) // 2
        if from_begin - count_from(streams, facts.name, middle) < rows:
            low = middle
        else:
            high = middle
    return high, rows
