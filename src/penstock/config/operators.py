"""Operators as their JWTs describe them, and what follows for the other options.

An operator's JWT names the keys that sign accounts, the system account, and the server that returns
accounts. The configuration overrides it. Errors are in the reference server's words.

Pure. Loaded only if a configuration has operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from penstock.config.options.server import ServerOptions
from penstock.config.options.trust import ResolverOptions
from penstock.config.options.values import changed, parse_url
from penstock.errors import FormatError
from penstock.protocol.jwt import decode_token
from penstock.protocol.nkeys import Prefix, is_public_key
from penstock.text.quoting import quoted

_NAMES: Final = {
    "audience": "aud", "expires": "exp", "issued_at": "iat", "issuer": "iss", "subject": "sub",
}  # fmt: skip


class OperatorClaims(msgspec.Struct, frozen=True, kw_only=True, rename=_NAMES):
    """What an operator says of itself; times are Unix seconds, 0 for none."""

    audience: str = ""
    expires: int = 0
    issued_at: int = 0
    issuer: str = ""
    name: str = ""
    subject: str = ""
    signing_keys: tuple[str, ...] = ()
    account_server_url: str = ""
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys whose accounts are served."""
        own = () if self.strict_signing_key_usage else (self.subject,)
        return (*own, *self.signing_keys)


def read_operator(text: str) -> OperatorClaims:
    """Return the claims of an operator's JWT; raise FormatError."""
    token = decode_token(text)
    if token.kind != "operator":
        raise FormatError("not operator claim")
    try:
        return msgspec.convert(token.nats | token.claims, OperatorClaims)
    except msgspec.ValidationError as error:
        raise FormatError(str(error)) from None


def operator_claims(options: ServerOptions) -> tuple[OperatorClaims, ...]:
    """Return the claims of a configuration's operators."""
    return tuple(read_operator(each) for each in options.operators)


def trusted_keys_of(options: ServerOptions) -> tuple[str, ...]:
    """Return every key whose accounts are served."""
    keys = (key for claims in operator_claims(options) for key in claims.keys)
    return (*options.trusted_keys, *keys)


def strict_keys_of(options: ServerOptions) -> frozenset[str]:
    """Return the keys whose accounts must be signed with a signing key."""
    strict = (each for each in operator_claims(options) if each.strict_signing_key_usage)
    return frozenset(key for claims in strict for key in claims.signing_keys)


def with_operator(options: ServerOptions) -> ServerOptions:
    """Return the options, completed by what the one operator says."""
    claims = operator_claims(options)
    if len(claims) != 1:
        return options
    followed: dict[str, Any] = {}
    if options.resolver is None and (url := claims[0].account_server_url):
        try:
            parse_url(url)
        except ValueError:
            pass
        else:
            followed["resolver"] = ResolverOptions(kind="url", url=f"{url}/accounts")
    if not options.system_account:
        followed["system_account"] = claims[0].system_account
    return changed(options, **followed)


def wrong_operators(options: ServerOptions) -> str:
    """Say what is wrong with operators, or does not go with them; "" for nothing."""
    claims = operator_claims(options)
    if options.default_sentinel and (reason := _wrong_sentinel(options.default_sentinel)):
        return reason
    if options.resolver is None:
        return "operators require an account resolver to be configured"
    if options.accounts:
        return "operators do not allow Accounts to be configured directly"
    authorization = options.authorization
    if authorization.users:
        return "operators do not allow users to be configured directly"
    if options.trusted_keys:
        return "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
    return (
        _wrong_system_account(options, claims)
        or _wrong_keys(options, claims)
        or (
            "operators do not allow authorization callouts to be configured directly"
            if authorization.auth_callout is not None
            else ""
        )
    )


def _wrong_sentinel(token: str) -> str:
    try:
        found = decode_token(token)
    except FormatError:
        found = None
    if found is None or found.kind != "user":
        return "default sentinel JWT not valid"
    if found.nats.get("bearer_token") is True:
        return ""
    # A user of a scoped signing key: whether its scope makes it a bearer is seen when it comes.
    rights = found.nats.keys() - {"issuer_account", "tags", "type", "version"}
    if found.nats.get("issuer_account") and not rights:
        return ""
    return "default sentinel must be a bearer token"


def _wrong_system_account(options: ServerOptions, claims: Iterable[OperatorClaims]) -> str:
    named = [each.system_account for each in claims]
    if options.system_account:
        if any(named) and options.system_account not in named:
            return "system_account in config and operator JWT must be identical"
        return ""
    kind = options.resolver.kind.lower() if options.resolver is not None else ""
    if not named[0] and kind in ("full", "cache"):
        needed = "the system account needs to be specified in configuration or the operator jwt"
        return f"using nats based account resolver - {needed}"
    return ""


def wrong_versions(options: ServerOptions, version: str) -> str:
    """Say which operator wants a later server than one of this version; "" for none."""
    own = [int(each) for each in version.split(".")]
    for each in operator_claims(options):
        asserted = each.assert_server_version
        if not asserted:
            continue
        parts = asserted.split(".")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            form = "asserted server version must be of the form <major>.<minor>.<update>"
            return f"operator {each.subject} expects version {asserted} got error instead: {form}"
        for name, wanted, has in zip(
            ("major", "minor", "update"), map(int, parts), own, strict=True
        ):
            if wanted > has:
                than = f"{wanted} > server {name} version {has}"
                return f"operator {each.subject} expected {name} version {than}"
            if wanted < has:
                break
    return ""


def _wrong_keys(options: ServerOptions, claims: Iterable[OperatorClaims]) -> str:
    for key in (key for each in claims for key in each.keys):
        if not is_public_key(key, Prefix.OPERATOR):
            required = "are required to be a valid public operator nkey"
            return f"trusted Keys {quoted(key)} {required}"
    for key in options.resolver_pinned_accounts:
        if not is_public_key(key, Prefix.ACCOUNT):
            return f"pinned account key {quoted(key)} is not a valid public account nkey"
    return ""
