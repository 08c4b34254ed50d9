"""Exactly once: rows come into a stream in atomic batches, each with a fence that only one can set.

A task reads its partition's last fence and goes on behind it: what other attempts of the same batch
have written is passed over, once its hash shows that it is the same. Then it writes batch by batch:

    rows 1 … 999        members, without an answer
    fence               commits, if the last fence of the subject is still the one that was read

What always holds: rows and their fence are stored together or not at all; of several attempts that
run at once, whatever became of the one or the other, each row is stored by one. An attempt that
loses reads the fence again and goes on behind the winner. What is not known, as after a lost
connection, is found out in the same way: the fence tells.

While a commit is on its way to the disk the rows of the next batch are sent. Blocking; in a task.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.clock import SystemClock
from penstock.errors import ApiError, NoAnswer, RefusedByServer
from penstock.limits import SINK_BATCH_BYTES_MAX, SINK_BATCH_ROWS_MAX
from penstock.spark.sinks.fences import (
    Fence,
    FenceLost,
    FencePlace,
    NotTheSameRows,
    check_query,
    encode,
    read_fence,
)
from penstock.spark.sinks.unwritten import UnwrittenRows

TRIED_AGAIN = frozenset(
    {
        error_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.err_code,
        error_codes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.err_code,
        error_codes.STREAM_TOO_MANY_REQUESTS.err_code,
        error_codes.STREAM_WRONG_LAST_SEQUENCE.err_code,
        error_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code,
    }
)
"""Refusals that say nothing about the rows: somebody else was quicker, or there was no room."""

INCOMPLETE = error_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.err_code

PAUSE_S_MIN = 0.005
PAUSE_S_MAX = 1.0


class _Part(msgspec.Struct):
    """Rows that are written together."""

    first: int
    end: int
    hash: int
    is_last: bool
    batch_id: bytes
    reply: bytes = b""

    @property
    def count(self) -> int:
        return self.end - self.first


class ExactWriter:
    """Writes one partition of one batch; see the module."""

    def __init__(
        self,
        place: FencePlace,
        partition: int,
        batch: int,
        query: str,
        rows: UnwrittenRows,
        *,
        is_end_sure: bool = True,
    ) -> None:
        """Without a sure end no fence says that a partition is done.

        What Spark hands to a worker ends in the same way when the JVM behind it is killed.
        """
        self._place = place
        self._is_end_sure = is_end_sure
        self._partition = partition
        self._subject = place.subject(partition).encode()
        self._batch = batch
        self._query = query
        self._rows = rows
        self._attempt = secrets.token_hex(5)
        self._parts = 0
        self._confirmed = Fence(batch, 0, 0, False, query)
        self._is_begun = False
        self._asks_why = False
        self.is_finished = False
        self.written = 0
        """Rows that this attempt has brought in; others were there already."""

    @property
    def rows(self) -> int:
        """How many rows of the partition are in the stream."""
        return self._confirmed.rows

    def run(
        self, connect: Callable[[], AbstractContextManager[JetStream]], timeout_s: float
    ) -> None:
        """Write everything; raises where `timeout_s` pass without a row that gets in.

        Raises NotTheSameRows, FenceLost, InputFailed, RefusedByServer, UsageError, and what
        connecting raises.
        """
        patience = _Patience(timeout_s)
        while not self.is_finished:
            before = self.rows
            try:
                with connect() as streams:
                    self._write(streams, patience)
            except (OSError, NoAnswer) as error:
                patience.pause(error, came_on=self.rows > before)

    def _write(self, streams: JetStream, patience: _Patience) -> None:
        while not self.is_finished:
            before = self.rows
            try:
                self._synchronise(streams)
                if not self.is_finished:
                    self._write_on(streams)
            except ApiError as error:
                if error.err_code not in TRIED_AGAIN:
                    raise RefusedByServer(
                        f"partition {self._partition}, behind row {self.rows}: {error}"
                    ) from None
                self._asks_why = error.err_code == INCOMPLETE
                patience.pause(error, came_on=self.rows > before)

    # Finding out

    def _synchronise(self, streams: JetStream) -> None:
        """Find out how far the partition has come, and go on from there."""
        fence = read_fence(streams, self._place, self._partition)
        if fence is not None:
            check_query(self._place, self._query, fence.query)
        if fence is not None and fence.batch > self._batch:
            # A later batch began when this one was complete.
            self.is_finished = True
            return
        if fence is None or fence.batch < self._batch:
            if self._is_begun:
                raise FenceLost(
                    f"{self._subject.decode()}: the fence is gone that was set while batch "
                    f"{self._batch} was written: a purge or a limit of the stream has removed it"
                )
            seq = 0 if fence is None else fence.seq
            self._confirmed = msgspec.structs.replace(self._confirmed, seq=seq)
            return
        self._compare(fence)
        self._confirm(fence)

    def _compare(self, fence: Fence) -> None:
        """Refuse to go on behind rows that are not ours."""
        ours = self._confirmed
        is_same = fence.rows == 0 or self._rows.has(fence.rows - 1)
        is_same = is_same and fence.rows >= ours.rows
        is_same = is_same and fence.hash == self._rows.hashed(ours.rows, fence.rows, ours.hash)
        if not is_same or (fence.done and self._rows.has(fence.rows)):
            raise NotTheSameRows(
                f"partition {self._partition} of batch {self._batch} of sink {self._place.sink} "
                f"has written {fence.rows} rows, and the rows that come now are others, or in "
                "another order, or divided in another way. Nothing more was written. Rows must "
                "come again as they came before: write_ordered sees to it after a shuffle"
            )

    def _confirm(self, fence: Fence) -> None:
        self._confirmed = fence
        self._is_begun = True
        self.is_finished = fence.done
        self._rows.forget(fence.rows)

    # Writing

    def _write_on(self, streams: JetStream) -> None:
        at = self._confirmed
        waiting: _Part | None = None
        while True:
            part = self._next_part(at.rows, at.hash)
            if part.is_last and not part.count and not self._is_end_sure:
                # There is nothing to be said of no rows.
                if waiting is not None:
                    self._await(streams, waiting)
                self.is_finished = True
                return
            if self._asks_why:
                self._ask_why(streams, part)
            self._send_rows(streams, part)
            try:
                if waiting is not None:
                    self._await(streams, waiting)
            except ApiError:
                self._abandon(streams, part)
                raise
            at = self._fence_of(part)
            self._send_fence(streams, part, at)
            waiting = part
            if part.is_last:
                self._await(streams, part)
                self.is_finished = True
                return

    def _next_part(self, first: int, hashed: int) -> _Part:
        end = self._rows.end_of(first, rows_max=SINK_BATCH_ROWS_MAX, bytes_max=SINK_BATCH_BYTES_MAX)
        is_last = not self._rows.has(end)
        self._parts += 1
        batch_id = f"{self._attempt}-{self._parts:x}".encode()
        return _Part(first, end, self._rows.hashed(first, end, hashed), is_last, batch_id)

    def _fence_of(self, part: _Part, seq: int = 0) -> Fence:
        done = part.is_last and self._is_end_sure
        return Fence(self._batch, part.end, part.hash, done, self._query, seq)

    def _send_rows(self, streams: JetStream, part: _Part, inbox: bytes | None = None) -> None:
        number = 1
        for rows, first, end in self._rows.parts(part.first, part.end):
            streams.client.publish_members(
                rows, first, end, batch_id=part.batch_id, number=number, inbox=inbox
            )
            number += end - first
        streams.client.send()

    def _ask_why(self, streams: JetStream, part: _Part) -> None:
        """Send rows of a batch that lacked some, each to be answered; raises what is refused.

        Members are sent without asking for answers, so the batch does not tell what it lacked.
        """
        self._asks_why = False
        client = streams.client
        inbox = client.new_inbox()
        sid = client.subscribe(inbox + b".*")
        try:
            self._send_rows(streams, part, inbox)
            for _ in range(part.count):
                answer = client.next_message(sid)
                if answer.payload:
                    streams.read(answer)
        finally:
            client.unsubscribe(sid)
        self._abandon(streams, part)
        part.batch_id += b"-"

    def _send_fence(self, streams: JetStream, part: _Part, fence: Fence) -> None:
        headers = b"Nats-Batch-Commit: 1\r\nNats-Expected-Last-Subject-Sequence: %d\r\n" % (
            self._confirmed.seq
        )
        part.reply = streams.client.begin_request(
            self._subject,
            encode(fence),
            headers=_member(part.batch_id, part.count + 1, headers),
        )

    def _await(self, streams: JetStream, part: _Part) -> None:
        """Wait until the rows and their fence are in the stream; raises ApiError."""
        answer = streams.read(streams.client.next_answer(part.reply))
        self.written += part.count
        self._confirm(self._fence_of(part, answer["seq"]))

    def _abandon(self, streams: JetStream, part: _Part) -> None:
        """Have the server forget members that will not be committed: it keeps only so many."""
        if part.count:
            streams.client.publish(self._subject, headers=_member(part.batch_id, 0, b""))
            streams.client.send()


class _Patience:
    """How long nothing may come on before it is given up."""

    def __init__(self, timeout_s: float) -> None:
        self._clock = SystemClock()
        self._timeout_ns = int(timeout_s * 1e9)
        self._pause_s = PAUSE_S_MIN
        self._since_ns = self._clock.monotonic_ns()

    def pause(self, error: Exception, *, came_on: bool) -> None:
        """Wait a little before the next try; raises the error where there was time enough."""
        now_ns = self._clock.monotonic_ns()
        if came_on:
            self._pause_s, self._since_ns = PAUSE_S_MIN, now_ns
        if now_ns - self._since_ns >= self._timeout_ns:
            raise error
        # Nothing tells when a server is back, or has room for another batch.
        threading.Event().wait(self._pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)


def _member(batch_id: bytes, number: int, more: bytes) -> bytes:
    return b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (
        batch_id,
        number,
        more,
    )
