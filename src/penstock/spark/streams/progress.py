"""How far a query has come, shown on the server as a durable consumer that stands there.

The consumer delivers nothing and is acknowledged by nobody: it is moved. So `penstock consumer`
and any monitoring of consumers show how many messages the query has still to read. It lags behind
by a batch, and the last batch of a query that ends is not told of: it is for people, and what a
query reads next never depends on it. Used in the driver alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError


def note_progress(streams: JetStream, consumer: str, places: Mapping[str, int]) -> None:
    """Move the consumer of each stream to the next sequence; it is made where there is none."""
    for stream, next_seq in places.items():
        # Who asks to move a consumer that is not there gets no answer at all.
        if _is_there(streams, stream, consumer):
            streams.call(f"CONSUMER.RESET.{stream}.{consumer}", {"seq": max(next_seq, 1)})
        else:
            _make(streams, stream, consumer, next_seq)


def _is_there(streams: JetStream, stream: str, consumer: str) -> bool:
    try:
        streams.call(f"CONSUMER.INFO.{stream}.{consumer}")
    except ApiError as error:
        if error.err_code != error_codes.CONSUMER_NOT_FOUND.err_code:
            raise
        return False
    return True


def _make(streams: JetStream, stream: str, consumer: str, next_seq: int) -> None:
    config = {
        "durable_name": consumer,
        "description": "moved by a Spark query as it goes on",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(next_seq, 1),
        "ack_policy": "explicit",
    }
    streams.call(
        f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config}
    )
