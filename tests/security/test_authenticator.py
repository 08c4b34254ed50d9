"""Who is it: every kind of credentials, right and wrong."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path

import bcrypt
import nkeys  # type: ignore[import-untyped]  # it has no types
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.security.authenticator import Authenticator, Identity, IdentityKind
from penstock.security.permissions import Permissions
from penstock.security.tls import PeerCertificate, find_peer_certificate
from penstock.security.users import Secret
from tests.security.made_certificates import Authority, rdns


@dataclass(frozen=True)
class Answers:
    max: int
    expires_ns: int


@dataclass(frozen=True)
class Lists:
    publish_allow: tuple[str, ...] | None = None
    publish_deny: tuple[str, ...] | None = None
    subscribe_allow: tuple[str, ...] | None = None
    subscribe_deny: tuple[str, ...] | None = None
    responses: Answers | None = None


@dataclass(frozen=True)
class Person:
    user: str = ""
    password: str = ""
    nkey: str = ""
    permissions: Lists | None = None
    allowed_connection_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    user: str = ""
    password: str = ""
    token: str = ""
    users: tuple[Person, ...] = ()
    default_permissions: Lists | None = None


@dataclass(frozen=True)
class Connect:
    user: str = ""
    password: str = ""
    auth_token: str = ""
    nkey: str = ""
    sig: str = ""


@dataclass(frozen=True)
class NkeyHolder:
    """Somebody with an nkey, who signs."""

    seed: bytes = field(default_factory=lambda: os.urandom(32))

    @property
    def _pair(self) -> nkeys.KeyPair:
        return nkeys.from_seed(nkeys.encode_seed(self.seed, nkeys.PREFIX_BYTE_USER))

    @property
    def key(self) -> str:
        return str(self._pair.public_key.decode())

    def connect(self, nonce: str) -> Connect:
        signature = base64.urlsafe_b64encode(self._pair.sign(nonce.encode())).decode()
        return Connect(nkey=self.key, sig=signature.rstrip("="))


def authenticator(
    block: Block | None = None,
    accounts: dict[str, Block] | None = None,
    *,
    no_auth_user: str = "",
    maps_certificates: bool = False,
    mapped: frozenset[str] = frozenset(),
) -> Authenticator:
    return Authenticator.from_options(
        authorization=block,
        accounts=accounts,
        no_auth_user=no_auth_user,
        maps_certificates=maps_certificates,
        mapped_connection_types=mapped,
        random_bytes=os.urandom,
    )


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def test_without_users_anybody_is_in_the_global_account_under_the_name_it_gives() -> None:
    nobody = authenticator()

    assert not nobody.required
    assert not nobody.asks_for_credentials
    assert not nobody.needs_nonce
    for connect, user in (
        (Connect(), ""),
        (Connect(user="me", password="x"), "me"),
        (Connect(auth_token="t"), "[REDACTED]"),
    ):
        assert nobody.authenticate(connect) == Identity(user, "$G", IdentityKind.ANYONE)


@pytest.mark.parametrize("token", ["s3cret", hashed("s3cret")], ids=["plain", "bcrypt"])
def test_a_token_opens_to_who_knows_it(token: str) -> None:
    one = authenticator(Block(token=token))

    identity = one.authenticate(Connect(auth_token="s3cret"))

    assert identity == Identity("[REDACTED]", "$G", IdentityKind.TOKEN)
    assert identity.label == "token"
    assert one.required
    assert one.asks_for_credentials
    for wrong in (
        Connect(),
        Connect(auth_token="s3cre"),
        Connect(user="s3cret"),
        Connect(auth_token=token + "x"),
    ):
        assert one.authenticate(wrong) is None


@pytest.mark.parametrize("password", ["pw", hashed("pw")], ids=["plain", "bcrypt"])
def test_the_one_user_opens_with_name_and_password(password: str) -> None:
    one = authenticator(Block(user="me", password=password))

    assert one.authenticate(Connect("me", "pw")) == Identity("me", "$G", IdentityKind.USER)
    for wrong in (
        Connect(),
        Connect("me"),
        Connect("you", "pw"),
        Connect("me", "pw "),
        Connect("", "pw"),
    ):
        assert one.authenticate(wrong) is None


def test_users_have_their_accounts_and_permissions() -> None:
    several = authenticator(
        Block(
            users=(Person("g", "1"), Person("h", "2", permissions=Lists(publish_deny=("x",)))),
            default_permissions=Lists(publish_allow=("a",)),
        ),
        {"A": Block(users=(Person("a", hashed("3")),))},
    )

    g = several.authenticate(Connect("g", "1"))
    h = several.authenticate(Connect("h", "2"))
    a = several.authenticate(Connect("a", "3"))

    assert g is not None
    assert h is not None
    assert a is not None
    assert (g.account, h.account, a.account) == ("$G", "$G", "A")
    assert g.permissions is not None
    assert g.permissions.publish_allow == ("a",)
    assert h.permissions is not None
    assert h.permissions.publish_allow is None
    assert a.permissions is None
    assert g.label == "user:g"
    for wrong in (Connect("g", "2"), Connect("a", "1"), Connect("z", "1"), Connect(), Connect("a")):
        assert several.authenticate(wrong) is None


def test_all_permissions_are_read_from_the_options() -> None:
    lists = Lists(("pa",), ("pd",), ("sa",), ("sd q",), Answers(7, 8))
    one = authenticator(Block(users=(Person("a", "1", permissions=lists),)))

    identity = one.authenticate(Connect("a", "1"))

    assert identity is not None
    assert identity.permissions == Permissions(
        publish_allow=["pa"],
        publish_deny=["pd"],
        subscribe_allow=["sa"],
        subscribe_deny=["sd q"],
        responses=(7, 8),
    )


def test_a_user_may_be_confined_to_kinds_of_connection() -> None:
    confined = authenticator(
        Block(users=(Person("a", "1", allowed_connection_types=("websocket", "MQTT")),))
    )

    assert confined.authenticate(Connect("a", "1"), connection_type="WEBSOCKET") is not None
    assert confined.authenticate(Connect("a", "1"), connection_type="STANDARD") is None


def test_an_nkey_opens_to_who_signs_the_nonce() -> None:
    holder, stranger = NkeyHolder(), NkeyHolder()
    one = authenticator(accounts={"A": Block(users=(Person(nkey=holder.key),))})

    assert one.needs_nonce
    assert one.authenticate(holder.connect("nonce-nonce-non"), nonce="nonce-nonce-non") == Identity(
        holder.key, "A", IdentityKind.NKEY
    )
    signature = holder.connect("nonce-nonce-non").sig
    for wrong in (
        holder.connect("another-nonce-x"),
        stranger.connect("nonce-nonce-non"),
        Connect(nkey=holder.key),
        Connect(nkey=holder.key, sig="A" * 86),
        Connect(nkey=stranger.key, sig=signature),
        Connect(nkey=holder.key[:-1], sig=signature),
        Connect(nkey="U" * 56, sig=signature),
        Connect(),
    ):
        assert one.authenticate(wrong, nonce="nonce-nonce-non") is None


def test_a_signature_of_nothing_opens_nothing() -> None:
    holder = NkeyHolder()
    one = authenticator(Block(users=(Person(nkey=holder.key),)))

    assert one.authenticate(holder.connect(""), nonce="") is None


def test_who_comes_without_credentials_is_the_no_auth_user() -> None:
    one = authenticator(
        Block(users=(Person("a", "1"),)), {"B": Block(users=(Person("b", "2"),))}, no_auth_user="b"
    )

    assert one.authenticate(Connect()) == Identity("b", "B", IdentityKind.USER)
    assert one.required
    assert not one.asks_for_credentials
    for wrong in (Connect(password="2"), Connect(auth_token="x"), Connect("a"), Connect("c", "2")):
        assert one.authenticate(wrong) is None


def test_a_no_auth_user_with_a_hash_lets_nobody_in_as_the_real_server_has_it() -> None:
    one = authenticator(Block(users=(Person("a", hashed("1")),)), no_auth_user="a")

    assert one.authenticate(Connect()) is None
    assert one.authenticate(Connect("a", "1")) is not None


def test_a_no_auth_user_with_an_nkey_need_not_sign() -> None:
    holder = NkeyHolder()
    one = authenticator(Block(users=(Person(nkey=holder.key),)), no_auth_user=holder.key)

    assert one.authenticate(Connect()) == Identity(holder.key, "$G", IdentityKind.NKEY)


def test_where_only_the_system_account_has_users_others_need_none() -> None:
    one = authenticator(accounts={"$SYS": Block(users=(Person("admin", "1"),))})

    anybody = one.authenticate(Connect())
    admin = one.authenticate(Connect("admin", "1"))

    assert anybody is not None
    assert anybody.account == "$G"
    assert anybody.user.startswith("nats-")
    assert admin == Identity("admin", "$SYS", IdentityKind.USER)
    assert one.asks_for_credentials
    assert one.authenticate(Connect("someone")) is None
    assert one.authenticate(Connect("admin", "2")) is None


def test_where_another_account_exists_too_everybody_needs_credentials() -> None:
    one = authenticator(accounts={"$SYS": Block(users=(Person("admin", "1"),)), "A": Block()})

    assert one.authenticate(Connect()) is None


def certificate_of(
    folder: Path, subject: x509.Name, *alternatives: x509.GeneralName
) -> PeerCertificate:
    found = find_peer_certificate(Authority(folder).make(subject, alternatives).der)
    assert found is not None
    return found


def test_a_certificate_is_mapped_to_a_user_by_the_first_name_that_fits(tmp_path: Path) -> None:
    certificate = certificate_of(
        tmp_path,
        rdns("DC=com", "DC=acme", "O=Acme", "CN=app"),
        x509.RFC822Name("app@acme.com"),
        x509.DNSName("app.acme.com"),
        x509.UniformResourceIdentifier("spiffe://acme/app"),
    )
    names = [
        "app@acme.com",
        "app.acme.com",
        "spiffe://acme/app",
        "CN=app, O=Acme, DC=acme, DC=com",
        "DC=com,DC=acme,O=Acme,CN=app",
        "CN=app,O=Acme,DC=com,DC=acme,DC=x",
    ]

    for place in range(len(names) - 1):
        one = authenticator(
            Block(users=tuple(Person(name) for name in reversed(names[place:]))),
            maps_certificates=True,
        )
        assert one.authenticate(Connect(), peer_certificate=certificate) == Identity(
            names[place], "$G", IdentityKind.CERTIFICATE
        )


def test_the_subject_as_text_is_tried_last(tmp_path: Path) -> None:
    # An attribute without a short name keeps the subject from being compared as a name.
    certificate = certificate_of(tmp_path, rdns("O=Acme", "EMAIL=a@acme.com", "CN=app"))
    one = authenticator(Block(users=(Person("CN=app,O=Acme"),)), maps_certificates=True)

    identity = one.authenticate(Connect(), peer_certificate=certificate)

    assert identity is not None
    assert identity.user == "CN=app,O=Acme"


def test_without_a_certificate_that_fits_nobody_is_mapped(tmp_path: Path) -> None:
    certificate = certificate_of(tmp_path, rdns("CN=app"), x509.DNSName("app.acme.com"))
    one = authenticator(
        Block(users=(Person("CN=other"), Person("app"))), maps_certificates=True, no_auth_user="app"
    )

    assert one.authenticate(Connect("app"), peer_certificate=certificate) is None
    assert one.authenticate(Connect("app")) is None
    assert one.authenticate(Connect()) is None


def test_a_mapped_user_with_a_password_must_know_it_too(tmp_path: Path) -> None:
    certificate = certificate_of(tmp_path, rdns("CN=app"))
    one = authenticator(Block(users=(Person("CN=app", "pw"),)), maps_certificates=True)

    assert one.authenticate(Connect(), peer_certificate=certificate) is None
    assert one.authenticate(Connect(password="pw"), peer_certificate=certificate) is not None


def test_a_mapped_user_may_be_confined_to_kinds_of_connection(tmp_path: Path) -> None:
    certificate = certificate_of(tmp_path, rdns("CN=app"), x509.DNSName("app"))
    confined = authenticator(
        Block(
            users=(
                Person("CN=app", allowed_connection_types=("MQTT",)),
                Person("app", allowed_connection_types=("MQTT",)),
            )
        ),
        maps_certificates=True,
    )

    assert confined.authenticate(Connect(), peer_certificate=certificate) is None


def test_a_user_known_by_certificate_is_not_let_in_elsewhere_without_a_password() -> None:
    mapped = frozenset({"STANDARD"})
    main = authenticator(
        Block(users=(Person("CN=app"), Person("w", allowed_connection_types=("WEBSOCKET",)))),
        maps_certificates=True,
        mapped=mapped,
    )

    websocket = main.for_listener(maps_certificates=False)

    assert websocket.authenticate(Connect("CN=app"), connection_type="WEBSOCKET") is None
    assert websocket.authenticate(Connect("w"), connection_type="WEBSOCKET") is not None


def test_another_listener_may_have_its_own_credentials() -> None:
    main = authenticator(Block(token="main"))

    same = main.for_listener(maps_certificates=False)
    own = main.for_listener(maps_certificates=False, user="w", password="pw")

    assert same.authenticate(Connect(auth_token="main")) is not None
    assert own.authenticate(Connect(auth_token="main")) is None
    assert own.authenticate(Connect("w", "pw")) is not None
    assert authenticator().for_listener(maps_certificates=False, token="t").required


def test_another_listener_may_have_its_own_no_auth_user() -> None:
    main = authenticator(Block(users=(Person("a", "1"), Person("b", "2"))), no_auth_user="a")

    own = main.for_listener(maps_certificates=False, no_auth_user="b")

    identity = own.authenticate(Connect())
    assert identity is not None
    assert identity.user == "b"
    with pytest.raises(UsageError):
        main.for_listener(maps_certificates=False, no_auth_user="c")


BOGUS = Person(nkey="U" * 56)


@pytest.mark.parametrize(
    ("users", "no_auth_user", "text"),
    [
        ((Person("a"), Person("a")), "", 'Duplicate user "a" detected'),
        ((Person(password="x"),), "", "User entry requires a user"),
        ((BOGUS,), "", "Not a valid public nkey for a user"),
        ((), "x", 'no_auth_user: "x" present, but users/nkeys are not defined'),
        (
            (Person("a"),),
            "x",
            'no_auth_user: "x" not present as user or nkey in authorization block or account '
            "configuration",
        ),
        (
            (Person("a", permissions=Lists(publish_allow=("..",))),),
            "",
            'invalid permissions for user "a": publish allow: subject ".." is not a valid subject',
        ),
        (
            (Person("a", allowed_connection_types=("PIGEON",)),),
            "",
            'unknown connection type "PIGEON"',
        ),
    ],
)
def test_users_that_cannot_be_are_refused(
    users: tuple[Person, ...], no_auth_user: str, text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        authenticator(Block(users=users), no_auth_user=no_auth_user)

    assert str(caught.value) == text


def test_an_nkey_twice_or_with_a_name_is_refused() -> None:
    key = NkeyHolder().key

    with pytest.raises(UsageError, match=f'Duplicate nkey "{key}" detected'):
        authenticator(Block(users=(Person(nkey=key), Person(nkey=key))))
    with pytest.raises(UsageError, match="Nkey users do not take usernames or passwords"):
        authenticator(Block(users=(Person("a", nkey=key),)))


def test_a_name_that_does_not_exist_costs_what_one_that_does_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashes = {name: hashed(name) for name in ("a", "b", "c")}
    several = authenticator(Block(users=tuple(Person(n, h) for n, h in hashes.items())))
    worked: list[Secret] = []
    verify = Secret.verify

    def counted(secret: Secret, candidate: str) -> bool:
        worked.append(secret)
        return verify(secret, candidate)

    monkeypatch.setattr(Secret, "verify", counted)
    assert several.authenticate(Connect("a", "x")) is None
    for _ in range(2):
        assert several.authenticate(Connect("nobody", "a")) is None

    assert len(worked) == 3
    assert all(secret.is_slow for secret in worked)
    assert worked[1] is worked[2]


def test_the_password_of_a_decoy_does_not_open() -> None:
    one = authenticator(Block(users=(Person("a", "pw"),)))

    assert one.authenticate(Connect("b", "pw")) is None


def test_slow_and_plain_secrets_are_told() -> None:
    plain, slow = (
        authenticator(Block(user="a", password="1")),
        authenticator(Block(token=hashed("1"))),
    )
    mixed = authenticator(Block(users=(Person("a", hashed("1")), Person("b", "2"))))

    assert (plain.is_slow, plain.has_plain_passwords) == (False, True)
    assert (slow.is_slow, slow.has_plain_passwords) == (True, False)
    assert (mixed.is_slow, mixed.has_plain_passwords) == (True, True)
    assert not authenticator().has_plain_passwords
    system_only = authenticator(accounts={"$SYS": Block(users=(Person("a", hashed("1")),))})
    assert not system_only.has_plain_passwords


@given(
    st.builds(
        Connect,
        *[st.text(st.characters(codec=None), max_size=60) | st.sampled_from(["a", "U" * 56])] * 5,
    )
)
def test_nothing_that_a_client_sends_raises_or_opens(connect: Connect) -> None:
    for closed in CLOSED:
        assert closed.authenticate(connect, nonce="nonce-nonce-non") is None


CLOSED = (
    authenticator(Block(token="correct horse battery staple")),
    authenticator(Block(user="a", password="correct horse battery staple")),
    authenticator(Block(users=(Person("a", "correct horse"), Person(nkey=NkeyHolder().key)))),
    authenticator(Block(users=(Person("a"),)), maps_certificates=True),
)


def test_no_secret_shows_in_what_is_printed() -> None:
    block = Block(token="hunter2", users=(Person("a", "hunter2"),))
    one = authenticator(block)
    identity = one.authenticate(Connect("a", "hunter2"))

    assert "hunter2" not in repr(identity) + repr(one) + repr(one._all) + repr(one._simple)
