"""What monitoring is told about JetStream, as plain data.

Documents (states, configurations, consumers) are as the API answers them. What costs something to
find out is a function, called only where a page shows it.

One thread: the event loop's; facts are made when asked for and are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.monitor.pipelines import FlowFacts

Document = dict[str, Any]


class HistogramFacts(msgspec.Struct, frozen=True):
    """How often which values came; `counts` has one more than `bounds`, for what is above all."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    total: float = 0.0


class StreamFacts(msgspec.Struct, frozen=True):
    """One stream that is served. `failure` is why it takes no more messages, "" where it does."""

    name: str
    created: str
    messages: int
    bytes: int
    consumer_count: int
    volatile_messages: int
    """Stored, and not durable yet."""
    damage_count: int
    lost_messages: int
    failure: str
    state: Callable[[], Document]
    config: Callable[[], Document]
    mirror: Callable[[], Document | None]
    sources: Callable[[], list[Document]]
    consumers: Callable[[], Sequence[Document]]


class JetStreamAccountFacts(msgspec.Struct, frozen=True):
    """One account that has JetStream; `offline` are streams that cannot be served, with reasons."""

    name: str
    memory_bytes: int
    storage_bytes: int
    memory_bytes_max: int
    """-1: no bound of its own."""
    storage_bytes_max: int
    api_total: int
    api_errors: int
    streams: Sequence[StreamFacts]
    offline: Mapping[str, str]
    tag: str = ""
    """What people call it, where its name is a key."""


class JetStreamFacts(msgspec.Struct, frozen=True):
    """JetStream of one server."""

    memory_bytes_max: int
    storage_bytes_max: int
    store_dir: str
    sync_interval_ns: int
    sync_always: bool
    domain: str
    unique_tag: str
    strict: bool
    limits: Document
    api_level: int
    memory_bytes_reserved: int
    storage_bytes_reserved: int
    leader: str
    accounts: Sequence[JetStreamAccountFacts]
    commit_messages: HistogramFacts
    commit_seconds: HistogramFacts
    flows: Sequence[FlowFacts]
    """Those of pipelines that tell of themselves."""
    reports_ignored: int
