"""The answers of the API keep to the published schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from penstock.testing.servers import server_process
from tests.support.nats_client import NatsClient

SCHEMAS = Path(__file__).parent / "schemas"
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
    answer = answers[place]
    kind = answer["type"].removeprefix("io.nats.jetstream.api.v1.")
    schema = json.loads((SCHEMAS / f"{kind}.json").read_text())

    jsonschema.validate(answer, schema)


def test_every_schema_is_used(answers: list[dict[str, Any]]) -> None:
    used = {answer["type"].rpartition(".")[2] for answer in answers}

    assert used == {path.stem for path in SCHEMAS.glob("*.json")}
