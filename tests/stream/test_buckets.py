"""Key-value and object stores as a client library builds them from streams, with both servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import (
    KeyValueConfig,
    ObjectMeta,
    RePublish,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from nats.js.errors import APIError, KeyWrongLastSequenceError, NotFoundError

from penstock.testing.servers import PENSTOCK, REFERENCE, ServerProcess, server_process
from tests.support.nats_py import run

pytestmark = pytest.mark.oracle

WAIT_S = 30.0


@pytest.fixture(scope="module", params=[REFERENCE, PENSTOCK])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    with server_process(request.param, store_dir=tmp_path_factory.mktemp("store")) as process:
        yield process


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the condition holds."""

    async def ask() -> None:
        while not await is_so():
            pass

    await asyncio.wait_for(ask(), WAIT_S)


async def next_of(watcher: Any) -> Any:
    return await watcher.updates(timeout=WAIT_S)


async def updates(watcher: Any, count: int) -> list[tuple[str, bytes, str | None] | None]:
    """Return what a watcher sees next: key, value and operation; None after the last."""
    found = [await next_of(watcher) for _ in range(count)]
    return [each and (each.key, each.value, each.operation) for each in found]


def test_history_tells_every_value_and_what_removed_them(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        kv = await js.create_key_value(KeyValueConfig(bucket="history", history=4))
        for number in range(6):
            await kv.put("a", b"%d" % number)
        await kv.put("b", b"other")
        await kv.delete("a")

        told = [(each.revision, each.value, each.operation) for each in await kv.history("a")]

        assert told == [(4, b"3", None), (5, b"4", None), (6, b"5", None), (8, b"", "DEL")]
        await kv.purge("a")
        assert [each.operation for each in await kv.history("a")] == ["PURGE"]
        status = await kv.status()
        assert (status.values, status.history) == (2, 4)

    run(server, program)


def test_revisions_guard_a_value(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        kv = await js.create_key_value(KeyValueConfig(bucket="guarded", history=3))
        first = await kv.create("a", b"1")
        with pytest.raises(KeyWrongLastSequenceError):
            await kv.create("a", b"2")
        second = await kv.update("a", b"2", last=first)
        with pytest.raises(APIError):
            await kv.delete("a", last=first)
        await kv.delete("a", last=second)
        assert await kv.create("a", b"again") == second + 2
        assert (await kv.get("a", revision=second)).value == b"2"

    run(server, program)


def test_watchers_see_what_they_ask_for(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        kv = await js.create_key_value(KeyValueConfig(bucket="watched", history=3))
        for key, value in (("x.1", b"1"), ("x.1", b"2"), ("y.1", b"3"), ("x.2", b"4")):
            await kv.put(key, value)
        await kv.delete("x.2")

        history = await kv.watch("x.*", include_history=True)
        assert await updates(history, 5) == [
            ("x.1", b"1", None),
            ("x.1", b"2", None),
            ("x.2", b"4", None),
            ("x.2", b"", "DEL"),
            None,
        ]
        alive = await kv.watch("x.>", ignore_deletes=True)
        assert await updates(alive, 2) == [("x.1", b"2", None), None]
        bare = await kv.watchall(meta_only=True)
        assert [each and each[1] for each in await updates(bare, 4)] == [b"", b"", b"", None]
        await kv.purge("y.1")
        assert await updates(bare, 1) == [("y.1", b"", "PURGE")]

    run(server, program)


def test_what_was_deleted_is_cleared_away(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        kv = await js.create_key_value(KeyValueConfig(bucket="cleared", history=5))
        for number in range(4):
            await kv.put(f"k{number}", b"x")
            await kv.put(f"k{number}", b"y")
        await kv.delete("k0")
        await kv.purge("k1")

        await kv.purge_deletes(olderthan=-1)

        state = (await js.stream_info("KV_cleared")).state
        assert state.messages == 4
        assert sorted(await kv.keys()) == ["k2", "k3"]

    run(server, program)


def test_a_value_with_a_time_to_live_leaves_a_marker(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        config = KeyValueConfig(bucket="short", limit_marker_ttl=3600)
        kv = await js.create_key_value(config)
        watcher = await kv.watchall()
        assert await updates(watcher, 1) == [None]

        await kv.create("a", b"1", msg_ttl=1)
        await kv.put("b", b"2")

        seen = await updates(watcher, 3)
        assert seen[:2] == [("a", b"1", None), ("b", b"2", None)]
        assert seen[2] is not None
        assert (seen[2][0], seen[2][1]) == ("a", b"")
        assert await kv.keys() == ["b"]
        marker = await js.get_last_msg("KV_short", "$KV.short.a")
        assert marker.headers is not None
        assert marker.headers["Nats-Marker-Reason"] == "MaxAge"

    run(server, program)


def test_values_that_are_too_old_leave_markers(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        config = KeyValueConfig(bucket="aged", ttl=1, limit_marker_ttl=3600)
        kv = await js.create_key_value(config)
        watcher = await kv.watchall()

        await kv.put("a", b"1")

        seen = await updates(watcher, 3)
        assert seen[:2] == [None, ("a", b"1", None)]
        assert seen[2] is not None
        assert seen[2][0] == "a"

    run(server, program)


def test_a_bucket_refuses_what_is_too_large(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        config = KeyValueConfig(bucket="narrow", max_value_size=100, max_bytes=1000)
        kv = await js.create_key_value(config)

        with pytest.raises(APIError) as too_large:
            await kv.put("a", b"x" * 101)
        for number in range(8):
            await kv.put(f"k{number}", b"x" * 80)
        with pytest.raises(APIError) as full:
            await kv.put("more", b"x" * 80)

        assert (too_large.value.err_code, full.value.err_code) == (10054, 10077)

    run(server, program)


def test_a_bucket_is_published_again(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        again = await client.subscribe("again.>")
        await client.flush()
        republish = RePublish(src="$KV.shown.>", dest="again.>")
        kv = await js.create_key_value(KeyValueConfig(bucket="shown", republish=republish))

        await kv.put("a.b", b"1")

        message = await again.next_msg(timeout=WAIT_S)
        assert (message.subject, message.data) == ("again.a.b", b"1")
        assert message.headers is not None
        assert message.headers["Nats-Sequence"] == "1"

    run(server, program)


def test_a_bucket_is_mirrored(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        kv = await js.create_key_value(KeyValueConfig(bucket="origin", history=3, direct=True))
        await kv.put("a", b"1")
        await kv.put("a", b"2")
        mirror = StreamConfig(
            name="KV_copy",
            mirror=StreamSource(name="KV_origin"),
            allow_direct=True,
            mirror_direct=True,
        )
        await js.add_stream(mirror)
        await kv.delete("a")
        await kv.put("b", b"3")

        async def is_there() -> bool:
            return bool((await js.stream_info("KV_copy")).state.last_seq == 4)

        await until(is_there)
        last = await js.get_last_msg("KV_copy", "$KV.origin.b")
        removed = await js.get_last_msg("KV_copy", "$KV.origin.a", direct=True)
        assert last.data == b"3"
        assert removed.headers is not None
        assert removed.headers["KV-Operation"] == "DEL"
        assert (await kv.get("b")).value == b"3"

    run(server, program)


def test_buckets_are_gathered_in_another(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        for bucket in ("east", "west"):
            kv = await js.create_key_value(KeyValueConfig(bucket=bucket))
            await kv.put(f"{bucket}.color", bucket.encode())
        sources = [
            StreamSource(
                name=f"KV_{bucket}",
                subject_transforms=[SubjectTransform(src=f"$KV.{bucket}.>", dest="$KV.all.>")],
            )
            for bucket in ("east", "west")
        ]
        gathered = StreamConfig(
            name="KV_all",
            subjects=["$KV.all.>"],
            sources=sources,
            max_msgs_per_subject=1,
            allow_rollup_hdrs=True,
            allow_direct=True,
        )
        await js.add_stream(gathered)

        async def is_there() -> bool:
            return bool((await js.stream_info("KV_all")).state.messages == 2)

        await until(is_there)
        everything = await js.key_value("all")
        assert sorted(await everything.keys()) == ["east.color", "west.color"]
        assert (await everything.get("west.color")).value == b"west"

    run(server, program)


def test_objects_are_listed_watched_renewed_and_sealed(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        store: Any = await js.create_object_store("things")
        watcher = await store.watch()
        assert await next_of(watcher) is None
        await store.put("one", b"1" * 300_000, meta=ObjectMeta(description="first"))
        await store.put("two", b"2")
        await store.put("one", b"3" * 10)
        await store.delete("two")

        seen = [await next_of(watcher) for _ in range(4)]
        shown = [(each.name, each.size, bool(each.deleted)) for each in seen if each]
        assert shown == [
            ("one", 300_000, False),
            ("two", 1, False),
            ("one", 10, False),
            ("two", 0, True),
        ]
        assert [each.name for each in await store.list(ignore_deletes=True)] == ["one"]
        assert (await store.get("one")).data == b"3" * 10
        await store.update_meta("one", ObjectMeta(name="one", description="other"))
        assert (await store.get_info("one")).description == "other"
        # The first pieces are gone.
        assert (await js.stream_info("OBJ_things")).state.messages == 3
        await store.seal()
        with pytest.raises(APIError) as sealed:
            await store.put("three", b"3")
        assert sealed.value.err_code == 10109
        assert (await store.get("one")).data == b"3" * 10
        with pytest.raises(NotFoundError):
            await store.get("two")

    run(server, program)
