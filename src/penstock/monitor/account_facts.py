"""What monitoring shows of one account: what it shares with others, and the claims of its JWT.

Pure. Called by the server's `ServerSource` when a page is asked for; loaded only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from penstock.config.check_imports import local_name
from penstock.config.options.accounts import AccountOptions, ExportOptions, ImportOptions
from penstock.errors import FormatError
from penstock.monitor.facts import ClaimFacts, ExportFacts, ImportFacts, SharedFacts
from penstock.protocol.jwt import decode_token
from penstock.security.jwt.claim_checks import account_issues

if TYPE_CHECKING:
    from penstock.security.jwt.claims import AccountClaims, ExportClaims

_RESPONSES: Final = {"single": "Singleton", "stream": "Streamed", "chunk": "Chunked"}


class AccountWithClaims(Protocol):
    """An account of an operator, as far as monitoring shows it."""

    @property
    def token(self) -> str:
        """The JWT; "" for an account that has none yet."""
        ...

    @property
    def claims(self) -> AccountClaims:
        """The content of the JWT."""
        ...

    @property
    def is_expired(self) -> bool:
        """Whether the claims have ended."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether every import was found."""
        ...


def shared_facts(options: AccountOptions, claims: AccountClaims | None) -> SharedFacts:
    """Return what an account shares; `claims` add what a configuration cannot say of exports."""
    stated = claims.exports if claims is not None else ()
    by_name = {(each.type, each.subject): each for each in stated}
    imports = sorted(options.imports, key=lambda taken: taken.kind != "stream")
    return SharedFacts(
        tuple(_export(each, by_name.get((each.kind, each.subject))) for each in options.exports),
        tuple(_import(each) for each in imports),
        {
            source: tuple((each.subject, each.weight, each.cluster) for each in destinations)
            for source, destinations in options.mappings.items()
        },
    )


def _export(export: ExportOptions, claims: ExportClaims | None) -> ExportFacts:
    return ExportFacts(
        export.kind,
        export.subject,
        _RESPONSES[export.response_type],
        export.accounts,
        claims is not None and claims.token_req,
        claims.revocations if claims is not None else {},
    )


def _import(taken: ImportOptions) -> ImportFacts:
    is_shared = taken.share and taken.kind == "service"
    return ImportFacts(taken.kind, taken.account, taken.subject, local_name(taken), is_shared)


def claim_facts(account: AccountWithClaims, now_s: int) -> ClaimFacts:
    """Return what an account's JWT says now."""
    claims = account.claims
    try:
        decoded = decode_token(account.token).claims
    except FormatError:
        # The account has no JWT yet.
        decoded = {}
    return ClaimFacts(
        jwt=account.token,
        issuer=claims.issuer,
        tags=claims.tags,
        decoded=decoded,
        issues=tuple(
            (each.description, True, each.is_time) for each in account_issues(claims, now_s)
        ),
        revocations=claims.revocations,
        is_expired=account.is_expired,
        is_complete=account.is_complete,
    )
