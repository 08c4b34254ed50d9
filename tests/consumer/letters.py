"""A work stream, a stream of dead letters and a client of both: what tests of letters share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from penstock.consumer.extensions.dead_letters import HEADER_PREFIX

WAIT_S = 60.0
PREFIX = HEADER_PREFIX.decode()


class Work:
    """A stream with a consumer whose messages may die, and the letters of those that did."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.js: JetStreamContext = client.jetstream(timeout=WAIT_S)
        self.name = name
        self.dead = f"dead.{name}"
        self.requests = 0

    @classmethod
    async def connect(cls, url: str, name: str) -> Self:
        return cls(await nats.connect(url), name)

    async def begin(self, *, letters: bool = True, stream: Any = None, **consumer: Any) -> None:
        await self.js.add_stream(
            StreamConfig(name=self.name, subjects=[f"{self.name}.>"], **(stream or {}))
        )
        if letters:
            await self.make_letters()
        await self.consume(**consumer)

    async def consume(self, **config: Any) -> None:
        fields: dict[str, Any] = {"durable_name": "worker", "ack_policy": AckPolicy.EXPLICIT}
        fields |= {"metadata": {"penstock.dead_letter": self.dead}} | config
        await self.js.add_consumer(self.name, ConsumerConfig(**fields))

    async def make_letters(self, **config: Any) -> None:
        await self.js.add_stream(
            StreamConfig(name=f"{self.name}-dead", subjects=[self.dead], **config)
        )

    async def publish(self, *tokens: str, headers: dict[str, str] | None = None) -> None:
        for token in tokens:
            await self.js.publish(f"{self.name}.{token}", token.encode(), headers=headers)

    async def fetch(self, count: int = 1) -> list[Msg]:
        worker = await self.js.pull_subscribe_bind("worker", self.name)
        found: list[Msg] = []
        while len(found) < count:
            found += await worker.fetch(count - len(found), timeout=WAIT_S)
        await worker.unsubscribe()
        return found

    async def term(self, message: Msg, why: str = "") -> None:
        """Terminate a message, and wait until that is on stable storage."""
        await self.client.request(message.reply, f"+TERM {why}".strip().encode(), timeout=WAIT_S)

    async def letters(self, count: int) -> list[Msg]:
        """Wait for letters; give these and what there is beyond them."""
        subscription = await self.js.subscribe(self.dead, stream=f"{self.name}-dead")
        found = [await subscription.next_msg(timeout=WAIT_S) for _ in range(count)]
        state = (await self.js.stream_info(f"{self.name}-dead")).state
        while len(found) < state.messages:
            found.append(await subscription.next_msg(timeout=WAIT_S))
        await subscription.unsubscribe()
        return found

    async def until_pending(self, count: int) -> None:
        """Wait until so many messages are out unacknowledged."""
        while (await self.js.consumer_info(self.name, "worker")).num_ack_pending != count:
            pass


def at_work(url: str, name: str, program: Callable[[Work], Awaitable[None]]) -> None:
    """Run a program with a client of its own."""

    async def connected() -> None:
        work = await Work.connect(url, name)
        try:
            await program(work)
        finally:
            await work.client.close()

    asyncio.run(asyncio.wait_for(connected(), 110))


def told(letter: Msg) -> dict[str, str]:
    """Return the headers of a letter, without the time."""
    headers = letter.headers or {}
    found = {key.removeprefix(PREFIX): value for key, value in headers.items() if PREFIX in key}
    assert found.pop("Time").endswith("Z")
    return found
