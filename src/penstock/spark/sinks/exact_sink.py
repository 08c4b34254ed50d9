"""Exactly once: rows are stored in atomic batches, each with a fence that only one attempt can set.

A task reads its partition's last fence and goes on behind it: rows that other attempts of the same
batch have written are skipped, after their hash shows that they are the same. Then it writes batch
by batch:

    rows 1 … 999        members, without an answer
    fence               commits, if the last fence of the subject is still the one that was read

Invariant: rows and their fence are stored together or not at all. Of several attempts that run at
once, each row is stored by one. An attempt that loses reads the fence again and goes on behind the
winner. After a lost connection the fence says what was stored, in the same way.

While a commit is on its way to the disk, the rows of the next batch are sent. Rows that are not
confirmed yet are kept (`UnconfirmedRows`), so that they can be sent again: they are numbered from 0
in the order in which the task gets them, and the input is read only as far as needed.

Blocking; one thread, in a task.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.clock import SystemClock
from penstock.errors import ApiError, NoAnswer, PenstockError, RefusedByServer
from penstock.limits import (
    SINK_BATCH_BYTES_MAX,
    SINK_BATCH_ROWS_MAX,
    SINK_PAUSE_S_MAX,
    SINK_PAUSE_S_MIN,
)
from penstock.spark.sinks.fences import (
    Fence,
    FenceLost,
    FenceSubjects,
    NotTheSameRows,
    check_query,
    encode,
    read_fence,
)


class InputFailed(PenstockError):
    """The rows to write could not be read: neither the sink's server nor their end caused it."""


class UnconfirmedRows:
    """Rows that the stream has not confirmed yet; see the module."""

    def __init__(self, given: Iterator[Rows]) -> None:
        self._given = given
        self._parts: deque[tuple[int, Rows]] = deque()
        self._end = 0

    def has(self, row: int) -> bool:
        """Return True if there is such a row; the input is read up to there.

        Raise InputFailed for errors of the input, which must not be taken for the sink's own.
        """
        while self._end <= row:
            try:
                part = next(self._given, None)
            except (OSError, ApiError, NoAnswer) as error:
                raise InputFailed(f"rows to be written cannot be read: {error}") from error
            if part is None:
                return False
            if part.count:
                self._parts.append((self._end, part))
                self._end += part.count
        return True

    def parts(self, first: int, end: int) -> Iterator[tuple[Rows, int, int]]:
        """Yield the columns that hold these rows, each with its own first and end."""
        for start, part in self._parts:
            low, high = max(first - start, 0), min(end - start, part.count)
            if low < high:
                yield part, low, high

    def end_of(self, first: int, *, rows_max: int, bytes_max: int) -> int:
        """Return where the largest batch that begins at `first` ends."""
        end, size = first, 0
        while end - first < rows_max and size < bytes_max and self.has(end):
            start, part = next(each for each in self._parts if end < each[0] + each[1].count)
            till, more = part.end_of(end - start, rows_max - (end - first), bytes_max - size)
            end, size = start + till, size + more
        return end

    def hashed(self, first: int, end: int, seed: int) -> int:
        """Return a hash continued over rows."""
        for part, low, high in self.parts(first, end):
            seed = part.hashed(low, high, seed)
        return seed

    def forget(self, row: int) -> None:
        """Drop the rows before a row."""
        while self._parts and self._parts[0][0] + self._parts[0][1].count <= row:
            self._parts.popleft()


TRIED_AGAIN = frozenset(
    {
        error_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.err_code,
        error_codes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.err_code,
        error_codes.STREAM_TOO_MANY_REQUESTS.err_code,
        error_codes.STREAM_WRONG_LAST_SEQUENCE.err_code,
        error_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code,
    }
)
"""Refusals that are no fault of the rows: another attempt was quicker, or there was no room."""

INCOMPLETE = error_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.err_code


class _RowBatch(msgspec.Struct):
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
        place: FenceSubjects,
        partition: int,
        batch: int,
        query: str,
        rows: UnconfirmedRows,
        *,
        is_end_sure: bool = True,
    ) -> None:
        """Begin to write; without a sure end no fence says that the partition is done.

        Rows from Spark end in the same way if the JVM behind the worker is killed.
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
        """Rows that this attempt has written; others were there already."""

    @property
    def rows(self) -> int:
        """How many rows of the partition are in the stream."""
        return self._confirmed.rows

    def run(
        self, connect: Callable[[], AbstractContextManager[JetStream]], timeout_s: float
    ) -> None:
        """Write all rows; give up after `timeout_s` without a row that is stored.

        Raise NotTheSameRows, FenceLost, InputFailed, RefusedByServer, UsageError, or what
        connecting raises.
        """
        patience = _RetryTimer(timeout_s)
        while not self.is_finished:
            before = self.rows
            try:
                with connect() as streams:
                    self._write(streams, patience)
            except (OSError, NoAnswer) as error:
                patience.pause(error, came_on=self.rows > before)

    def _write(self, streams: JetStream, patience: _RetryTimer) -> None:
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
        """Read the partition's last fence, and go on behind it."""
        fence = read_fence(streams, self._place, self._partition)
        if fence is not None:
            check_query(self._place, self._query, fence.query)
        if fence is not None and fence.batch > self._batch:
            # A later batch begins only when this one is complete.
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
        """Raise NotTheSameRows if the stored rows are not those of this attempt."""
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
        waiting: _RowBatch | None = None
        while True:
            part = self._next_part(at.rows, at.hash)
            if part.is_last and not part.count and not self._is_end_sure:
                # Without rows there is no fence to write.
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

    def _next_part(self, first: int, hashed: int) -> _RowBatch:
        end = self._rows.end_of(first, rows_max=SINK_BATCH_ROWS_MAX, bytes_max=SINK_BATCH_BYTES_MAX)
        is_last = not self._rows.has(end)
        self._parts += 1
        batch_id = f"{self._attempt}-{self._parts:x}".encode()
        return _RowBatch(first, end, self._rows.hashed(first, end, hashed), is_last, batch_id)

    def _fence_of(self, part: _RowBatch, seq: int = 0) -> Fence:
        done = part.is_last and self._is_end_sure
        return Fence(self._batch, part.end, part.hash, done, self._query, seq)

    def _send_rows(self, streams: JetStream, part: _RowBatch, inbox: bytes | None = None) -> None:
        number = 1
        for rows, first, end in self._rows.parts(part.first, part.end):
            streams.client.publish_members(
                rows, first, end, batch_id=part.batch_id, number=number, inbox=inbox
            )
            number += end - first
        streams.client.send()

    def _ask_why(self, streams: JetStream, part: _RowBatch) -> None:
        """Send the rows of an incomplete batch again, each with an answer; raise the refusal.

        Members are normally sent without a reply subject, so the server does not say what was
        wrong.
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

    def _send_fence(self, streams: JetStream, part: _RowBatch, fence: Fence) -> None:
        headers = b"Nats-Batch-Commit: 1\r\nNats-Expected-Last-Subject-Sequence: %d\r\n" % (
            self._confirmed.seq
        )
        part.reply = streams.client.begin_request(
            self._subject,
            encode(fence),
            headers=_member(part.batch_id, part.count + 1, headers),
        )

    def _await(self, streams: JetStream, part: _RowBatch) -> None:
        """Wait until the rows and their fence are stored; raise ApiError."""
        answer = streams.read(streams.client.next_answer(part.reply))
        self.written += part.count
        self._confirm(self._fence_of(part, answer["seq"]))

    def _abandon(self, streams: JetStream, part: _RowBatch) -> None:
        """Make the server drop members that will not be committed: it keeps a limited number."""
        if part.count:
            streams.client.publish(self._subject, headers=_member(part.batch_id, 0, b""))
            streams.client.send()


class _RetryTimer:
    """How long to try again without progress."""

    def __init__(self, timeout_s: float) -> None:
        self._clock = SystemClock()
        self._timeout_ns = int(timeout_s * 1e9)
        self._pause_s = SINK_PAUSE_S_MIN
        self._since_ns = self._clock.monotonic_ns()

    def pause(self, error: Exception, *, came_on: bool) -> None:
        """Wait before the next try; raise the error if the time is over."""
        now_ns = self._clock.monotonic_ns()
        if came_on:
            self._pause_s, self._since_ns = SINK_PAUSE_S_MIN, now_ns
        if now_ns - self._since_ns >= self._timeout_ns:
            raise error
        # There is no notification that a server is back, or has room for another batch.
        threading.Event().wait(self._pause_s)
        self._pause_s = min(self._pause_s * 2, SINK_PAUSE_S_MAX)


def _member(batch_id: bytes, number: int, more: bytes) -> bytes:
    return b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (
        batch_id,
        number,
        more,
    )
