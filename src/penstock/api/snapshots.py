"""Snapshots: a stream sent to a client, piece by piece.

The answer tells what will come; then the pieces of the archive (`format.golang.archive`, packed)
are sent to the subject that the client named, each with a reply subject on which the client says
that it has got it. So many pieces are under way as the client's window allows. A message without a
body ends it; what went wrong is its status line.

What always holds: the loop never waits for the disk; whoever stops answering or listening ends the
snapshot.

One thread: the event loop's; messages are read and packed by another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from penstock import error_codes
from penstock.api.dispatch import Call
from penstock.api.requests import JSApiStreamSnapshotRequest
from penstock.api.streams import is_empty, state_of
from penstock.config.durations import format_duration
from penstock.consumer.archiving import entry_of
from penstock.consumer.registry import StreamConsumers
from penstock.documents.encoding import document_of, encode
from penstock.documents.times import timestamp
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
from penstock.routing.sublist import Subscription
from penstock.store.interface import StreamStore
from penstock.stream.info import StreamState
from penstock.stream.rules import is_publish_subject
from penstock.stream.stream import Stream

_CHUNK_BYTES_DEFAULT = 128 * KIB
_WINDOW_BYTES_DEFAULT = 8 * MIB


def snapshot(call: Call) -> dict[str, Any]:
    """Tell what a stream is, and send it."""
    if is_empty(call.body):
        raise ApiError(error_codes.BAD_REQUEST)
    stream = call.account.find(call.names[0])
    request = call.read(JSApiStreamSnapshotRequest)
    if not is_publish_subject(request.deliver_subject):
        raise ApiError(error_codes.SNAPSHOT_DELIVER_SUBJECT_INVALID)
    state = state_of(stream)
    sending = _Sending(call, stream, request, state)
    call.service.spawn(sending.run(), f"snapshot of {stream.name}")
    return {"config": document_of(stream.config), "state": document_of(state)}


class _Given(PenstockError):
    """The snapshot is given up; the text is the status line's."""


class _Sending:
    """One snapshot on its way."""

    def __init__(
        self, call: Call, stream: Stream, request: JSApiStreamSnapshotRequest, state: StreamState
    ) -> None:
        self._service = call.service
        self._account = call.account
        self._client = call.service.client_info(call.account.name)
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
        """Send it all, and say how it went."""
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
            line = error if isinstance(failed, _Given) else f"500 {error}"
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
        if not self._has_interest():
            await asyncio.sleep(SNAPSHOT_INTEREST_S_MAX)
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

    def _has_interest(self) -> bool:
        found = self._account.sublist.matches(self._target)
        return bool(found.plain or found.queues)

    async def _send_chunks(self, acknowledged: str) -> None:
        loop = asyncio.get_running_loop()
        pieces = packed_archive(
            self._stream.store, self._state, self._consumers, self._service.now_ns()
        )
        waiting = bytearray()
        while True:
            piece = await loop.run_in_executor(None, next, pieces, None)
            if piece is None:
                break
            waiting += piece
            while len(waiting) >= self._chunk_bytes:
                await self._send_chunk(bytes(waiting[: self._chunk_bytes]), acknowledged)
                del waiting[: self._chunk_bytes]
        if waiting:
            self._publish(bytes(waiting))

    async def _send_chunk(self, chunk: bytes, acknowledged: str) -> None:
        try:
            await asyncio.wait_for(self._slots.acquire(), SNAPSHOT_IDLE_S_MAX)
        except TimeoutError:
            raise _Given("408 No Flow Response") from None
        if not self._has_interest():
            raise _Given("408 No Interest")
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
    """Give a stream as it is in a state, archived and packed, piece by piece; any thread.

    Raises what reading messages raises.
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
