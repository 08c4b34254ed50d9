"""Accounts and users of operators: the real server gives the same answers to the same tokens."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from penstock.testing.servers import PENSTOCK, REFERENCE, ServerProcess, server_process
from tests.support.dialogue import Dialogue
from tests.support.tokens import STORAGE, Account, Key, Operator, User, encoded, now

pytestmark = pytest.mark.oracle

DAY = 86_400
OPERATOR = Operator()
SCOPE_KEY, PLAIN_KEY = Key("A"), Key("A")
TEMPLATE = {
    "pub": {
        "allow": ["{{name()}}.>", "{{tag(dept)}}.{{account-name()}}"],
        "deny": ["x.{{subject()}}"],
    },
    "sub": {"allow": ["in.{{tag(dept)}}", "_INBOX.>"]},
    "subs": -1,
    "data": -1,
    "payload": 20,
}
ACME = OPERATOR.account(
    "Acme",
    limits=STORAGE | {"payload": 100, "subs": 3},
    signing_keys=[
        PLAIN_KEY.public,
        {"kind": "user_scope", "key": SCOPE_KEY.public, "role": "r", "template": TEMPLATE},
    ],
    default_permissions={"pub": {"deny": ["secret"]}},
)
STRICT = OPERATOR.account("Strict", limits={"disallow_bearer": True})
SMALL = OPERATOR.account("Small", limits={"conn": 0})
SILENT = OPERATOR.account("Silent", limits={"payload": 0})
PAST = OPERATOR.account("Past")
PAST.change(data={"exp": now() - 10})
FOREIGN = OPERATOR.account("Foreign")
FOREIGN.change(by=Key("O"))
WRONG = OPERATOR.account(
    "Wrong", limits={"exports": 0}, exports=[{"subject": "x", "type": "stream"}]
)
REVOKING = OPERATOR.account("Revoking")
REVOKED, KEPT = REVOKING.user(), REVOKING.user()
REVOKING.change(revocations={REVOKED.key.public: now() + DAY})
CLOSED = OPERATOR.account("Closed", revocations={"*": now() + DAY})
SELLER = OPERATOR.account(
    "Seller",
    exports=[
        {"subject": "news.>", "type": "stream"},
        {"subject": "private.>", "type": "stream", "token_req": True},
        {"subject": "ask", "type": "service"},
        {"subject": "ask.private.*", "type": "service", "token_req": True},
        {"subject": "for.*", "type": "service", "account_token_position": 2},
    ],
)
BUYER, STRANGER = OPERATOR.account("Buyer"), OPERATOR.account("Stranger")


def taken(subject: str, kind: str, **more: Any) -> dict[str, Any]:
    """Return an import from the seller."""
    return {"subject": subject, "account": SELLER.key.public, "type": kind} | more


BUYER.change(
    imports=[
        taken("news.>", "stream", local_subject="local.>"),
        taken(
            "private.one", "stream", token=SELLER.activation(BUYER, "private.>", "stream"), to="pre"
        ),
        taken("ask", "service", local_subject="question"),
        taken(
            "ask.private.1", "service", token=SELLER.activation(BUYER, "ask.private.*", "service")
        ),
        taken(f"for.{BUYER.key.public}", "service", local_subject="mine"),
    ],
    mappings={"from.*": [{"subject": "to.$1"}]},
)
STRANGER.change(
    imports=[
        taken("private.one", "stream"),
        taken("ask.private.1", "service"),
        taken(f"for.{BUYER.key.public}", "service", local_subject="theirs"),
        taken("news.x", "stream"),
    ]
)
ACCOUNTS = (
    ACME, STRICT, SMALL, SILENT, PAST, FOREIGN, WRONG, REVOKING, CLOSED, SELLER, BUYER, STRANGER,
)  # fmt: skip


def scoped(name: str = "bob", **own: Any) -> User:
    return ACME.user(name, by=SCOPE_KEY, is_scoped=True, **own)


def of_first_version() -> User:
    key = Key("U")
    claims = {
        "iss": ACME.key.public,
        "sub": key.public,
        "iat": now(),
        "jti": "x",
        "type": "user",
        "nats": {"pub": {"allow": ["a"]}},
    }
    header, payload = (
        encoded(json.dumps(each).encode()) for each in ({"typ": "jwt", "alg": "ed25519"}, claims)
    )
    return User(key, f"{header}.{payload}.{ACME.key.sign(payload)}")


LIMITED: dict[str, Any] = {
    "pub": {"allow": ["a"], "deny": ["b"]},
    "sub": {"allow": ["s.*", "q.> workers"], "deny": ["s.no"]},
}
PUBLISHED = ("PUB a 1", "x", "PUB b 1", "x", "PUB secret 1", "x")
SUBSCRIBED = ("SUB s.1 1", "SUB s.no 2", "SUB q.a workers 3", "SUB q.a 4")

USERS: dict[str, tuple[User, tuple[str, ...]]] = {
    "default permissions": (ACME.user(), PUBLISHED),
    "subscriptions of an account": (ACME.user(), tuple(f"SUB a {sid}" for sid in range(4))),
    "payload of an account": (ACME.user(), ("PUB a 101", "x" * 101)),
    "payload of a user": (ACME.user(payload=10), ("PUB a 11", "x" * 11)),
    "payload of a user above its account": (ACME.user(payload=1000), ("PUB a 101", "x" * 101)),
    "no payload at all": (SILENT.user(), ("PUB a 0", "", "PUB a 1", "x")),
    "subscriptions of a user": (ACME.user(subs=1), ("SUB a 1", "SUB b 2")),
    "permissions": (ACME.user(**LIMITED), (*PUBLISHED, *SUBSCRIBED)),
    "a denial alone": (ACME.user(pub={"deny": ["b"]}), PUBLISHED),
    "responses": (ACME.user(resp={"max": 1, "ttl": 0}), PUBLISHED),
    "a signing key": (ACME.user(by=PLAIN_KEY), PUBLISHED),
    "a signing key of nobody": (ACME.user(by=Key("A")), PUBLISHED),
    "a scope": (
        scoped(tags=["dept:hr", "dept:it", "other:x"]),
        (
            "PUB bob.1 0", "", "PUB hr.Acme 0", "", "PUB it.Acme 0", "", "PUB it.B 0", "",
            "SUB in.hr 1", "SUB in.other 2", "SUB _INBOX.1 3",
        ),
    ),
    "the payload of a scope": (scoped(tags=["dept:hr"]), ("PUB bob.1 21", "x" * 21)),
    "a scope whose tags are not there": (
        scoped(), ("PUB bob.1 0", "", "PUB hr.Acme 0", "", "SUB in.hr 1"),
    ),
    "a scope and rights besides": (scoped(pub={"allow": ["x"]}), ()),
    "an expired user": (ACME.user(data={"exp": now() - 5}), ()),
    "a user of tomorrow": (ACME.user(data={"nbf": now() + DAY}), ()),
    "a user until tomorrow": (ACME.user(data={"exp": now() + DAY}), PUBLISHED),
    "connections of another kind": (ACME.user(allowed_connection_types=["WEBSOCKET"]), ()),
    "connections of this kind": (ACME.user(allowed_connection_types=["standard", "X"]), PUBLISHED),
    "connections of an unknown kind": (ACME.user(allowed_connection_types=["X"]), ()),
    "addresses": (ACME.user(src=["127.0.0.0/8", "192.0.2.0/24"]), PUBLISHED),
    "addresses as a text": (ACME.user(src="127.0.0.0/8,192.0.2.0/24"), PUBLISHED),
    "other addresses": (ACME.user(src=["192.0.2.0/24"]), ()),
    "addresses that are none": (ACME.user(src=["192.0.2"]), ()),
    "hours that never are": (ACME.user(times=[{"start": "10:00:00", "end": "10:00:00"}]), ()),
    "hours that are none": (ACME.user(times=[{"start": "x", "end": "00:00:01"}]), ()),
    "a proxy that there is not": (ACME.user(proxy_required=True), ()),
    "a revoked user": (REVOKED, ()),
    "a user that is not revoked": (KEPT, PUBLISHED),
    "an account that revoked everybody": (CLOSED.user(), ()),
    "an account that nobody knows": (OPERATOR.account("X").user(), ()),
    "an expired account": (PAST.user(), ()),
    "an account of another operator": (FOREIGN.user(), ()),
    "an account beyond its limits": (WRONG.user(), ()),
    "an account without connections": (SMALL.user(), ()),
    "a token of the first version": (of_first_version(), ("PUB a 0", "", "PUB b 0", "", "SUB x 1")),
    # Not ">": the events of the account itself would come when they like.
    "the system account": (OPERATOR.system.user(), ("SUB $SYS.REQ.nothing 1", "SUB x 2")),
    "a mapping": (BUYER.user(), ("SUB to.1 1", "PUB from.1 1", "x")),
}  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    started: list[ServerProcess] = []
    try:
        for kind in (PENSTOCK, REFERENCE):
            store = tmp_path_factory.mktemp("store")
            started.append(
                server_process(kind, settings=OPERATOR.settings(*ACCOUNTS), store_dir=store)
            )
        yield started
    finally:
        for server in started:
            server.stop()


def login(server: ServerProcess, user: User, **fields: Any) -> tuple[Dialogue, list[str]]:
    dialogue = Dialogue(server.port)
    return dialogue, dialogue.login(**user.fields(dialogue.info["nonce"]) | fields)


def test_the_greeting_asks_for_credentials_and_has_something_to_sign(
    servers: list[ServerProcess],
) -> None:
    for server in servers:
        with Dialogue(server.port) as dialogue:
            assert dialogue.info["auth_required"] is True
            assert len(dialogue.info["nonce"]) == 15
            # Only once: the INFO after CONNECT has none.
            fields = ACME.user().fields(dialogue.info["nonce"])
            dialogue.login(**fields, protocol=1)
            dialogue.send("PING")
            later = json.loads(dialogue.next().removeprefix("INFO "))
            assert "nonce" not in later
            assert later["remote_account"] == ACME.key.public


@pytest.mark.parametrize("case", USERS)
def test_a_user_may_what_its_token_and_its_account_say(
    servers: list[ServerProcess], case: str
) -> None:
    user, lines = USERS[case]
    told = []
    for server in servers:
        dialogue, answers = login(server, user)
        with dialogue:
            if "closed" not in answers:
                dialogue.send(*lines)
                answers += dialogue.answers()
        told.append(answers)

    assert told[0] == told[1]


TAMPERED = ACME.user().token.split(".")
TAMPERED[1] = encoded(json.dumps({"iss": ACME.key.public, "nats": {"type": "user"}}).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"user": "a", "pass": "b"},
        {"jwt": ACME.user().token},
        {"jwt": ACME.user().token, "sig": "x"},
        {"jwt": ACME.user().token, "sig": Key("U").sign("x")},
        {"jwt": ACME.token, "sig": "x"},
        {"jwt": ".".join(TAMPERED), "sig": "x"},
        {"jwt": "eyJx.eyJy.z", "sig": "x"},
        {"jwt": ACME.user(bearer_token=True).token},
        {"jwt": STRICT.user(bearer_token=True).token},
        {"nkey": ACME.user().key.public, "sig": "x"},
    ],
)
def test_only_a_whole_token_and_a_signature_let_a_client_in(
    servers: list[ServerProcess], fields: dict[str, Any]
) -> None:
    told = []
    for server in servers:
        with Dialogue(server.port) as dialogue:
            told.append(dialogue.login(**fields))

    assert told[0] == told[1]


def test_a_signature_of_another_nonce_lets_nobody_in(servers: list[ServerProcess]) -> None:
    user = ACME.user()
    for server in servers:
        with Dialogue(server.port) as dialogue:
            fields = user.fields(dialogue.info["nonce"])
            assert dialogue.login(**fields) == []
        with Dialogue(server.port) as dialogue:
            assert dialogue.login(**fields) == ["-ERR 'Authorization Violation'", "closed"]


def shared(server: ServerProcess) -> list[str]:
    """Return what each side receives when a seller, a buyer and a stranger talk."""
    wanted = {"no_responders": True, "headers": True}
    people = [login(server, each.user(), **wanted)[0] for each in (SELLER, BUYER, STRANGER)]
    seller, buyer, stranger = people
    told: list[str] = []
    buyer.send("SUB local.> 1", "SUB pre.private.one 2", "SUB reply.* 3", "SUB private.one 4")
    told += buyer.answers()
    stranger.send("SUB private.one 1", "SUB news.x 2", "SUB reply.* 3")
    told += stranger.answers()
    seller.send("SUB ask 1", "SUB ask.private.* 2", "SUB for.* 3")
    told += seller.answers()
    seller.send("PUB news.x 1", "1", "PUB private.one 1", "2")
    told += [*seller.answers(), "buyer", *buyer.answers(), "stranger", *stranger.answers()]
    for place, subject in enumerate(("question", "ask.private.1", "mine")):
        buyer.send(f"PUB {subject} reply.{place} 1", str(place))
    for place, subject in enumerate(("ask.private.1", "theirs")):
        stranger.send(f"PUB {subject} reply.{place} 0", "")
    told += [*buyer.answers(), "stranger", *stranger.answers(), "seller", *seller.answers()]
    for each in people:
        each.close()
    replaced = (re.sub(r'_R_\.\S+|"rtt":\d+', "", each) for each in told)
    # Lengths follow from times.
    return [re.sub(r"(HMSG .*) \d+ \d+$", r"\1", each) for each in replaced]


def test_what_accounts_share_is_what_exports_tokens_and_positions_allow(
    servers: list[ServerProcess],
) -> None:
    ours, theirs = (shared(server) for server in servers)

    assert ours == theirs
    assert "MSG pre.private.one 2 1" in ours
    assert ours.count("NATS/1.0 503") == 2


async def streams_of(server: ServerProcess, account: Account, folder: Path) -> list[Any]:
    """Return the answers to an account that stores something, by nats-py with a creds file."""
    file = account.user().write(folder / f"{account.name}.creds")
    client = await nats.connect(server.url, user_credentials=str(file))
    told: list[Any] = []
    for subject, request in (
        ("INFO", {}),
        ("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "max_bytes": 1000}),
        ("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]}),
        ("INFO", {}),
    ):
        body = json.dumps(request).encode() if request else b""
        answer = json.loads((await client.request(f"$JS.API.{subject}", body)).data)
        told.append({name: answer.get(name) for name in ("error", "limits", "tiers", "streams")})
    await client.close()
    return told


@pytest.mark.parametrize(
    "limits",
    [
        {},
        STORAGE,
        {"disk_storage": 5000, "streams": 1, "max_bytes_required": True, "consumer": -1},
        {"tiered_limits": {"R1": STORAGE | {"streams": 1, "disk_storage": 5000}}},
        {"tiered_limits": {"R3": STORAGE}},
    ],
)
def test_an_account_stores_what_its_claims_allow(limits: dict[str, Any], tmp_path: Path) -> None:
    account = OPERATOR.account("Store", limits=limits)
    told = []
    for kind in (PENSTOCK, REFERENCE):
        settings = OPERATOR.settings(account)
        with server_process(kind, settings=settings, store_dir=tmp_path / kind) as server:
            told.append(asyncio.run(streams_of(server, account, tmp_path)))

    assert told[0] == told[1]


@pytest.mark.parametrize("kind", [PENSTOCK, REFERENCE])
def test_streams_are_there_before_anybody_of_their_account_comes(kind: str, tmp_path: Path) -> None:
    account = OPERATOR.account("Store", limits=STORAGE)
    settings = OPERATOR.settings(account)
    with server_process(kind, settings=settings, store_dir=tmp_path) as server:
        asyncio.run(streams_of(server, account, tmp_path))

    with server_process(kind, settings=settings, store_dir=tmp_path, monitor_port=-1) as server:
        page = f"{server.monitor_url}/jsz?streams=1"
        with urllib.request.urlopen(page, timeout=30) as answer:
            found = json.load(answer)["account_details"]

    shown = [(each["id"], each["name"], len(each["stream_detail"])) for each in found]
    assert shown == [(account.key.public, "Store", 2)]
