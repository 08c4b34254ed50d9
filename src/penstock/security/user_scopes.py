"""The rights that a scoped signing key gives to one of its users.

The key's template may name the user and the account: `{{name()}}`, `{{subject()}}`,
`{{account-name()}}`, `{{account-subject()}}`, and `{{tag(x)}}` or `{{account-tag(x)}}`, which stand
for every value of a tag `x:value`, so that one entry becomes several.

What always holds: what a template does not come to is not allowed. An entry to allow that is no
subject then is left out; where none is left, all is denied; one to deny that is none refuses the
user. How much a template may become is bounded.

Pure; any thread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import product
from typing import Final

import msgspec

from penstock.errors import UsageError
from penstock.limits import TEMPLATE_SUBJECTS_MAX
from penstock.security.claims import AccountClaims, SubjectLists, UserClaims, UserGrants
from penstock.subjects import is_valid_subject

_TEMPLATE: Final = re.compile(r"\{\{([^}]+)\}\}")
_TAG: Final = re.compile(r"(tag|account-tag)\((.*)\)", re.IGNORECASE | re.DOTALL)
# What is put for a tag that is not there: no subject has it.
_UNDEFINED: Final = " "


def scoped_grants(template: UserGrants, user: UserClaims, account: AccountClaims) -> UserGrants:
    """Give what a template means for a user; raises UsageError where it means nothing."""
    lists = _Templates(user, account)
    return msgspec.structs.replace(
        template, pub=lists.applied(template.pub), sub=lists.applied(template.sub)
    )


class _Templates:
    def __init__(self, user: UserClaims, account: AccountClaims) -> None:
        self._tags = {"tag": user.tags, "account-tag": account.tags}
        self._values = {
            "name()": user.name,
            "subject()": user.subject,
            "account-name()": account.name or account.subject,
            "account-subject()": user.issuer_account,
        }

    def applied(self, lists: SubjectLists) -> SubjectLists:
        allow = self._expanded(lists.allow, must_fit=False)
        deny = self._expanded(lists.deny, must_fit=True)
        if lists.allow and not allow and ">" not in deny:
            deny = (*deny, ">")
        return SubjectLists(allow, deny)

    def _expanded(self, entries: Sequence[str], *, must_fit: bool) -> tuple[str, ...]:
        if not any(_TEMPLATE.search(entry) for entry in entries):
            return tuple(entries)
        found: list[str] = []
        for entry in entries:
            for subject in self._subjects(entry, len(found), must_fit=must_fit):
                if is_valid_subject(subject.encode()):
                    found.append(subject)
                elif must_fit:
                    raise UsageError("generated invalid subject")
        return tuple(found)

    def _subjects(self, entry: str, count: int, *, must_fit: bool) -> list[str]:
        names = [found.group() for found in _TEMPLATE.finditer(entry)]
        values = [self._values_of(name, entry, must_fit=must_fit) for name in names]
        if count + math.prod(map(len, values)) > TEMPLATE_SUBJECTS_MAX:
            raise UsageError(f"template expansion exceeds limit: {TEMPLATE_SUBJECTS_MAX}")
        subjects = []
        for chosen in product(*values):
            subject = entry
            for name, value in zip(names, chosen, strict=True):
                subject = subject.replace(name, value)
            subjects.append(subject)
        return subjects

    def _values_of(self, name: str, entry: str, *, must_fit: bool) -> list[str]:
        operation = name[2:-2].strip()
        plain = self._values.get(operation.lower())
        if plain is not None:
            return [plain]
        tag = _TAG.fullmatch(operation)
        if tag is None:
            raise UsageError(f'template operation in "{entry}": "{operation}" is not defined')
        start = f"{tag[2].lower()}:"
        tags = self._tags[tag[1].lower()]
        values = [each.removeprefix(start) for each in tags if each.startswith(start)]
        if not values and must_fit:
            raise UsageError(f'generated invalid subject "{entry}": "{tag[2]}" is not defined')
        return values or [_UNDEFINED]
