"""Handlers about consumers: making, changing, showing, listing, pausing and removing them.

Requests for messages are not here: each consumer listens for its own, so that clients learn at once
where there is none.

Called by the dispatch, on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from penstock import error_codes
from penstock.api.dispatch import Call
from penstock.api.requests import (
    JSApiConsumerPauseRequest,
    JSApiConsumerResetRequest,
    JSApiConsumersRequest,
    JSApiConsumerUnpinRequest,
)
from penstock.api.responses import (
    ConsumerList,
    ConsumerNames,
    ConsumerPaused,
    ConsumerReset,
    Done,
)
from penstock.api.streams import check_empty
from penstock.consumer.config import ConsumerConfig, CreateConsumerRequest
from penstock.consumer.creation import (
    Address,
    Form,
    Surroundings,
    addressed_config,
    checked_creation,
)
from penstock.consumer.info import ConsumerInfo
from penstock.consumer.updates import paused_until
from penstock.consumer.validation import check_group_name
from penstock.consumer.versioning import for_answer
from penstock.documents.decoding import decode_plain
from penstock.documents.encoding import document_of
from penstock.documents.times import Instant
from penstock.errors import ApiError
from penstock.limits import CONSUMER_LIST_MAX, CONSUMER_NAMES_MAX
from penstock.stream.source_marks import short_hash
from penstock.stream.stream import Stream


class Consumer(Protocol):
    """What handlers ask of a consumer."""

    name: str
    config: ConsumerConfig

    def info(self, now_ns: int) -> ConsumerInfo:
        """Tell everything, with the configuration as it is kept."""
        ...

    def reset(self, seq: int) -> int:
        """Start again at a stream sequence, 0: behind what is acknowledged; give the sequence.

        Raises ApiError.
        """
        ...

    def unpin(self, group: str) -> None:
        """Let another client of a group be served."""
        ...


class StreamConsumers(Protocol):
    """What handlers ask of the consumers of a stream; their advisories are its business."""

    @property
    def configs(self) -> Mapping[str, ConsumerConfig]:
        """The configurations of all by name, those of internal ones among them."""
        ...

    def find(self, name: str) -> Consumer | None:
        """Give a consumer."""
        ...

    def create(self, name: str, config: ConsumerConfig) -> Consumer:
        """Make a consumer; it is on stable storage, and its advisory sent, when this returns."""
        ...

    def update(self, name: str, config: ConsumerConfig) -> Consumer:
        """Go on with another configuration; a pause that begins or ends is advised."""
        ...

    def delete(self, name: str) -> None:
        """Remove a consumer and its state."""
        ...


def _consumers(stream: Stream) -> StreamConsumers:
    return stream.consumers


def _found(call: Call, stream_name: str, name: str) -> Consumer:
    consumer = _consumers(call.account.find(stream_name)).find(name)
    if consumer is None:
        raise ApiError(error_codes.CONSUMER_NOT_FOUND)
    return consumer


def _answered(call: Call, consumer: Consumer) -> ConsumerInfo:
    info = consumer.info(call.service.now_ns())
    return replace(info, config=for_answer(consumer.config, call.service.version))


def _has_interest(call: Call, subject: str) -> bool:
    found = call.account.sublist.matches(subject.encode())
    return bool(found.plain or found.queues)


def create(call: Call) -> dict[str, Any]:
    """Make a consumer whose name is in the body or made up, or change one."""
    return _create(call, Address(Form.UNNAMED, call.names[0]))


def create_named(call: Call) -> dict[str, Any]:
    """Make or change a consumer whose name, and perhaps its filter, is in the subject."""
    return _create(call, Address(Form.NAMED, *call.names))


def create_durable(call: Call) -> dict[str, Any]:
    """Make or change a durable consumer."""
    return _create(call, Address(Form.DURABLE, *call.names))


def _create(call: Call, address: Address) -> dict[str, Any]:
    request = call.read(CreateConsumerRequest)
    server = call.service.limits
    config = addressed_config(request, address, is_clustered=server.is_clustered)
    stream = call.account.find(address.stream)
    consumers = _consumers(stream)
    around = Surroundings(
        stream.config,
        consumers.configs,
        server,
        call.account.limits,
        has_interest=lambda subject: _has_interest(call, subject),
        new_name=lambda: short_hash(call.service.unique_id()),
    )
    checked = checked_creation(config, around, action=request.action, pedantic=request.pedantic)
    change = consumers.create if checked.is_new else consumers.update
    return document_of(_answered(call, change(checked.name, checked.config)))


def info(call: Call) -> dict[str, Any]:
    """Show a consumer."""
    check_empty(call)
    return document_of(_answered(call, _found(call, *call.names)))


def _listed(call: Call) -> tuple[StreamConsumers, list[str], int]:
    """Give a stream's consumers, the names of those that are shown, and the first to show."""
    offset = max(call.read_if_any(JSApiConsumersRequest).offset, 0)
    consumers = _consumers(call.account.find(call.names[0]))
    names = sorted(name for name, config in consumers.configs.items() if not config.direct)
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
    page = found[offset : offset + CONSUMER_LIST_MAX]
    shown = tuple(each.info(now_ns) for each in map(consumers.find, page) if each is not None)
    return document_of(ConsumerList(len(found), offset, CONSUMER_LIST_MAX, shown))


def delete(call: Call) -> dict[str, Any]:
    """Remove a consumer."""
    check_empty(call)
    stream_name, name = call.names
    consumer = _found(call, stream_name, name)
    _consumers(call.account.find(stream_name)).delete(consumer.name)
    return document_of(Done(success=True))


def pause(call: Call) -> dict[str, Any]:
    """Have a consumer deliver nothing until a time, or go on."""
    until = Instant(call.read_if_any(JSApiConsumerPauseRequest).pause_until.time_ns)
    stream_name, name = call.names
    consumer = _found(call, stream_name, name)
    config = paused_until(consumer.config, until)
    _consumers(call.account.find(stream_name)).update(name, config)
    remaining_ns = max(until.time_ns - call.service.now_ns(), 0)
    return document_of(ConsumerPaused(remaining_ns > 0, until, remaining_ns))


def unpin(call: Call) -> dict[str, Any]:
    """Let another client of a group be served."""
    group = decode_plain(JSApiConsumerUnpinRequest, call.body).group
    if not group:
        raise ApiError(error_codes.INVALID_JSON, err="consumer group not specified")
    check_group_name(group)
    consumer = _found(call, *call.names)
    if group not in consumer.config.priority_groups:
        raise ApiError(error_codes.CONSUMER_INVALID_PRIORITY_GROUP)
    consumer.unpin(group)
    return {}


def reset(call: Call) -> dict[str, Any] | None:
    """Start a consumer again somewhere else; where there is none, nobody answers."""
    stream = call.account.streams.get(call.names[0])
    consumer = None if stream is None else _consumers(stream).find(call.names[1])
    if consumer is None or call.reply is None:
        return None
    request = JSApiConsumerResetRequest()
    if call.body:
        request = decode_plain(JSApiConsumerResetRequest, call.body)
    reset_seq = consumer.reset(request.seq)
    return document_of(_answered(call, consumer)) | document_of(ConsumerReset(reset_seq))
