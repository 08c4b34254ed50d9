"""Requests with one field of a wrong type: the real server's error for each."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from penstock.api.documents import (
    JSApiMsgDeleteRequest,
    JSApiMsgGetRequest,
    JSApiStreamInfoRequest,
    JSApiStreamListRequest,
    JSApiStreamNamesRequest,
    JSApiStreamPurgeRequest,
    JSApiStreamRestoreRequest,
    JSApiStreamSnapshotRequest,
)
from penstock.errors import ApiError
from penstock.testing.servers import reference_server
from penstock.text.json.codec import decode_request
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle

REQUESTS: dict[str, type[msgspec.Struct]] = {
    "STREAM.INFO.S": JSApiStreamInfoRequest,
    "STREAM.NAMES": JSApiStreamNamesRequest,
    "STREAM.LIST": JSApiStreamListRequest,
    "STREAM.PURGE.S": JSApiStreamPurgeRequest,
    "STREAM.MSG.DELETE.S": JSApiMsgDeleteRequest,
    "STREAM.MSG.GET.S": JSApiMsgGetRequest,
    "STREAM.SNAPSHOT.S": JSApiStreamSnapshotRequest,
    "STREAM.RESTORE.R": JSApiStreamRestoreRequest,
}
WRONG = [
    (subject, name)
    for subject, made in REQUESTS.items()
    for name in (*made.__struct_fields__, "bogus")
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsClient]:
    folder = tmp_path_factory.mktemp("reference")
    with reference_server(store_dir=folder) as server, NatsClient(server.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S"})
        yield client


@pytest.mark.parametrize(("subject", "name"), WRONG)
def test_a_field_of_another_type_is_refused_in_the_real_servers_words(
    reference: NatsClient, subject: str, name: str
) -> None:
    # No field is an array of objects.
    body = json.dumps({name: [{}]}).encode()

    answer = json.loads(reference.request(f"$JS.API.{subject}", body).payload)
    with pytest.raises(ApiError) as caught:
        decode_request(REQUESTS[subject], body)

    assert caught.value.document() == answer["error"]
