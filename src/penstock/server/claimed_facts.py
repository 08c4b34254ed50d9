"""What monitoring shows of an account's claims. Pure. Loaded only by servers with operators."""

from __future__ import annotations

from penstock.errors import FormatError
from penstock.monitor.facts import ClaimFacts
from penstock.protocol.jwt import decode_token
from penstock.security.claims_checks import account_issues
from penstock.server.claimed_accounts import KnownAccount


def claim_facts(account: KnownAccount, now_s: int) -> ClaimFacts:
    """Give what an account's JWT says now."""
    claims = account.claims
    try:
        decoded = decode_token(account.token).claims
    except FormatError:
        # It has none yet.
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
