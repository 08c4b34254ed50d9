"""Restores: streams made of the snapshots that clients send.

The answer names the subject for the pieces. Each piece is answered when it is stored, so a client
is never far ahead. A piece without a body ends it, and its answer is the restored stream. Snapshots
of servers before 2.15, which are a packed folder, are recognised by their first bytes.

Invariants: the loop never waits for the disk. A restored stream appears whole or not at all; a
crash leaves nothing of it.

Thread: the event loop's; another one unpacks and stores.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock import error_codes
from penstock.api.dispatch import Call, Documents, refusal, start_of
from penstock.api.documents import JSApiStreamRestoreRequest, StreamRestoring
from penstock.api.streams import answered, is_empty
from penstock.consumer.config.config import CreateConsumerRequest
from penstock.consumer.config.create import (
    Address,
    CreationContext,
    Form,
    addressed_config,
    checked_creation,
)
from penstock.consumer.folder import ArchivedConsumer, read_entry
from penstock.consumer.registry import StreamConsumers
from penstock.errors import ApiError, FormatError, PenstockError, UsageError
from penstock.limits import RESTORE_QUEUE_BYTES_MAX, SNAPSHOT_IDLE_S_MAX
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription
from penstock.stream.config.config import StreamConfig
from penstock.stream.config.validation import checked_config
from penstock.stream.quota import check_reservation, check_stream_count, tier_of
from penstock.stream.stream import Stream
from penstock.text.json.codec import encode_after
from penstock.text.times import timestamp

if TYPE_CHECKING:
    from penstock.stream.restore import StreamRestore

CREATED_KIND = "stream_create_response"


def restore(call: Call) -> Documents:
    """Name the subject for the pieces of a snapshot, and restore the stream from them."""
    if is_empty(call.body):
        raise ApiError(error_codes.BAD_REQUEST)
    request = call.read(JSApiStreamRestoreRequest)
    name = call.names[0]
    config = replace(request.config, name=request.config.name or name)
    if config.name != name:
        raise ApiError(error_codes.STREAM_MISMATCH)
    if "\\" in name or "/" in name:
        raise ApiError(error_codes.STREAM_NAME_CONTAINS_PATH_SEPARATORS)
    config = _checked(call, config)
    subject = f"$JS.SNAPSHOT.RESTORE.{name}.{call.service.unique_id()}"
    receiving = _Receiving(call, config, subject.encode())
    call.service.spawn(receiving.run(), f"restore of {name}")
    return StreamRestoring(subject)


def _checked(call: Call, config: StreamConfig) -> StreamConfig:
    account, server = call.account, call.service.limits
    existing = account.configs
    config = checked_config(config, server=server, account=account.limits, existing=existing)
    check_stream_count(config, account.limits, existing)
    tier = tier_of(account.limits, config.num_replicas)
    check_reservation(config, server, tier, existing, added_bytes=config.max_bytes)
    if config.name in account.streams or config.name in account.offline:
        raise ApiError(error_codes.STREAM_NAME_EXIST_RESTORE_FAILED)
    return config


class _Receiving:
    """One stream that is being restored."""

    def __init__(self, call: Call, config: StreamConfig, subject: bytes) -> None:
        self._call = call
        self._service = call.service
        self._account = call.account
        self._client = call.service.client_info(call.account.name, call.client)
        self._name = config.name
        self._config = config
        self._chunks: asyncio.Queue[tuple[bytes, bytes | None]] = asyncio.Queue()
        self._memory = call.account.host.restore_memory
        self._waiting_bytes = 0
        self._fault: PenstockError | None = None
        self._total_bytes = 0
        self._last_reply: bytes | None = None
        self._subscription = Subscription(Service(self._take), subject, b"1")
        self._account.sublist.insert(self._subscription)

    def _take(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        if self._fault is not None:
            return
        try:
            self._memory.change(len(body))
            self._waiting_bytes += len(body)
            if self._waiting_bytes > RESTORE_QUEUE_BYTES_MAX:
                self._fault = UsageError("more was sent than was acknowledged")
        except ApiError as error:
            self._fault = error
        # With a fault this is the last one, and wakes whoever waits for it.
        self._chunks.put_nowait((b"" if self._fault else body, reply))

    async def run(self) -> None:
        """Receive everything, then answer the last piece and publish the advisory."""
        which = f"stream '{self._account.name} > {self._name}'"
        self._service.log("INF", f"Starting restore for {which}")
        start_ns = self._service.now_ns()
        self._advise("RESTORE_CREATE", {})
        try:
            stream = await self._receive()
            told = answered(self._call, stream, domain="")
            answer = encode_after(start_of(CREATED_KIND), told)
            self._service.log("INF", f"Completed restore for {which}")
        except TimeoutError:
            self._service.log("WRN", f"restore for {which} is stalled")
            return
        except (PenstockError, OSError) as error:
            self._service.log("WRN", f"Restore failed for {which}: {error}")
            answer = refusal(CREATED_KIND, _refusal_of(error))
        finally:
            self._account.sublist.remove(self._subscription)
            self._memory.change(-self._waiting_bytes)
        times = {"start": timestamp(start_ns), "end": timestamp(self._service.now_ns())}
        self._advise("RESTORE_COMPLETE", times | {"bytes": self._total_bytes})
        if self._last_reply is not None:
            self._service.publish(self._account.sublist, self._last_reply, b"", answer)
        self._service.flush()

    def _advise(self, event: str, fields: dict[str, Any]) -> None:
        told = {"stream": self._name, **fields, "client": self._client}
        self._account.advise(f"STREAM.{event}.{self._name}", event.lower(), told)

    async def _receive(self) -> Stream:
        loop = asyncio.get_running_loop()
        # The readers of every kind of snapshot are loaded by the first restore, not at start.
        from penstock.stream.restore import StreamRestore

        restore = StreamRestore(self._account, self._config)
        try:
            while chunk := await self._next_chunk():
                await loop.run_in_executor(None, restore.feed, chunk)
                self._total_bytes += len(chunk)
                if self._last_reply is not None:
                    self._service.publish(self._account.sublist, self._last_reply, b"", b"")
                    self._service.flush()
            return await self._finish(restore)
        except BaseException:
            await asyncio.shield(loop.run_in_executor(None, restore.abandon))
            raise

    async def _finish(self, restore: StreamRestore) -> Stream:
        stream = await asyncio.get_running_loop().run_in_executor(None, restore.finish)
        if self._name in self._account.streams:
            raise ApiError(error_codes.STREAM_NAME_EXIST_RESTORE_FAILED)
        consumers = self._checked_consumers(restore)
        restore.keep()
        self._account.add(stream)
        registry, change = stream.consumers, None
        for consumer in consumers:
            assert isinstance(registry, StreamConsumers), "every stream of an account has one"
            _, change = registry.create(*consumer)
        if change is not None:
            # The last one: those before it are there by then.
            await change.wait()
        return stream

    def _checked_consumers(self, restore: StreamRestore) -> list[ArchivedConsumer]:
        """Return the snapshot's consumers; raise FormatError and ApiError."""
        found: list[ArchivedConsumer] = []
        for entry in restore.consumers:
            name, config, state = read_entry(entry)
            around = CreationContext(
                self._config,
                {each.name: each.config for each in found},
                self._service.limits,
                self._account.limits,
                has_interest=lambda subject: False,
                new_name=self._service.unique_id,
            )
            address = Address(Form.NAMED, self._name, name)
            request = CreateConsumerRequest(stream_name=self._name, config=config)
            is_clustered = around.server.is_clustered
            asked_for = addressed_config(request, address, is_clustered=is_clustered)
            checked = checked_creation(asked_for, around)
            found.append(ArchivedConsumer(checked.name, checked.config, state))
        return found

    async def _next_chunk(self) -> bytes:
        chunk, reply = await asyncio.wait_for(self._chunks.get(), SNAPSHOT_IDLE_S_MAX)
        self._last_reply = reply
        if reply is None:
            which = f"stream '{self._account.name} > {self._name}'"
            raise UsageError(f"restore for {which} requires reply subject for each chunk")
        if self._fault is not None:
            raise self._fault
        self._waiting_bytes -= len(chunk)
        self._memory.change(-len(chunk))
        return chunk


def _refusal_of(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    reason = error.reason if isinstance(error, FormatError) else str(error)
    return ApiError(error_codes.STREAM_RESTORE, err=reason)
