"""Answers of the real server, decoded into our classes and encoded again: the same bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.dispatch import start_of
from penstock.api.documents import (
    AccountInfo,
    ApiFault,
    ConsumerList,
    Created,
    Done,
    GottenMessage,
    Page,
    Refused,
    StoredMsg,
    StreamList,
    StreamNames,
    StreamPurged,
    StreamRestoring,
    beside_error,
)
from penstock.api.message_json import message_json
from penstock.consumer.info import ConsumerInfo
from penstock.store.memstore import MemoryStore
from penstock.stream.info import StreamInfo
from penstock.testing.servers import reference_server, start_server
from penstock.text.json.codec import decode, encode, encode_after
from penstock.text.times import Instant, parse_instant
from tests.support.nats_client import NatsClient

FULL = {
    "name": "FULL",
    "subjects": ["a.*"],
    "max_msgs": 2,
    "sources": [{"name": "NONE", "filter_subject": "x"}, {"name": "PLAIN"}],
    "republish": {"src": "a.*", "dest": "r.$1"},
}
MIRROR = {"name": "MIRROR", "mirror": {"name": "NONE", "external": {"api": "x.API"}}}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsClient]:
    folder = tmp_path_factory.mktemp("reference")
    settings = f'jetstream {{ store_dir: "{folder}", domain: hub }}'
    with reference_server(settings=settings) as server, NatsClient(server.port) as client:
        for config in ({"name": "PLAIN"}, {"name": "EMPTIED"}, FULL, MIRROR):
            client.api(f"STREAM.CREATE.{config['name']}", config)
        for subject in ("PLAIN", "a.1", "a.2", "a.3", "PLAIN", "PLAIN"):
            client.request(subject, b"\x00payload", headers=b"NATS/1.0\r\nA: b\r\n\r\n")
        client.api("STREAM.MSG.DELETE.PLAIN", {"seq": 2})
        yield client


def written_again(answer: bytes, *parts: type[msgspec.Struct]) -> bytes:
    """Decode an answer into our classes, and encode these."""
    documents = [decode(part, answer, strict=False) for part in parts]
    return encode_after(b'{"type":"%b"' % json.loads(answer)["type"].encode(), *documents)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("subject", "body", "parts"),
    [
        ("INFO", b"", (AccountInfo,)),
        ("STREAM.NAMES", b"", (StreamNames,)),
        ("STREAM.NAMES", b'{"subject":"nothing"}', (StreamNames,)),
        ("STREAM.LIST", b"", (StreamList,)),
        ("STREAM.INFO.PLAIN", b"", (Page, StreamInfo)),
        ("STREAM.INFO.PLAIN", b'{"deleted_details":true}', (Page, StreamInfo)),
        ("STREAM.INFO.FULL", b'{"subjects_filter":">"}', (Page, StreamInfo)),
        ("STREAM.INFO.MIRROR", b"", (Page, StreamInfo)),
        ("STREAM.CREATE.NEW", b'{"name":"NEW"}', (StreamInfo, Created)),
        ("STREAM.UPDATE.PLAIN", b'{"name":"PLAIN"}', (StreamInfo, Created)),
        ("STREAM.MSG.GET.PLAIN", b'{"seq":1}', (GottenMessage,)),
        ("STREAM.PURGE.EMPTIED", b"", (StreamPurged,)),
        ("STREAM.MSG.DELETE.FULL", b'{"seq":3}', (Done,)),
    ],
)
def test_answers_are_written_as_the_real_server_writes_them(
    reference: NatsClient, subject: str, body: bytes, parts: tuple[type[msgspec.Struct], ...]
) -> None:
    answer = reference.request(f"$JS.API.{subject}", body).payload

    # Origins that are not there have errors of their own, sooner or later.
    assert "error" not in json.loads(answer)
    assert written_again(answer, *parts) == answer


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsClient]:
    """Our server with streams and consumers of every kind, and in every state."""
    folder = tmp_path_factory.mktemp("ours")
    settings = f'jetstream {{ store_dir: "{folder}", domain: hub }}'
    with (
        start_server(settings=settings) as server,
        NatsClient(server.port) as pushed_to,
    ):
        pushed_to.subscribe("pushed")
        pushed_to.request("$JS.API.INFO")
        with NatsClient(server.port) as client:
            _fill(client)
            yield client


def _fill(client: NatsClient) -> None:
    for config in ({"name": "PLAIN"}, {"name": "EMPTY"}, FULL, MIRROR):
        client.api(f"STREAM.CREATE.{config['name']}", config)
    for subject in ("PLAIN", "a.1", "a.2", "a.3", "PLAIN", "PLAIN"):
        client.request(subject, b"payload")
    client.api("STREAM.MSG.DELETE.PLAIN", {"seq": 2})
    for name, fields in CONSUMERS.items():
        config = {"durable_name": name, "ack_policy": "explicit"} | fields
        client.api(f"CONSUMER.CREATE.PLAIN.{name}", {"stream_name": "PLAIN", "config": config})
    for name in ("acked", "again", "once"):
        pulled = client.request(f"$JS.API.CONSUMER.MSG.NEXT.PLAIN.{name}", b"1")
        client.publish(pulled.reply, b"+ACK" if name == "acked" else b"-NAK")
        client.request(f"$JS.API.CONSUMER.MSG.NEXT.PLAIN.{name}", b"1")
    client.request("$JS.API.CONSUMER.MSG.NEXT.PLAIN.pinned", b'{"group":"G","batch":1,"id":""}')


CONSUMERS: dict[str, dict[str, object]] = {
    "acked": {},
    "again": {},
    "once": {"max_deliver": 1},
    "paused": {"pause_until": "2200-01-01T00:00:00Z"},
    "pinned": {"priority_groups": ["G"], "priority_policy": "pinned_client"},
    "pushed": {"deliver_subject": "pushed"},
    "unpinned": {"priority_groups": ["G"], "priority_policy": "pinned_client"},
    "unbound": {"deliver_subject": "nowhere"},
    "last": {"deliver_policy": "last_per_subject", "filter_subject": "PLAIN"},
}


@pytest.mark.parametrize(
    ("subject", "body", "parts"),
    [
        ("STREAM.LIST", b"", (StreamList,)),
        ("STREAM.INFO.PLAIN", b'{"deleted_details":true}', (Page, StreamInfo)),
        ("STREAM.INFO.FULL", b'{"subjects_filter":">"}', (Page, StreamInfo)),
        ("STREAM.INFO.MIRROR", b"", (Page, StreamInfo)),
        ("STREAM.INFO.EMPTY", b"", (Page, StreamInfo)),
        ("STREAM.CREATE.NEW", b'{"name":"NEW"}', (StreamInfo, Created)),
        ("STREAM.UPDATE.EMPTY", b'{"name":"EMPTY"}', (StreamInfo,)),
        ("CONSUMER.LIST.PLAIN", b"", (ConsumerList,)),
        *((f"CONSUMER.INFO.PLAIN.{name}", b"", (ConsumerInfo,)) for name in CONSUMERS),
    ],
)
def test_compiled_code_writes_what_the_classes_of_documents_have(
    ours: NatsClient, subject: str, body: bytes, parts: tuple[type[msgspec.Struct], ...]
) -> None:
    answer = ours.request(f"$JS.API.{subject}", body).payload

    assert written_again(answer, *parts) == answer


def test_what_is_left_out_and_what_is_not_follows_from_a_consumers_state(ours: NatsClient) -> None:
    listed = json.loads(ours.request("$JS.API.CONSUMER.LIST.PLAIN").payload)["consumers"]
    told = {each["name"]: each for each in listed}

    assert {name for name in told if "push_bound" in told[name]} == {"pushed"}
    assert {name for name in told if "paused" in told[name]} == {"paused"}
    groups = {name: told[name].get("priority_groups") for name in told}
    assert {name for name, each in groups.items() if each} == {"pinned", "unpinned"}
    assert {name for name, each in groups.items() if each and "pinned_client_id" in each[0]} == {
        "pinned"
    }
    assert [told[name]["num_redelivered"] for name in ("acked", "again", "once")] == [0, 1, 0]
    assert {name for name in told if "last_active" in told[name]["ack_floor"]} == {"acked"}
    assert [told[name]["num_pending"] for name in ("acked", "unbound", "last")] == [0, 2, 1]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("STREAM.INFO.NONE", b""),
        ("STREAM.NAMES", b"{"),
        ("STREAM.LIST", b"{"),
        ("STREAM.PURGE.NONE", b""),
        ("STREAM.RESTORE.PLAIN", b'{"config":{"name":"PLAIN"},"state":{}}'),
        ("STREAM.DELETE.NONE", b""),
        ("STREAM.MSG.GET.NONE", b'{"seq":1}'),
        ("STREAM.MSG.DELETE.NONE", b'{"seq":1}'),
        ("STREAM.SNAPSHOT.NONE", b"{}"),
        ("STREAM.CREATE.A", b"{"),
        ("STREAM.UPDATE.A", b"{"),
    ],
)
def test_the_same_fields_stand_beside_an_error(
    reference: NatsClient, subject: str, body: bytes
) -> None:
    answer = reference.request(f"$JS.API.{subject}", body).payload

    document = json.loads(answer)
    kind = document["type"].rpartition(".")[2]
    fault = ApiFault(**document["error"])
    assert encode_after(start_of(kind), Refused(fault), *beside_error(kind)) == answer


@given(st.binary(max_size=40), st.binary(max_size=40), st.booleans(), st.integers(1, 10**6))
def test_a_stored_message_is_told_in_base64_text(
    headers: bytes, payload: bytes, with_headers: bool, seq: int
) -> None:
    with MemoryStore.create() as store:
        store.store_raw(b"a.<b>", headers, payload, seq=seq, timestamp_ns=1_500_000_000)
        told = message_json(store.load(seq), with_headers)
    shown = b64encode(headers).decode() if with_headers else ""
    time = Instant(1_500_000_000)

    assert told.text == encode(StoredMsg("a.<b>", seq, shown, b64encode(payload).decode(), time))


def test_where_to_send_a_snapshot_is_always_told() -> None:
    assert beside_error("stream_restore_response") == (StreamRestoring(),)
    assert beside_error("stream_delete_response") == ()
    assert parse_instant("1970-01-01T00:00:00Z") == Instant(0)
