"""Claims that make no sense are named, in the reference server's words."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.security.jwt.claim_checks import (
    account_issues,
    blocking,
    is_contained_in,
    user_issues,
)
from penstock.security.jwt.claims import read_account, read_user
from tests.support.tokens import Key, Operator, now

OPERATOR = Operator()
OTHER = OPERATOR.account("OTHER")


def wrong_with(**own: Any) -> list[str]:
    claims = read_account(OPERATOR.account(**own).token)
    return blocking(account_issues(claims, now()), with_time=True)


def test_an_account_without_anything_special_has_no_issues() -> None:
    assert wrong_with() == []


@pytest.mark.parametrize(
    ("own", "issue"),
    [
        (
            {"limits": {"imports": 0}, "imports": [{"subject": "x", "type": "stream"}]},
            "the account contains more imports than allowed by the operator",
        ),
        (
            {"limits": {"exports": 0}, "exports": [{"subject": "x", "type": "stream"}]},
            "the account contains more exports than allowed by the operator",
        ),
        (
            {
                "limits": {"exports": 5, "wildcards": False},
                "exports": [{"subject": "x.*", "type": "stream"}],
            },
            "the account contains wildcard exports that are not allowed by the operator",
        ),
        ({"exports": [{"subject": "x"}]}, 'invalid export type: "unknown"'),
        (
            {"exports": [{"subject": each, "type": "service"} for each in ("x.*", "x.y")]},
            'service export subject "x.*" already exports "x.y"',
        ),
        (
            {"exports": [{"subject": "x", "type": "service", "account_token_position": 1}]},
            "Account Token Position can only be used with wildcard subjects: x",
        ),
        (
            {"imports": [{"subject": "x", "type": "stream"}]},
            "account to import from is not specified",
        ),
        (
            {
                "imports": [
                    {
                        "subject": "x.*",
                        "type": "service",
                        "account": OTHER.key.public,
                        "local_subject": "y.$2",
                    }
                ]
            },
            'Reference $2 in "y.$2" reference * in "x.*" that do not exist',
        ),
        (
            {"mappings": {"x": [{"subject": "y", "weight": 60}, {"subject": "z", "weight": 60}]}},
            'Mapping "x" exceeds 100% among all of it\'s weighted to mappings',
        ),
        (
            {"default_permissions": {"pub": {"allow": ["a b"]}}},
            'Permission Subject "a b" is not allowed to contain queue',
        ),
        ({"signing_keys": ["x"]}, '"x" is not a valid account signing key'),
        ({"cluster_traffic": "x"}, 'unknown cluster traffic option: "x"'),
        ({"trace": {}}, "the account Trace.Destination subject cannot be empty"),
        (
            {"trace": {"dest": "x.*"}},
            'the account Trace.Destination subject "x.*" is not a valid publish subject',
        ),
        (
            {"trace": {"dest": "x", "sampling": 101}},
            "the account Trace.Sampling value '101' is not valid, should be in the range [1..100]",
        ),
        (
            {"limits": {"tiered_limits": {"": {"disk_storage": 1}}}},
            'Tiered JetStream Limits can not contain a blank "" tier name',
        ),
    ],
)
def test_what_is_wrong_with_an_account_is_named(own: dict[str, Any], issue: str) -> None:
    assert issue in wrong_with(**own)


def test_time_makes_an_issue_only_where_it_is_asked_for() -> None:
    account = OPERATOR.account()
    account.change(data={"exp": now() - 60})
    issues = list(account_issues(read_account(account.token), now()))

    assert blocking(issues, with_time=True) == ["claim is expired"]
    assert blocking(issues, with_time=False) == []


@pytest.mark.parametrize(
    ("own", "issue"),
    [
        ({"src": ["1.2.3.4"]}, 'invalid cidr "1.2.3.4" in user src limits'),
        ({"times": [{"start": "8:00:00"}]}, "time ranges end must contain an end"),
        (
            {"times": [{"start": "25:00:00", "end": "1:00:00"}]},
            'start in time range is invalid "25:00:00"',
        ),
        ({"sub": {"allow": ["a b c"]}}, 'Permission Subject "a b c" contains too many spaces'),
        ({"pub": {"deny": [""]}}, "subject cannot be empty"),
        ({"issuer_account": "x"}, "account_id is not an account public key"),
    ],
)
def test_what_is_wrong_with_a_user_is_named(own: dict[str, Any], issue: str) -> None:
    claims = read_user(OPERATOR.account().user(**own).token)

    assert issue in blocking(user_issues(claims, now()), with_time=True)


def test_an_activation_must_be_for_this_import_of_this_account() -> None:
    def wrong(token: str) -> list[str]:
        taken = {"subject": "x.1", "type": "stream", "account": OTHER.key.public, "token": token}
        return [each.partition(" for ")[0] for each in wrong_with(imports=[taken])]

    stranger = OPERATOR.account("S")

    # Made for another account, by another one, for another kind, and for other subjects.
    assert wrong("x") == ['import "x.1" contains an invalid activation token']
    told = wrong(stranger.activation(OPERATOR.account("T"), "y.*", "service"))
    assert told == [
        "activation token doesn't match account",
        'activation token doesn\'t match account it is being included in, "x.1"',
        "mismatch between token import type service and type of import stream",
        'activation token import subject "y.*" doesn\'t match import "x.1"',
    ]


@pytest.mark.parametrize(
    ("subject", "other", "is_inside"),
    [
        ("a.b", "a.*", True),
        ("a.b.c", "a.>", True),
        ("a", "a.>", False),
        ("a.b.c", "a.*", False),
        ("a.*", "a.b", False),
        (">", ">", True),
    ],
)
def test_a_subject_is_within_another_token_by_token(
    subject: str, other: str, is_inside: bool
) -> None:
    assert is_contained_in(subject, other) is is_inside


def test_a_key_that_may_sign_is_an_accounts() -> None:
    assert wrong_with(signing_keys=[Key("A").public]) == []
