"""Every store counts as the real nats-server counts: the same steps on both, the same numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import LimitReached
from penstock.store.interface import Discard
from penstock.subjects import SubjectFilter
from penstock.testing.servers import ServerProcess, reference_server
from tests.support.nats_client import NatsClient
from tests.support.store_kinds import StoreHouse

pytestmark = pytest.mark.oracle

Step = tuple[str, Any]
STEPS: list[Step] = [
    ("publish", ("a.1", b"", b"12345")),
    ("publish", ("a.2", b"NATS/1.0\r\nA: 1\r\n\r\n", b"")),
    *[("publish", (f"a.{place % 3}", b"", b"x" * place)) for place in range(20)],
    ("delete", 22),
    ("delete", 1),
    ("delete", 10),
    ("purge", {"filter": "a.1"}),
    ("purge", {"filter": "a.2", "keep": 2}),
    ("purge", {"filter": "a.0", "seq": 9}),
    ("purge", {"seq": 12}),
    ("publish", ("a.1", b"", b"again")),
    ("purge", {}),
    ("purge", {"seq": 40}),
    ("publish", ("a.1", b"", b"and again")),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all of them."""
    with reference_server(store_dir=tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_msgs": 5},
        {"max_bytes": 200},
        {"max_msgs_per_subject": 2},
        {"max_msgs": 4, "discard": "new"},
        {"max_bytes": 250, "discard": "new"},
        {"max_msgs_per_subject": 2, "max_msgs": 5, "discard": "new"},
    ],
)
def test_every_step_leaves_the_numbers_that_the_reference_server_has(
    house: StoreHouse, server: ServerProcess, limits: dict[str, Any]
) -> None:
    store = house.open(**{**limits, "discard": Discard(limits.get("discard", "old"))})
    stream = {
        "name": "S",
        "subjects": ["a.*"],
        "storage": "file" if house.is_lasting else "memory",
        "num_replicas": 1,
        **limits,
    }
    with NatsClient(server.port) as client, contextlib.ExitStack() as after:
        client.api("STREAM.CREATE.S", stream)
        after.callback(client.api, "STREAM.DELETE.S")
        for kind, what in STEPS:
            if kind == "publish":
                subject, headers, payload = what
                client.request(subject, payload, headers=headers)
                try:
                    store.store(subject.encode(), headers, payload)
                except LimitReached:
                    assert limits["discard"] == "new"
            elif kind == "delete":
                deleted = store.remove(what)
                # The server answers with an error where there is no such message.
                if deleted:
                    client.api("STREAM.MSG.DELETE.S", {"seq": what, "no_erase": True})
            else:
                client.api("STREAM.PURGE.S", what)
                purge(store, what)
            expected = client.api("STREAM.INFO.S")["state"]
            state = store.state()
            assert {
                "messages": state.messages,
                "bytes": state.bytes,
                "first_seq": state.first_seq,
                "last_seq": state.last_seq,
                "num_deleted": state.deleted,
            } == {"num_deleted": 0} | {
                key: value
                for key, value in expected.items()
                if key in ("messages", "bytes", "first_seq", "last_seq", "num_deleted")
            }


def purge(store: Any, request: dict[str, Any]) -> None:
    """Purge as the stream layer does: without a filter, up to a sequence means compacting."""
    if "seq" in request and "filter" not in request:
        store.compact(request["seq"])
        return
    wanted = SubjectFilter([request["filter"].encode()]) if "filter" in request else None
    store.purge(wanted, seq=request.get("seq", 0), keep=request.get("keep", 0))
