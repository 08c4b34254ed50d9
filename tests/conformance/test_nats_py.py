"""Everyday features of nats-py: each story runs against both servers and must end the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from penstock.testing.servers import server_process
from tests.conformance.servers import OURS, REFERENCE, Pair
from tests.support.settling import settle

pytestmark = pytest.mark.oracle

Story = Callable[[Client, Client], Awaitable[Any]]
WAIT_S = 20.0


async def tell(story: Story, port: int) -> Any:
    """Return the outcome of a story that two clients of one server play."""
    async with asyncio.timeout(60):
        one = await nats.connect(f"nats://127.0.0.1:{port}")
        other = await nats.connect(f"nats://127.0.0.1:{port}")
        try:
            return await story(one, other)
        finally:
            await one.close()
            await other.close()


def assert_same_end(pair: Pair, story: Story) -> None:
    expected = asyncio.run(tell(story, pair.reference.port))

    assert asyncio.run(tell(story, pair.ours.port)) == expected
    assert expected, "a story without an end tells nothing"


async def publish_and_subscribe(one: Client, other: Client) -> Any:
    subscription = await one.subscribe("orders.*")
    await settle(one)
    for number in range(20):
        await other.publish(f"orders.{number % 3}", b"%d" % number, reply="back")
    received = [await subscription.next_msg(WAIT_S) for _ in range(20)]
    return [(each.subject, each.reply, each.data) for each in received]


async def queue_group(one: Client, other: Client) -> Any:
    received: list[bytes] = []
    everything = asyncio.Event()

    async def take(message: Msg) -> None:
        received.append(message.data)
        if len(received) == 100:
            everything.set()

    for client in (one, other, one):
        await client.subscribe("jobs", queue="workers", cb=take)
    await settle(one, other)
    for number in range(100):
        await other.publish("jobs", b"%d" % number)
    await asyncio.wait_for(everything.wait(), WAIT_S)
    await settle(one, other)
    return sorted(received)


async def request_and_reply(one: Client, other: Client) -> Any:
    async def answer(message: Msg) -> None:
        await message.respond(message.data[::-1])

    await one.subscribe("service", cb=answer)
    await settle(one)
    answers = [await other.request("service", b"%d!" % n, timeout=WAIT_S) for n in range(10)]
    return [each.data for each in answers]


async def nobody_answers(one: Client, other: Client) -> Any:
    with pytest.raises(nats.errors.NoRespondersError) as caught:
        await one.request("nobody", b"", timeout=WAIT_S)
    return type(caught.value).__name__


async def headers(one: Client, other: Client) -> Any:
    subscription = await one.subscribe("headed")
    await settle(one)
    await other.publish("headed", b"body", headers={"A": "1", "b": "two words", "C": ""})
    message = await subscription.next_msg(WAIT_S)
    return message.headers, message.data


async def drain(one: Client, other: Client) -> Any:
    seen: list[bytes] = []

    async def take(message: Msg) -> None:
        seen.append(message.data)

    subscription = await one.subscribe("work", cb=take)
    await settle(one)
    for number in range(50):
        await other.publish("work", b"%d" % number)
    await settle(other)
    await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py's
    await other.publish("work", b"too late")
    await settle(other)
    await one.drain()
    return seen, one.is_closed


async def automatic_end(one: Client, other: Client) -> Any:
    subscription = await one.subscribe("few")
    await subscription.unsubscribe(limit=3)
    await settle(one)
    for number in range(10):
        await other.publish("few", b"%d" % number)
    await settle(other)
    received = [(await subscription.next_msg(WAIT_S)).data for _ in range(3)]
    await settle(one)
    return received, subscription.pending_msgs


async def largest_payload(one: Client, other: Client) -> Any:
    subscription = await one.subscribe("big")
    await settle(one)
    await other.publish("big", b"x" * other.max_payload)
    message = await subscription.next_msg(WAIT_S)
    with pytest.raises(nats.errors.MaxPayloadError):
        await other.publish("big", b"x" * (other.max_payload + 1))
    return len(message.data), other.max_payload


async def wildcards(one: Client, other: Client) -> Any:
    subscriptions = [await one.subscribe(each) for each in ("a.*", "a.>", "a.b.*", ">")]
    await settle(one)
    for subject in ("a.b", "a.b.c", "b", "a"):
        await other.publish(subject, subject.encode())
    await other.publish("end")
    await settle(other, one)
    return [each.pending_msgs for each in subscriptions]


async def own_messages(one: Client, other: Client) -> Any:
    assert one.connected_url is not None
    deaf = await nats.connect(one.connected_url.geturl(), no_echo=True)
    mine = await deaf.subscribe("echo")
    theirs = await one.subscribe("echo")
    await settle(one)
    await deaf.publish("echo", b"1")
    await settle(deaf)
    message = await theirs.next_msg(WAIT_S)
    pending = mine.pending_msgs
    await deaf.close()
    return message.data, pending


STORIES: list[Story] = [
    publish_and_subscribe,
    queue_group,
    request_and_reply,
    nobody_answers,
    headers,
    drain,
    automatic_end,
    largest_payload,
    wildcards,
    own_messages,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_ends_as_with_the_reference(pair: Pair, story: Story) -> None:
    assert_same_end(pair, story)


async def survive_restart(command: tuple[str, ...], config: Path) -> tuple[list[bytes], int]:
    """Return what a subscriber receives before and after its server was restarted."""
    reconnected = asyncio.Event()

    async def note() -> None:
        reconnected.set()

    async def ignore(error: Exception) -> None:
        return

    server = await asyncio.to_thread(server_process, command, config=config)
    client = await nats.connect(
        f"nats://127.0.0.1:{server.port}",
        reconnected_cb=note,
        error_cb=ignore,
        reconnect_time_wait=0.05,
        max_reconnect_attempts=-1,
    )
    try:
        subscription = await client.subscribe("news")
        await client.publish("news", b"before")
        heard = [(await subscription.next_msg(WAIT_S)).data]
        await asyncio.to_thread(server.stop)
        server = await asyncio.to_thread(server_process, command, config=config, port=server.port)
        await asyncio.wait_for(reconnected.wait(), WAIT_S)
        await client.publish("news", b"after")
        heard.append((await subscription.next_msg(WAIT_S)).data)
        return heard, client.stats["reconnects"]
    finally:
        await client.close()
        await asyncio.to_thread(server.stop)


@pytest.mark.slow
@pytest.mark.parametrize("command", [REFERENCE, OURS], ids=["reference", "ours"])
def test_a_client_comes_back_with_its_subscriptions_after_a_restart(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "server.conf"
    config.write_text("")

    assert asyncio.run(survive_restart(command, config)) == ([b"before", b"after"], 1)
