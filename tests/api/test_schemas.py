"""The answers of the API keep to the published schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from penstock.testing.servers import server_process
from tests.api.schema_checks import FOLDER, faults_of
from tests.support.nats_client import NatsClient

FULL = {
    "name": "FULL",
    "description": "text",
    "subjects": ["full.>"],
    "max_msgs": 100,
    "max_bytes": 100_000,
    "max_age": 3600 * 10**9,
    "max_msg_size": 1000,
    "max_msgs_per_subject": 10,
    "discard": "old",
    "storage": "file",
    "compression": "s2",
    "allow_direct": True,
    "allow_rollup_hdrs": True,
    "allow_msg_ttl": True,
    "allow_atomic": True,
    "placement": {"cluster": "c", "tags": ["t"]},
    "republish": {"src": ">", "dest": "again.>"},
    "subject_transform": {"src": "full.a", "dest": "full.b"},
    "consumer_limits": {"max_ack_pending": 5},
    "metadata": {"key": "value"},
}
CONSUMER = {
    "durable_name": "C",
    "description": "text",
    "ack_policy": "explicit",
    "ack_wait": 10**9,
    "backoff": [10**9, 2 * 10**9],
    "max_deliver": 5,
    "filter_subjects": ["full.a", "full.b"],
    "sample_freq": "50%",
    "priority_groups": ["G"],
    "priority_policy": "overflow",
    "metadata": {"key": "value"},
}
PUSHED = {"durable_name": "P", "deliver_subject": "to", "flow_control": True} | {
    "idle_heartbeat": 10**9,
    "rate_limit_bps": 10_000,
    "deliver_policy": "by_start_sequence",
    "opt_start_seq": 2,
}
ELSEWHERE = {"pub_ack_response", "account_purge_response", "error"}
"""Schemas of documents that are not answers of an account's API."""

CREATED = ("STREAM.CREATE.FULL", FULL)
REQUESTS: list[tuple[str, dict[str, Any] | None]] = [
    ("INFO", None),
    CREATED,
    ("STREAM.CREATE.S", {"name": "S"}),
    ("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}}),
    ("STREAM.CREATE.X", {"name": "X", "sources": [{"name": "S", "opt_start_seq": 2}]}),
    ("STREAM.CREATE.S", {"name": "S", "max_msgs": 5}),
    ("STREAM.UPDATE.S", {"name": "S", "max_msgs": 5}),
    ("STREAM.UPDATE.none", {"name": "none"}),
    ("STREAM.INFO.FULL", {"subjects_filter": ">", "deleted_details": True}),
    ("STREAM.INFO.M", None),
    ("STREAM.INFO.X", None),
    ("STREAM.INFO.none", None),
    ("STREAM.NAMES", None),
    ("STREAM.LIST", None),
    ("STREAM.MSG.GET.FULL", {"seq": 1}),
    ("STREAM.MSG.GET.FULL", {"seq": 2}),
    ("STREAM.MSG.GET.FULL", {"seq": 9}),
    ("STREAM.MSG.DELETE.FULL", {"seq": 1}),
    ("STREAM.MSG.DELETE.FULL", {"seq": 1}),
    ("STREAM.PURGE.FULL", {"filter": "full.a"}),
    ("STREAM.PURGE.none", None),
    ("STREAM.SNAPSHOT.FULL", {"deliver_subject": "nowhere"}),
    ("STREAM.SNAPSHOT.none", {"deliver_subject": "nowhere"}),
    ("STREAM.RESTORE.NEW", {"config": {"name": "NEW", "storage": "file"}}),
    ("STREAM.RESTORE.FULL", {"config": {"name": "FULL"}}),
    ("CONSUMER.CREATE.FULL.C", {"stream_name": "FULL", "config": CONSUMER}),
    ("CONSUMER.CREATE.FULL.P", {"stream_name": "FULL", "config": PUSHED}),
    ("CONSUMER.CREATE.none.C", {"stream_name": "none", "config": CONSUMER}),
    ("CONSUMER.INFO.FULL.C", None),
    ("CONSUMER.INFO.FULL.P", None),
    ("CONSUMER.INFO.FULL.none", None),
    ("CONSUMER.NAMES.FULL", None),
    ("CONSUMER.NAMES.none", None),
    ("CONSUMER.LIST.FULL", None),
    ("CONSUMER.LIST.none", None),
    ("CONSUMER.PAUSE.FULL.C", {"pause_until": "2101-02-03T04:05:06Z"}),
    ("CONSUMER.PAUSE.FULL.C", None),
    ("CONSUMER.PAUSE.FULL.none", None),
    ("CONSUMER.UNPIN.FULL.C", {"group": "G"}),
    ("CONSUMER.RESET.FULL.C", None),
    ("CONSUMER.RESET.FULL.C", {"seq": 10**6}),
    ("CONSUMER.LEADER.STEPDOWN.FULL.C", None),
    ("STREAM.LEADER.STEPDOWN.FULL", None),
    ("STREAM.PEER.REMOVE.FULL", {"peer": "x"}),
    ("CONSUMER.DELETE.FULL.C", None),
    ("CONSUMER.DELETE.FULL.C", None),
    ("STREAM.DELETE.S", None),
    ("STREAM.DELETE.S", None),
    ("INFO", None),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("schemas")
    found = []
    with server_process(store_dir=folder) as server, NatsClient(server.port) as client:
        for subject, request in REQUESTS:
            body = b"" if request is None else json.dumps(request).encode()
            found.append(json.loads(client.request(f"$JS.API.{subject}", body).payload))
            if (subject, request) == CREATED:
                client.request("full.a", b"hello")
                client.request("full.c", b"hello", headers=b"NATS/1.0\r\nA: b\r\n\r\n")
                client.request("full.d", b"hello")
    return found


@pytest.mark.parametrize("place", range(len(REQUESTS)))
def test_an_answer_keeps_to_its_schema(answers: list[dict[str, Any]], place: int) -> None:
    assert faults_of(answers[place]) == []


def test_every_schema_of_an_answer_is_used(answers: list[dict[str, Any]]) -> None:
    used = {answer["type"].rpartition(".")[2] for answer in answers}

    assert used == {path.stem for path in FOLDER.glob("*.json")} - ELSEWHERE


def test_an_acknowledgement_keeps_to_its_schema(tmp_path: Path) -> None:
    validator = Draft7Validator(json.loads((FOLDER / "pub_ack_response.json").read_text()))
    batch = b"Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n"
    blocks = (b"", b"Nats-Msg-Id: 1\r\n", b"Nats-Msg-Id: 1\r\n", batch, b"Nats-Rollup: x\r\n")
    with server_process(store_dir=tmp_path) as server, NatsClient(server.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_atomic": True})
        counting = {"name": "C", "subjects": ["c"], "allow_msg_counter": True}
        client.api("STREAM.CREATE.C", counting)
        acks = [
            client.request("s", headers=b"NATS/1.0\r\n%b\r\n" % block if block else b"")
            for block in blocks
        ]
        acks.append(client.request("c", headers=b"NATS/1.0\r\nNats-Incr: 5\r\n\r\n"))

    for ack in acks:
        assert [fault.message for fault in validator.iter_errors(json.loads(ack.payload))] == []


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("api.v1.stream_names_response", {"total": "1"}),
        ("api.v1.stream_info_response", {"error": {"code": "x"}}),
        ("advisory.v1.stream_action", {"id": 5}),
    ],
)
def test_what_is_not_as_its_schema_has_it_is_told(kind: str, document: dict[str, Any]) -> None:
    assert faults_of({"type": f"io.nats.jetstream.{kind}"} | document) != []
