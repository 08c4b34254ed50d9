"""Reading a range of a stream without a consumer: stored messages, asked for by their sequence.

For streams whose messages are taken by their consumers (work queues), where reading must not
consume, and for whoever may not make consumers. Where the stream allows direct gets (ADR-31) they
come by the batch, from any replica; one that lags behind gives less, so the end of a range is
always asked of the leader. Loaded by executors; slower than a consumer's deliveries, each message
being looked at by itself.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import msgspec

from penstock.client.delivered import status_of
from penstock.client.jetstream import JetStream
from penstock.client.wire import Message
from penstock.errors import FormatError, RefusedByServer
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.subjects import SubjectFilter

if TYPE_CHECKING:
    from penstock.spark.streams.read import StreamRange

BATCH_BYTES = 4 * 1024 * 1024
"""What one batch of direct gets may bring: nothing holds it back once it was asked for."""

_ORIGIN = (
    b"Nats-Stream",
    b"Nats-Subject",
    b"Nats-Sequence",
    b"Nats-Time-Stamp",
    b"Nats-Num-Pending",
    b"Nats-Last-Sequence",
)
"""What the server adds to a message's headers, in this order, at their end."""


class Gotten(msgspec.Struct, frozen=True):
    """A message that was asked for by its sequence."""

    seq: int
    time_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


def gotten_batches(streams: JetStream, wanted: StreamRange) -> Generator[ColumnBatch, None, None]:
    """Yield a range; nothing of it is taken from the stream."""
    subjects = SubjectFilter(each.encode() for each in wanted.subjects)
    builder = ColumnBuilder()
    for each in _messages(streams, wanted):
        if wanted.first_ns <= each.time_ns <= wanted.last_ns and subjects.matches(each.subject):
            builder.append(each.seq, each.time_ns, 0, each.subject, each.headers, each.payload)
        if builder.count >= wanted.rows_max or builder.data_bytes() >= wanted.bytes_max:
            yield builder.take(0)
    if builder.count:
        yield builder.take(0)


def _messages(streams: JetStream, wanted: StreamRange) -> Iterator[Gotten]:
    at = wanted.first
    if wanted.is_direct:
        for each in _direct(streams, wanted):
            if each.seq >= wanted.end:
                return
            yield each
            at = each.seq + 1
    if at >= wanted.end:
        return
    for stored in streams.each(wanted.stream, _pattern(wanted), at):
        if stored.seq >= wanted.end:
            return
        yield Gotten(
            stored.seq, unix_ns(stored.time), stored.subject, stored.headers, stored.payload
        )


def _pattern(wanted: StreamRange) -> str:
    return wanted.subjects[0] if len(wanted.subjects) == 1 else ">"


def _direct(streams: JetStream, wanted: StreamRange) -> Iterator[Gotten]:
    client = streams.client
    subject = f"{streams.api_prefix}.DIRECT.GET.{wanted.stream}".encode("utf-8", "surrogateescape")
    inbox = client.new_inbox() + b".direct"
    sid = client.subscribe(inbox)
    at = max(wanted.first, 1)
    try:
        while at < wanted.end:
            asked = {
                "seq": at,
                "batch": wanted.fetch_batch,
                "max_bytes": BATCH_BYTES,
                "next_by_subj": _pattern(wanted),
            }
            client.publish(subject, json.dumps(asked).encode(), reply=inbox)
            client.send()
            before = at
            while not (status := status_of(message := client.next_message(sid))):
                found = read_gotten(message)
                yield found
                at = found.seq + 1
            if not status.startswith("204") and not status.startswith("404"):
                raise RefusedByServer(status)
            if at == before:
                return
    finally:
        client.unsubscribe(sid)


def read_gotten(message: Message) -> Gotten:
    """Take apart what a server answers to a direct get; raises FormatError."""
    lines = message.headers.removesuffix(b"\r\n\r\n").split(b"\r\n")
    told: dict[bytes, bytes] = {}
    for name in reversed(_ORIGIN):
        if lines and lines[-1].startswith(name + b": "):
            told[name] = lines.pop()[len(name) + 2 :]
    try:
        seq = int(told[b"Nats-Sequence"])
        time_ns = unix_ns(told[b"Nats-Time-Stamp"].decode())
        subject = told[b"Nats-Subject"]
    except (KeyError, ValueError):
        raise FormatError("a message without its place in the stream") from None
    headers = b"\r\n".join(lines) + b"\r\n\r\n" if len(lines) > 1 else b""
    return Gotten(seq, time_ns, subject, headers, message.payload)


def unix_ns(text: str) -> int:
    """Read a time as servers write it, RFC 3339 with up to nine digits; raises RefusedByServer."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    try:
        seconds = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC).timestamp()
        return round(seconds) * 1_000_000_000 + int((rest or "0").ljust(9, "0")[:9])
    except ValueError:
        raise RefusedByServer(f"the server wrote a time that is none: {text!r}") from None
