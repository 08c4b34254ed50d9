"""What the log says of operators when a server starts. Pure. Loaded only where there are some."""

from __future__ import annotations

import time
from collections.abc import Iterator

from penstock.config.operators import operator_claims
from penstock.config.options.server import ServerOptions
from penstock.errors import FormatError
from penstock.security.jwt.claim_checks import account_issues
from penstock.security.jwt.claims import read_account
from penstock.text.quoting import quoted

Line = tuple[str, str]
"""A level and a text."""


def operator_lines(options: ServerOptions, now_s: int) -> Iterator[Line]:
    """Yield the lines about a configuration's operators and preloaded accounts."""
    if not options.operators:
        return
    yield "INF", "Trusted Operators"
    for claims in operator_claims(options):
        yield "INF", f"  System  : {quoted(claims.audience)}"
        yield "INF", f"  Operator: {quoted(claims.name)}"
        yield "INF", f"  Issued  : {_moment(claims.issued_at)}"
        yield "INF", f"  Expires : {_moment(claims.expires) if claims.expires else 'Never'}"
    if not options.system_account:
        yield "WRN", "Trusted Operators should utilize a System Account"
    for name, token in options.resolver_preload.items():
        yield from _preload_lines(name, token, now_s)


def _preload_lines(name: str, token: str, now_s: int) -> Iterator[Line]:
    try:
        issues = list(account_issues(read_account(token), now_s))
    except FormatError:
        yield "ERR", f"Preloaded account [{name}] not valid"
        return
    if issues:
        yield "WRN", f"Account [{name}] has validation issues:"
        for each in issues:
            yield "WRN", f"  - {each.description}"


def _moment(at_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z %Z", time.localtime(at_s))
