"""Snapshots: a stream, archived and sent to a client piece by piece.

The answer describes the stream. Then the pieces of the archive (`format.golang.archive`, packed)
are sent to the subject that the client named, each with a reply subject on which the client
confirms it. The client's window bounds how many pieces are unconfirmed. A message without a body
ends the snapshot; its status line says what went wrong.

Clients may subscribe after the answer: the first piece waits for that, for a bounded time. As with
the reference server only a plain subscription to the very subject counts: a wildcard may be there
for the answers to all requests of a client, before the client listens. Once pieces are sent, a
change of that interest ends the snapshot.

Invariants: the loop never waits for the disk. A client that stops confirming or listening ends the
snapshot.

Thread: the event loop's; another one reads and packs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from penstock import error_codes
from penstock.api.dispatch import Call, Documents
from penstock.api.documents import JSApiStreamSnapshotRequest, SnapshotStarted
from penstock.api.streams import is_empty, state_of
from penstock.consumer.folder import entry_of
from penstock.consumer.registry import StreamConsumers
from penstock.errors import ApiError, PenstockError, RecordNotFound
from penstock.format.golang.archive import END, MAGIC, STATE_NAME, ArchiveEntry
from penstock.format.golang.s2 import encode_s2_stream
from penstock.limits import (
    KIB,
    MIB,
    SNAPSHOT_IDLE_S_MAX,
    SNAPSHOT_INTEREST_S_MAX,
    SNAPSHOT_PIECE_BYTES,
)
from penstock.routing.hub import Service
from penstock.routing.interest import InterestWatch
from penstock.routing.sublist import Subscription
from penstock.store.interface import StreamStore
from penstock.stream.config.subjects import is_publish_subject
from penstock.stream.info import StreamState
from penstock.stream.stream import Stream
from penstock.text.json.codec import document_of, encode
from penstock.text.times import format_duration, timestamp

_CHUNK_BYTES_DEFAULT = 128 * KIB
_WINDOW_BYTES_DEFAULT = 8 * MIB


def snapshot(call: Call) -> Documents:
    """Describe a stream, and send it."""
    if is_empty(call.body):
        raise ApiError(error_codes.BAD_REQUEST)
    stream = call.account.find(call.names[0])
    request = call.read(JSApiStreamSnapshotRequest)
    if not is_publish_subject(request.deliver_subject):
        raise ApiError(error_codes.SNAPSHOT_DELIVER_SUBJECT_INVALID)
    state = state_of(stream)
    sending = SnapshotSender(call, stream, request, state)
    call.service.spawn(sending.run(), f"snapshot of {stream.name}")
    return SnapshotStarted(stream.config, state)


class SnapshotFailed(PenstockError):
    """The snapshot is ended: the client does not take part as it should."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.status = f"408 {reason.title()}"


class SnapshotSender:
    """One snapshot that is being sent."""

    def __init__(
        self, call: Call, stream: Stream, request: JSApiStreamSnapshotRequest, state: StreamState
    ) -> None:
        self._service = call.service
        self._account = call.account
        self._client = call.service.client_info(call.account.name, call.client)
        self._stream = stream
        self._state = state
        self._consumers = [] if request.no_consumers else self._archived_consumers()
        self._target = request.deliver_subject.encode()
        chunk_bytes = request.chunk_size or _CHUNK_BYTES_DEFAULT
        window_bytes = request.window_size or _WINDOW_BYTES_DEFAULT
        self._chunk_bytes = min(max(chunk_bytes, KIB), MIB)
        window_bytes = max(min(max(window_bytes, KIB), 32 * MIB), self._chunk_bytes)
        self._slots = asyncio.Semaphore(window_bytes // self._chunk_bytes)
        self._sent_count = 0
        self._has_listener = False
        self._began = asyncio.Event()
        """Set when pieces may be sent."""

        self._is_left = False

    def _archived_consumers(self) -> list[ArchiveEntry]:
        consumers = self._stream.consumers
        if not isinstance(consumers, StreamConsumers):
            return []
        last_seq, now_ns = self._state.last_seq, self._service.now_ns()
        return [
            entry_of(name, each.config, each.snapshot().state(), last_seq=last_seq, now_ns=now_ns)
            for name, each in consumers.consumers.items()
        ]

    async def run(self) -> None:
        """Send everything, then the advisory and the log line of the outcome."""
        which = f"stream '{self._account.name} > {self._stream.name}'"
        self._service.log("INF", f"Starting snapshot for {which}")
        start_ns = self._service.now_ns()
        self._advise("SNAPSHOT_CREATE", {"state": document_of(self._state)})
        status = b""
        error = ""
        try:
            await self._send_all()
            status = b"NATS/1.0 204\r\n\r\n" if self._sent_count else b""
        except (PenstockError, OSError) as failed:
            error = str(failed)
            line = failed.status if isinstance(failed, SnapshotFailed) else f"500 {error}"
            status = f"NATS/1.0 {line}\r\n\r\n".encode()
        self._publish(b"", headers=status)
        end_ns = self._service.now_ns()
        times = {"start": timestamp(start_ns), "end": timestamp(end_ns)}
        self._advise("SNAPSHOT_COMPLETE", times, error)
        took = format_duration(end_ns - start_ns)
        if error:
            self._service.log("WRN", f"Snapshot for {which} failed after {took}: {error}")
        else:
            self._service.log("INF", f"Completed snapshot for {which} in {took}")
        self._service.flush()

    def _advise(self, event: str, fields: dict[str, Any], error: str = "") -> None:
        told = {"stream": self._stream.name, **fields, "client": self._client}
        self._account.advise(
            f"STREAM.{event}.{self._stream.name}", event.lower(), told | _if_any("error", error)
        )

    async def _send_all(self) -> None:
        watch = InterestWatch(self._account.sublist)
        watch.watch(self._target, self._on_interest)
        try:
            await self._wait_for_interest()
            await self._send_acknowledged()
        finally:
            watch.unwatch(self._target, self._on_interest)

    async def _wait_for_interest(self) -> None:
        self._on_interest()
        # Without a subscription it is sent all the same: whoever has a wildcard gets it.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._began.wait(), SNAPSHOT_INTEREST_S_MAX)
        self._began.set()

    def _on_interest(self) -> None:
        found = self._account.sublist.matches(self._target)
        has_listener = any(each.subject == self._target for each in found.plain)
        if has_listener == self._has_listener:
            return
        self._has_listener = has_listener
        if self._began.is_set():
            self._is_left = True
            # Wakes the sender if it waits for a confirmation.
            self._slots.release()
        else:
            self._began.set()

    async def _send_acknowledged(self) -> None:
        acknowledged = f"$JS.SNAPSHOT.ACK.{self._stream.name}.{self._service.unique_id()}"
        sublist = self._account.sublist
        subscription = Subscription(
            Service(lambda *_: self._slots.release()), f"{acknowledged}.>".encode(), b"1"
        )
        sublist.insert(subscription)
        try:
            await self._send_chunks(acknowledged)
        finally:
            sublist.remove(subscription)

    async def _send_chunks(self, acknowledged: str) -> None:
        loop = asyncio.get_running_loop()
        pieces = packed_archive(
            self._stream.store, self._state, self._consumers, self._service.now_ns()
        )
        waiting = bytearray()
        await self._take_slot()
        while (piece := await loop.run_in_executor(None, next, pieces, None)) is not None:
            waiting += piece
            while len(waiting) >= self._chunk_bytes:
                self._send_chunk(bytes(waiting[: self._chunk_bytes]), acknowledged)
                del waiting[: self._chunk_bytes]
                await self._take_slot()
        if waiting:
            self._publish(bytes(waiting))

    async def _take_slot(self) -> None:
        """Wait until the window has room; raise SnapshotFailed if the client leaves or stalls."""
        try:
            await asyncio.wait_for(self._slots.acquire(), SNAPSHOT_IDLE_S_MAX)
        except TimeoutError:
            raise SnapshotFailed("no flow response") from None
        if self._is_left:
            raise SnapshotFailed("no interest")

    def _send_chunk(self, chunk: bytes, acknowledged: str) -> None:
        self._sent_count += 1
        reply = f"{acknowledged}.{len(chunk)}.{self._sent_count}"
        self._publish(chunk, reply=reply.encode())
        self._service.flush()

    def _publish(self, body: bytes, *, headers: bytes = b"", reply: bytes | None = None) -> None:
        self._service.publish(self._account.sublist, self._target, headers, body, reply=reply)


def _if_any(name: str, text: str) -> dict[str, str]:
    return {name: text} if text else {}


def packed_archive(
    store: StreamStore, state: StreamState, consumers: list[ArchiveEntry], now_ns: int
) -> Iterator[bytes]:
    """Yield a stream in a given state, archived and packed, piece by piece. Thread: any.

    Raise what reading messages raises.
    """
    plain = bytearray(MAGIC)
    for entry in _entries(store, state, consumers, now_ns):
        plain += entry.encode()
        if len(plain) >= SNAPSHOT_PIECE_BYTES:
            yield encode_s2_stream(bytes(plain))
            plain.clear()
    yield encode_s2_stream(bytes(plain))


def _entries(
    store: StreamStore, state: StreamState, consumers: list[ArchiveEntry], now_ns: int
) -> Iterator[ArchiveEntry]:
    told = replace(state, consumer_count=len(consumers))
    yield ArchiveEntry(STATE_NAME, now_ns, payload=encode(told))
    yield from consumers
    seq = state.first_seq
    while seq <= state.last_seq:
        try:
            found = store.load_next(seq)
        except RecordNotFound:
            break
        if found.seq > state.last_seq:
            break
        yield ArchiveEntry(
            found.subject, found.timestamp_ns, found.seq, found.headers, found.payload
        )
        seq = found.seq + 1
    yield END
