"""Lame duck mode: a server that goes lets its clients go first, a few at a time.

Nobody new comes in; those who are there are told, so that they can go elsewhere; after a time of
grace the rest are closed, spread over what is left of the time, so that they do not all arrive
elsewhere at once. Then the server can stop.

One thread: the event loop's. Cancelling it stops letting clients go.
"""

from __future__ import annotations

import asyncio

from penstock.net.closing import ClosedReason
from penstock.server.server import Server

PAUSE_NS_MAX = 10**9
"""Between two clients, however few there are: ten of them need not take two minutes."""


async def let_clients_go(server: Server) -> None:
    """Close the doors, tell the clients, wait, and close them one by one."""
    server.log("INF", "Entering lame duck mode, stop accepting new clients")
    server.close_doors()
    server.system.events.lame_duck()
    options = server.options
    clients = server.clients()
    if not clients:
        return
    server.tell_lame_duck(clients)
    await asyncio.sleep(options.lame_duck_grace_ns / 1e9)
    server.log("INF", "Closing existing clients")
    left_ns = options.lame_duck_duration_ns - options.lame_duck_grace_ns
    pause_ns = min(max(left_ns, PAUSE_NS_MAX) // len(clients), PAUSE_NS_MAX)
    for place, connection in enumerate(clients):
        connection.close(ClosedReason.SERVER_SHUTDOWN)
        if place < len(clients) - 1:
            await asyncio.sleep(max(server.random_below(max(pause_ns, 1)), pause_ns // 2) / 1e9)
