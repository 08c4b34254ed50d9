"""Who a client is, as advisories and services are told. Pure."""

from __future__ import annotations

from typing import Any

from penstock.documents.times import timestamp
from penstock.net.connection import Connection
from penstock.server.monitoring import user_of


def client_info(client: Connection, server_name: str, *, account: str) -> dict[str, Any]:
    """Tell an account about a client: everything of its own, little of one that asks from outside.

    What is not known is left out.
    """
    options = client.options
    if client.identity.account_name != account:
        return {
            "acc": client.identity.account_name,
            "svc": account,
            "rtt": client.rtt_ns,
            "server": server_name,
        }
    fields = {
        "start": timestamp(client.start_ns),
        "host": client.ip,
        "id": client.cid,
        "acc": client.identity.account_name,
        "user": user_of(client),
        "name": options.name,
        "lang": options.lang,
        "ver": options.version,
        "rtt": client.rtt_ns,
        "server": server_name,
        **_of_token(client),
        "kind": "Client",
        "client_type": client.kind,
    }
    return {name: value for name, value in fields.items() if value}


def _of_token(client: Connection) -> dict[str, Any]:
    grant = client.identity.grant
    if grant is None:
        return {}
    claims = grant.claims
    return {
        "issuer_key": claims.signing_key or claims.issuer,
        "name_tag": claims.name,
        "tags": list(claims.tags),
    }
