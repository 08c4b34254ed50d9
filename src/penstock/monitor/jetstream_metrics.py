"""Every metric of JetStream, in Prometheus' text format. Pure.

Streams have no labels: clients name them, and the number of series must not be theirs to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from penstock.monitor.jetstream_facts import (
    HistogramFacts,
    JetStreamAccountFacts,
    JetStreamFacts,
    StreamFacts,
)


class AccountMetric(NamedTuple):
    """A metric with a series for each account."""

    name: str
    kind: str
    help: str
    value: Callable[[JetStreamAccountFacts], int]


def _sum(of: Callable[[StreamFacts], int]) -> Callable[[JetStreamAccountFacts], int]:
    return lambda account: sum(of(stream) for stream in account.streams)


ACCOUNT_METRICS = (
    AccountMetric(
        "penstock_streams", "gauge", "Streams that are served.", lambda a: len(a.streams)
    ),
    AccountMetric(
        "penstock_streams_offline",
        "gauge",
        "Streams on the disk that cannot be served.",
        lambda a: len(a.offline),
    ),
    AccountMetric(
        "penstock_streams_read_only",
        "gauge",
        "Streams that take no more messages because a write or a sync failed.",
        _sum(lambda stream: bool(stream.failure)),
    ),
    AccountMetric(
        "penstock_consumers",
        "gauge",
        "Consumers of all streams.",
        _sum(lambda stream: stream.consumer_count),
    ),
    AccountMetric(
        "penstock_stored_messages",
        "gauge",
        "Messages in streams.",
        _sum(lambda stream: stream.messages),
    ),
    AccountMetric(
        "penstock_stored_bytes",
        "gauge",
        "Bytes of the messages in streams, as the API counts them.",
        _sum(lambda stream: stream.bytes),
    ),
    AccountMetric(
        "penstock_durable_lag_messages",
        "gauge",
        "Messages stored that are not durable yet, and not acknowledged.",
        _sum(lambda stream: stream.volatile_messages),
    ),
    AccountMetric(
        "penstock_damaged_ranges",
        "gauge",
        "Damaged ranges known in the files of streams.",
        _sum(lambda stream: stream.damage_count),
    ),
    AccountMetric(
        "penstock_lost_messages",
        "gauge",
        "Messages of streams that damage took.",
        _sum(lambda stream: stream.lost_messages),
    ),
    AccountMetric(
        "penstock_api_requests_total",
        "counter",
        "Requests that JetStream's API answered.",
        lambda a: a.api_total,
    ),
    AccountMetric(
        "penstock_api_errors_total",
        "counter",
        "Requests that JetStream's API answered with an error.",
        lambda a: a.api_errors,
    ),
)


def jetstream_lines(facts: JetStreamFacts, label: Callable[[str], str]) -> Iterator[str]:
    """Give the lines of all metrics; `label` makes a text fit for a label."""
    for metric in ACCOUNT_METRICS:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for account in facts.accounts:
            yield f'{metric.name}{{account="{label(account.name)}"}} {metric.value(account)}'
    yield from _histogram(
        "penstock_commit_messages", "Messages of a commit to the disk.", facts.commit_messages
    )
    yield from _histogram(
        "penstock_commit_seconds",
        "Time that a commit took, with its sync.",
        facts.commit_seconds,
    )


def _histogram(name: str, help_text: str, facts: HistogramFacts) -> Iterable[str]:
    below = list(accumulate(facts.counts))
    bounds = [f"{bound:g}" for bound in facts.bounds] + ["+Inf"]
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} histogram"
    for bound, count in zip(bounds, below, strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {count}'
    yield f"{name}_sum {facts.total}"
    yield f"{name}_count {below[-1]}"
