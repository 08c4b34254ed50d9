"""The loops of load processes over a client's wire."""

from array import array

from penstock.client.wire import Wire

def publish_many(
    wire: Wire, subject: bytes, payload: bytes, count: int, reply: bytes | None = None
) -> None: ...
def publish_ring(wire: Wire, ring: bytes, frame_bytes: int, first: int, count: int) -> None: ...
def count_messages(wire: Wire, wanted: int, end_sid: bytes = b"") -> int: ...
def answer_many(wire: Wire, end_sid: bytes) -> int: ...
def request_many(
    wire: Wire,
    subject: bytes,
    inbox: bytes,
    payload: bytes,
    in_flight: int,
    latencies_ns: array[int],
    spread: int = 0,
    groups: int = 1,
    headers: bytes = b"",
    counted: bytes = b"",
    shift: int = 0,
) -> None: ...
def consume_many(
    wire: Wire, wanted: int, ack: bytes, ask: bytes = b"", batch: int = 0, in_flight: int = 1
) -> None: ...
