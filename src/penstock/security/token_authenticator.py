"""Who is it, where operators say who may: the JWT of a CONNECT against the claims of its account.

A user's token is signed by its account, or by a signing key of it; the account's token by an
operator that the server trusts. The user proves that it is the one that is meant by signing the
nonce, unless the token itself is all that is asked for (`bearer_token`).

What always holds: a refusal tells the client nothing, and the log, at debug level, why; nothing
that a client sends raises; no token and no signature is ever logged.

The event loop's thread, or any other where the accounts can be asked from there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.errors import FormatError, UsageError
from penstock.limits import TOKEN_SECONDS_MAX
from penstock.protocol.nkeys import is_signed
from penstock.security.authenticator import ConnectFields, Identity, IdentityKind
from penstock.security.claims import (
    AccountClaims,
    PermissionClaims,
    ScopeClaims,
    UserClaims,
    UserGrants,
    is_revoked,
    read_user,
)
from penstock.security.claims_checks import blocking, network_of, user_issues
from penstock.security.permissions import Permissions
from penstock.security.user_hours import seconds_allowed
from penstock.security.user_scopes import scoped_grants
from penstock.security.users import CONNECTION_TYPES

if TYPE_CHECKING:
    from penstock.security.certificates import PeerCertificate

Explain = Callable[[str, str], None]
"""Takes the level of a log line, and what it says of a client that is refused."""


class TokenConnectFields(ConnectFields, Protocol):
    """The credentials of a CONNECT with a token."""

    @property
    def jwt(self) -> str:
        """The token."""
        ...


class ClaimedAccount(Protocol):
    """An account whose claims were signed by a trusted operator."""

    @property
    def claims(self) -> AccountClaims:
        """What it claims."""
        ...

    @property
    def signing_keys(self) -> Mapping[str, ScopeClaims | None]:
        """The keys that may issue its users, and their scopes."""
        ...

    @property
    def is_expired(self) -> bool:
        """Tell whether its claims hold no more."""
        ...


class Grant(msgspec.Struct, frozen=True):
    """What a token gave to a connection: rights and limits as they are once scopes are applied.

    `scope` is that of the signing key, where it has one; `seconds` is how long all of it lasts,
    None for as long as it likes.
    """

    token: str
    claims: UserClaims
    grants: UserGrants
    permissions: Permissions | None
    scope: ScopeClaims | None = None
    seconds: float | None = None

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"Grant({self.claims.subject})"

    @property
    def uses_default_permissions(self) -> bool:
        """Tell whether its permissions are the account's."""
        return self.grants.is_empty


class TokenAuthenticator:
    """The users of trusted operators' accounts; see the module.

    `find_account` gives an account by its public key, or None where there is none that counts.
    """

    required = True
    asks_for_credentials = True
    admits_without_credentials = False
    needs_nonce = True
    is_slow = False
    has_plain_passwords = False

    def __init__(
        self,
        find_account: Callable[[str], ClaimedAccount | None],
        *,
        now_s: Callable[[], float],
        default_token: str = "",
        pinned_accounts: frozenset[str] = frozenset(),
    ) -> None:
        self._find_account = find_account
        self._now_s = now_s
        self._default_token = default_token
        self._pinned_accounts = pinned_accounts

    def has_user(self, connect: ConnectFields) -> bool:
        """Tell whether a client's user is one of those that are known by name: none is."""
        return True

    def account_of(self, connect: TokenConnectFields) -> str:
        """Give the account that a client says it is of; "" where it does not say."""
        try:
            return read_user(connect.jwt or self._default_token).account
        except FormatError:
            return ""

    def authenticate(
        self,
        connect: TokenConnectFields,
        *,
        nonce: str = "",
        peer_certificate: PeerCertificate | None = None,
        connection_type: str = "STANDARD",
        address: str = "",
        explain: Explain = lambda level, text: None,
    ) -> Identity | None:
        """Give who a client is; None for nobody that may connect."""
        try:
            token, claims = self._claims(connect)
            account = self._account(claims)
            grants = _granted(claims, account)
            _check_account(claims, grants, account)
            _check_connection_type(grants, connection_type, explain)
            if not grants.bearer_token:
                _check_signature(claims, connect.sig, nonce)
            seconds = self._seconds(claims, grants, address)
            own = grants if not grants.is_empty else account.claims.default_permissions
            permissions = claimed_permissions(own)
        except _Refused as refused:
            explain(refused.level, str(refused))
            return None
        except UsageError as error:
            explain("DBG", f"User JWT is not valid: {error}")
            return None
        scope = account.signing_keys[claims.issuer]
        grant = Grant(token, claims, grants, permissions, scope, seconds)
        name = account.claims.subject
        return Identity(claims.subject, name, IdentityKind.TOKEN_USER, permissions, grant)

    def _claims(self, connect: TokenConnectFields) -> tuple[str, UserClaims]:
        token, claims = connect.jwt, None
        try:
            claims = read_user(token)
        except FormatError:
            # What is no user's token is as if there was none.
            token = self._default_token
        if not token:
            raise _Refused("Authentication requires a user JWT")
        try:
            claims = claims or read_user(token)
        except FormatError as error:
            raise _Refused(f"User JWT not valid: {error.reason}") from None
        if claims.grants.proxy_required:
            # No proxy can be trusted here.
            raise _Refused("proxy required")
        issues = blocking(user_issues(claims, int(self._now_s())), with_time=True)
        if issues:
            raise _Refused(f"User JWT no longer valid: {'; '.join(issues)}")
        return token, claims

    def _account(self, claims: UserClaims) -> ClaimedAccount:
        name = claims.account
        if self._pinned_accounts and name not in self._pinned_accounts:
            raise _Refused(f"Account {name} not listed as operator pinned account")
        account = self._find_account(name)
        if account is None:
            raise _Refused("Account JWT lookup error")
        return account

    def _seconds(self, claims: UserClaims, grants: UserGrants, address: str) -> float | None:
        if grants.src and not _comes_from(address, grants.src):
            raise _Refused(f"Bad src Ip {address}", "ERR")
        now_s = self._now_s()
        allowed_s = seconds_allowed(grants, now_s)
        if allowed_s is None:
            raise _Refused("Outside connect times", "ERR")
        ends = [allowed_s] if allowed_s else []
        if claims.expires:
            ends.append(max(claims.expires - int(now_s), 0))
        return min((each for each in ends if each < TOKEN_SECONDS_MAX), default=None)


class _Refused(Exception):
    """Why a client is not let in, for the log alone."""

    def __init__(self, reason: str, level: str = "DBG") -> None:
        super().__init__(reason)
        self.level = level


def claimed_permissions(claims: PermissionClaims) -> Permissions | None:
    """Give what claims allow; None for everything. Raises UsageError."""
    if claims.is_empty:
        return None
    responses = None if claims.resp is None else (claims.resp.max, claims.resp.ttl)
    return Permissions(
        publish_allow=claims.pub.allow or None,
        publish_deny=claims.pub.deny,
        subscribe_allow=claims.sub.allow or None,
        subscribe_deny=claims.sub.deny,
        responses=responses,
    )


def _granted(claims: UserClaims, account: ClaimedAccount) -> UserGrants:
    if claims.issuer not in account.signing_keys:
        raise _Refused("User JWT issuer is not known")
    scope = account.signing_keys[claims.issuer]
    if scope is None:
        return claims.grants
    if claims.grants != UserGrants():
        reason = "scoped users require no permissions or limits set"
        raise _Refused(f"User JWT is not valid: {reason}")
    try:
        return scoped_grants(scope.template, claims, account.claims)
    except UsageError:
        raise _Refused("User JWT generated invalid permissions") from None


def _check_account(claims: UserClaims, grants: UserGrants, account: ClaimedAccount) -> None:
    if account.is_expired:
        raise _Refused("Account JWT has expired")
    if grants.bearer_token and account.claims.limits.disallow_bearer:
        raise _Refused("Account does not allow bearer tokens")
    others = account.claims.authorization.auth_users
    if others and claims.subject not in others:
        # Somebody else would have to say who this is, and cannot be asked.
        raise _Refused("Account delegates authentication, which is not available")
    if is_revoked(account.claims.revocations, claims.subject, claims.issued_at):
        raise _Refused("User authentication revoked")


def _check_connection_type(grants: UserGrants, connection_type: str, explain: Explain) -> None:
    named = {each.upper() for each in grants.allowed_connection_types}
    unknown = named - CONNECTION_TYPES
    if unknown:
        explain("DBG", f"invalid connection types: {sorted(unknown)}")
    if named and connection_type not in named:
        raise _Refused("Connection type not allowed")


def _check_signature(claims: UserClaims, signature: str, nonce: str) -> None:
    if not signature:
        raise _Refused("Signature missing")
    if not nonce or not is_signed(claims.subject, nonce.encode(), signature):
        raise _Refused("Signature not verified")


def _comes_from(address: str, networks: tuple[str, ...]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    for each in networks:
        network = network_of(each)
        if network is None:
            return False
        if found in network:
            return True
    return False
