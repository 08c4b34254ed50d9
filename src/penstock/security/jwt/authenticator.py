"""Authenticates a client by the JWT of its CONNECT, where operators are trusted.

A user's JWT is signed by its account or by one of the account's signing keys, and the account's JWT
by a trusted operator. The user proves its identity by signing the nonce, unless the JWT alone is
enough (`bearer_token`).

A scoped signing key has a template of permissions, which may name the user and the account:
`{{name()}}`, `{{subject()}}`, `{{account-name()}}`, `{{account-subject()}}`, and `{{tag(x)}}` or
`{{account-tag(x)}}`, which stand for every value of a tag `x:value`, so that one entry becomes
several. A user may also be limited to hours of the day.

Invariants: a refused client is not told why; the log is, at debug level. Nothing that a client
sends raises. No JWT and no signature is logged. What a template does not produce is not allowed:
an allowed entry that is no subject is left out; if none is left, all is denied; a denied entry that
is no subject refuses the user. The size of a filled-in template is bounded.

Thread: the event loop's, or any other from which the accounts may be read.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, time, timedelta, tzinfo
from itertools import product
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.errors import FormatError, UsageError
from penstock.limits import TEMPLATE_SUBJECTS_MAX, TOKEN_SECONDS_MAX
from penstock.protocol.nkeys import is_signed
from penstock.security.authenticator import ConnectFields, Identity, IdentityKind
from penstock.security.jwt.claim_checks import blocking, network_of, user_issues
from penstock.security.jwt.claims import (
    AccountClaims,
    PermissionClaims,
    ScopeClaims,
    SubjectLists,
    TimeRange,
    UserClaims,
    UserGrants,
    is_revoked,
    read_user,
)
from penstock.security.permissions import Permissions
from penstock.security.users import CONNECTION_TYPES
from penstock.subjects import is_valid_subject

if TYPE_CHECKING:
    from penstock.security.tls import PeerCertificate


_TEMPLATE: Final = re.compile(r"\{\{([^}]+)\}\}")
_TAG: Final = re.compile(r"(tag|account-tag)\((.*)\)", re.IGNORECASE | re.DOTALL)
# What is put for a tag that is not there: no subject has it.
_UNDEFINED: Final = " "


def scoped_grants(template: UserGrants, user: UserClaims, account: AccountClaims) -> UserGrants:
    """Return a template filled in for a user; raise UsageError if it is not valid then."""
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


def seconds_allowed(grants: UserGrants, now_s: float) -> float | None:
    """Return how many seconds a user may stay: 0 for any time, None for not at all."""
    if not grants.times:
        return 0.0
    try:
        now = datetime.fromtimestamp(now_s, _zone(grants.times_location))
        left = [_seconds_left(each, now) for each in grants.times]
    except (ValueError, LookupError, OSError):
        # An unknown time zone or time: no user may connect.
        return None
    return max((each for each in left if each is not None), default=None)


def _zone(location: str) -> tzinfo | None:
    """Return the time zone of a name; None, the server's own, for an empty name."""
    if not location or location == "Local":
        return None
    # Few users are confined to the hours of a place, and no server loads it for the others.
    from zoneinfo import ZoneInfo

    return ZoneInfo(location)


def _seconds_left(each: TimeRange, now: datetime) -> float | None:
    start, end = (_on_day(moment, now) for moment in (each.start, each.end))
    if start < now < end:
        return (end - now).total_seconds()
    if start > end:
        # It goes over midnight, which may be behind us or before us.
        if now < end:
            return (end - now).total_seconds()
        end += timedelta(days=1)
        if start < now < end:
            return (end - now).total_seconds()
    return None


def _on_day(moment: str, day: datetime) -> datetime:
    hour, minute, second = (int(each) for each in moment.split(":"))
    return datetime.combine(day.date(), time(hour, minute, second), day.tzinfo)


Explain = Callable[[str, str], None]
"""Takes the level of a log line, and what it says of a client that is refused."""


class TokenConnectFields(ConnectFields, Protocol):
    """The credentials of a CONNECT with a token."""

    @property
    def jwt(self) -> str:
        """The token."""
        ...


class SigningAccount(Protocol):
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
        """Whether the claims have ended."""
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
        """Whether the permissions are the account's defaults."""
        return self.grants.is_empty


class TokenAuthenticator:
    """The users of trusted operators' accounts; see the module.

    `find_account` returns an account by its public key, or None if it has no valid JWT.
    """

    required = True
    asks_for_credentials = True
    admits_without_credentials = False
    needs_nonce = True
    is_slow = False
    has_plain_passwords = False

    def __init__(
        self,
        find_account: Callable[[str], SigningAccount | None],
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
        """Return False: no user of an operator is known by name."""
        return True

    def account_of(self, connect: TokenConnectFields) -> str:
        """Return the account that a client's JWT names, or ""."""
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
        """Return the identity of a connecting client, or None if it is refused."""
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

    def _account(self, claims: UserClaims) -> SigningAccount:
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
    """Return the permissions of claims, or None if everything is allowed; raise UsageError."""
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


def _granted(claims: UserClaims, account: SigningAccount) -> UserGrants:
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


def _check_account(claims: UserClaims, grants: UserGrants, account: SigningAccount) -> None:
    if account.is_expired:
        raise _Refused("Account JWT has expired")
    if grants.bearer_token and account.claims.limits.disallow_bearer:
        raise _Refused("Account does not allow bearer tokens")
    others = account.claims.authorization.auth_users
    if others and claims.subject not in others:
        # An authentication callout would have to decide, and is not available.
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
