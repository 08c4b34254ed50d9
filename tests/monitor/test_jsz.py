"""JetStream on the pages, field by field, against the reference server in the same situation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.testing.servers import BOTH
from tests.monitor.compared import Watched, as_text

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

CONFIG = """
http: "127.0.0.1:-1"
server_name: alpha
jetstream {
  store_dir: "%s", max_mem: 100MB, max_file: 1GB, domain: hub, unique_tag: "az:"
  sync_interval: always
  limits {
    max_ack_pending: 500, max_request_batch: 250, duplicate_window: 1h, max_ha_assets: 10
    batch { max_msgs: 100, max_inflight_per_stream: 5, max_inflight_total: 50, timeout: 5s }
  }
}
accounts {
  SYS { users [ {user: admin, password: admin-secret} ] }
  A { jetstream: {max_mem: 10MB, max_file: 100MB}, users [ {user: a, password: a-secret} ] }
  B { jetstream: enabled, users [ {user: b, password: b-secret} ] }
  C { users [ {user: c, password: c-secret} ] }
}
system_account: SYS
"""
ALSO_DIFFERENT = ("store_dir", "created", "first_ts", "last_ts", "ts")
STREAMS: list[dict[str, Any]] = [
    {"name": "ORDERS", "subjects": ["orders.>"], "max_bytes": 1_000_000},
    {"name": "COPY", "mirror": {"name": "ORDERS"}, "storage": "memory"},
]
CONSUMER = {"durable_name": "C1", "name": "C1", "ack_policy": "explicit"}

PAGES = (
    "/jsz",
    "/jsz?accounts=1",
    "/jsz?accounts=1&offset=1",
    "/jsz?accounts=1&limit=1",
    "/jsz?accounts=1&limit=-1&offset=1",
    "/jsz?accounts=1&offset=-1&limit=9223372036854775807",
    "/jsz?acc=B",
    "/jsz?acc=NOBODY",
    "/jsz?acc=NOBODY&streams=1",
    "/jsz?acc=B&consumers=1",
    "/jsz?raft=1",
    "/jsz?leader-only=1&stream-leader-only=1",
    "/healthz",
    "/healthz?js-enabled-only=1",
    "/healthz?js-server-only=1",
    "/healthz?account=A",
    "/healthz?account=A&stream=ORDERS",
    "/healthz?account=A&stream=ORDERS&consumer=C1",
    "/healthz?account=A&stream=ORDERS&details=1",
)
DETAILED = (
    "/jsz?streams=1",
    "/jsz?consumers=1&config=1",
    "/jsz?acc=A&consumers=1",
    "/jsz?acc=A&streams=1&config=1&direct-consumers=1",
)
UNKNOWN = (
    "/healthz?account=NOBODY",
    "/healthz?account=NOBODY&details=1",
    "/healthz?account=A&stream=NONE",
    "/healthz?account=A&stream=NONE&details=1",
    "/healthz?account=A&stream=ORDERS&consumer=C9",
    "/healthz?account=A&stream=ORDERS&consumer=C9&details=1",
)


def make_streams(server: Watched) -> None:
    client = server.client("a")
    for config in STREAMS:
        made = client.ask(f"$JS.API.STREAM.CREATE.{config['name']}", json.dumps(config))
        assert b'"error"' not in made, made
    for number in range(3):
        assert b'"seq"' in client.ask(f"orders.{number}", "hello")
    consumer = json.dumps({"stream_name": "ORDERS", "config": CONSUMER})
    assert b'"error"' not in client.ask("$JS.API.CONSUMER.CREATE.ORDERS.C1", consumer)
    client.ask("$JS.API.STREAM.INFO.NONE")
    while json.loads(client.ask("$JS.API.STREAM.INFO.COPY"))["state"]["messages"] < 3:
        pass
    client.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Watched, Watched]]:
    """Return the reference server and ours with the same streams."""
    running = []
    try:
        for kind in reversed(BOTH):
            folder = tmp_path_factory.mktemp(kind)
            (folder / "server.conf").write_text(CONFIG % folder)
            running.append(Watched(kind, folder / "server.conf"))
            make_streams(running[-1])
        reference, ours = running
        yield reference, ours
    finally:
        for server in running:
            server.stop()


def read(server: Watched, path: str) -> Any:
    """Return a page; streams and consumers by their names, which have no order in the reference."""
    document = json.loads(server.get(path)[2])
    if "limit=-1" in path:
        # Without a limit the reference server does not put them in order.
        document["account_details"].sort(key=lambda account: account["name"])
    # How often the API was asked depends on how often we had to look.
    for place in (document, *document.get("account_details", [])):
        if "api" in place:
            place["api"]["total"] = 0
        place.get("stream_detail", []).sort(key=lambda stream: stream["name"])
        for stream in place.get("stream_detail", []):
            if "mirror" in stream:
                stream["mirror"]["active"] = 0
    return document


@pytest.mark.parametrize("path", [*PAGES, *DETAILED])
def test_page_has_the_fields_and_values_of_the_reference(
    servers: tuple[Watched, Watched], path: str
) -> None:
    reference, ours = (as_text(read(server, path), *ALSO_DIFFERENT) for server in servers)

    assert ours == reference
    assert [server.get(path)[0] for server in servers] == [200, 200]


@pytest.mark.parametrize("path", UNKNOWN)
def test_health_of_what_is_not_there_is_told_as_by_the_reference(
    servers: tuple[Watched, Watched], path: str
) -> None:
    (status, _, body), (own_status, _, own_body) = (server.get(path) for server in servers)

    assert own_status == status == 404
    assert own_body == body


def test_page_of_the_server_tells_of_jetstream_as_the_reference(
    servers: tuple[Watched, Watched],
) -> None:
    told = [json.loads(server.get("/varz")[2])["jetstream"] for server in servers]
    for each in told:
        each["stats"]["api"]["total"] = 0

    reference, ours = (as_text(each, *ALSO_DIFFERENT) for each in told)
    assert ours == reference


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("$SYS.REQ.SERVER.PING.JSZ", '{"accounts":true}'),
        ("$SYS.REQ.SERVER.PING.JSZ", '{"account":"A","consumer":true,"config":true}'),
        ("$SYS.REQ.ACCOUNT.A.JSZ", '{"streams":true,"consumer":true}'),
        ("$SYS.REQ.ACCOUNT.B.JSZ", ""),
        ("$SYS.REQ.ACCOUNT.C.JSZ", ""),
        ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"account":"A","stream":"NONE"}'),
    ],
)
def test_the_system_account_is_told_the_same(
    servers: tuple[Watched, Watched], subject: str, body: str
) -> None:
    told = []
    for server in servers:
        admin = server.client("admin")
        answer = json.loads(admin.ask(subject, body))
        admin.close()
        told.append(answer.get("data", answer.get("error")))

    for each in told:
        _settle(each)
    reference, ours = (as_text(each, *ALSO_DIFFERENT) for each in told)
    assert ours == reference


def test_statistics_and_the_server_s_own_block_tell_of_jetstream_as_the_reference(
    servers: tuple[Watched, Watched],
) -> None:
    told = []
    for server in servers:
        admin = server.client("admin")
        answer = json.loads(admin.ask("$SYS.REQ.SERVER.PING.STATSZ"))
        admin.close()
        told.append({"server": answer["server"], "jetstream": answer["statsz"]["jetstream"]})

    for each in told:
        each["jetstream"]["stats"]["api"]["total"] = 0
    reference, ours = (as_text(each) for each in told)
    assert ours == reference


def _settle(value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _settle(each)
        if value and "created" in value[0]:
            value.sort(key=lambda stream: stream["name"])
    elif isinstance(value, dict):
        if "api" in value:
            value["api"]["total"] = 0
        if "active" in value:
            value["active"] = 0
        for each in value.values():
            _settle(each)


def test_metrics_count_streams_commits_and_what_is_not_durable(
    servers: tuple[Watched, Watched],
) -> None:
    text = servers[1].get("/metrics")[2].decode()
    samples = {
        (sample.name, sample.labels.get("account") or sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    assert samples["penstock_streams", "A"] == 2
    assert samples["penstock_stored_messages", "A"] == 6
    assert samples["penstock_consumers", "A"] == 1
    assert samples["penstock_durable_lag_messages", "A"] == 0
    assert samples["penstock_damaged_ranges", "A"] == 0
    assert samples["penstock_api_errors_total", "A"] == 1
    assert samples["penstock_commit_messages_sum", None] == 3
    commits = samples["penstock_commit_messages_count", None]
    assert 1 <= commits <= 3
    assert samples["penstock_commit_seconds_count", None] == commits
    assert samples["penstock_commit_seconds_bucket", "+Inf"] == commits
    assert samples["penstock_commit_seconds_sum", None] > 0


def test_a_stream_that_cannot_be_opened_makes_the_server_ill(tmp_path: Path) -> None:
    (tmp_path / "server.conf").write_text(CONFIG % tmp_path)
    with Watched(BOTH[0], tmp_path / "server.conf") as server:
        make_streams(server)
    (tmp_path / "jetstream" / "A" / "streams" / "ORDERS" / "stream.json").write_text("{")

    with Watched(BOTH[0], tmp_path / "server.conf") as server:
        status, _, body = server.get("/healthz")
        details = json.loads(server.get("/healthz?details=1")[2])
        other = server.get("/healthz?account=B")[0]
        metrics = server.get("/metrics")[2].decode()

    text = "JetStream stream 'A > ORDERS' could not be recovered"
    assert status == 503
    assert json.loads(body) == {"status": "unavailable", "error": text}
    assert details["errors"] == [
        {"type": "STREAM", "account": "A", "stream": "ORDERS", "error": text}
    ]
    assert other == 200
    assert 'penstock_streams_offline{account="A"} 1' in metrics
