"""Users with tokens: whatever a client sends is answered, and nobody is told a secret."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.handshake import ConnectOptions
from penstock.security.jwt.authenticator import TokenAuthenticator
from penstock.security.jwt.claims import AccountClaims, ScopeClaims, read_account
from tests.support.tokens import FREE, Account, Key, Operator, User, now

NONCE = "a-nonce-to-sign"
OPERATOR = Operator()
ACCOUNT = OPERATOR.account("A", default_permissions={"pub": {"deny": ["secret"]}})


class Known:
    """An account as the authenticator looks at it."""

    def __init__(self, account: Account, *, is_expired: bool = False) -> None:
        self.claims: AccountClaims = read_account(account.token)
        own: dict[str, ScopeClaims | None] = {account.key.public: None}
        self.signing_keys = self.claims.signing_keys | own
        self.is_expired = is_expired


def authenticator(*accounts: Account, **own: Any) -> TokenAuthenticator:
    known = {each.key.public: Known(each) for each in accounts}
    return TokenAuthenticator(known.get, now_s=lambda: float(now()), **own)


def connect(user: User, **fields: str) -> ConnectOptions:
    stated: dict[str, Any] = {"jwt": user.token, "sig": user.key.sign(NONCE)} | fields
    return ConnectOptions(**stated)


def reasons(users: TokenAuthenticator, options: ConnectOptions, **own: Any) -> list[str]:
    told: list[str] = []
    found = users.authenticate(
        options, nonce=NONCE, explain=lambda level, text: told.append(f"{level} {text}"), **own
    )
    assert found is None
    return told


def test_a_user_has_the_rights_of_its_token_or_those_of_its_account() -> None:
    users = authenticator(ACCOUNT)
    plain, own = ACCOUNT.user("a"), ACCOUNT.user("b", pub={"allow": ["x"]}, payload=5)

    one = users.authenticate(connect(plain), nonce=NONCE)
    other = users.authenticate(connect(own), nonce=NONCE)

    assert one is not None
    assert (one.user, one.account) == (plain.key.public, ACCOUNT.key.public)
    assert one.permissions is not None
    assert not one.permissions.may_publish(b"secret")
    assert one.grant is not None
    assert one.grant.uses_default_permissions
    assert one.grant.seconds is None
    assert other is not None
    assert other.permissions is not None
    assert other.permissions.publish_allow == ("x",)
    assert other.grant is not None
    assert other.grant.grants.payload == 5


def test_a_token_lasts_until_it_expires_or_its_hours_do() -> None:
    users = authenticator(ACCOUNT)
    day = [{"start": "00:00:00", "end": "23:59:59"}]

    def seconds(**own: Any) -> float | None:
        found = users.authenticate(connect(ACCOUNT.user(**own)), nonce=NONCE)
        assert found is not None
        assert found.grant is not None
        return found.grant.seconds

    assert 50 < (seconds(data={"exp": now() + 60}) or 0) <= 60
    assert 0 < (seconds(times=day) or 0) < 86_400
    # No timer waits for so long.
    assert seconds(data={"exp": 2**62}) is None


@pytest.mark.parametrize(
    ("options", "own", "reason"),
    [
        (ConnectOptions(), {}, "DBG Authentication requires a user JWT"),
        (ConnectOptions(jwt="x"), {}, "DBG Authentication requires a user JWT"),
        (connect(ACCOUNT.user(), sig=""), {}, "DBG Signature missing"),
        (connect(ACCOUNT.user(), sig=Key("U").sign(NONCE)), {}, "DBG Signature not verified"),
        (connect(OPERATOR.account().user()), {}, "DBG Account JWT lookup error"),
        (connect(ACCOUNT.user(by=Key("A"))), {}, "DBG User JWT issuer is not known"),
        (connect(ACCOUNT.user(src=["10.0.0.0/8"])), {"address": "::1"}, "ERR Bad src Ip ::1"),
        (
            connect(ACCOUNT.user(allowed_connection_types=["MQTT"])),
            {},
            "DBG Connection type not allowed",
        ),
        (
            connect(ACCOUNT.user(data={"exp": 5})),
            {},
            "DBG User JWT no longer valid: claim is expired",
        ),
        (
            connect(ACCOUNT.user(times=[{"start": "1:00:00", "end": "1:00:00"}])),
            {},
            "ERR Outside connect times",
        ),
    ],
)
def test_the_log_says_why_and_nothing_else(
    options: ConnectOptions, own: dict[str, Any], reason: str
) -> None:
    assert reasons(authenticator(ACCOUNT), options, **own) == [reason]


def test_no_nonce_is_no_proof() -> None:
    user = ACCOUNT.user()
    options = ConnectOptions(jwt=user.token, sig=user.key.sign(""))

    assert authenticator(ACCOUNT).authenticate(options, nonce="") is None


def test_an_account_whose_users_somebody_else_knows_lets_in_only_those_who_tell() -> None:
    account = OPERATOR.account()
    teller, other = account.user(), account.user()
    account.change(authorization={"auth_users": [teller.key.public]})
    users = authenticator(account)

    assert users.authenticate(connect(teller), nonce=NONCE) is not None
    assert users.authenticate(connect(other), nonce=NONCE) is None


def test_a_token_is_in_no_repr() -> None:
    found = authenticator(ACCOUNT).authenticate(connect(user := ACCOUNT.user()), nonce=NONCE)

    assert found is not None
    assert user.token not in repr(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["pub", "sub", "resp", "src", "times", "times_location", "subs", "payload", "tags",
     "issuer_account", "allowed_connection_types", "bearer_token", "type", "version"]
)  # fmt: skip
OUTSIDE = st.sampled_from(["exp", "nbf", "iat", "name", "sub", "type", "aud", "iss", "jti"])


@given(
    own=st.dictionaries(FIELDS, JSON, max_size=4), data=st.dictionaries(OUTSIDE, JSON, max_size=2)
)
def test_nothing_that_a_client_claims_raises(own: dict[str, Any], data: dict[str, Any]) -> None:
    key = Key("U")
    nats = {"type": "user", "version": 2} | FREE | own
    claims = {"sub": key.public, "name": "x", "nats": nats} | data
    user = User(key, ACCOUNT.key.token(claims))

    found = authenticator(ACCOUNT).authenticate(connect(user), nonce=NONCE, address="127.0.0.1")

    assert found is None or found.account == ACCOUNT.key.public
