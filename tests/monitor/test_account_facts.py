"""The page of an account shows what it shares, be it from a configuration or from claims."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import PENSTOCK, REFERENCE, server_process
from tests.support.dialogue import Dialogue
from tests.support.tokens import Key, Operator, User, now

pytestmark = pytest.mark.oracle

PLAIN = """
accounts {
    S {
        users [ { user: s, password: s } ]
        exports [
            { stream: "news.>" }
            { service: "ask", response_type: stream, accounts: [B] }
            { service: "for.*", account_token_position: 2 }
        ]
        mappings { "a.*": "b.$1", "c": [ { dest: "d", weight: 40% }, { dest: "e", weight: 60% } ] }
    }
    B {
        users [ { user: b, password: b } ]
        imports [
            { stream: { account: S, subject: "news.>" }, prefix: "other" }
            { stream: { account: S, subject: "news.x" }, to: "y" }
            { service: { account: S, subject: "ask" }, to: "question", share: true }
        ]
    }
}
"""


def shown(kind: str, settings: str, names: list[str], users: list[User], store: Path) -> list[Any]:
    """Return what is shown of accounts, in no particular order."""
    found: list[Any] = []
    with server_process(kind, settings=settings, monitor_port=-1, store_dir=store) as server:
        clients = [Dialogue(server.port) for _ in users]
        for client, user in zip(clients, users, strict=True):
            assert client.login(**user.fields(client.info["nonce"])) == []
        for name in names:
            url = f"{server.monitor_url}/accountz?acc={name}"
            with urllib.request.urlopen(url, timeout=30) as answer:
                detail = json.load(answer)["account_detail"]
            found.append((list(detail), detail.get("mappings")))
            parts = (detail.get(part, []) for part in ("exports", "imports"))
            found += [sorted(json.dumps(each) for each in part) for part in parts]
        for client in clients:
            client.close()
    return found


def test_a_configuration_is_shown_alike(tmp_path: Path) -> None:
    names = ["S", "B", "$SYS"]

    ours, theirs = (
        shown(kind, PLAIN, names, [], tmp_path / kind) for kind in (PENSTOCK, REFERENCE)
    )

    assert ours == theirs


def test_claims_are_shown_alike(tmp_path: Path) -> None:
    operator = Operator()
    private = {"subject": "private.*", "type": "stream", "token_req": True}
    seller = operator.account(
        "S",
        exports=[
            {"subject": "ask", "type": "service", "response_type": "Chunked"},
            private | {"revocations": {Key("A").public: now() - 60}},
        ],
        mappings={"a.*": [{"subject": "b.$1"}]},
    )
    buyer = operator.account("B")
    token = seller.activation(buyer, "private.*", "stream")
    source = {"account": seller.key.public}
    buyer.change(
        imports=[
            {"subject": "private.1", "type": "stream", "token": token, "local_subject": "x"}
            | source,
            {"subject": "private.2", "type": "stream"} | source,
            {"subject": "ask", "type": "service", "local_subject": "q", "share": True} | source,
        ]
    )
    users = [seller.user(), buyer.user()]
    names = [each.key.public for each in (seller, buyer, operator.system)]
    settings = operator.settings(seller, buyer)

    ours, theirs = (
        shown(kind, settings, names, users, tmp_path / kind) for kind in (PENSTOCK, REFERENCE)
    )

    assert ours == theirs
