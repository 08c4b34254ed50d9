"""A small or large `max_payload`: the real server's behaviour is ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.limits import API_REQUEST_BYTES_MAX
from penstock.testing.servers import PENSTOCK, REFERENCE, server_process
from tests.api.compared import Listener, Story, ask, create, differences, info, publish
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle


def compare(folder: Path, settings: str, story: Story) -> list[object]:
    with (
        server_process(REFERENCE, store_dir=folder / "real", settings=settings) as real,
        server_process(PENSTOCK, store_dir=folder / "ours", settings=settings) as ours,
        Listener(real.port) as one,
        Listener(ours.port) as other,
    ):
        return differences(one, other, story)


def test_a_counter_may_not_become_larger_than_a_message(tmp_path: Path) -> None:
    story = [
        create("C", allow_msg_counter=True),
        create("B", allow_msg_counter=True, allow_atomic=True),
        *(
            publish("C.a", b"", headers={"Nats-Incr": "9" * digits})
            for digits in (100, 400, 480, 490, 495, 500, 520, 900)
        ),
        publish("C.a", b"", headers={"Nats-Incr": "1"}),
        publish(
            "B.a", b"", headers={"Nats-Incr": "9" * 600} | {"Nats-Batch-Id": "1"} | _commit("1")
        ),
        publish(
            "B.a", b"", headers={"Nats-Incr": "9" * 400} | {"Nats-Batch-Id": "2"} | _commit("1")
        ),
        info("C"),
        info("B"),
    ]

    assert compare(tmp_path, "max_payload: 1024", story) == []


def _commit(seq: str) -> dict[str, str]:
    return {"Nats-Batch-Sequence": seq, "Nats-Batch-Commit": "1"}


def test_requests_larger_than_a_mebibyte_are_read(tmp_path: Path) -> None:
    text = "x" * 2_000_000
    padding = b" " * 3_000_000
    story = [
        create("S", description=text),
        create("T"),
        publish("T.a", b"x" * 2_000_000),
        ask("STREAM.PURGE.T", padding),
        info("T"),
        create("S", metadata={"key": text}),
        ask("STREAM.CREATE.S", padding + b'{"name":"S","max_msgs":7}'),
        ask("STREAM.CREATE.S", b'{"name":"S","bogus":"%b"}' % text.encode()),
        ask("STREAM.CREATE.S", b'{"name":"S",' + padding + b"}"),
        ask("STREAM.NAMES", {"subject": text}),
        ask("STREAM.INFO.S", padding),
        ask("STREAM.MSG.GET.S", {"last_by_subj": text}),
        ask("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"description": text}}),
        ask("STREAM.DELETE.S", padding),
        info("S"),
    ]

    assert compare(tmp_path, "max_payload: 8MB", story) == []


def test_a_request_larger_than_the_bound_is_refused_and_the_next_one_answered(
    tmp_path: Path,
) -> None:
    body = b" " * API_REQUEST_BYTES_MAX + b'{"name":"S"}'
    with (
        server_process(store_dir=tmp_path, settings="max_payload: 16MB") as server,
        NatsClient(server.port) as client,
    ):
        refused = json.loads(client.request("$JS.API.STREAM.CREATE.S", body).payload)
        client.api("STREAM.CREATE.S", {"name": "S"})

    assert refused["error"]["err_code"] == 10003
