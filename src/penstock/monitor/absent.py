"""The pages of routes, gateways and leaf nodes, which do not exist here.

They answer as the reference server does where these are switched off.

Pure.
"""

from __future__ import annotations

from typing import Any

from penstock.monitor.facts import Source
from penstock.monitor.query import timestamp


def routez(source: Source) -> dict[str, Any]:
    """Return the page of routes, of which there are none."""
    server = source.server()
    return {
        "server_id": server.id,
        "server_name": server.name,
        "now": timestamp(source.now_ns()),
        "num_routes": 0,
        "routes": [],
    }


def gatewayz(source: Source) -> dict[str, Any]:
    """Return the page of gateways, of which there are none."""
    return {
        "server_id": source.server().id,
        "now": timestamp(source.now_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


def leafz(source: Source) -> dict[str, Any]:
    """Return the page of leaf nodes, of which there are none."""
    return {
        "server_id": source.server().id,
        "now": timestamp(source.now_ns()),
        "leafnodes": 0,
        "leafs": [],
    }
