"""The same users, permissions and certificates in the real server: the same answers."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt
import nkeys  # type: ignore[import-untyped]  # it has no types
import pytest
from cryptography import x509

from penstock.security.authenticator import Authenticator
from penstock.security.permissions import Permissions
from penstock.security.tls import find_peer_certificate
from penstock.testing.servers import reference_server
from tests.models.subjects import matches
from tests.security.made_certificates import Authority, Made, rdns
from tests.security.test_authenticator import Block, Connect, Person
from tests.security.wire import Wire

pytestmark = pytest.mark.oracle

SEED = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
KEY = nkeys.from_seed(SEED).public_key.decode()
HASH = bcrypt.hashpw(b"pw", bcrypt.gensalt(4)).decode()


def signed(nonce: str, *, padded: bool) -> str:
    signature = nkeys.from_seed(SEED).sign(nonce.encode())
    if padded:
        return base64.b64encode(signature).decode()
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def written(person: Person) -> str:
    fields = {"user": person.user, "password": person.password, "nkey": person.nkey}
    kinds = person.allowed_connection_types
    stated: dict[str, object] = {key: value for key, value in fields.items() if value}
    return json.dumps(stated | ({"allowed_connection_types": kinds} if kinds else {}))


def settings_of(
    block: Block | None, accounts: dict[str, Block], no_auth_user: str, system: str
) -> str:
    lines = []
    if block is not None:
        stated = {"user": block.user, "password": block.password, "token": block.token}
        lines += [f"{key}: {json.dumps(value)}" for key, value in stated.items() if value]
        if block.users:
            lines.append(f"users: [{', '.join(map(written, block.users))}]")
        lines = ["authorization {", *lines, "}"]
    if accounts:
        lines.append("accounts {")
        for name, account in accounts.items():
            lines.append(f"{name} {{ users: [{', '.join(map(written, account.users))}] }}")
        lines.append("}")
    lines += [f"no_auth_user: {no_auth_user}"] * bool(no_auth_user)
    lines += [f"system_account: {system}"] * bool(system)
    return "\n".join(lines)


USERS = (
    Person("a", "pw"),
    Person("h", HASH),
    Person("empty"),
    Person(nkey=KEY),
    Person("w", "pw", allowed_connection_types=("WEBSOCKET",)),
)
CONFIGURATIONS: list[tuple[Block | None, dict[str, Block], str, str]] = [
    (None, {}, "", ""),
    (Block(token="tok"), {}, "", ""),
    (Block(token=HASH), {}, "", ""),
    (Block(user="a", password="pw"), {}, "", ""),
    (Block(user="a", password=HASH), {}, "", ""),
    (Block(user="a"), {}, "", ""),
    (Block(users=USERS), {}, "", ""),
    (Block(users=USERS), {}, "a", ""),
    (Block(users=USERS), {}, "h", ""),
    (Block(users=USERS), {}, "w", ""),
    (Block(users=USERS), {}, KEY, ""),
    (Block(users=USERS[:3]), {}, "", ""),
    (None, {"A": Block(users=USERS[:2]), "B": Block(users=USERS[3:])}, "", ""),
    (None, {"S": Block(users=USERS[:2])}, "", "S"),
    (None, {"S": Block(users=USERS[:2]), "B": Block(users=())}, "", "S"),
    (Block(users=USERS[2:3]), {"S": Block(users=USERS[:2])}, "", "S"),
]


def attempts(nonce: str) -> list[Connect]:
    users, passwords = ("", "a", "h", "empty", "w", "nobody"), ("", "pw", "bad", HASH)
    made = [Connect(user, password) for user in users for password in passwords]
    made += [Connect(auth_token=token) for token in ("tok", "pw", "bad", HASH)]
    made += [Connect("a", "pw", auth_token="tok"), Connect("a", auth_token="tok")]
    made += [Connect(nkey=KEY, sig=signed(nonce, padded=padded)) for padded in (True, False)]
    made += [
        Connect(nkey=KEY),
        Connect(nkey=KEY, sig=signed("another-nonce-x", padded=False)),
        Connect(nkey=KEY[:-1] + "A", sig=signed(nonce, padded=False)),
        Connect(nkey="bogus", sig="bogus"),
        Connect("a", "pw", nkey=KEY, sig=signed(nonce, padded=False)),
        Connect("a", "pw", nkey="bogus"),
    ]
    return made


def as_fields(connect: Connect) -> dict[str, Any]:
    fields = {"user": connect.user, "pass": connect.password, "auth_token": connect.auth_token}
    fields |= {"nkey": connect.nkey, "sig": connect.sig}
    return {key: value for key, value in fields.items() if value}


@pytest.mark.parametrize("place", range(len(CONFIGURATIONS)))
def test_the_same_credentials_open_and_the_same_do_not(place: int, tmp_path: Path) -> None:
    block, accounts, no_auth_user, system = CONFIGURATIONS[place]
    ours = Authenticator.from_options(
        authorization=block,
        accounts=accounts,
        no_auth_user=no_auth_user,
        system_account=system or "$SYS",
        random_bytes=os.urandom,
    )
    settings = settings_of(block, accounts, no_auth_user, system)
    with reference_server(settings=settings) as server:
        for number in range(len(attempts(""))):
            made: list[Connect] = []

            def credentials(
                nonce: str, number: int = number, made: list[Connect] = made
            ) -> dict[str, Any]:
                made.append(attempts(nonce)[number])
                return as_fields(made[0])

            with Wire(server.port, credentials) as wire:
                is_open = wire.answers() == []
                identity = ours.authenticate(made[0], nonce=wire.info.get("nonce", ""))

            assert (identity is not None) == is_open, made[0]
            assert ours.asks_for_credentials == wire.info.get("auth_required", False)
            assert ours.needs_nonce == ("nonce" in wire.info)


PATTERNS = ["a", "b", "a.b", "a.*", "*.b", "a.>", ">", "*", "*.*", "a.b.c", "a.*.c", "*x"]
QUEUES = ["", "q", "r", "q.r", "q.*", "q.>", ">", "q."]
PUBLISHED = [*PATTERNS, "a.c", "b.b", "a.b.d", "a..b", "a.", "zx"]


def drawn_lists(chance: random.Random) -> dict[str, Any]:
    """Draw the four lists; an empty one is left out, as the file's `[]` would be read."""

    def entries(*, queued: bool) -> list[str]:
        made = []
        for _ in range(chance.randint(0, 3)):
            queue = chance.choice(QUEUES[:-1]) if queued and chance.random() < 0.5 else ""
            made.append(f"{chance.choice(PATTERNS)} {queue}".strip())
        return made

    publish = {"allow": entries(queued=False), "deny": entries(queued=False)}
    subscribe = {"allow": entries(queued=True), "deny": entries(queued=True)}
    return {
        "publish": {key: value for key, value in publish.items() if value},
        "subscribe": {key: value for key, value in subscribe.items() if value},
    }


def logged_in(user: str) -> Callable[[str], dict[str, Any]]:
    return lambda nonce: {"user": user, "pass": "pw"}


def permissions_of(lists: dict[str, Any]) -> Permissions:
    return Permissions(
        publish_allow=lists["publish"].get("allow"),
        publish_deny=lists["publish"].get("deny", ()),
        subscribe_allow=lists["subscribe"].get("allow"),
        subscribe_deny=lists["subscribe"].get("deny", ()),
    )


def expected_answers(permissions: Permissions) -> tuple[list[str], dict[str, str]]:
    """Return the errors of all publishes and subscriptions, and the subscriptions that are left."""
    errors = [
        f"-ERR 'Permissions Violation for Publish to \"{subject}\"'"
        for subject in PUBLISHED
        if not permissions.may_publish(subject.encode())
    ]
    taken = {}
    for number, (subject, queue) in enumerate(itertools.product(PATTERNS, QUEUES)):
        if permissions.may_subscribe(subject.encode(), queue.encode() or None):
            taken[str(number)] = f"{subject} {queue}".strip()
        else:
            using = f' using queue "{queue}"' if queue else ""
            errors.append(f"-ERR 'Permissions Violation for Subscription to \"{subject}\"{using}'")
    return errors, taken


def expected_deliveries(permissions: Permissions, subscriptions: dict[str, str]) -> set[str]:
    """Return what reaches subscriptions of which no two are in one group."""
    made = set()
    for sid, entry in subscriptions.items():
        pattern, _, queue = entry.partition(" ")
        denied = permissions.delivery_deny(pattern.encode(), queue.encode() or None)
        for subject in PUBLISHED:
            is_denied = denied is not None and denied.matches(subject.encode())
            is_routed = "" not in subject.split(".") and matches(pattern.encode(), subject.encode())
            if is_routed and not is_denied:
                made.add(f"MSG {subject} {sid} 0")
    return made


def published_by(publisher: Wire) -> None:
    """Publish to all subjects and wait until the server has routed them."""
    for subject in PUBLISHED:
        publisher.send(f"PUB {subject} 0\r\n")
    assert publisher.answers() == []


def check_deliveries(
    wire: Wire, publisher: Wire, permissions: Permissions, subscriptions: dict[str, str]
) -> None:
    """Subscribe to these, and see that what arrives is what shall."""
    for sid, entry in subscriptions.items():
        wire.send(f"SUB {entry} {sid}")
    assert wire.answers() == []
    published_by(publisher)
    assert set(wire.answers()) == expected_deliveries(permissions, subscriptions), subscriptions
    for sid in subscriptions:
        wire.send(f"UNSUB {sid}")
    assert wire.answers() == []


def test_the_same_is_permitted_and_the_same_is_kept_back(tmp_path: Path) -> None:
    chance = random.Random(20_261_116)
    drawn = {f"u{number}": drawn_lists(chance) for number in range(150)}
    users: list[dict[str, Any]] = [{"user": "all", "password": "pw"}]
    users += ({"user": n, "password": "pw", "permissions": lists} for n, lists in drawn.items())
    settings = "authorization { users: [\n" + ",\n".join(map(json.dumps, users)) + "\n] }"
    with (
        reference_server(settings=settings) as server,
        Wire(server.port, logged_in("all")) as publisher,
    ):
        for name, lists in drawn.items():
            permissions = permissions_of(lists)
            errors, taken = expected_answers(permissions)
            with Wire(server.port, logged_in(name)) as wire:
                for subject in PUBLISHED:
                    wire.send(f"PUB {subject} 0\r\n")
                for sid, (subject, queue) in enumerate(itertools.product(PATTERNS, QUEUES)):
                    wire.send(f"SUB {subject} {queue} {sid}")
                assert wire.answers() == errors, lists
                for sid in range(len(PATTERNS) * len(QUEUES)):
                    wire.send(f"UNSUB {sid}")
                assert wire.answers() == []

                plain = {sid: entry for sid, entry in taken.items() if " " not in entry}
                check_deliveries(wire, publisher, permissions, plain)
                # One at a time, for of several members of a group only one is sent a message.
                members = [item for item in taken.items() if " " in item[1]]
                for item in members[::7]:
                    check_deliveries(wire, publisher, permissions, dict([item]))


def client_context(authority: Authority, made: Made) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.check_hostname = False
    context.load_cert_chain(made.cert_file, made.key_file)
    return context


NAMES = [
    "app@acme.com",
    "app.acme.com",
    "spiffe://acme/app",
    "CN=one,O=Acme",
    "O=Acme,CN=two",
    "CN=three,OU=x+OU=y,O=Acme",
    "CN=four+OU=x,O=Acme",
    "CN=five,O=Acme,DC=com,DC=acme",
    "CN=six,O=Acme,DC=acme,DC=com",
    "CN=a\\,b,O=Acme",
    "CN=eight,O=Acme",
    "cn=nine, o=Acme",
]
SUBJECTS: list[tuple[x509.Name, list[x509.GeneralName]]] = [
    (rdns("CN=none"), []),
    (rdns("CN=none"), [x509.RFC822Name("app@acme.com"), x509.DNSName("app.acme.com")]),
    (rdns("CN=none"), [x509.DNSName("other"), x509.DNSName("app.acme.com")]),
    (rdns("CN=one", "O=Acme"), [x509.UniformResourceIdentifier("spiffe://acme/app")]),
    (rdns("O=Acme", "CN=one"), [x509.DNSName("other")]),
    (rdns("CN=one", "O=Acme"), []),
    (rdns("O=Acme", "CN=two"), []),
    (rdns("O=Acme", "OU=x", "OU=y", "CN=three"), []),
    (rdns("O=Acme", "OU=x+CN=four"), []),
    (rdns("DC=com", "DC=acme", "O=Acme", "CN=five"), []),
    (rdns("DC=com", "DC=acme", "O=Acme", "CN=six"), []),
    (rdns("O=Acme", "CN=a,b"), []),
    (rdns("O=Acme", "EMAIL=x@acme.com", "CN=eight"), []),
    (rdns("O=Acme", "CN=nine"), []),
    (rdns("O=acme", "CN=nine"), []),
    (rdns("O=Acme", "L=Graz", "CN=one"), []),
]


def test_the_same_certificates_are_mapped(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    # An account for each, so that the answer tells who it was.
    accounts = {f"A{place}": Block(users=(Person(name),)) for place, name in enumerate(NAMES)}
    written_accounts = "\n".join(
        f"A{place} {{ users: [{{user: {json.dumps(name)}}}] }}" for place, name in enumerate(NAMES)
    )
    settings = f"""
    tls {{
      cert_file: {json.dumps(str(own.cert_file))}
      key_file: {json.dumps(str(own.key_file))}
      ca_file: {json.dumps(str(authority.ca_file))}
      verify_and_map: true
    }}
    accounts {{ {written_accounts} }}
    """
    ours = Authenticator.from_options(
        accounts=accounts,
        maps_certificates=True,
        mapped_connection_types=frozenset({"STANDARD"}),
        random_bytes=os.urandom,
    )
    mapped = []
    with reference_server(settings=settings) as server:
        for subject, alternatives in SUBJECTS:
            made = authority.make(subject, alternatives)
            identity = ours.authenticate(
                Connect(), peer_certificate=find_peer_certificate(made.der)
            )

            with Wire(
                server.port,
                lambda _: {"protocol": 1},
                tls=client_context(authority, made),
            ) as wire:
                answers = wire.answers()
                is_open = not any("Authorization Violation" in line for line in answers)
                # The second INFO, which follows the first PONG, names the account.
                told = wire.answers() if is_open else []

            account = json.loads(told[0][5:])["remote_account"] if told else None
            assert (identity.account if identity else None) == account, subject
            mapped.append(account)

    assert set(mapped) == {None, *accounts}
