"""Reading sequences of a stream from its server, in a task.

A short-lived consumer without acknowledgements delivers the messages. Batches are requested ahead,
so that the server works while the task converts.

Two kinds of reading need no consumer: of streams whose consumers take messages away (work queues),
and for clients that may not create consumers. Messages are then requested by their sequence. If the
stream allows direct gets (ADR-31), they come by the batch and from any replica. A replica that lags
behind returns less, so the end is always requested from the leader. This is slower than a consumer:
each message is handled in Python.

If the connection breaks, reading goes on behind the last message that came, over a new connection.
Invariant: no message is yielded twice. Loaded by executors.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.jetstream import JetStream, Pulling, status_of
from penstock.client.wire import ReceivedMessage
from penstock.errors import ApiError, CannotConnect, FormatError, RefusedByServer
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.reader import SEQ_MAX
from penstock.spark.arrow import Converter, Needs, needs_of, unpack
from penstock.spark.connection import BROKEN, Connection, streams_of, wait_before
from penstock.spark.options import PayloadCompression
from penstock.spark.part import MessageSelection
from penstock.spark.position import DataLoss
from penstock.spark.schema import Column
from penstock.spark.streams.facts import StreamFacts, facts_of, filtered_by
from penstock.subjects import SubjectFilter

PULL_BYTES = 16 * 1024 * 1024
"""What one request for messages may bring: well below what a server keeps for a slow reader."""

IDLE_NS = 60_000_000_000
"""After this the server removes the consumer of a task that died."""


class ServerStream(msgspec.Struct, frozen=True):
    """A stream of a server, and how it is read: a source of a `StreamPart`."""

    connection: Connection
    stream: str
    created: str
    """When the stream was created: it tells the stream from a later one of the same name."""

    fetch_batch: int = 2000
    without_consumer: bool = False
    """Whether no consumer is used, because it would take messages away or is not allowed."""

    is_direct: bool = False
    """Whether the stream allows direct gets."""

    poll_timeout_ms: int = 120_000

    @property
    def last_seq(self) -> int:
        """The last sequence that a stream can have: a selection says where a part ends."""
        return SEQ_MAX

    @property
    def count(self) -> int:
        """0: only the server knows."""
        return 0

    @property
    def bytes(self) -> int:
        """0: only the server knows."""
        return 0

    def read(
        self, selection: MessageSelection, columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected messages; raise DataLoss if some are gone."""
        return read_stream(self, selection, columns)


def read_stream(
    server: ServerStream, selection: MessageSelection, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """Yield the selected messages of a stream; raise DataLoss if some are gone."""
    converter = Converter(columns, server.stream)
    needs = needs_of(columns)
    if selection.packed is not PayloadCompression.NONE:
        # Compressed payloads are unpacked row by row, headers included.
        needs = Needs(headers=True, payloads=True)
    for batch in _resumed(server, selection, needs):
        table = converter.convert(unpack(batch, selection.packed))
        yield table.filter(_within(batch, selection)) if selection.selects_times else table


def _within(batch: ColumnBatch, selection: MessageSelection) -> pa.Array:
    times = pa.Array.from_buffers(pa.int64(), batch.count, [None, pa.py_buffer(batch.timestamps)])
    return pc.and_(
        pc.greater_equal(times, selection.first_ns), pc.less_equal(times, selection.last_ns)
    )


def _resumed(
    server: ServerStream, selection: MessageSelection, needs: Needs
) -> Iterator[ColumnBatch]:
    # A server that restarts is waited for; reading goes on behind what was read before.
    left = selection
    turn = 0
    while True:
        try:
            for batch in _read(server, left, needs):
                yield batch
                last_seq = int.from_bytes(batch.sequences[-8:], "little")
                left = msgspec.structs.replace(left, first_seq=last_seq + 1)
                turn = 0
        except CannotConnect:
            # Connecting has its own retries.
            raise
        except BROKEN:
            turn += 1
            if turn > server.connection.retries:
                raise
            wait_before(turn)
        else:
            return


def _read(server: ServerStream, selection: MessageSelection, needs: Needs) -> Iterator[ColumnBatch]:
    if selection.first_seq >= selection.end:
        return
    with streams_of(server.connection) as streams:
        streams.client.set_timeout(server.poll_timeout_ms / 1000)
        before = check_range(streams, server, selection)
        if before is None:
            return
        found = (
            direct_batches(streams, server, selection)
            if server.without_consumer
            else _delivered(streams, server, selection, needs)
        )
        came = 0
        # If the caller stops reading, the consumer is removed before the connection is closed.
        with contextlib.closing(found):
            for batch in found:
                came += batch.count
                yield batch
        if selection.fail_on_data_loss:
            _check_came(streams, server, selection, before, came)
        streams.client.set_timeout(server.connection.request_timeout_ms / 1000)


def check_range(
    streams: JetStream, server: ServerStream, selection: MessageSelection
) -> StreamFacts | None:
    """Return the stream as it is now, or None if it is gone and that is allowed.

    Raise DataLoss if the stream is gone or another one, or if the first of the selected sequences
    was removed since the plan was made.
    """
    try:
        facts = facts_of(streams.call(f"STREAM.INFO.{server.stream}"))
    except ApiError as error:
        if selection.fail_on_data_loss:
            raise DataLoss(f"stream {server.stream} went while it was read: {error}") from None
        return None
    if facts.created != server.created:
        raise DataLoss(f"stream {server.stream} was made anew while it was read")
    if facts.first_seq > selection.first_seq and selection.fail_on_data_loss:
        raise DataLoss(
            f"stream {server.stream}: sequence {selection.first_seq} was to be read, and the first "
            f"that is left is {facts.first_seq}; with failOnDataLoss=false what is left is read"
        )
    return facts


def _check_came(
    streams: JetStream,
    server: ServerStream,
    selection: MessageSelection,
    before: StreamFacts,
    came: int,
) -> None:
    # Messages in between may be removed. Only if the stream's first sequence has moved into the
    # selection, messages may be missing, unless every message came before that.
    is_whole = came == selection.end - selection.first_seq
    if before.is_dense and not selection.subjects and is_whole:
        return
    check_range(streams, server, selection)


# By a consumer


def _delivered(
    streams: JetStream, server: ServerStream, selection: MessageSelection, needs: Needs
) -> Generator[ColumnBatch, None, None]:
    created = streams.call(
        f"CONSUMER.CREATE.{server.stream}",
        {"stream_name": server.stream, "config": _consumer_config(selection, needs)},
    )
    name = created["name"]
    builder = ColumnBuilder(headers=needs.headers, payloads=needs.payloads)
    try:
        if created["num_pending"]:
            yield from _pulled(streams, server, selection, name, builder)
    except BROKEN:
        # The server removes the consumer by itself.
        raise
    except BaseException:
        with contextlib.suppress(*BROKEN, ApiError):
            streams.call(f"CONSUMER.DELETE.{server.stream}.{name}")
        raise
    streams.call(f"CONSUMER.DELETE.{server.stream}.{name}")


def _consumer_config(selection: MessageSelection, needs: Needs) -> dict[str, Any]:
    config: dict[str, Any] = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(selection.first_seq, 1),
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": IDLE_NS,
        "mem_storage": True,
        "num_replicas": 1,
        **filtered_by(selection.subject_texts()),
    }
    # With headers_only the server adds a header of its own to those of the message.
    if not needs.payloads and not needs.headers:
        config["headers_only"] = True
    return config


def _pulled(
    streams: JetStream,
    server: ServerStream,
    selection: MessageSelection,
    consumer: str,
    builder: ColumnBuilder,
) -> Iterator[ColumnBatch]:
    pulling = Pulling(
        streams, server.stream, consumer, batch=server.fetch_batch, bytes_max=PULL_BYTES
    )
    try:
        while True:
            is_end = pulling.collect(
                builder, selection.last_seq, selection.rows_max, selection.bytes_max
            )
            if builder.count:
                yield builder.take(0)
            if is_end:
                return
    finally:
        pulling.end()


# Without a consumer

BATCH_BYTES = 4 * 1024 * 1024
"""What one batch of direct gets may bring: the client cannot stop a batch that it requested."""

_ORIGIN = (
    b"Nats-Stream",
    b"Nats-Subject",
    b"Nats-Sequence",
    b"Nats-Time-Stamp",
    b"Nats-Num-Pending",
    b"Nats-Last-Sequence",
)
"""The headers that the server adds at the end of a message's own, in this order."""


class DirectMessage(msgspec.Struct, frozen=True):
    """A message that was requested by its sequence."""

    seq: int
    time_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


def direct_batches(
    streams: JetStream, server: ServerStream, selection: MessageSelection
) -> Generator[ColumnBatch, None, None]:
    """Yield the selected messages without a consumer: none is taken from the stream."""
    subjects = SubjectFilter(selection.subjects or ())
    builder = ColumnBuilder()
    for each in _messages(streams, server, selection):
        if selection.first_ns <= each.time_ns <= selection.last_ns and subjects.matches(
            each.subject
        ):
            builder.append(each.seq, each.time_ns, 0, each.subject, each.headers, each.payload)
        if builder.count >= selection.rows_max or builder.data_bytes() >= selection.bytes_max:
            yield builder.take(0)
    if builder.count:
        yield builder.take(0)


def _messages(
    streams: JetStream, server: ServerStream, selection: MessageSelection
) -> Iterator[DirectMessage]:
    at = selection.first_seq
    if server.is_direct:
        for each in _direct(streams, server, selection):
            if each.seq >= selection.end:
                return
            yield each
            at = each.seq + 1
    if at >= selection.end:
        return
    for stored in streams.each(server.stream, _pattern(selection), at):
        if stored.seq >= selection.end:
            return
        yield DirectMessage(
            stored.seq, unix_ns(stored.time), stored.subject, stored.headers, stored.payload
        )


def _pattern(selection: MessageSelection) -> str:
    subjects = selection.subject_texts()
    return subjects[0] if len(subjects) == 1 else ">"


def _direct(
    streams: JetStream, server: ServerStream, selection: MessageSelection
) -> Iterator[DirectMessage]:
    client = streams.client
    subject = f"{streams.api_prefix}.DIRECT.GET.{server.stream}".encode("utf-8", "surrogateescape")
    inbox = client.new_inbox() + b".direct"
    sid = client.subscribe(inbox)
    at = max(selection.first_seq, 1)
    try:
        while at < selection.end:
            asked = {
                "seq": at,
                "batch": server.fetch_batch,
                "max_bytes": BATCH_BYTES,
                "next_by_subj": _pattern(selection),
            }
            client.publish(subject, json.dumps(asked).encode(), reply=inbox)
            client.send()
            before = at
            while not (status := status_of(message := client.next_message(sid))):
                found = read_direct_message(message)
                yield found
                at = found.seq + 1
            if not status.startswith("204") and not status.startswith("404"):
                raise RefusedByServer(status)
            if at == before:
                return
    finally:
        client.unsubscribe(sid)


def read_direct_message(message: ReceivedMessage) -> DirectMessage:
    """Return the stored message in the answer to a direct get; raise FormatError if it has none."""
    lines = message.headers.removesuffix(b"\r\n\r\n").split(b"\r\n")
    added: dict[bytes, bytes] = {}
    for name in reversed(_ORIGIN):
        if lines and lines[-1].startswith(name + b": "):
            added[name] = lines.pop()[len(name) + 2 :]
    try:
        seq = int(added[b"Nats-Sequence"])
        time_ns = unix_ns(added[b"Nats-Time-Stamp"].decode())
        subject = added[b"Nats-Subject"]
    except (KeyError, ValueError):
        raise FormatError("a message without its place in the stream") from None
    headers = b"\r\n".join(lines) + b"\r\n\r\n" if len(lines) > 1 else b""
    return DirectMessage(seq, time_ns, subject, headers, message.payload)


def unix_ns(text: str) -> int:
    """Return the Unix nanoseconds of a server's time, RFC 3339 with up to nine digits.

    Raise RefusedByServer if the text is no time.
    """
    whole, _, rest = text.removesuffix("Z").partition(".")
    try:
        seconds = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC).timestamp()
        return round(seconds) * 1_000_000_000 + int((rest or "0").ljust(9, "0")[:9])
    except ValueError:
        raise RefusedByServer(f"the server wrote a time that is none: {text!r}") from None
