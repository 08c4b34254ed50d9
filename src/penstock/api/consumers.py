"""Handlers about consumers: create, update, show, list, pause, reset and delete them.

Pulls are not here: each consumer subscribes to its own, so that a client gets "no responders" at
once if there is none.

Thread: the event loop's. `dispatch` calls the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from penstock import error_codes
from penstock.api.consumer_json import consumer_json, consumers_json
from penstock.api.dispatch import Call, Documents, Slices
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
    Refused,
)
from penstock.api.shown_configs import ShownConfigs
from penstock.api.streams import check_empty, listed
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
from penstock.consumer.registry import StreamConsumers, consumers_of
from penstock.errors import ApiError, StoreError
from penstock.limits import CONSUMER_LIST_MAX, CONSUMER_NAMES_MAX
from penstock.protocol.headers import value_of
from penstock.stream.quota import ServerLimits
from penstock.stream.replication.source import identity_of, short_hash
from penstock.text.json.codec import decode_plain
from penstock.text.json.write import Encoded
from penstock.text.times import Instant

CONFIGS: Final[ShownConfigs[ConsumerConfig]] = ShownConfigs(for_answer)

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


def _asking(call: Call) -> object:
    """Return the client whose request is being handled."""
    return call.client


def _is_hidden(call: Call, consumers: StreamConsumers, name: str) -> bool:
    """Return True for a consumer of others that is not on stable storage yet.

    Its maker, who has sent this request behind the one for it, is answered when it is.
    """
    unkept = consumers.unkept.get(name)
    if unkept is None:
        return False
    if unkept.maker is None or unkept.maker is not _asking(call):
        return True
    call.answer_after(unkept.change)
    return False


def _answered(call: Call, consumer: Consumer) -> Encoded:
    config = CONFIGS.answered(consumer.config, call.service.version)
    return consumer_json(consumer, call.service.now_ns(), config)


# Create and update


T = TypeVar("T")


def _in_turn(call: Call, change: Callable[[], T]) -> T | Coroutine[Any, Any, T]:
    """Change something of a stream now, or when the request that is changing it is done."""
    if call.account.is_changing(call.names[0]):
        return _after_others(call, change)
    return change()


async def _after_others(call: Call, change: Callable[[], T]) -> T:
    async with call.account.turn(call.names[0]):
        return change()


def create(call: Call) -> Documents | Coroutine[Any, Any, Documents]:
    """Create or update a consumer whose name is in the body, or is made up."""
    return _create(call, Address(Form.UNNAMED, *call.names))


def create_named(call: Call) -> Documents | Coroutine[Any, Any, Documents]:
    """Create or update a consumer whose name, and perhaps filter, is in the subject."""
    return _create(call, Address(Form.NAMED, *call.names))


def create_durable(call: Call) -> Documents | Coroutine[Any, Any, Documents]:
    """Create or update a durable consumer."""
    return _create(call, Address(Form.DURABLE, *call.names))


def _create(call: Call, address: Address) -> Documents | Coroutine[Any, Any, Documents]:
    maker = _asking(call)
    return _in_turn(call, lambda: _create_now(call, address, maker))


def _create_now(call: Call, address: Address, maker: object) -> Documents:
    request = call.read(CreateConsumerRequest)
    server = call.service.limits
    config = addressed_config(request, address, is_clustered=server.is_clustered)
    consumer = _created(call, request, config, server, maker)
    if config.is_internal:
        call.answer_headers[IDENTITY_HEADER] = identity_of(consumer.stream.created)
    return _answered(call, consumer)


def _created(
    call: Call,
    request: CreateConsumerRequest,
    config: ConsumerConfig,
    server: ServerLimits,
    maker: object,
) -> Consumer:
    consumers = _consumers(call)
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
    failed = ApiError(error_codes.CONSUMER_CREATE, err="error creating store for consumer")
    try:
        if checked.is_new:
            consumer, change = consumers.create(checked.name, checked.config, maker=maker)
        else:
            consumer = consumers.consumers[checked.name]
            change = consumers.change(consumer, checked.config)
    except StoreError as error:
        which = f"'{call.account.name} > {call.names[0]} > {checked.name}'"
        call.service.log("WRN", f"Consumer create failed for {which}: {error}")
        raise failed from error
    call.answer_after(change, failed)
    return consumer


def _check_identity(call: Call, identity: str) -> None:
    """Raise ApiError if the client means an earlier stream of this name."""
    wanted = value_of(call.headers, IDENTITY_HEADER.encode())
    if wanted and wanted != identity.encode():
        raise ApiError(error_codes.CONSUMER_STREAM_IDENTITY_MISMATCH, msg=identity)


def _has_interest(call: Call, subject: str) -> bool:
    found = call.account.sublist.matches(subject.encode())
    return bool(found.plain or found.queues)


def delete(call: Call) -> Documents | Coroutine[Any, Any, Documents]:
    """Delete a consumer, also one that cannot be served."""
    return _in_turn(call, lambda: _delete(call))


def _delete(call: Call) -> Documents:
    check_empty(call)
    consumers = _consumers(call)
    if call.names[1] in consumers.offline:
        call.answer_after(consumers.delete_offline(call.names[1]))
    else:
        call.answer_after(consumers.delete(_found(call).name))
    return Done(success=True)


def pause(call: Call) -> Documents | Coroutine[Any, Any, Documents]:
    """Pause a consumer until a time, or resume it."""
    return _in_turn(call, lambda: _pause(call))


def _pause(call: Call) -> Documents:
    until = Instant(call.read_if_any(JSApiConsumerPauseRequest).pause_until.time_ns)
    consumer = _found(call)
    call.answer_after(_consumers(call).change(consumer, paused_until(consumer.config, until)))
    remaining_ns = max(until.remaining_ns(call.service.now_ns()), 0)
    return ConsumerPaused(remaining_ns > 0, until, remaining_ns)


def unpin(call: Call) -> Documents:
    """Release the pinned client of a group, so that another one is served."""
    group = decode_plain(JSApiConsumerUnpinRequest, call.body).group
    if not group:
        raise ApiError(error_codes.INVALID_JSON, err="consumer group not specified")
    check_group_name(group)
    consumer = _found(call)
    if group not in consumer.config.priority_groups:
        raise ApiError(error_codes.CONSUMER_INVALID_PRIORITY_GROUP)
    consumer.unpin()
    return ()


def reset(call: Call) -> Documents:
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
        return Refused.of(error), ConsumerReset()
    call.answer_after(consumers_of(consumer.stream).state_writer.save(consumer))
    if value_of(call.headers, IDENTITY_HEADER.encode()) is not None:
        call.answer_headers[IDENTITY_HEADER] = identity_of(consumer.stream.created)
    return _answered(call, consumer), ConsumerReset(seq)


def _reset_to(call: Call, consumer: Consumer) -> int:
    request = JSApiConsumerResetRequest()
    if call.body:
        request = decode_plain(JSApiConsumerResetRequest, call.body)
    return consumer.reset(request.seq)


# Show


def info(call: Call) -> Documents:
    """Show a consumer."""
    check_empty(call)
    if _is_hidden(call, _consumers(call), call.names[1]):
        raise ApiError(error_codes.CONSUMER_NOT_FOUND)
    return _answered(call, _found(call))


def _listed(call: Call) -> tuple[StreamConsumers, list[str], int]:
    """Return a stream's consumers, the names that are shown, and the offset of the first."""
    offset = max(call.read_if_any(JSApiConsumersRequest).offset, 0)
    consumers = _consumers(call)
    shown = list(consumers.consumers)
    if consumers.count < consumers.total:
        shown = [name for name in shown if not consumers.consumers[name].config.direct]
    if consumers.unkept:
        shown = [name for name in shown if not _is_hidden(call, consumers, name)]
    names = sorted([*shown, *consumers.offline])
    return consumers, names, min(offset, len(names))


def names(call: Call) -> Documents:
    """List the names of a stream's consumers."""
    _, found, offset = _listed(call)
    shown = tuple(found[offset : offset + CONSUMER_NAMES_MAX])
    return ConsumerNames(len(found), offset, CONSUMER_NAMES_MAX, shown)


def list_all(call: Call) -> Slices:
    """Show a stream's consumers."""
    consumers, found, offset = _listed(call)

    def written(some: list[Consumer]) -> bytes:
        return consumers_json(some, call.service.now_ns(), CONFIGS)

    shown, offline = yield from listed(
        found[offset:], consumers.consumers, consumers.offline, CONSUMER_LIST_MAX, written
    )
    return ConsumerList(len(found), offset, CONSUMER_LIST_MAX, shown, tuple(offline), offline)
