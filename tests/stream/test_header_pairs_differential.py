"""Two headers in one message: which counts first, and what is stored, as with the real server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import reference_server
from tests.stream.hosts import StreamHouse
from tests.stream.published import Case, Publish, ask_ours, ask_reference
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle

VALUES = {
    "Nats-Msg-Id": ("1", "2", "1", ""),
    "Nats-Expected-Stream": ("S", "T"),
    "Nats-Expected-Last-Sequence": ("0", "2", "5", "9"),
    "Nats-Expected-Last-Subject-Sequence": ("0", "1", "4", "7"),
    "Nats-Expected-Last-Subject-Sequence-Subject": ("s.a", "s.b", "s.*", "s..b"),
    "Nats-Expected-Last-Msg-Id": ("1", "2"),
    "Nats-Rollup": ("sub", "ALL", "x"),
    "Nats-TTL": ("1h", "7200", "never", "x"),
    "Nats-Incr": ("1", "-5", "x", "9" * 18, "9" * 18, "9" * 30),
    "Nats-Stream-Source": ("S 1",),
    "Nats-Request-Info": ("{}",),
    "KV-Operation": ("DEL", "PURGE"),
}
EVERYTHING = {"allow_rollup_hdrs": True, "allow_msg_ttl": True}
CONFIGS: dict[str, dict[str, Any]] = {
    "nothing allowed": {},
    "everything allowed": EVERYTHING,
    "a bucket": EVERYTHING | {"max_msgs_per_subject": 2, "discard": "new", "max_bytes": 4000},
    "counters": {"allow_msg_counter": True},
    "transformed": EVERYTHING | {"subject_transform": {"src": "s.*", "dest": "t.{{wildcard(1)}}"}},
    "no interest": EVERYTHING | {"retention": "interest"},
    "in memory": EVERYTHING | {"storage": "memory", "max_msgs": 4},
}


def pair_of(first: str, second: str, config: str) -> Case:
    """Return every value of one header with every value of another, in one stream."""
    body = b"" if "Nats-Incr" in (first, second) else b"x"
    messages = [
        Publish(subject, body, {first: one, second: other})
        for subject in ("s.a", "s.b")
        for one, other in itertools.product(VALUES[first], VALUES[second])
    ]
    plain = [Publish("s.a", body), Publish("s.b", body, {"Nats-Msg-Id": "0"})]
    name = f"{first} and {second}, {config}"
    fields = {"name": "S", "subjects": ["s.>"]} | CONFIGS[config]
    return Case(name, fields, (*plain, *messages, *plain))


@pytest.fixture(scope="module")
def store_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reference")


@pytest.fixture(scope="module")
def reference(store_dir: Path) -> Iterator[NatsClient]:
    with reference_server(store_dir=store_dir) as server, NatsClient(server.port) as client:
        yield client


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("first", VALUES)
def test_two_headers_count_as_with_the_real_server(
    reference: NatsClient, store_dir: Path, tmp_path: Path, first: str, config: str
) -> None:
    names = list(VALUES)
    for second in names[names.index(first) + 1 :]:
        asked = pair_of(first, second, config)
        theirs = ask_reference(reference, asked, store_dir)
        with StreamHouse(tmp_path / second) as house:
            ours = ask_ours(house, asked)

        assert ours == theirs, asked.name
