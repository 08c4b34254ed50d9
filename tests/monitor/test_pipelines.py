"""Pipelines tell the server how they are; it shows them, within bounds."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.client.client import Client
from penstock.limits import (
    PIPELINE_FLOWS_PER_ACCOUNT_MAX,
    PIPELINE_FLOWS_PER_SERVER_MAX,
    PIPELINE_REPORT_BYTES_MAX,
    PIPELINE_SILENCE_S_MAX,
)
from penstock.monitor.pipelines import PipelineReports
from penstock.protocol.pipeline_reports import FlowReport, FlowState, names_in, subject_of
from penstock.testing.servers import PENSTOCK, server_process

RUNNING = FlowReport(FlowState.RUNNING, 7, 1000, 250.5, 12, 3)
SECOND_NS = 1_000_000_000


def told(name: str = "orders") -> bytes:
    return subject_of(name, "totals").encode()


def test_the_last_report_of_a_flow_counts() -> None:
    reports = PipelineReports()
    reports.take("A", told(), msgspec.json.encode(FlowReport(FlowState.RUNNING)), 5)
    reports.take("A", told(), msgspec.json.encode(RUNNING), 10)

    (flow,) = reports.current(now_ns=30)

    assert (flow.account, flow.pipeline, flow.flow) == ("A", "orders", "totals")
    assert (flow.age_ns, flow.report) == (20, RUNNING)
    assert reports.ignored == 0


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        (told(), b""),
        (told(), b"[]"),
        (told(), b'{"state":"asleep"}'),
        (told(), b'{"state":"running","rows":-1}'),
        (told(), b'{"state":"running","rows":99999999999999999999}'),
        (told(), b'{"state":"running","rows_per_second":1e999}'),
        (told(), b'{"state":"running","error":"\xff"}'),
        (told(), b"[" * 4000),
        (told(), b'{"state":"running","error":"%b"}' % (b"x" * PIPELINE_REPORT_BYTES_MAX)),
        (b"$PENSTOCK.PIPELINE.orders", b'{"state":"running"}'),
        (b"$PENSTOCK.PIPELINE.orders.totals.more", b'{"state":"running"}'),
        (b"$PENSTOCK.PIPELINE.or<b>.totals", b'{"state":"running"}'),
        (b"$PENSTOCK.PIPELINE.\xff.totals", b'{"state":"running"}'),
        (b"$PENSTOCK.PIPELINE.%b.totals" % (b"x" * 65), b'{"state":"running"}'),
    ],
)
def test_what_is_no_report_is_counted_and_nothing_else(subject: bytes, body: bytes) -> None:
    reports = PipelineReports()

    reports.take("A", subject, body, 0)

    assert reports.current(0) == []
    assert reports.ignored == 1


@given(st.binary(max_size=300), st.binary(max_size=100))
def test_no_bytes_raise(body: bytes, name: bytes) -> None:
    reports = PipelineReports()

    reports.take("A", b"$PENSTOCK.PIPELINE." + name, body, 0)
    reports.take("A", told(), body, 0)

    assert len(reports.current(0)) + reports.ignored == 2


def test_an_account_has_room_for_so_many_and_new_ones_push_none_out() -> None:
    reports = PipelineReports()
    body = msgspec.json.encode(RUNNING)
    for number in range(PIPELINE_FLOWS_PER_ACCOUNT_MAX + 5):
        reports.take("A", told(f"p{number}"), body, 0)
    reports.take("B", told("theirs"), body, 0)
    reports.take("A", told("p0"), body, SECOND_NS)

    flows = reports.current(SECOND_NS)

    assert len(flows) == PIPELINE_FLOWS_PER_ACCOUNT_MAX + 1
    assert {each.pipeline for each in flows if each.account == "A"} == {
        f"p{number}" for number in range(PIPELINE_FLOWS_PER_ACCOUNT_MAX)
    }
    assert reports.ignored == 5


def test_all_accounts_together_have_room_for_so_many() -> None:
    reports = PipelineReports()
    body = msgspec.json.encode(RUNNING)
    for number in range(PIPELINE_FLOWS_PER_SERVER_MAX + 1):
        reports.take(f"A{number // 60}", told(f"p{number}"), body, 0)

    assert len(reports.current(0)) == PIPELINE_FLOWS_PER_SERVER_MAX
    assert reports.ignored == 1


def test_a_flow_that_tells_nothing_is_forgotten_and_makes_room() -> None:
    reports = PipelineReports()
    body = msgspec.json.encode(RUNNING)
    for number in range(PIPELINE_FLOWS_PER_ACCOUNT_MAX):
        reports.take("A", told(f"p{number}"), body, 0)
    silence_ns = PIPELINE_SILENCE_S_MAX * SECOND_NS

    reports.take("A", told("new"), body, silence_ns + 1)

    assert [each.pipeline for each in reports.current(silence_ns + 1)] == ["new"]
    assert len(reports.current(2 * silence_ns + 1)) == 1
    assert reports.current(2 * silence_ns + 2) == []


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_a_subject_tells_whose_it_is(name: str) -> None:
    assert names_in(subject_of(name, "totals").encode()) == (name, "totals")


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.slow
def test_a_pipeline_is_on_the_pages_and_in_the_metrics(tmp_path: Path) -> None:
    failed = FlowReport(FlowState.FAILED, error="<b>no such column</b>")
    with (
        server_process(PENSTOCK, store_dir=tmp_path, monitor_port=-1) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        base = server.monitor_url
        before = json.loads(fetched(f"{base}/pipelinez"))
        client.publish(told(), msgspec.json.encode(RUNNING))
        client.publish(told("broken"), msgspec.json.encode(failed))
        client.publish(told(), b"nonsense")
        client.flush()

        page = json.loads(fetched(f"{base}/pipelinez"))
        first_page = fetched(f"{base}/")
        samples = {
            (sample.name, sample.labels.get("pipeline")): sample
            for family in text_string_to_metric_families(fetched(f"{base}/metrics"))
            for sample in family.samples
        }

    assert (before["flows"], before["reports_ignored"]) == ([], 0)
    broken, orders = page["flows"]
    assert orders.pop("age_seconds") >= 0
    assert orders == {
        "account": "$G",
        "pipeline": "orders",
        "flow": "totals",
        "state": "running",
        "batch": 7,
        "rows": 1000,
        "rows_per_second": 250.5,
        "lag_messages": 12,
        "dead_letters": 3,
        "error": "",
    }
    assert (broken["state"], broken["error"]) == ("failed", failed.error)
    assert page["reports_ignored"] == 1
    assert "&lt;b&gt;no such column" in first_page
    assert "<b>" not in first_page
    labels = {"account": "$G", "pipeline": "orders", "flow": "totals"}
    assert samples["penstock_pipeline_rows_total", "orders"].labels == labels
    assert samples["penstock_pipeline_rows_total", "orders"].value == 1000
    assert samples["penstock_pipeline_rows_per_second", "orders"].value == 250.5
    assert samples["penstock_pipeline_lag_messages", "orders"].value == 12
    assert samples["penstock_pipeline_dead_letters_total", "orders"].value == 3
    assert samples["penstock_pipeline_last_batch", "orders"].value == 7
    assert samples["penstock_pipeline_failed", "orders"].value == 0
    assert samples["penstock_pipeline_failed", "broken"].value == 1
    assert samples["penstock_pipeline_report_age_seconds", "orders"].value >= 0
    assert samples["penstock_pipeline_reports_ignored_total", None].value == 1
