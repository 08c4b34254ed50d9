"""Files that cannot be read cost what they are about, and nothing else."""

from __future__ import annotations

from pathlib import Path

from penstock.testing.servers import start_server
from tests.support.nats_client import NatsClient


def test_a_folder_in_place_of_a_streams_positions_stops_no_server(tmp_path: Path) -> None:
    settings = f'jetstream {{ store_dir: "{tmp_path}" }}'
    with start_server(settings=settings) as server, NatsClient(server.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S"})
        client.api("STREAM.CREATE.T", {"name": "T", "sources": [{"name": "S"}]})
        client.request("S", b"first")
    place = tmp_path / "jetstream" / "$G" / "streams" / "T" / "sources.json"
    place.unlink(missing_ok=True)
    place.mkdir()

    with start_server(settings=settings) as server, NatsClient(server.port) as client:
        client.request("S", b"second")
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 2
        assert client.api("STREAM.INFO.T")["sources"][0]["name"] == "S"
    assert place.is_dir()
