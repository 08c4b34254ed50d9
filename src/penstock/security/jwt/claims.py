"""The claims of accounts, users and activations, as records.

Fields have the names of the wire where these are words. A missing field is empty, false or 0, and a
limit of 0 allows none. -1 is no limit.

Invariant: a record was read from a JWT that its issuer signed (`protocol.jwt`). Whether the issuer
is trusted, and whether the claims are valid now, is checked elsewhere.

Pure; any thread. Loaded only by servers that have operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from penstock.errors import FormatError
from penstock.protocol.jwt import Token, decode_token

ALL_KEYS: Final = "*"
"""The key of a revocation that is for all users."""

USER_SCOPE: Final = "user_scope"

_DATA: Final = {
    "audience": "aud", "expires": "exp", "id": "jti", "issued_at": "iat", "issuer": "iss",
    "not_before": "nbf", "subject": "sub",
}  # fmt: skip


class SubjectLists(msgspec.Struct, frozen=True):
    """Subjects that are allowed, and that are not."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class ResponseGrant(msgspec.Struct, frozen=True):
    """The right to answer: messages to one reply subject, and nanoseconds."""

    max: int = 0
    ttl: int = 0


class PermissionClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What may be published and subscribed to."""

    pub: SubjectLists = SubjectLists()
    sub: SubjectLists = SubjectLists()
    resp: ResponseGrant | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stated, so that the account's defaults hold."""
        none = SubjectLists()
        return self.pub == none and self.sub == none and self.resp is None


class TimeRange(msgspec.Struct, frozen=True):
    """A part of every day, as HH:MM:SS."""

    start: str = ""
    end: str = ""


class UserGrants(PermissionClaims, frozen=True, kw_only=True):
    """What a user may, or users of a scoped signing key."""

    src: tuple[str, ...] = ()
    times: tuple[TimeRange, ...] = ()
    times_location: str = ""
    subs: int = 0
    data: int = 0
    payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: tuple[str, ...] = ()


class ClaimsData(msgspec.Struct, frozen=True, kw_only=True, rename=_DATA):
    """What all claims have: who says it of whom, and when. Times are Unix seconds; 0: none."""

    audience: str = ""
    expires: int = 0
    id: str = ""
    issued_at: int = 0
    issuer: str = ""
    name: str = ""
    not_before: int = 0
    subject: str = ""


class UserClaims(ClaimsData, frozen=True, kw_only=True, rename=_DATA):
    """A user's token."""

    grants: UserGrants = UserGrants()
    issuer_account: str = ""
    tags: tuple[str, ...] = ()

    @property
    def account(self) -> str:
        """The account that the user is of."""
        return self.issuer_account or self.issuer

    @property
    def signing_key(self) -> str:
        """The account's signing key that issued it; "" where the account itself did."""
        return self.issuer if self.issuer_account else ""


class ActivationClaims(ClaimsData, frozen=True, kw_only=True, rename=_DATA):
    """What lets one account import from another."""

    import_subject: str = ""
    kind: str = ""
    issuer_account: str = ""


class ServiceLatencyClaims(msgspec.Struct, frozen=True):
    """Where measurements of a service go, and of how many requests in 100 or by `headers`."""

    sampling: int | str = 0
    results: str = ""


class ExportClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What an account offers."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, int] = {}
    response_type: str = ""
    response_threshold: int = 0
    service_latency: ServiceLatencyClaims | None = None
    account_token_position: int = 0
    advertise: bool = False
    allow_trace: bool = False


class ImportClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What an account takes from another."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"ImportClaims({self.type} {self.subject!r} of {self.account})"


class JetStreamClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What an account may use of JetStream; no storage at all is no JetStream."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False

    @property
    def is_enabled(self) -> bool:
        """Whether any storage is granted."""
        return bool(self.mem_storage or self.disk_storage)


class LimitClaims(JetStreamClaims, frozen=True, kw_only=True):
    """An account's limits, as its operator sets them."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, JetStreamClaims] = {}


class ScopeClaims(msgspec.Struct, frozen=True, kw_only=True):
    """A signing key whose users all have the same rights."""

    kind: str = ""
    key: str = ""
    role: str = ""
    template: UserGrants = UserGrants(subs=-1, data=-1, payload=-1)
    description: str = ""


class WeightedMapping(msgspec.Struct, frozen=True):
    """One destination of a subject."""

    subject: str = ""
    weight: int = 0
    cluster: str = ""

    @property
    def percent(self) -> int:
        """Its share; all where nothing is said."""
        return self.weight or 100


class AuthorizationClaims(msgspec.Struct, frozen=True):
    """Who authenticates an account's users in its place."""

    auth_users: tuple[str, ...] = ()
    allowed_accounts: tuple[str, ...] = ()
    xkey: str = ""


class TraceClaims(msgspec.Struct, frozen=True):
    """Where traces of an account's messages go, and of how many in 100; 0: of all."""

    dest: str = ""
    sampling: int = 0


class AccountClaims(ClaimsData, frozen=True, kw_only=True, rename=_DATA):
    """An account's token. `signing_keys` are scopes by key, None where a key has none."""

    imports: tuple[ImportClaims, ...] = ()
    exports: tuple[ExportClaims, ...] = ()
    limits: LimitClaims = LimitClaims()
    signing_keys: dict[str, ScopeClaims | None] = {}
    revocations: dict[str, int] = {}
    default_permissions: PermissionClaims = PermissionClaims()
    mappings: dict[str, tuple[WeightedMapping, ...]] = {}
    authorization: AuthorizationClaims = AuthorizationClaims()
    trace: TraceClaims | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""
    tags: tuple[str, ...] = ()

    @property
    def has_jetstream(self) -> bool:
        """Whether the account may store anything."""
        tiers = self.limits.tiered_limits
        return any(each.is_enabled for each in tiers.values()) if tiers else self.limits.is_enabled


def is_revoked(revocations: Mapping[str, int], key: str, issued_at: int) -> bool:
    """Return True if a token that was issued for a key at a time is revoked."""
    moments = (revocations.get(ALL_KEYS), revocations.get(key))
    return any(moment is not None and moment >= issued_at for moment in moments)


def read_user(text: str) -> UserClaims:
    """Return the claims of a user's JWT; raise FormatError."""
    token = _of_kind(text, "user", "not user claim")
    own = _cleaned(token.nats)
    if isinstance(own.get("src"), str):
        own["src"] = [each.strip() for each in own["src"].lower().split(",") if each.strip()]
    if token.version == 1:
        # What these tokens left out had no limit, and some things stood further outside.
        own = {"subs": -1, "data": -1, "payload": -1} | own
        own |= _moved(token, "issuer_account", "tags")
    fields = {"grants": own} | _only(own, "issuer_account", "tags")
    return _converted(token, fields, UserClaims)


def read_account(text: str) -> AccountClaims:
    """Return the claims of an account's JWT; raise FormatError."""
    token = _of_kind(text, "account", "not account claim")
    own = _cleaned(token.nats)
    if token.version == 1:
        own |= _moved(token, "tags")
    own["signing_keys"] = _signing_keys(own.get("signing_keys", []))
    limits = own.get("limits")
    if isinstance(limits, dict) and (token.version == 1 or limits.get("tiered_limits")):
        # Where there are tiers, nothing else is said of JetStream.
        named = JetStreamClaims.__struct_fields__
        own["limits"] = {name: value for name, value in limits.items() if name not in named}
    return _converted(token, own, AccountClaims)


def read_activation(text: str) -> ActivationClaims:
    """Return the claims of an import's activation token; raise FormatError."""
    token = _of_kind(text, "activation", "not activation claim")
    own = _cleaned(token.nats)
    if token.version == 1:
        own |= {"kind": own.get("type", "")} | _moved(token, "issuer_account")
    fields = {"import_subject": own.get("subject", "")} | _only(own, "kind", "issuer_account")
    return _converted(token, fields, ActivationClaims)


T = TypeVar("T", bound=ClaimsData)


def _of_kind(text: str, kind: str, otherwise: str) -> Token:
    token = decode_token(text)
    if token.kind != kind:
        raise FormatError(otherwise)
    return token


def _converted(token: Token, own: dict[str, Any], kind: type[T]) -> T:
    data = _only(_cleaned(token.claims), *_DATA.values(), "name")
    try:
        return msgspec.convert(own | data, kind)
    except msgspec.ValidationError as error:
        raise FormatError(f"cannot read the claims: {error}") from None


def _signing_keys(listed: Any) -> dict[str, Any]:
    if not isinstance(listed, list):
        raise FormatError("cannot read the claims: signing keys are a list")
    found: dict[str, Any] = {}
    for each in listed:
        if isinstance(each, str):
            found[each] = None
        elif isinstance(each, dict) and each.get("kind") == USER_SCOPE:
            template = {"subs": -1, "data": -1, "payload": -1} | (each.get("template") or {})
            found[str(each.get("key", ""))] = each | {"template": template}
        else:
            raise FormatError("unknown signing key scope")
    return found


def _moved(token: Token, *names: str) -> dict[str, Any]:
    """Return what a token of the first version has outside of the NATS claims."""
    return _only(_cleaned(token.claims), *names)


def _only(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def _cleaned(value: dict[str, Any]) -> dict[str, Any]:
    """Return a copy without nulls, which mean the same as a missing field."""
    found: dict[str, Any] = _without_nulls(value)
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
