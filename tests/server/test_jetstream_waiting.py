"""Requests that wait for the disk: others go on meanwhile, and what belongs in order stays so."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import nats
from nats.aio.client import Client

from penstock.server.embedded import EmbeddedServer
from penstock.store.vfs import File, Mode, OsFileSystem
from penstock.testing.servers import WAIT_S


class GatedFile:
    """A file of a gated disk."""

    def __init__(self, files: GatedFiles, file: File) -> None:
        self._files = files
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync_data(self) -> None:
        self._files.pass_gate()
        self._file.sync_data()


class GatedFiles(OsFileSystem):
    """A disk that syncs only while the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self._reached = threading.Event()

    def open(self, path: str, mode: Mode) -> File:
        file: Any = GatedFile(self, super().open(path, mode))
        return cast("File", file)

    def sync_dir(self, path: str) -> None:
        self.pass_gate()
        super().sync_dir(path)

    def pass_gate(self) -> None:
        self._reached.set()
        assert self.gate.wait(WAIT_S)

    def close_gate(self) -> None:
        self._reached.clear()
        self.gate.clear()

    async def reached(self) -> None:
        """Wait until somebody stands before the gate."""
        assert await asyncio.to_thread(self._reached.wait, WAIT_S)


@asynccontextmanager
async def gated_server(folder: Path) -> AsyncIterator[tuple[EmbeddedServer, GatedFiles]]:
    settings = f"port: -1, jetstream {{ store_dir: {json.dumps(str(folder))} }}"
    files = GatedFiles()
    async with EmbeddedServer(settings=settings) as server:
        assert server._server.jetstream is not None
        server._server.jetstream.files = files
        try:
            yield server, files
        finally:
            files.gate.set()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    client = await nats.connect(url, allow_reconnect=False)
    try:
        yield client
    finally:
        await client.close()


async def ask(client: Client, endpoint: str, **request: Any) -> dict[str, Any]:
    body = json.dumps(request).encode() if request else b""
    answer = await client.request(f"$JS.API.{endpoint}", body, timeout=WAIT_S)
    found: dict[str, Any] = json.loads(answer.data)
    return found


def asking(client: Client, endpoint: str, **request: Any) -> asyncio.Task[dict[str, Any]]:
    return asyncio.create_task(ask(client, endpoint, **request))


def create(client: Client, name: str, subject: str) -> asyncio.Task[dict[str, Any]]:
    return asking(client, f"STREAM.CREATE.{name}", name=name, subjects=[subject])


def test_whoever_waits_for_messages_hears_at_once_that_the_stream_is_removed(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as remover,
            connected(server.url) as waiting,
        ):
            await create(remover, "S", "s")
            config = {"durable_name": "c", "ack_policy": "explicit"}
            await ask(remover, "CONSUMER.CREATE.S.c", stream_name="S", config=config)
            box = await waiting.subscribe("box")
            pull = json.dumps({"batch": 1, "expires": 600 * 10**9}).encode()
            await waiting.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", pull, reply="box")
            await waiting.flush()
            await waiting.flush()

            files.close_gate()
            removed = asking(remover, "STREAM.DELETE.S")
            await files.reached()
            unsent = [len(each.out) for each in server._server.clients.all()]
            told = await box.next_msg(WAIT_S)

            # A ping would send it some seconds later, too.
            assert not any(unsent)
            assert told.headers is not None
            assert told.headers["Status"] == "409"
            assert not removed.done()
            files.gate.set()
            assert (await removed)["success"]

    asyncio.run(story())


def test_while_a_stream_is_made_and_removed_others_are_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as maker,
            connected(server.url) as other,
        ):
            for endpoint, request in (
                ("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}),
                ("STREAM.UPDATE.S", {"name": "S", "subjects": ["t"]}),
                ("STREAM.DELETE.S", {}),
            ):
                files.close_gate()
                waiting = asking(maker, endpoint, **request)
                await files.reached()

                assert "memory" in await ask(other, "INFO")
                assert not waiting.done()
                files.gate.set()
                assert "error" not in await waiting

    asyncio.run(story())


def test_what_a_client_sends_behind_its_request_comes_after_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as maker,
            connected(server.url) as other,
        ):
            files.close_gate()
            waiting = create(maker, "S", "s")
            await files.reached()
            await maker.publish("s", b"taken")
            stored = asking(maker, "STREAM.INFO.S")
            unknown = await ask(other, "STREAM.INFO.S")
            files.gate.set()

            assert unknown["error"]["err_code"] == 10059
            assert (await waiting)["did_create"]
            assert (await stored)["state"]["messages"] == 1

    asyncio.run(story())


def test_two_who_ask_for_the_same_stream_at_once_both_get_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as one,
            connected(server.url) as other,
        ):
            files.close_gate()
            first = create(one, "S", "s")
            await files.reached()
            second = create(other, "S", "s")
            files.gate.set()

            assert (await first)["created"] == (await second)["created"]

    asyncio.run(story())


def test_a_stream_on_its_way_has_its_subjects_already(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as one,
            connected(server.url) as other,
        ):
            files.close_gate()
            first = create(one, "S", "s.>")
            await files.reached()
            refused = await create(other, "OVERLAPPING", "s.1")
            files.gate.set()

            assert refused["error"]["err_code"] == 10065
            assert "error" not in await first

    asyncio.run(story())


def test_a_stream_is_made_again_when_it_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as one,
            connected(server.url) as other,
        ):
            await create(one, "S", "s")
            await one.request("s", b"old", timeout=WAIT_S)
            files.close_gate()
            removed = asking(one, "STREAM.DELETE.S")
            await files.reached()
            again = create(other, "S", "s")
            files.gate.set()

            assert (await removed)["success"]
            assert (await again)["state"]["messages"] == 0
            assert (await ask(other, "STREAM.INFO.S"))["config"]["subjects"] == ["s"]

    asyncio.run(story())


def test_a_server_that_stops_does_not_lose_a_stream_that_is_being_made(tmp_path: Path) -> None:
    async def story() -> None:
        async with gated_server(tmp_path) as (server, files), connected(server.url) as maker:
            files.close_gate()
            waiting = create(maker, "S", "s")
            await files.reached()
            stopping = asyncio.create_task(server.close())
            await asyncio.sleep(0)
            files.gate.set()
            await stopping
            waiting.cancel()

        async with gated_server(tmp_path) as (server, files), connected(server.url) as client:
            found = await ask(client, "STREAM.CREATE.S", name="S", subjects=["s"])
            assert found["config"]["name"] == "S"

    asyncio.run(story())


def consumer(**more: Any) -> dict[str, Any]:
    return {
        "stream_name": "S",
        "config": {"durable_name": "c", "ack_policy": "explicit"} | more,
    }


def make_consumer(client: Client, **more: Any) -> asyncio.Task[dict[str, Any]]:
    return asking(client, "CONSUMER.CREATE.S.c", **consumer(**more))


def test_while_a_consumer_is_made_and_changed_others_are_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as maker,
            connected(server.url) as other,
        ):
            await create(maker, "S", "s")
            until = "2100-01-01T00:00:00Z"
            for endpoint, request in (
                ("CONSUMER.CREATE.S.c", consumer()),
                ("CONSUMER.CREATE.S.c", consumer(description="changed")),
                ("CONSUMER.PAUSE.S.c", {"pause_until": until}),
            ):
                files.close_gate()
                waiting = asking(maker, endpoint, **request)
                await files.reached()

                assert "memory" in await ask(other, "INFO")
                assert not waiting.done()
                files.gate.set()
                assert "error" not in await waiting
            config = (await ask(other, "CONSUMER.INFO.S.c"))["config"]
            assert config["description"] == "changed"
            assert config["pause_until"] == until

    asyncio.run(story())


def test_nobody_finds_a_consumer_that_is_not_kept_yet(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as one,
            connected(server.url) as other,
        ):
            await create(one, "S", "s")
            files.close_gate()
            first = make_consumer(one)
            await files.reached()
            unknown = await ask(other, "CONSUMER.INFO.S.c")
            second = make_consumer(other)
            files.gate.set()

            assert unknown["error"]["err_code"] == 10014
            assert (await first)["created"] == (await second)["created"]

    asyncio.run(story())


def test_a_consumer_that_is_being_changed_is_removed_afterwards(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            gated_server(tmp_path) as (server, files),
            connected(server.url) as one,
            connected(server.url) as other,
        ):
            await create(one, "S", "s")
            await make_consumer(one)
            files.close_gate()
            changed = make_consumer(one, description="changed")
            await files.reached()
            removed = asking(other, "CONSUMER.DELETE.S.c")
            files.gate.set()

            assert (await changed)["config"]["description"] == "changed"
            assert (await removed)["success"]
            assert (await ask(one, "CONSUMER.INFO.S.c"))["error"]["err_code"] == 10014

    asyncio.run(story())
    assert not list(tmp_path.glob("**/consumers/c"))
