"""JetStream as monitoring shows it: facts of the live streams, made when a page asks.

It is here and not in `penstock.monitor` because the state of a stream is shown as the API answers
it, and `monitor` and `api` do not import each other.

Changes nothing. Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.api.consumer_json import consumer_json
from penstock.api.consumers import CONFIGS
from penstock.api.stream_json import state_json
from penstock.config.options.jetstream import JetStreamLimitsOptions
from penstock.consumer.registry import consumers_of
from penstock.monitor.facts import (
    HistogramFacts,
    JetStreamAccountFacts,
    JetStreamFacts,
    StreamFacts,
)
from penstock.server.jetstream.service import JetStreamService
from penstock.store.interface import Histogram
from penstock.stream.account import AccountStreams
from penstock.stream.config.config import API_LEVEL, StorageType
from penstock.stream.quota import TierLimits
from penstock.stream.stream import Stream
from penstock.text.json.codec import document_of
from penstock.text.json.write import Encoded
from penstock.text.times import timestamp

SYNC_INTERVAL_NS = 120 * 1_000_000_000
"""What the reference server tells where nothing was said; ours syncs at once all the same."""


def jetstream_facts(service: JetStreamService, tag_of: Callable[[str], str]) -> JetStreamFacts:
    """Return the facts of all streams; `tag_of` returns what people call an account."""
    options, resources, limits = service.options, service.resources, service.limits
    return JetStreamFacts(
        memory_bytes_max=resources.memory_bytes_max,
        storage_bytes_max=resources.storage_bytes_max,
        store_dir=resources.path,
        sync_interval_ns=options.sync_interval_ns or SYNC_INTERVAL_NS,
        sync_always=service.policy.sync_interval_ns == 0,
        domain=options.domain,
        unique_tag=options.unique_tag,
        strict=options.strict,
        limits=_limits(options.limits),
        api_level=API_LEVEL,
        memory_bytes_reserved=limits.memory_bytes_reserved,
        storage_bytes_reserved=limits.storage_bytes_reserved,
        leader=service.server_name,
        accounts=[_account(service, account, tag_of) for account in service.accounts.values()],
        commit_messages=_histogram(service.commits.messages()),
        commit_seconds=_histogram(service.commits.seconds()),
        flows=service.pipelines.current(service.clock.monotonic_ns()),
        reports_ignored=service.pipelines.ignored,
    )


def _limits(options: JetStreamLimitsOptions) -> dict[str, Any]:
    batch = options.batch
    fields = {
        "max_request_batch": options.max_request_batch,
        "max_ack_pending": options.max_ack_pending,
        "max_ha_assets": options.max_ha_assets,
        "max_duplicate_window": options.duplicate_window_ns,
        "max_batch_inflight_per_stream": batch.max_inflight_per_stream,
        "max_batch_inflight_total": batch.max_inflight_total,
        "max_batch_size": batch.max_msgs,
        "max_batch_timeout": batch.timeout_ns,
        "default_max_consumers": options.default_max_consumers,
    }
    return {name: value for name, value in fields.items() if value}


def _histogram(counted: Histogram) -> HistogramFacts:
    return HistogramFacts(counted.bounds, counted.counts, counted.total)


def _account(
    service: JetStreamService, account: AccountStreams, tag_of: Callable[[str], str]
) -> JetStreamAccountFacts:
    bounds = account.limits.tiers.get("", TierLimits())
    return JetStreamAccountFacts(
        name=account.name,
        memory_bytes=account.bytes_used(StorageType.MEMORY),
        storage_bytes=account.bytes_used(StorageType.FILE),
        memory_bytes_max=bounds.max_memory,
        storage_bytes_max=bounds.max_storage,
        api_total=account.api_total,
        api_errors=account.api_errors,
        streams=[_stream(service, account, stream) for stream in account.streams.values()],
        offline=dict(account.offline),
        tag=tag_of(account.name),
    )


def _stream(service: JetStreamService, account: AccountStreams, stream: Stream) -> StreamFacts:
    store = stream.store
    state = store.state()
    lost = state.lost
    return StreamFacts(
        name=stream.name,
        created=timestamp(stream.created.time_ns),
        messages=state.messages,
        bytes=state.bytes,
        consumer_count=stream.consumer_count,
        volatile_messages=max(state.last_seq - store.durable_seq, 0),
        damage_count=len(lost),
        lost_messages=sum(each.last_seq - each.first_seq + 1 for each in lost if each.first_seq),
        failure=store.failure or "",
        state=lambda: _read(state_json(stream)),
        config=lambda: document_of(stream.config),
        mirror=lambda: _document(account.replication.mirror_info(stream)),
        sources=lambda: [document_of(each) for each in account.replication.sources_info(stream)],
        consumers=lambda: [
            _read(consumer_json(each, service.now_ns(), CONFIGS.listed(each.config)))
            for each in consumers_of(stream).consumers.values()
        ],
        offline_consumers=dict(consumers_of(stream).offline),
    )


def _read(told: Encoded) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(told.text)
    return document


def _document(value: Any) -> dict[str, Any] | None:
    return None if value is None else document_of(value)
