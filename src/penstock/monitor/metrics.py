"""Every metric, in Prometheus' text format 0.0.4. Pure.

A name says its unit; a counter's ends in `_total`. Labels hold names of accounts and nothing that a
client can choose, so that the number of series is bounded by the configuration; those of pipelines,
which name themselves, are bounded in number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.monitor.facts import AccountFacts, Counters, Source
from penstock.monitor.jetstream_metrics import jetstream_lines
from penstock.monitor.pipeline_pages import pipeline_lines

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """A metric of the whole server."""

    name: str
    kind: str
    help: str
    value: Callable[[Counters], float]


class AccountMetric(NamedTuple):
    """A metric with a series for each account."""

    name: str
    kind: str
    help: str
    value: Callable[[AccountFacts], float]


SERVER_METRICS = (
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
)

ACCOUNT_METRICS = (
    AccountMetric(
        "penstock_account_connections",
        "gauge",
        "Open client connections of an account.",
        lambda a: a.client_count,
    ),
    AccountMetric(
        "penstock_account_subscriptions",
        "gauge",
        "Subscriptions held in an account.",
        lambda a: a.subscription_count,
    ),
    AccountMetric(
        "penstock_account_received_messages_total",
        "counter",
        "Messages that an account's clients published.",
        lambda a: a.received.msgs,
    ),
    AccountMetric(
        "penstock_account_received_bytes_total",
        "counter",
        "Bytes of the messages that an account's clients published.",
        lambda a: a.received.bytes,
    ),
    AccountMetric(
        "penstock_account_sent_messages_total",
        "counter",
        "Messages delivered to an account's clients.",
        lambda a: a.sent.msgs,
    ),
    AccountMetric(
        "penstock_account_sent_bytes_total",
        "counter",
        "Bytes of the messages delivered to an account's clients.",
        lambda a: a.sent.bytes,
    ),
    AccountMetric(
        "penstock_account_slow_receivers_total",
        "counter",
        "Clients of an account that were cut off because they fell too far behind.",
        lambda a: a.slow_receivers,
    ),
)


def exposition(source: Source) -> str:
    """Give all metrics as text."""
    server, counters, accounts = source.server(), source.counters(), source.accounts()
    lines = [
        "# HELP penstock_info Who the server is.",
        "# TYPE penstock_info gauge",
        f'penstock_info{{server_id="{_label(server.id)}",name="{_label(server.name)}",'
        f'version="{_label(server.version)}"}} 1',
        "# HELP penstock_uptime_seconds Time since the server started.",
        "# TYPE penstock_uptime_seconds gauge",
        f"penstock_uptime_seconds {max(source.now_ns() - server.start_ns, 0) / 1e9}",
    ]
    for metric in SERVER_METRICS:
        lines += _heading(metric.name, metric.kind, metric.help)
        lines.append(f"{metric.name} {metric.value(counters)}")
    for each in ACCOUNT_METRICS:
        lines += _heading(each.name, each.kind, each.help)
        lines += (
            f'{each.name}{{account="{_label(account.name)}"}} {each.value(account)}'
            for account in accounts
        )
    jetstream = source.jetstream()
    if jetstream is not None:
        lines += jetstream_lines(jetstream, _label)
        lines += pipeline_lines(jetstream, _label)
    return "\n".join(lines) + "\n"


def _heading(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _label(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
