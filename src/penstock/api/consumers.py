"""Handlers about consumers: create, update, show, list, pause, reset and delete them.

Pulls are not here: each consumer subscribes to its own, so that a client gets "no responders" at
once if there is none.

Thread: the event loop's. `dispatch` calls the handlers.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec.structs import replace

from penstock import error_codes
from penstock.api.dispatch import Call
from penstock.api.documents import (
    ConsumerList,
    ConsumerNames,
    ConsumerPaused,
    ConsumerReset,
    Done,
    JSApiConsumerPauseRequest,
    JSApiConsumerResetRequest,
    JSApiConsumersRequest,
    JSApiConsumerUnpinRequest,
)
from penstock.api.streams import check_empty
from penstock.consumer.config.config import ConsumerConfig, CreateConsumerRequest
from penstock.consumer.config.create import (
    Address,
    CreationContext,
    Form,
    addressed_config,
    checked_creation,
    for_answer,
    paused_until,
)
from penstock.consumer.config.validation import check_group_name
from penstock.consumer.consumer import Consumer
from penstock.consumer.info import ConsumerInfo, describe
from penstock.consumer.registry import StreamConsumers, consumers_of
from penstock.errors import ApiError, StoreError
from penstock.limits import CONSUMER_LIST_MAX, CONSUMER_NAMES_MAX
from penstock.protocol.headers import value_of
from penstock.stream.replication.source import identity_of, short_hash
from penstock.text.json.codec import decode_plain, document_of
from penstock.text.times import Instant

IDENTITY_HEADER: Final = "Nats-Stream-Identity"
"""Distinguishes a stream from an earlier one of its name, for streams that are fed from it."""


def _consumers(call: Call) -> StreamConsumers:
    """Return the consumers of the stream that is named first; raise ApiError."""
    return consumers_of(call.account.find(call.names[0]))


def _found(call: Call) -> Consumer:
    """Return the consumer that is named second; raise ApiError."""
    consumer = _consumers(call).find(call.names[1])
    if consumer is None:
        raise ApiError(error_codes.CONSUMER_NOT_FOUND)
    return consumer


def _answered(call: Call, consumer: Consumer) -> ConsumerInfo:
    config = for_answer(consumer.config, call.service.version)
    return replace(describe(consumer, call.service.now_ns()), config=config)


# Create and update


async def create(call: Call) -> dict[str, Any]:
    """Create or update a consumer whose name is in the body, or is made up."""
    return await _create(call, Address(Form.UNNAMED, *call.names))


async def create_named(call: Call) -> dict[str, Any]:
    """Create or update a consumer whose name, and perhaps filter, is in the subject."""
    return await _create(call, Address(Form.NAMED, *call.names))


async def create_durable(call: Call) -> dict[str, Any]:
    """Create or update a durable consumer."""
    return await _create(call, Address(Form.DURABLE, *call.names))


async def _create(call: Call, address: Address) -> dict[str, Any]:
    request = call.read(CreateConsumerRequest)
    is_clustered = call.service.limits.is_clustered
    config = addressed_config(request, address, is_clustered=is_clustered)
    async with call.account.turn(address.stream):
        consumer = await _create_in_turn(call, request, config)
    if config.is_internal:
        call.answer_headers[IDENTITY_HEADER] = identity_of(consumer.stream.created)
    return document_of(_answered(call, consumer))


async def _create_in_turn(
    call: Call, request: CreateConsumerRequest, config: ConsumerConfig
) -> Consumer:
    consumers = _consumers(call)
    server = call.service.limits
    if config.is_internal:
        _check_identity(call, identity_of(consumers.stream.created))
    # Raises if the consumer is offline: it cannot be created again.
    consumers.find(config.name)
    around = CreationContext(
        consumers.stream.config,
        consumers.configs,
        server,
        call.account.limits,
        has_interest=lambda subject: _has_interest(call, subject),
        new_name=lambda: short_hash(call.service.unique_id()),
    )
    checked = checked_creation(config, around, action=request.action, pedantic=request.pedantic)
    try:
        if not checked.is_new:
            consumer = consumers.consumers[checked.name]
            await _change(consumers, consumer, checked.config)
            return consumer
        consumer = consumers.prepare(checked.name, checked.config)
        await _keep(consumer, checked.config)
    except (StoreError, OSError) as error:
        which = f"'{call.account.name} > {call.names[0]} > {checked.name}'"
        call.service.log("WRN", f"Consumer create failed for {which}: {error}")
        reason = "error creating store for consumer"
        raise ApiError(error_codes.CONSUMER_CREATE, err=reason) from error
    return consumers.take_in(consumer)


async def _keep(consumer: Consumer, config: ConsumerConfig) -> None:
    """Write a configuration while others are served; raise OSError, and ApiError after a stop."""
    if consumer.folder is not None:
        await asyncio.get_running_loop().run_in_executor(None, consumer.save_config, config)
    if consumer.stream.is_stopped:
        raise ApiError(error_codes.STREAM_NOT_FOUND)


async def _change(consumers: StreamConsumers, consumer: Consumer, config: ConsumerConfig) -> None:
    """Have a consumer go over to another configuration; raise like `_keep`."""
    await _keep(consumer, config)
    if consumer.is_closed:
        # It was unused for so long that it was removed meanwhile.
        if consumer.folder is not None:
            consumer.folder.remove()
        raise ApiError(error_codes.CONSUMER_NOT_FOUND)
    consumers.change(consumer, config)


def _check_identity(call: Call, identity: str) -> None:
    """Raise ApiError if the client means an earlier stream of this name."""
    wanted = value_of(call.headers, IDENTITY_HEADER.encode())
    if wanted and wanted != identity.encode():
        raise ApiError(error_codes.CONSUMER_STREAM_IDENTITY_MISMATCH, msg=identity)


def _has_interest(call: Call, subject: str) -> bool:
    found = call.account.sublist.matches(subject.encode())
    return bool(found.plain or found.queues)


async def delete(call: Call) -> dict[str, Any]:
    """Delete a consumer."""
    check_empty(call)
    async with call.account.turn(call.names[0]):
        _consumers(call).delete(_found(call).name)
    return document_of(Done(success=True))


async def pause(call: Call) -> dict[str, Any]:
    """Pause a consumer until a time, or resume it."""
    until = Instant(call.read_if_any(JSApiConsumerPauseRequest).pause_until.time_ns)
    async with call.account.turn(call.names[0]):
        consumer = _found(call)
        await _change(_consumers(call), consumer, paused_until(consumer.config, until))
    remaining_ns = max(until.remaining_ns(call.service.now_ns()), 0)
    return document_of(ConsumerPaused(remaining_ns > 0, until, remaining_ns))


def unpin(call: Call) -> dict[str, Any]:
    """Release the pinned client of a group, so that another one is served."""
    group = decode_plain(JSApiConsumerUnpinRequest, call.body).group
    if not group:
        raise ApiError(error_codes.INVALID_JSON, err="consumer group not specified")
    check_group_name(group)
    consumer = _found(call)
    if group not in consumer.config.priority_groups:
        raise ApiError(error_codes.CONSUMER_INVALID_PRIORITY_GROUP)
    consumer.unpin()
    return {}


def reset(call: Call) -> dict[str, Any] | None:
    """Restart a consumer at another sequence; without a consumer there is no answer."""
    stream_name, name = call.names
    stream = call.account.streams.get(stream_name)
    consumer = None if stream is None else consumers_of(stream).consumers.get(name)
    if consumer is None or call.reply is None:
        return None
    try:
        seq = _reset_to(call, consumer)
    except ApiError as error:
        # An answer of the consumer itself: it is not counted as an API error.
        return {"error": error.document()} | document_of(ConsumerReset())
    if value_of(call.headers, IDENTITY_HEADER.encode()) is not None:
        call.answer_headers[IDENTITY_HEADER] = identity_of(consumer.stream.created)
    return document_of(_answered(call, consumer)) | document_of(ConsumerReset(seq))


def _reset_to(call: Call, consumer: Consumer) -> int:
    request = JSApiConsumerResetRequest()
    if call.body:
        request = decode_plain(JSApiConsumerResetRequest, call.body)
    return consumer.reset(request.seq)


# Show


def info(call: Call) -> dict[str, Any]:
    """Show a consumer."""
    check_empty(call)
    return document_of(_answered(call, _found(call)))


def _listed(call: Call) -> tuple[StreamConsumers, list[str], int]:
    """Return a stream's consumers, the names that are shown, and the offset of the first."""
    offset = max(call.read_if_any(JSApiConsumersRequest).offset, 0)
    consumers = _consumers(call)
    shown = [name for name, config in consumers.configs.items() if not config.direct]
    names = sorted([*shown, *consumers.offline])
    return consumers, names, min(offset, len(names))


def names(call: Call) -> dict[str, Any]:
    """List the names of a stream's consumers."""
    _, found, offset = _listed(call)
    shown = tuple(found[offset : offset + CONSUMER_NAMES_MAX])
    return document_of(ConsumerNames(len(found), offset, CONSUMER_NAMES_MAX, shown))


def list_all(call: Call) -> dict[str, Any]:
    """Show a stream's consumers."""
    consumers, found, offset = _listed(call)
    now_ns = call.service.now_ns()
    shown: list[ConsumerInfo] = []
    offline: dict[str, str] = {}
    for name in found[offset:]:
        if name in consumers.offline:
            offline[name] = consumers.offline[name]
            continue
        shown.append(describe(consumers.consumers[name], now_ns))
        if len(shown) >= CONSUMER_LIST_MAX:
            break
    listed = ConsumerList(
        len(found), offset, CONSUMER_LIST_MAX, tuple(shown), tuple(offline), offline
    )
    return document_of(listed)
