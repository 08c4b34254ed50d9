"""Claims as records: what tokens leave out, and what older ones had elsewhere."""

from __future__ import annotations

import json

import pytest

from penstock.errors import FormatError
from penstock.security.jwt.claims import (
    is_revoked,
    read_account,
    read_activation,
    read_user,
)
from tests.support.tokens import STORAGE, Key, Operator, encoded

OPERATOR = Operator()
ACCOUNT = OPERATOR.account("A")


def test_what_a_user_token_leaves_out_is_nothing() -> None:
    claims = read_user(ACCOUNT.user("bob", is_scoped=True).token)

    assert (claims.grants.subs, claims.grants.payload) == (0, 0)
    assert claims.grants.is_empty
    assert claims.account == ACCOUNT.key.public
    assert claims.signing_key == ""


def test_a_user_of_a_signing_key_is_of_the_account_that_the_token_names() -> None:
    key = Key("A")

    claims = read_user(ACCOUNT.user(by=key).token)

    assert claims.account == ACCOUNT.key.public
    assert claims.signing_key == key.public


def test_nulls_are_as_if_nothing_was_said() -> None:
    claims = read_user(ACCOUNT.user(pub=None, times=None, sub={"allow": None}).token)

    assert claims.grants.is_empty
    assert claims.grants.times == ()


def test_addresses_may_be_a_list_or_a_text_with_commas() -> None:
    listed = read_user(ACCOUNT.user(src=["10.0.0.0/8", "::1/128"]).token)
    text = read_user(ACCOUNT.user(src="10.0.0.0/8, ::1/128").token)

    assert listed.grants.src == text.grants.src == ("10.0.0.0/8", "::1/128")


def test_a_user_token_of_the_first_version_has_no_limits() -> None:
    user, account = Key("U"), Key("A")
    claims = {
        "iss": ACCOUNT.key.public,
        "sub": user.public,
        "type": "user",
        "issuer_account": account.public,
        "tags": ["a"],
        "nats": {"pub": {"allow": ["x"]}},
    }
    header, payload = (
        encoded(json.dumps(each).encode()) for each in ({"typ": "jwt", "alg": "ed25519"}, claims)
    )

    found = read_user(f"{header}.{payload}.{ACCOUNT.key.sign(payload)}")

    assert (found.grants.subs, found.grants.payload) == (-1, -1)
    assert found.grants.pub.allow == ("x",)
    assert found.issuer_account == account.public
    assert found.tags == ("a",)


def test_signing_keys_are_plain_or_have_a_scope() -> None:
    plain, scoped = Key("A").public, Key("A").public
    scope = {"kind": "user_scope", "key": scoped, "template": {"pub": {"allow": ["x"]}}}

    keys = read_account(OPERATOR.account(signing_keys=[plain, scope]).token).signing_keys

    assert keys[plain] is None
    found = keys[scoped]
    assert found is not None
    assert found.template.pub.allow == ("x",)
    assert found.template.subs == -1


def test_an_unknown_kind_of_scope_is_refused() -> None:
    token = OPERATOR.account(signing_keys=[{"kind": "other", "key": "x"}]).token

    with pytest.raises(FormatError):
        read_account(token)


@pytest.mark.parametrize(
    ("limits", "has"),
    [
        ({}, False),
        (STORAGE, True),
        ({"mem_storage": 1}, True),
        ({"tiered_limits": {"R1": {"disk_storage": 5}}}, True),
        ({"tiered_limits": {"R1": {}}}, False),
        # Tiers stand instead of everything else.
        ({"tiered_limits": {"R1": {}}} | STORAGE, False),
    ],
)
def test_an_account_has_jetstream_where_it_may_store_something(
    limits: dict[str, object], has: bool
) -> None:
    assert read_account(OPERATOR.account(limits=limits).token).has_jetstream is has


def test_a_token_of_another_kind_is_refused() -> None:
    user, account = ACCOUNT.user().token, ACCOUNT.token

    for read, token, reason in (
        (read_user, account, "not user claim"),
        (read_account, user, "not account claim"),
        (read_activation, user, "not activation claim"),
    ):
        with pytest.raises(FormatError) as caught:
            read(token)
        assert caught.value.reason == reason


def test_claims_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(FormatError):
        read_user(ACCOUNT.user(subs="many").token)


@pytest.mark.parametrize(
    ("revocations", "is_out"),
    [
        ({}, False),
        ({"U": 99}, False),
        ({"U": 100}, True),
        ({"*": 100}, True),
        ({"*": 99, "V": 200}, False),
    ],
)
def test_what_was_issued_by_the_moment_of_a_revocation_counts_no_more(
    revocations: dict[str, int], is_out: bool
) -> None:
    assert is_revoked(revocations, "U", 100) is is_out
