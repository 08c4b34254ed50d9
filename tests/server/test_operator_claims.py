"""Claims that change while clients are connected, asked for and brought as the real server does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.server.embedded import EmbeddedServer
from penstock.testing.clock import FakeClock
from penstock.testing.servers import (
    PENSTOCK,
    REFERENCE,
    ServerProcess,
    ServerThread,
    server_process,
)
from tests.support.dialogue import Dialogue
from tests.support.tokens import STORAGE, Account, Key, Operator, User, now

DAY = 86_400
BOTH = pytest.mark.parametrize(
    "kind", [PENSTOCK, pytest.param(REFERENCE, marks=pytest.mark.oracle)]
)


class Teller:
    """A user of the system account, who brings claims and asks for them."""

    def __init__(self, port: int, user: User) -> None:
        self._dialogue = client_of(port, user)

    def raw(self, subject: str, body: str = "") -> str:
        """Ask, and give the answer as it is; "" where nobody answers."""
        dialogue = self._dialogue
        dialogue.send("SUB answer 9", "UNSUB 9 1", f"PUB {subject} answer {len(body)}", body)
        head = dialogue.next()
        if not head.startswith("MSG "):
            dialogue.answers()
            return ""
        return dialogue.next()

    def ask(self, subject: str, body: str = "") -> dict[str, Any]:
        """Ask, and give what the answer says besides who answered."""
        answer: dict[str, Any] = json.loads(self.raw(subject, body) or "{}")
        answer.pop("server", None)
        return answer

    def bring(self, account: Account, **claims: Any) -> None:
        """Change an account that is in use."""
        account.change(**claims)
        subject = f"$SYS.REQ.ACCOUNT.{account.key.public}.CLAIMS.UPDATE"
        answer = self.ask(subject, account.token)
        assert answer["data"] == {
            "account": account.key.public,
            "code": 200,
            "message": "jwt updated",
        }


OPENED: list[Dialogue] = []


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def client_of(port: int, user: User) -> Dialogue:
    """Connect as a user that is let in; the end of the test closes it."""
    dialogue = Dialogue(port)
    OPENED.append(dialogue)
    fields = user.fields(dialogue.info["nonce"])
    assert dialogue.login(**fields, no_responders=True, headers=True) == []
    return dialogue


@contextmanager
def served(kind: str, *accounts: Account, **options: Any) -> Iterator[tuple[ServerProcess, Teller]]:
    operator = accounts[0].operator
    with server_process(kind, settings=operator.settings(*accounts, **options)) as server:
        yield server, Teller(server.port, operator.system.user())


@BOTH
def test_a_user_that_is_revoked_is_told_so_and_cut_off(kind: str) -> None:
    account = Operator().account()
    user, other = account.user(), account.user()
    with served(kind, account) as (server, teller):
        revoked, kept = client_of(server.port, user), client_of(server.port, other)

        teller.bring(account, revocations={user.key.public: now() + DAY})

        assert [revoked.next(), revoked.next()] == ["-ERR 'User Authentication Revoked'", "closed"]
        assert kept.answers() == []


@BOTH
def test_default_permissions_that_change_take_subscriptions_away(kind: str) -> None:
    account = Operator().account()
    with served(kind, account) as (server, teller):
        client = client_of(server.port, account.user())
        own = client_of(server.port, account.user(pub={"allow": ["x"]}))
        for each in (client, own):
            each.send("SUB secret 1")
            assert each.answers() == []

        teller.bring(account, default_permissions={"sub": {"deny": ["secret"]}})

        refused = '-ERR \'Permissions Violation for Subscription to "secret"'
        assert client.answers() == [f'{refused} (sid "1")\'']
        client.send("SUB secret 2")
        assert client.answers() == [f"{refused}'"]
        # Whoever has permissions of its own keeps them.
        assert own.answers() == []


@BOTH
def test_of_too_many_clients_the_latest_are_let_go(kind: str) -> None:
    account = Operator().account()
    with served(kind, account) as (server, teller):
        first, second = (client_of(server.port, account.user()) for _ in range(2))

        teller.bring(account, limits={"conn": 1})

        full = "-ERR 'maximum account active connections exceeded'"
        assert [second.next(), second.next()] == [full, "closed"]
        assert first.answers() == []


@BOTH
def test_limits_of_an_account_hold_at_once(kind: str) -> None:
    account = Operator().account()
    with served(kind, account) as (server, teller):
        client = client_of(server.port, account.user())

        teller.bring(account, limits={"payload": 5})

        client.send("PUB a 6", "123456")
        assert client.answers() == ["-ERR 'Maximum Payload Violation'", "closed"]


@BOTH
@pytest.mark.parametrize("change", ["taken away", "changed", "left"])
def test_users_of_a_signing_key_go_when_it_does(kind: str, change: str) -> None:
    key = Key("A")
    scope = {"kind": "user_scope", "key": key.public, "template": {"pub": {"allow": ["x"]}}}
    account = Operator().account(signing_keys=[scope])
    other = scope | {"template": {"pub": {"allow": ["y"]}}}
    after = {"taken away": [], "changed": [other], "left": [scope]}[change]
    with served(kind, account) as (server, teller):
        client = client_of(server.port, account.user(by=key, is_scoped=True))

        teller.bring(account, signing_keys=after, description="something else")

        client.send("PING")
        assert client.next() == ("PONG" if change == "left" else "closed")


@BOTH
def test_imports_come_and_go_with_the_export(kind: str) -> None:
    operator = Operator()
    seller = operator.account("S")
    taken = {"subject": "news", "type": "stream", "account": seller.key.public}
    buyer = operator.account("B", imports=[taken])
    with served(kind, seller, buyer) as (server, teller):
        source, reader = client_of(server.port, seller.user()), client_of(server.port, buyer.user())
        reader.send("SUB news 1")
        assert reader.answers() == []

        def heard() -> list[str]:
            source.send("PUB news 1", "x")
            assert source.answers() == []
            return reader.answers()

        assert heard() == []
        teller.bring(seller, exports=[{"subject": "news", "type": "stream"}])
        assert heard() == ["MSG news 1 1", "x"]
        teller.bring(seller)
        assert heard() == []


@BOTH
def test_a_destination_of_traces_comes_and_goes(kind: str) -> None:
    account = Operator().account()

    def publish(header: str) -> None:
        block = f"NATS/1.0\r\n{header}\r\n\r\n"
        client.send(f"HPUB plain {len(block)} {len(block)}", block)

    def traced() -> dict[str, Any]:
        assert client.next().startswith("MSG traces 1 ")
        trace: dict[str, Any] = json.loads(client.next())
        headers: dict[str, Any] = trace["request"]["header"]
        return headers

    with served(kind, account) as (server, teller):
        client = client_of(server.port, account.user())
        client.send("SUB traces 1")
        publish("traceparent: 00-a-b-01")
        assert client.answers() == []
        teller.bring(account, trace={"dest": "traces"})
        publish("traceparent: 00-c-d-01")
        assert traced() == {"traceparent": ["00-c-d-01"]}

        teller.bring(account)
        publish("traceparent: 00-e-f-01")
        publish("Nats-Trace-Dest: traces")
        assert traced() == {"Nats-Trace-Dest": ["traces"]}


@BOTH
def test_claims_that_do_not_count_change_nothing(kind: str) -> None:
    operator = Operator()
    account, other, unused = operator.account("A"), operator.account("B"), operator.account("C")
    with served(kind, account, other) as (server, teller):
        client_of(server.port, account.user())
        name = account.key.public
        foreign = Key("O").token(
            {"sub": name, "nats": {"type": "account", "version": 2, "limits": {"conn": 0}}}
        )

        def refused(body: str) -> str:
            answer = teller.ask(f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.UPDATE", body)
            assert (answer["error"]["account"], answer["error"]["code"]) == (name, 500)
            return str(answer["error"]["description"])

        failed = "jwt update resulted in error"
        assert refused("") == "jwt update error - request body is empty"
        assert refused("x") == f"{failed} - expected 3 chunks"
        assert refused(other.token) == f"{failed} - subject does not match jwt content"
        assert refused(foreign) == f"{failed} - account validation failed"
        skipped = teller.ask(f"$SYS.ACCOUNT.{unused.key.public}.CLAIMS.UPDATE", unused.token)
        assert skipped["data"]["message"] == "jwt update skipped"
        client_of(server.port, account.user())


# Folders


def in_folder(operator: Operator, folder: Path, **options: str) -> str:
    stated = {"type": "full", "dir": f"'{folder}'"} | options
    resolver = ", ".join(f"{name}: {value}" for name, value in stated.items())
    return f"operator: {operator.token}\nresolver: {{ {resolver} }}\n"


def deletion(key: Key, accounts: Any) -> str:
    nats = {"type": "generic", "version": 2, "accounts": accounts}
    return key.token({"sub": key.public, "nats": nats})


def story_of_a_folder(kind: str, folder: Path, operator: Operator) -> list[Any]:
    """Return what happens when accounts are brought, used, listed and deleted."""
    one, two = operator.account("One"), operator.account("Two")
    wrong = operator.account(
        "W", limits={"exports": 0}, exports=[{"subject": "x", "type": "stream"}]
    )
    told: list[Any] = []
    names = {one.key.public: "ONE", two.key.public: "TWO", wrong.key.public: "W"}

    def named(text: str) -> str:
        for key_text, name in names.items():
            text = text.replace(key_text, name)
        return re.sub(r"O[A-Z2-7]{55}", "OPERATOR", text)

    with server_process(kind, settings=in_folder(operator, folder, allow_delete="true")) as server:
        teller = Teller(server.port, operator.system.user())

        def entered(account: Account) -> bool:
            with Dialogue(server.port) as dialogue:
                return not dialogue.login(**account.user().fields(dialogue.info["nonce"]))

        told += [teller.ask("$SYS.REQ.CLAIMS.LIST"), entered(one)]
        told.append(teller.ask("$SYS.REQ.CLAIMS.UPDATE", one.token))
        told.append(teller.ask(f"$SYS.REQ.ACCOUNT.{two.key.public}.CLAIMS.UPDATE", two.token))
        for body in ("x.y", wrong.token, one.user().token):
            told.append(teller.ask("$SYS.REQ.CLAIMS.UPDATE", body))
        told += [entered(one), entered(two)]
        told.append(sorted(map(named, teller.ask("$SYS.REQ.CLAIMS.LIST")["data"])))
        told.append(teller.raw(f"$SYS.REQ.ACCOUNT.{one.key.public}.CLAIMS.LOOKUP") == one.token)
        told.append(teller.raw(f"$SYS.REQ.ACCOUNT.{wrong.key.public}.CLAIMS.LOOKUP"))
        member = client_of(server.port, one.user())
        for key, accounts in (
            (Key("O"), [one.key.public]),
            (operator.key, "x"),
            (operator.key, ["x"]),
            (operator.key, [operator.system.key.public]),
            (operator.key, [one.key.public]),
        ):
            told.append(teller.ask("$SYS.REQ.CLAIMS.DELETE", deletion(key, accounts)))
        told += [member.next(), member.next(), entered(one), entered(two)]
        one.change(limits=STORAGE)
        told += [teller.ask("$SYS.REQ.CLAIMS.UPDATE", one.token), entered(one)]
        told.append(sorted(named(path.name) for path in folder.iterdir()))
    return [json.loads(named(json.dumps(told)))]


@pytest.mark.oracle
def test_a_folder_of_accounts_is_kept_as_the_real_server_does(tmp_path: Path) -> None:
    operator = Operator()

    ours, theirs = (
        story_of_a_folder(kind, tmp_path / kind, operator) for kind in (PENSTOCK, REFERENCE)
    )

    assert ours == theirs


@BOTH
def test_a_strict_operator_has_accounts_brought_that_a_signing_key_signed(
    kind: str, tmp_path: Path
) -> None:
    key, system_key = Key("O"), Key("A")
    operator = Operator(strict_signing_key_usage=True, signing_keys=[key.public])
    account, system = operator.account(), operator.system
    system.change(by=key, signing_keys=[system_key.public])
    preload = f"resolver_preload {{ {system.key.public}: {system.token} }}"
    with server_process(kind, settings=in_folder(operator, tmp_path) + preload) as server:
        teller = Teller(server.port, system.user(by=system_key))

        refused = teller.ask("$SYS.REQ.CLAIMS.UPDATE", account.token)
        taken = teller.ask("$SYS.REQ.CLAIMS.UPDATE", account.change(by=key))

        strict = "operator requires issuer to be a signing key"
        assert refused["error"]["description"] == f"jwt update resulted in error - {strict}"
        assert taken["data"]["message"] == "jwt updated"


@pytest.mark.oracle
def test_either_server_goes_on_with_the_folder_of_the_other(tmp_path: Path) -> None:
    operator = Operator()
    accounts = [operator.account(name) for name in "AB"]
    for account, (writer, reader) in zip(
        accounts, [(PENSTOCK, REFERENCE), (REFERENCE, PENSTOCK)], strict=True
    ):
        with server_process(writer, settings=in_folder(operator, tmp_path)) as server:
            Teller(server.port, operator.system.user()).ask("$SYS.REQ.CLAIMS.UPDATE", account.token)
        with server_process(reader, settings=in_folder(operator, tmp_path)) as server:
            client_of(server.port, account.user()).close()


@BOTH
def test_all_of_a_folder_is_given_to_a_server_that_has_something_else(
    kind: str, tmp_path: Path
) -> None:
    operator = Operator()
    accounts = [operator.account(name) for name in "AB"]
    with server_process(kind, settings=in_folder(operator, tmp_path)) as server:
        teller = Teller(server.port, operator.system.user())
        for account in accounts:
            teller.ask("$SYS.REQ.CLAIMS.UPDATE", account.token)
        reader = client_of(server.port, operator.system.user())

        reader.send("SUB pack 1", "PUB $SYS.REQ.CLAIMS.PACK pack 0", "")

        got = []
        while not reader.next().endswith(" 0"):
            got.append(reader.next())
        assert sorted(got) == sorted(f"{each.key.public}|{each.token}" for each in accounts)


@BOTH
def test_a_cache_takes_only_what_is_in_use_and_lets_others_ask(kind: str, tmp_path: Path) -> None:
    operator = Operator()
    account, other = operator.account("A"), operator.account("B")
    settings = in_folder(operator, tmp_path, type="cache") + (
        f"resolver_preload {{ {account.key.public}: {account.token} }}\n"
    )
    with server_process(kind, settings=settings) as server:
        teller = Teller(server.port, operator.system.user())
        client = client_of(server.port, account.user())

        def told(each: Account) -> str:
            return str(teller.ask("$SYS.REQ.CLAIMS.UPDATE", each.token)["data"]["message"])

        assert told(other) == "jwt update cache skipped"
        account.change(limits={"payload": 1})
        assert told(account) == "jwt updated cache"
        client.send("PUB a 2", "xx")
        assert client.answers() == ["-ERR 'Maximum Payload Violation'", "closed"]


# The clock


@pytest.fixture
def embedded() -> Iterator[Callable[..., ServerThread]]:
    """Start a server whose clock stands still: what is valid stays so, and timers still end."""
    started: list[ServerThread] = []

    def start(*accounts: Account) -> ServerThread:
        clock = FakeClock(now() * 10**9)
        settings = accounts[0].operator.settings(*accounts)
        started.append(ServerThread(EmbeddedServer(settings=settings, clock=clock, environ={})))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def test_a_connection_ends_with_its_token(embedded: Callable[..., ServerThread]) -> None:
    account = Operator().account()
    server = embedded(account)

    client = client_of(server.port, account.user(data={"exp": now() + 2}))

    assert [client.next(), client.next()] == ["-ERR 'User Authentication Expired'", "closed"]


def test_a_connection_ends_with_its_account(embedded: Callable[..., ServerThread]) -> None:
    account = Operator().account()
    account.change(data={"exp": now() + 2})
    server = embedded(account)

    client = client_of(server.port, account.user())

    assert [client.next(), client.next()] == ["-ERR 'Account Authentication Expired'", "closed"]
    with Dialogue(server.port) as late:
        fields = account.user().fields(late.info["nonce"])
        assert late.login(**fields) == ["-ERR 'Authorization Violation'", "closed"]
