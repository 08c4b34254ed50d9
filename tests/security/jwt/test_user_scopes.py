"""Templates of scoped signing keys: what they become, and that nothing is allowed by mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.limits import TEMPLATE_SUBJECTS_MAX
from penstock.security.jwt.authenticator import scoped_grants
from penstock.security.jwt.claims import AccountClaims, SubjectLists, UserClaims, UserGrants

ACCOUNT = AccountClaims(subject="AKEY", name="Acme", tags=("region:eu",))
USER = UserClaims(
    subject="UKEY", name="bob", issuer_account="AKEY", tags=("dept:hr", "dept:it", "level:1")
)


def allowed(*entries: str, user: UserClaims = USER) -> SubjectLists:
    template = UserGrants(pub=SubjectLists(entries), subs=7)
    found = scoped_grants(template, user, ACCOUNT)
    assert found.subs == 7
    return found.pub


@pytest.mark.parametrize(
    ("entry", "subjects"),
    [
        ("plain.>", ("plain.>",)),
        ("{{name()}}.{{subject()}}", ("bob.UKEY",)),
        ("{{ NAME() }}", ("bob",)),
        ("{{account-name()}}.{{account-subject()}}", ("Acme.AKEY",)),
        ("x.{{tag(dept)}}", ("x.hr", "x.it")),
        ("{{tag(level)}}.{{tag(dept)}}", ("1.hr", "1.it")),
        ("{{account-tag(region)}}.>", ("eu.>",)),
    ],
)
def test_a_template_becomes_the_subjects_of_a_user(entry: str, subjects: tuple[str, ...]) -> None:
    assert allowed(entry).allow == subjects


def test_what_becomes_no_subject_is_not_allowed_and_nothing_else_is() -> None:
    found = allowed("{{tag(none)}}.x")

    assert found == SubjectLists((), (">",))


def test_a_name_that_is_no_subject_leaves_the_other_entries() -> None:
    nameless = UserClaims(subject="UKEY", name="two words", issuer_account="AKEY")

    assert allowed("{{name()}}", "{{subject()}}", user=nameless).allow == ("UKEY",)


def test_a_denial_that_becomes_no_subject_refuses_the_user() -> None:
    template = UserGrants(sub=SubjectLists(deny=("{{tag(none)}}.x",)))

    with pytest.raises(UsageError):
        scoped_grants(template, USER, ACCOUNT)


def test_an_unknown_function_refuses_the_user() -> None:
    with pytest.raises(UsageError):
        allowed("{{password()}}")


def test_tags_cannot_multiply_without_end() -> None:
    tags = tuple(f"t:{number}" for number in range(TEMPLATE_SUBJECTS_MAX))
    many = UserClaims(subject="UKEY", issuer_account="AKEY", tags=tags)

    assert len(allowed("{{tag(t)}}", user=many).allow) == TEMPLATE_SUBJECTS_MAX
    with pytest.raises(UsageError):
        allowed("{{tag(t)}}.{{tag(t)}}", user=many)


@given(st.lists(st.text("ab{}()tag-name.*> ", max_size=20), max_size=4))
def test_a_list_that_allows_something_never_becomes_one_that_allows_all(
    entries: list[str],
) -> None:
    try:
        found = allowed(*entries)
    except UsageError:
        return

    assert not entries or found.allow or ">" in found.deny
