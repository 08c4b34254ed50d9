"""The compiled direct get of a subject's last message answers what the Python one answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.servers import server_process
from tests.support.nats_client import NatsClient


@pytest.mark.parametrize("compression", ["none", "s2"])
@pytest.mark.parametrize("headers", [b"", b"NATS/1.0\r\nA: b\r\n\r\n"])
def test_both_ways_give_the_same_message(tmp_path: Path, compression: str, headers: bytes) -> None:
    config = {"name": "S", "subjects": ["s.>"], "allow_direct": True, "compression": compression}
    with server_process(store_dir=tmp_path) as server, NatsClient(server.port) as client:
        client.api("STREAM.CREATE.S", config)
        client.request("s.a.b", b"older", headers=headers)
        client.request("s.a.b", b"x" * 1000, headers=headers)

        quick = client.request("$JS.API.DIRECT.GET.S.s.a.b")
        careful = client.request("$JS.API.DIRECT.GET.S", b'{"last_by_subj":"s.a.b"}')

        assert quick == careful
        assert quick.payload == b"x" * 1000
        assert b"\r\nNats-Sequence: 2\r\n" in quick.headers
