"""Metrics can be read by Prometheus and say what the pages say."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import nats
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.config.options.server import AccountOptions, ServerOptions, UserOptions
from penstock.monitor.metrics import ACCOUNT_METRICS, SERVER_METRICS, Metric
from penstock.server.server import Server


def fetched(server: Server, path: str) -> tuple[str, str]:
    """Return a page's content type and text."""
    address = f"http://127.0.0.1:{server.options.http_port}{path}"
    with urllib.request.urlopen(address) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


async def observed(options: ServerOptions) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Let a client speak; give metrics, varz and accstatz of the same moment."""
    async with Server(options) as server:
        client = await nats.connect(server.url, user="u", password="secret")
        taken = await client.subscribe("a")
        await client.publish("a", b"12345")
        await taken.next_msg()
        content_type, text = await asyncio.to_thread(fetched, server, "/metrics")
        varz = json.loads((await asyncio.to_thread(fetched, server, "/varz"))[1])
        accounts = json.loads((await asyncio.to_thread(fetched, server, "/accstatz?unused=1"))[1])
        await client.close()
        return content_type, text, varz, accounts


@pytest.fixture(scope="module")
def seen() -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    options = ServerOptions(
        host="127.0.0.1",
        port=-1,
        http_port=-1,
        accounts={'odd"\\name': AccountOptions(users=(UserOptions(user="u", password="secret"),))},
    )
    return asyncio.run(observed(options))


def test_text_is_in_the_format_that_it_says(seen: tuple[str, str, Any, Any]) -> None:
    content_type, text, _, _ = seen
    families = {family.name: family for family in text_string_to_metric_families(text)}

    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    metrics: list[Metric[Any]] = [*SERVER_METRICS, *ACCOUNT_METRICS]
    for metric in metrics:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert family.samples
        assert (metric.kind == "counter") == metric.name.endswith("_total")


def test_metrics_agree_with_the_pages(seen: tuple[str, str, Any, Any]) -> None:
    _, text, varz, accounts = seen
    samples = {
        (sample.name, sample.labels.get("account")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    assert samples["penstock_connections", None] == varz["connections"] == 1
    assert samples["penstock_connections_accepted_total", None] == varz["total_connections"]
    assert samples["penstock_received_messages_total", None] == varz["in_msgs"] == 1
    assert samples["penstock_received_bytes_total", None] == varz["in_bytes"] == 5
    assert samples["penstock_sent_messages_total", None] == varz["out_msgs"] == 1
    assert samples["penstock_subscriptions", None] == varz["subscriptions"]
    for account in accounts["account_statz"]:
        assert samples["penstock_account_connections", account["acc"]] == account["conns"]
        received = samples["penstock_account_received_bytes_total", account["acc"]]
        assert received == account["received"]["bytes"]


def test_metrics_hold_no_secret(seen: tuple[str, str, Any, Any]) -> None:
    assert "secret" not in seen[1]
