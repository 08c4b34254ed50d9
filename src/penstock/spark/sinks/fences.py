"""Fences: how far each partition of a sink was written, kept in the stream that it writes to.

    subject   <prefix>.<sink>.<partition>
    payload   {"batch": 7, "done": false, "hash": "9d…", "query": "…", "rows": 1998, "v": 1}

A fence is the last message of an atomic batch of rows, and is stored only if the fence before it is
still the last of its subject: the rows and the fence are stored together, once, whatever other
attempts do. `rows` and `hash` cover all rows of the partition so far: a later attempt checks that
it has the same rows before it goes on behind them. When all tasks of a batch are done, the driver
stores that under `<prefix>.<sink>.commit`: a replay of the batch then has nothing left to do.

Pure but for functions that take `JetStream`, which ask the server.
"""

from __future__ import annotations

import re

import msgspec

from penstock.client.jetstream import JetStream, Stored
from penstock.errors import FormatError, PenstockError, UsageError

VERSION = 1
COMMIT = "commit"
_SINK = re.compile(r"[-_A-Za-z0-9]{1,64}")


class NotTheSameRows(PenstockError):
    """A batch was begun and comes again with other rows, or divided in another way."""


class FenceLost(PenstockError):
    """A fence is gone: it is unknown what was written."""


class Fence(msgspec.Struct, frozen=True):
    """How far a partition was written."""

    batch: int
    rows: int
    hash: int
    """The hash of all rows so far, in their order."""

    done: bool
    """Whether these are known to be all rows of the partition in this batch."""

    query: str = ""
    """The streaming query whose batches are counted; "" for a batch's own version."""

    seq: int = 0
    """The fence's sequence; 0 as long as it is not stored."""


class _Document(msgspec.Struct, frozen=True):
    v: int
    batch: int
    rows: int
    hash: str
    done: bool
    query: str = ""


class Committed(msgspec.Struct, frozen=True):
    """A batch that is complete."""

    batch: int
    query: str = ""
    seq: int = 0
    """The sequence of the message that says so; 0 as long as there is none."""


class FenceSubjects(msgspec.Struct, frozen=True):
    """The subjects of a sink's fences, and their stream."""

    stream: str
    prefix: str
    sink: str

    def subject(self, partition: int | str) -> str:
        """Return the subject of a partition's fences."""
        return f"{self.prefix}.{self.sink}.{partition}"


def check_sink_id(sink: str) -> None:
    """Raise UsageError if a sink's id cannot be a token of a subject."""
    if _SINK.fullmatch(sink) is None:
        raise UsageError(f"option sinkId: {sink!r}: up to 64 letters, digits, - and _")


def check_query(place: FenceSubjects, ours: str, found: str) -> None:
    """Raise UsageError for fences of another query, whose batches have the same numbers."""
    if ours and found != ours:
        raise UsageError(
            f"sink {place.sink} was written to by another query ({found}), whose batches have the "
            "same numbers: give another sinkId, or go on with its checkpoint"
        )


def encode(fence: Fence) -> bytes:
    """Return a fence as it is stored."""
    document = _Document(
        VERSION, fence.batch, fence.rows, f"{fence.hash:016x}", fence.done, fence.query
    )
    return msgspec.json.encode(document, order="sorted")


def decode(stored: Stored) -> Fence:
    """Return a stored fence; raise FormatError."""
    try:
        found = msgspec.json.decode(stored.payload, type=_Document)
        hashed = int(found.hash, 16)
    except (msgspec.MsgspecError, ValueError) as error:
        raise FormatError(f"no fence: {stored.subject!r}, sequence {stored.seq}: {error}") from None
    if found.v != VERSION:
        raise FormatError(f"a fence of version {found.v}, and this is version {VERSION}")
    return Fence(found.batch, found.rows, hashed, found.done, found.query, stored.seq)


def read_fence(streams: JetStream, place: FenceSubjects, partition: int) -> Fence | None:
    """Return the last fence of a partition; None if there is none."""
    found = streams.find(place.stream, last_by_subj=place.subject(partition))
    return None if found is None else decode(found)


def read_committed(streams: JetStream, place: FenceSubjects) -> Committed | None:
    """Return the last complete batch; None if there is none."""
    found = streams.find(place.stream, last_by_subj=place.subject(COMMIT))
    if found is None:
        return None
    try:
        told = msgspec.json.decode(found.payload, type=Committed)
    except msgspec.MsgspecError as error:
        raise FormatError(f"no commit: {found.subject!r}, sequence {found.seq}: {error}") from None
    return msgspec.structs.replace(told, seq=found.seq)


def write_committed(
    streams: JetStream, place: FenceSubjects, committed: Committed, partitions: int
) -> None:
    """Store that a batch is complete, unless it is stored of this or a later one.

    Raise NotTheSameRows if it is not complete: see `check_partitions`.
    """
    last = read_committed(streams, place)
    if last is not None and last.batch >= committed.batch:
        return
    check_partitions(streams, place, committed.batch, partitions)
    expected = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % (
        0 if last is None else last.seq
    )
    subject = place.subject(COMMIT).encode()
    streams.publish(subject, msgspec.json.encode(committed, order="sorted"), headers=expected)


def check_partitions(streams: JetStream, place: FenceSubjects, batch: int, partitions: int) -> None:
    """Raise NotTheSameRows if a batch was begun with more partitions than it ended with.

    Rows that the other partitions wrote are in the stream, and were not compared with these.
    """
    for subject, _ in streams.subjects(place.stream, place.subject("*")):
        number = subject.rpartition(".")[2]
        if not number.isdecimal() or int(number) < partitions:
            continue
        fence = read_fence(streams, place, int(number))
        if fence is not None and fence.batch == batch:
            raise NotTheSameRows(
                f"batch {batch} of sink {place.sink} was begun with more than {partitions} "
                f"partitions: partition {number} has written {fence.rows} rows, and they may now "
                "be there twice. Replay it with the number of partitions that it had, or look at "
                "the rows and go on with another sinkId"
            )
