"""Configurations with operators: what is refused, what follows, and what a reload changes."""

from __future__ import annotations

import http.server
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import PENSTOCK, REFERENCE, ServerProcess, ask, server_process
from tests.support.dialogue import Dialogue
from tests.support.tokens import STORAGE, Account, Key, Operator, User

pytestmark = pytest.mark.oracle

KINDS = (PENSTOCK, REFERENCE)
OPERATOR = Operator()
LONELY = Operator(with_system=False)
ACCOUNT = OPERATOR.account("A")
BEARER, SIGNER = ACCOUNT.user(bearer_token=True), ACCOUNT.user()
TOKEN, SYSTEM = OPERATOR.token, OPERATOR.system.key.public
MEMORY = f"operator: {TOKEN}\nresolver: MEMORY\n"


def preloaded(name: str, token: str) -> str:
    return f"resolver_preload {{ {name}: {token} }}\n"


REFUSED = {
    "a system account that is nowhere": MEMORY,
    "accounts besides": MEMORY + "accounts { a {} }",
    "users besides": MEMORY + "authorization { users [ { user: a, password: b } ] }",
    "an auth callout besides": MEMORY
    + f"authorization {{ auth_callout {{ issuer: {ACCOUNT.key.public}, users: [x] }} }}",
    "an operator that is an account": f"operator: {ACCOUNT.token}\nresolver: MEMORY",
    "an operator in no file": "operator: /nowhere/operator.jwt\nresolver: MEMORY",
    "operators and keys": MEMORY + f"trusted_keys: {OPERATOR.key.public}",
    "a key that is none": "trusted_keys: xx",
    "two system accounts": MEMORY + f"system_account: {ACCOUNT.key.public}",
    "a folder without a system account": (
        f"operator: {LONELY.token}\nresolver {{ type: full, dir: './jwt' }}"
    ),
    "a pinned account that is none": MEMORY + "resolver_pinned_accounts: [x]",
    "a user for those without credentials": MEMORY + "no_auth_user: x",
    "a sentinel that must sign": MEMORY + f"default_sentinel: {SIGNER.token}",
    "a sentinel that is none": MEMORY + "default_sentinel: xx",
    "a sentinel without operators": f"default_sentinel: {BEARER.token}",
    "an account's token that is none": MEMORY + preloaded("X", "abc"),
    "an account's token that is a user's": MEMORY + preloaded("X", SIGNER.token),
    "accounts for a resolver elsewhere": (
        f"operator: {TOKEN}\nresolver: URL(http://127.0.0.1:1/jwt)\n"
        + preloaded(SYSTEM, OPERATOR.system.token)
    ),
} | {
    f"a server of version {version}": (
        f"operator: {Operator(assert_server_version=version).token}\nresolver: MEMORY"
    )
    for version in ("3.0.0", "2.99.0", "2.15.99", "x")
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_configuration_is_refused_in_the_same_words(case: str, tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(f"listen: 127.0.0.1:-1\n{REFUSED[case]}\n")

    ours, theirs = (ask(kind, "-c", str(file)) for kind in KINDS)

    assert ours.returncode == theirs.returncode == 1
    assert ours.stderr == theirs.stderr


def test_the_system_account_has_no_streams(tmp_path: Path) -> None:
    operator = Operator()
    operator.system.change(limits=STORAGE)
    for kind in KINDS:
        file = tmp_path / f"{kind}.conf"
        store = tmp_path / f"store-{kind}"
        file.write_text(
            f"{operator.settings()}\nlisten: 127.0.0.1:-1\njetstream {{ store_dir: '{store}' }}"
        )

        answer = ask(kind, "-c", str(file))

        assert answer.returncode == 1
        assert "Not allowed to enable JetStream on the system account" in answer.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_strict_operator_does_not_do_without_the_claims_of_the_system_account(
    kind: str, tmp_path: Path
) -> None:
    operator = Operator(strict_signing_key_usage=True, signing_keys=[Key("O").public])
    file = tmp_path / "server.conf"
    resolver = f"resolver {{ type: full, dir: '{tmp_path}/jwt' }}"
    file.write_text(f"listen: 127.0.0.1:-1\noperator: {operator.token}\n{resolver}\n")

    answer = ask(kind, "-c", str(file))

    assert answer.returncode == 1
    assert "Can't set system account: account validation failed" in answer.stderr


def told(server: ServerProcess, user: User | None, **fields: Any) -> list[str]:
    """Return what a user receives that connects, or tries to."""
    with Dialogue(server.port) as dialogue:
        own = {} if user is None else user.fields(dialogue.info["nonce"])
        return dialogue.login(**own | fields)


REFUSAL = ["-ERR 'Authorization Violation'", "closed"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_may_be_a_file_and_the_log_tells_of_it(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "operator.jwt"
    file.write_text(f"-----BEGIN NATS OPERATOR JWT-----\n{TOKEN}\n------END------\n")
    settings = OPERATOR.settings(ACCOUNT).replace(TOKEN, str(file))

    with server_process(kind, settings=settings) as server:
        assert told(server, SIGNER) == []
        lines = [line.split("] ", 1)[1] for line in server.messages]

    start = lines.index("Trusted Operators")
    assert lines[start + 1 : start + 3] == ['  System  : ""', '  Operator: "Operator"']
    assert re.fullmatch(r"  Issued  : \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \S+", lines[start + 3])
    assert lines[start + 4] == "  Expires : Never"


@pytest.mark.parametrize("kind", KINDS)
def test_keys_may_be_trusted_without_an_operator(kind: str) -> None:
    settings = f"trusted_keys: {OPERATOR.key.public}\nresolver: MEM\n" + preloaded(
        ACCOUNT.key.public, ACCOUNT.token
    )
    with server_process(kind, settings=settings) as server:
        assert told(server, SIGNER) == []
        assert told(server, LONELY.account().user()) == REFUSAL


@pytest.mark.parametrize("kind", KINDS)
def test_only_pinned_accounts_and_the_system_are_let_in(kind: str) -> None:
    other = OPERATOR.account("B")
    pinned = f"resolver_pinned_accounts: [{ACCOUNT.key.public}]"
    with server_process(kind, settings=OPERATOR.settings(ACCOUNT, other, more=pinned)) as server:
        assert told(server, SIGNER) == []
        assert told(server, OPERATOR.system.user()) == []
        assert told(server, other.user()) == REFUSAL


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_comes_without_a_token_is_the_sentinel(kind: str) -> None:
    sentinel = ACCOUNT.user(bearer_token=True, pub={"allow": ["x"]})
    settings = OPERATOR.settings(ACCOUNT, more=f"default_sentinel: {sentinel.token}")
    with server_process(kind, settings=settings) as server:
        for fields in ({}, {"user": "a", "pass": "b"}, {"jwt": "x"}):
            with Dialogue(server.port) as dialogue:
                assert dialogue.login(**fields) == []
                dialogue.send("PUB y 0", "")
                assert dialogue.answers() == ["-ERR 'Permissions Violation for Publish to \"y\"'"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_strict_operator_wants_signing_keys_everywhere(kind: str) -> None:
    operator_key, account_key = Key("O"), Key("A")
    operator = Operator(strict_signing_key_usage=True, signing_keys=[operator_key.public])
    operator.system.change(by=operator_key)
    account, other = operator.account("A"), operator.account("B")
    account.change(by=operator_key, signing_keys=[account_key.public])
    with server_process(kind, settings=operator.settings(account, other)) as server:
        assert told(server, account.user(by=account_key)) == []
        assert told(server, account.user()) == REFUSAL
        assert told(server, other.user()) == REFUSAL


# Accounts that are elsewhere


@pytest.fixture
def shelf() -> Iterator[tuple[str, dict[str, str]]]:
    """Serve JWTs by name, as an account server with a password does; its address, its JWTs."""
    tokens: dict[str, str] = {}

    class Shelf(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            is_known = self.headers["Authorization"] == "Basic bWU6c2VjcmV0"
            body = tokens.get(name) if name else "here" if is_known else ""
            self.send_response(200 if body else 404)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shelf)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://me:secret@127.0.0.1:{server.server_port}/jwt/v1", tokens
    server.shutdown()
    thread.join()
    server.server_close()


def put(tokens: dict[str, str], *accounts: Account) -> None:
    tokens |= {each.key.public: each.token for each in accounts}


@pytest.mark.parametrize("kind", KINDS)
def test_accounts_are_fetched_from_a_web_server_with_those_that_they_need(
    kind: str, shelf: tuple[str, dict[str, str]]
) -> None:
    url, tokens = shelf
    seller = OPERATOR.account("S", exports=[{"subject": "q", "type": "service"}])
    taken = {"subject": "q", "type": "service", "account": seller.key.public}
    buyer = OPERATOR.account("B", imports=[taken])
    put(tokens, OPERATOR.system, seller, buyer)
    settings = f"operator: {TOKEN}\nresolver: URL({url}/accounts/)\n"
    with server_process(kind, settings=settings) as server:
        assert told(server, SIGNER) == REFUSAL
        with Dialogue(server.port) as asking, Dialogue(server.port) as answering:
            for dialogue, account in ((asking, buyer), (answering, seller)):
                assert dialogue.login(**account.user().fields(dialogue.info["nonce"])) == []
            answering.send("SUB q 1")
            answering.answers()
            asking.send("PUB q reply 0", "")
            asking.answers()
            assert answering.next().startswith("MSG q 1 _R_.")
        put(tokens, ACCOUNT)
        assert told(server, SIGNER) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_says_where_its_accounts_are(
    kind: str, shelf: tuple[str, dict[str, str]]
) -> None:
    url, tokens = shelf
    operator = Operator(with_system=False, account_server_url=url)
    account = operator.account()
    put(tokens, account)
    with server_process(kind, settings=f"operator: {operator.token}\n") as server:
        assert told(server, account.user()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_web_server_that_is_not_there_stops_the_start(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(f"operator: {TOKEN}\nresolver: URL(http://a:b@127.0.0.1:1/jwt)\n")

    answer = ask(kind, "-c", str(file))

    assert answer.returncode == 1
    assert answer.stderr.startswith('nats-server: could not fetch <"http://')
    if kind == PENSTOCK:
        assert "connection refused" in answer.stderr
        assert "a:b@" not in answer.stderr


# Reload


@pytest.mark.parametrize("kind", KINDS)
def test_a_reload_takes_other_accounts_and_claims(kind: str) -> None:
    stays, goes, comes = (OPERATOR.account(name) for name in ("S", "G", "C"))
    with server_process(kind, settings=OPERATOR.settings(stays, goes)) as server:
        with Dialogue(server.port) as kept, Dialogue(server.port) as lost:
            for dialogue, account in ((kept, stays), (lost, goes)):
                assert dialogue.login(**account.user().fields(dialogue.info["nonce"])) == []
            stays.change(default_permissions={"pub": {"deny": ["no"]}})
            server.config_file.write_text(OPERATOR.settings(stays, comes))

            assert "Reloaded server configuration" in server.reload()

            assert [lost.next(), lost.next()] == REFUSAL
            kept.send("PUB no 0", "")
            assert kept.answers() == ["-ERR 'Permissions Violation for Publish to \"no\"'"]
        assert told(server, comes.user()) == []
        assert told(server, goes.user()) == REFUSAL
        gone = f'Reloaded: deleting account [removed]: "{goes.key.public}"'
        assert f"[INF] {gone}" in server.messages


@pytest.mark.parametrize("kind", KINDS)
def test_a_reload_does_not_change_the_operator(kind: str) -> None:
    with server_process(kind, settings=OPERATOR.settings(ACCOUNT)) as server:
        server.config_file.write_text(Operator().settings())

        assert "config reload not supported for" in server.reload()

        assert told(server, SIGNER) == []


# Monitoring


def page(server: ServerProcess, path: str) -> Any:
    assert server.monitor_url is not None
    with urllib.request.urlopen(f"{server.monitor_url}/{path}", timeout=30) as answer:
        return json.load(answer)


def seen(kind: str, account: Account, users: list[User], store: Path) -> list[Any]:
    """Return what the pages show of operators, an account, and of clients with JWTs."""
    settings = OPERATOR.settings(account)
    shown: list[Any] = []
    with server_process(kind, settings=settings, monitor_port=-1, store_dir=store) as server:
        clients = [Dialogue(server.port) for _ in users]
        for client, user in zip(clients, users, strict=True):
            assert client.login(**user.fields(client.info["nonce"])) == []
        varz = page(server, "varz")
        shown.append({name: varz[name] for name in varz if "operator" in name})
        shown.append((varz["system_account"], varz["auth_required"]))
        of_user = ("jwt", "authorized_user", "account", "issuer_key", "name_tag", "tags")
        connections = page(server, "connz?auth=1")["connections"]
        shown += [{name: each.get(name) for name in of_user} for each in connections]
        detail = page(server, f"accountz?acc={account.key.public}")["account_detail"]
        left_out = ("update_time", "sublist_stats", "subscriptions", "decoded_jwt", "imports")
        shown.append(list(detail))
        shown.append({name: detail[name] for name in detail if name not in left_out})
        shown.append(detail["decoded_jwt"]["sub"])
        statistics = page(server, "accstatz?unused=1")["account_statz"]
        shown.append(sorted((each["acc"], each["name"]) for each in statistics))
        clients[0].send("SUB answer 1", "PUB $SYS.REQ.USER.INFO answer 0", "")
        assert clients[0].next().startswith("MSG answer")
        shown.append(json.loads(clients[0].next())["data"])
        for client in clients:
            client.close()
    return shown


def test_monitoring_shows_operators_accounts_and_tokens_but_no_bearers(tmp_path: Path) -> None:
    key = Key("A")
    account = OPERATOR.account(
        "M",
        limits=STORAGE,
        tags=["b"],
        signing_keys=[key.public],
        revocations={Key("U").public: 5},
    )
    users = [account.user("joe", tags=["a", "b"], by=key), account.user(bearer_token=True)]

    ours, theirs = (seen(kind, account, users, tmp_path / kind) for kind in KINDS)

    assert ours == theirs
