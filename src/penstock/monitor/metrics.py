"""Every metric of /metrics, in Prometheus' text format 0.0.4.

A name says its unit; a counter's ends in `_total`. Labels hold names of accounts, and of pipelines
and their flows, which are bounded in number. Invariant: no label holds anything else that a client
can choose, so a client cannot make series; streams have none for this reason.

The text is written here and not by prometheus-client: `penstock.monitor` says why.

Pure, called by `monitor.pages` in the event loop's thread for each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from penstock.monitor.facts import (
    AccountFacts,
    Counters,
    FlowFacts,
    HistogramFacts,
    JetStreamAccountFacts,
    JetStreamFacts,
    Source,
    StreamFacts,
)
from penstock.protocol.pipeline_reports import FlowState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Facts = TypeVar("Facts")


class Metric(NamedTuple, Generic[Facts]):
    """A metric, and how its value is read from what it describes."""

    name: str
    kind: str
    help: str
    value: Callable[[Facts], float]


SERVER_METRICS: tuple[Metric[Counters], ...] = (
    Metric("penstock_connections", "gauge", "Open client connections.", lambda c: c.connections),
    Metric(
        "penstock_connections_accepted_total",
        "counter",
        "Client connections accepted since the start.",
        lambda c: c.total_connections,
    ),
    Metric("penstock_subscriptions", "gauge", "Subscriptions held.", lambda c: c.subscriptions),
    Metric(
        "penstock_received_messages_total",
        "counter",
        "Messages that clients published.",
        lambda c: c.received.msgs,
    ),
    Metric(
        "penstock_received_bytes_total",
        "counter",
        "Bytes of the messages that clients published.",
        lambda c: c.received.bytes,
    ),
    Metric(
        "penstock_sent_messages_total",
        "counter",
        "Messages delivered to clients.",
        lambda c: c.sent.msgs,
    ),
    Metric(
        "penstock_sent_bytes_total",
        "counter",
        "Bytes of the messages delivered to clients.",
        lambda c: c.sent.bytes,
    ),
    Metric(
        "penstock_slow_receivers_total",
        "counter",
        "Clients cut off because they fell too far behind.",
        lambda c: c.slow_receivers,
    ),
    Metric(
        "penstock_stale_connections_total",
        "counter",
        "Clients cut off because they did not answer pings.",
        lambda c: c.stale_connections,
    ),
    Metric(
        "penstock_active_accounts",
        "gauge",
        "Accounts that have clients.",
        lambda c: c.active_accounts,
    ),
    Metric(
        "penstock_resident_memory_bytes",
        "gauge",
        "Resident memory of the process.",
        lambda c: c.memory_bytes,
    ),
    Metric(
        "penstock_cpu_seconds_total",
        "counter",
        "Processor time that the process has used.",
        lambda c: c.cpu_seconds,
    ),
    Metric(
        "penstock_loop_turns_total",
        "counter",
        "Turns of the event loop.",
        lambda c: c.turns.turns,
    ),
    Metric(
        "penstock_loop_long_turns_total",
        "counter",
        "Turns of the event loop that were longer than a turn may be.",
        lambda c: c.turns.long_turns,
    ),
    Metric(
        "penstock_loop_longest_turn_seconds",
        "gauge",
        "The longest turn of the event loop since the start.",
        lambda c: c.turns.longest_ns / 1e9,
    ),
)
"""Metrics with one value for the server."""

ACCOUNT_METRICS: tuple[Metric[AccountFacts], ...] = (
    Metric(
        "penstock_account_connections",
        "gauge",
        "Open client connections of an account.",
        lambda a: a.client_count,
    ),
    Metric(
        "penstock_account_subscriptions",
        "gauge",
        "Subscriptions held in an account.",
        lambda a: a.subscription_count,
    ),
    Metric(
        "penstock_account_received_messages_total",
        "counter",
        "Messages that an account's clients published.",
        lambda a: a.received.msgs,
    ),
    Metric(
        "penstock_account_received_bytes_total",
        "counter",
        "Bytes of the messages that an account's clients published.",
        lambda a: a.received.bytes,
    ),
    Metric(
        "penstock_account_sent_messages_total",
        "counter",
        "Messages delivered to an account's clients.",
        lambda a: a.sent.msgs,
    ),
    Metric(
        "penstock_account_sent_bytes_total",
        "counter",
        "Bytes of the messages delivered to an account's clients.",
        lambda a: a.sent.bytes,
    ),
    Metric(
        "penstock_account_slow_receivers_total",
        "counter",
        "Clients of an account that were cut off because they fell too far behind.",
        lambda a: a.slow_receivers,
    ),
)
"""Metrics with a series for each account."""


def _sum(of: Callable[[StreamFacts], int]) -> Callable[[JetStreamAccountFacts], int]:
    return lambda account: sum(of(stream) for stream in account.streams)


JETSTREAM_METRICS: tuple[Metric[JetStreamAccountFacts], ...] = (
    Metric("penstock_streams", "gauge", "Streams that are served.", lambda a: len(a.streams)),
    Metric(
        "penstock_streams_offline",
        "gauge",
        "Streams on the disk that cannot be served.",
        lambda a: len(a.offline),
    ),
    Metric(
        "penstock_streams_read_only",
        "gauge",
        "Streams that take no more messages because a write or a sync failed.",
        _sum(lambda stream: bool(stream.failure)),
    ),
    Metric(
        "penstock_consumers",
        "gauge",
        "Consumers of all streams.",
        _sum(lambda stream: stream.consumer_count),
    ),
    Metric(
        "penstock_stored_messages",
        "gauge",
        "Messages in streams.",
        _sum(lambda stream: stream.messages),
    ),
    Metric(
        "penstock_stored_bytes",
        "gauge",
        "Bytes of the messages in streams, as the API counts them.",
        _sum(lambda stream: stream.bytes),
    ),
    Metric(
        "penstock_durable_lag_messages",
        "gauge",
        "Messages stored that are not durable yet, and not acknowledged.",
        _sum(lambda stream: stream.volatile_messages),
    ),
    Metric(
        "penstock_damaged_ranges",
        "gauge",
        "Damaged ranges known in the files of streams.",
        _sum(lambda stream: stream.damage_count),
    ),
    Metric(
        "penstock_lost_messages",
        "gauge",
        "Messages of streams that damage took.",
        _sum(lambda stream: stream.lost_messages),
    ),
    Metric(
        "penstock_api_requests_total",
        "counter",
        "Requests that JetStream's API answered.",
        lambda a: a.api_total,
    ),
    Metric(
        "penstock_api_errors_total",
        "counter",
        "Requests that JetStream's API answered with an error.",
        lambda a: a.api_errors,
    ),
)
"""Metrics with a series for each account that has JetStream."""

FLOW_METRICS: tuple[Metric[FlowFacts], ...] = (
    Metric(
        "penstock_pipeline_rows_total",
        "counter",
        "Messages that a flow has read since its pipeline was started.",
        lambda f: f.report.rows,
    ),
    Metric(
        "penstock_pipeline_rows_per_second",
        "gauge",
        "Messages a second of a flow's last batch.",
        lambda f: f.report.rows_per_second,
    ),
    Metric(
        "penstock_pipeline_lag_messages",
        "gauge",
        "Messages of its streams that a flow has not read yet.",
        lambda f: f.report.lag_messages,
    ),
    Metric(
        "penstock_pipeline_dead_letters_total",
        "counter",
        "Messages that did not fit a flow's schema since its pipeline was started.",
        lambda f: f.report.dead_letters,
    ),
    Metric(
        "penstock_pipeline_last_batch",
        "gauge",
        "The last batch that a flow has done, -1 before the first.",
        lambda f: f.report.batch,
    ),
    Metric(
        "penstock_pipeline_failed",
        "gauge",
        "Whether a flow has failed.",
        lambda f: int(f.report.state is FlowState.FAILED),
    ),
    Metric(
        "penstock_pipeline_report_age_seconds",
        "gauge",
        "Time since a flow told of itself.",
        lambda f: f.age_ns / 1e9,
    ),
)
"""Metrics with a series for each flow of a pipeline."""


def exposition(source: Source) -> str:
    """Return all metrics as text."""
    server, counters, accounts = source.server(), source.counters(), source.accounts()
    lines = [
        *_heading("penstock_info", "gauge", "Who the server is."),
        f'penstock_info{{server_id="{_label(server.id)}",name="{_label(server.name)}",'
        f'version="{_label(server.version)}"}} 1',
        *_heading("penstock_uptime_seconds", "gauge", "Time since the server started."),
        f"penstock_uptime_seconds {max(source.now_ns() - server.start_ns, 0) / 1e9}",
    ]
    for metric in SERVER_METRICS:
        lines += _heading(metric.name, metric.kind, metric.help)
        lines.append(f"{metric.name} {metric.value(counters)}")
    for each in ACCOUNT_METRICS:
        lines += _series(each, ((_account(account.name), account) for account in accounts))
    jetstream = source.jetstream()
    if jetstream is not None:
        lines += _jetstream_lines(jetstream)
        lines += _pipeline_lines(jetstream)
    return "\n".join(lines) + "\n"


def _jetstream_lines(facts: JetStreamFacts) -> Iterator[str]:
    for metric in JETSTREAM_METRICS:
        yield from _series(
            metric, ((_account(account.name), account) for account in facts.accounts)
        )
    yield from _histogram(
        "penstock_commit_messages", "Messages of a commit to the disk.", facts.commit_messages
    )
    yield from _histogram(
        "penstock_commit_seconds",
        "Time that a commit took, with its sync.",
        facts.commit_seconds,
    )


def _pipeline_lines(facts: JetStreamFacts) -> Iterator[str]:
    for metric in FLOW_METRICS:
        yield from _series(metric, ((_flow(flow), flow) for flow in facts.flows))
    name = "penstock_pipeline_reports_ignored_total"
    yield from _heading(
        name, "counter", "Reports of pipelines that could not be read, or had no room."
    )
    yield f"{name} {facts.reports_ignored}"


def _series(metric: Metric[Facts], labelled: Iterable[tuple[str, Facts]]) -> Iterator[str]:
    yield from _heading(metric.name, metric.kind, metric.help)
    for labels, each in labelled:
        yield f"{metric.name}{{{labels}}} {metric.value(each)}"


def _histogram(name: str, help_text: str, facts: HistogramFacts) -> Iterator[str]:
    below = list(accumulate(facts.counts))
    bounds = [f"{bound:g}" for bound in facts.bounds] + ["+Inf"]
    yield from _heading(name, "histogram", help_text)
    for bound, count in zip(bounds, below, strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {count}'
    yield f"{name}_sum {facts.total}"
    yield f"{name}_count {below[-1]}"


def _heading(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _account(name: str) -> str:
    return f'account="{_label(name)}"'


def _flow(flow: FlowFacts) -> str:
    # The names of pipelines and flows are letters, digits, `_` and `-`: nothing to escape.
    return f'{_account(flow.account)},pipeline="{flow.pipeline}",flow="{flow.flow}"'


def _label(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
