"""Programs of nats-py, the client library, run against a server.

async def program(client: Client, js: JetStreamContext) -> None:
    await js.publish("s.a", b"hello")

run(server, program)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

from penstock.testing.servers import ServerProcess

Program = Callable[[Client, JetStreamContext], Awaitable[None]]

PROGRAM_S_MAX = 100.0
ANSWER_S_MAX = 30.0


def run(server: ServerProcess, program: Program, *, program_s_max: float = PROGRAM_S_MAX) -> None:
    """Run a program with a client of its own."""

    async def connected() -> None:
        client = await nats.connect(server.url)
        try:
            await program(client, client.jetstream(timeout=ANSWER_S_MAX))
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(connected(), program_s_max))
