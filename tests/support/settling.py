"""Waiting until a server has everything that a nats-py client was told to send.

nats-py's `flush` writes its PING ahead of what still waits in the client, so one PONG proves
nothing about it; by the second PING nothing waits any more.
"""

from __future__ import annotations

from nats.aio.client import Client


async def settle(*clients: Client) -> None:
    """Return when the server has taken all that these clients sent."""
    for client in clients:
        await client.flush()
        await client.flush()
