"""JetStream as a client library uses it: the same programs with the real server and with ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, KeyValueConfig, StreamConfig
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from penstock.testing.servers import PENSTOCK, REFERENCE, ServerProcess, server_process
from tests.support.nats_py import run

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module", params=[REFERENCE, PENSTOCK])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    with server_process(request.param, store_dir=tmp_path_factory.mktemp("store")) as process:
        yield process


async def filled(js: JetStreamContext, name: str, count: int) -> None:
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    for number in range(count):
        await js.publish(f"{name}.{number % 3}", b"%d" % number)


async def next_update(watcher: Any) -> Any:
    return await watcher.updates(timeout=10)


def test_a_durable_pull_subscription_fetches_and_acknowledges(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        await filled(js, "PULL", 25)
        subscription = await js.pull_subscribe("PULL.>", durable="D")

        first = await subscription.fetch(10, timeout=10)
        for message in first:
            await message.ack_sync()
        rest = await subscription.fetch(15, timeout=10)
        for message in rest:
            await message.ack()
        with pytest.raises(nats.errors.TimeoutError):
            await subscription.fetch(1, timeout=0.2)

        assert [message.data for message in first + rest] == [b"%d" % each for each in range(25)]
        assert [message.metadata.num_pending for message in first] == list(range(24, 14, -1))
        info = await subscription.consumer_info()
        assert (info.num_ack_pending, info.num_pending) == (0, 0)
        assert info.ack_floor is not None
        assert info.ack_floor.stream_seq == 25

    run(server, program)


def test_a_message_that_is_refused_comes_again(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        await filled(js, "NAKED", 1)
        subscription = await js.pull_subscribe("NAKED.>", durable="D")

        (message,) = await subscription.fetch(1, timeout=10)
        await message.nak()
        (again,) = await subscription.fetch(1, timeout=10)
        await again.in_progress()
        await again.term()

        assert again.metadata.num_delivered == 2
        assert again.metadata.sequence.stream == message.metadata.sequence.stream

    run(server, program)


def test_a_push_subscription_gets_old_and_new_messages(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        await filled(js, "PUSH", 4)
        subscription = await js.subscribe("PUSH.>", durable="D")

        old = [await subscription.next_msg(timeout=10) for _ in range(4)]
        await js.publish("PUSH.new", b"new")
        new = await subscription.next_msg(timeout=10)
        for message in [*old, new]:
            await message.ack_sync()

        assert [message.subject for message in old] == ["PUSH.0", "PUSH.1", "PUSH.2", "PUSH.0"]
        assert new.data == b"new"
        assert (await subscription.consumer_info()).push_bound

    run(server, program)


def test_members_of_a_queue_share_the_messages(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        await filled(js, "SHARED", 0)
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message: Msg) -> None:
            await got.put(message.data)

        for _ in range(3):
            await js.subscribe("SHARED.>", "workers", cb=take)
        for number in range(30):
            await js.publish("SHARED.a", b"%d" % number)
        found = [await asyncio.wait_for(got.get(), 10) for _ in range(30)]

        assert sorted(found, key=int) == [b"%d" % number for number in range(30)]

    run(server, program)


def test_an_ordered_consumer_gets_everything_in_order(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        await filled(js, "ORDERED", 200)

        subscription = await js.subscribe("ORDERED.>", ordered_consumer=True)
        found = [(await subscription.next_msg(timeout=10)).data for _ in range(200)]

        assert found == [b"%d" % number for number in range(200)]

    run(server, program)


def test_a_consumer_starts_where_it_is_told(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        await filled(js, "STARTED", 9)
        config = ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)

        subscription = await js.subscribe("STARTED.>", config=config)
        found = [(await subscription.next_msg(timeout=10)).data for _ in range(3)]

        assert found == [b"6", b"7", b"8"]

    run(server, program)


def test_a_key_value_store_keeps_finds_and_forgets(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        kv = await js.create_key_value(KeyValueConfig(bucket="settings", history=5))

        await kv.put("color", b"one")
        await kv.put("color", b"two")
        revision = await kv.put("color", b"three")
        await kv.put("size", b"9")
        entry = await kv.get("color")
        history = await kv.history("color")
        await kv.update("color", b"four", last=revision)
        with pytest.raises(KeyWrongLastSequenceError):
            await kv.update("color", b"five", last=revision)
        await kv.delete("size")

        assert entry.value == b"three"
        assert [each.value for each in history] == [b"one", b"two", b"three"]
        with pytest.raises(KeyNotFoundError):
            await kv.get("size")
        with pytest.raises(KeyNotFoundError):
            await kv.get("shape")
        assert await kv.keys() == ["color"]
        await kv.purge("color")
        with pytest.raises(KeyNotFoundError):
            await kv.get("color")

    run(server, program)


def test_watchers_see_what_is_there_and_what_comes(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        kv = await js.create_key_value(KeyValueConfig(bucket="watched", history=3))
        await kv.put("a", b"1")
        await kv.put("a", b"2")
        await kv.put("b", b"3")

        watcher = await kv.watchall()
        seen = [await next_update(watcher) for _ in range(3)]
        await kv.put("c", b"4")
        await kv.delete("a")
        later = [await next_update(watcher) for _ in range(2)]

        shown = [None if each is None else (each.key, each.value) for each in seen]
        assert shown == [("a", b"2"), ("b", b"3"), None]
        assert [(each.key, each.operation) for each in later if each] == [("c", None), ("a", "DEL")]

    run(server, program)


def test_a_value_expires(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        kv = await js.create_key_value(KeyValueConfig(bucket="short", ttl=0.2))
        await kv.put("a", b"1")

        async def is_gone() -> None:
            while True:
                try:
                    await kv.get("a")
                except KeyNotFoundError:
                    return

        await asyncio.wait_for(is_gone(), 20)

    run(server, program)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_large_object_comes_back_as_it_was(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        store = await js.create_object_store("films")
        block = bytes(range(256)) * 4096
        data = block * 64

        await store.put("film", data)
        found = await store.get("film")

        assert found.data is not None
        assert len(found.data) == 64 * 1024 * 1024
        assert sha256(found.data).digest() == sha256(data).digest()
        await store.delete("film")
        with pytest.raises(nats.js.errors.NotFoundError):
            await store.get("film")

    # The library itself takes its time over so many bytes.
    run(server, program, program_s_max=380)


def test_a_work_queue_is_empty_when_all_is_done(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="WORK", subjects=["WORK.>"], retention="workqueue")
        for number in range(20):
            await js.publish("WORK.a", b"%d" % number)
        subscription = await js.pull_subscribe("WORK.>", durable="D")

        for message in await subscription.fetch(20, timeout=10):
            await message.ack_sync()

        assert (await js.stream_info("WORK")).state.messages == 0

    run(server, program)


def test_an_idle_ephemeral_consumer_goes(server: ServerProcess) -> None:
    async def program(client: Client, js: JetStreamContext) -> None:
        await filled(js, "IDLE", 1)
        idle_s = timedelta(milliseconds=200).total_seconds()
        config = ConsumerConfig(name="gone", inactive_threshold=idle_s, ack_policy=AckPolicy.NONE)
        await js.add_consumer("IDLE", config)

        async def is_gone() -> None:
            while (await js.stream_info("IDLE")).state.consumer_count:
                pass

        await asyncio.wait_for(is_gone(), 20)

    run(server, program)
