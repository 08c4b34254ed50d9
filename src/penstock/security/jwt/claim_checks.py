"""Checks of claims: are they consistent, and valid now? The reference server's rules and words.

An issue that blocks makes claims invalid. An issue of time does so only before or after a moment.

Pure: the time is an argument. Any thread.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from penstock.errors import FormatError
from penstock.protocol.nkeys import Prefix, find_public_key, is_account_key, is_user_key
from penstock.security.jwt.claims import (
    AccountClaims,
    ActivationClaims,
    ClaimsData,
    ExportClaims,
    ImportClaims,
    LimitClaims,
    PermissionClaims,
    TraceClaims,
    UserClaims,
    UserGrants,
    read_activation,
)

_INFO_MAX: Final = 8 * 1024  # the reference server's bound
_TIME: Final = re.compile(r"([01]?\d|2[0-3]):[0-5]\d:[0-5]\d")
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")
_RESPONSE_TYPES: Final = ("", "Singleton", "Stream", "Chunked")


class Issue(msgspec.Struct, frozen=True):
    """What is wrong with claims; `is_time`: only now."""

    description: str
    is_time: bool = False


def blocking(issues: Iterable[Issue], *, with_time: bool) -> list[str]:
    """Return the issues that block claims, with or without those of time."""
    return [each.description for each in issues if with_time or not each.is_time]


def user_issues(claims: UserClaims, now_s: int) -> Iterator[Issue]:
    """Yield the issues of a user's claims."""
    yield from _time_issues(claims, now_s)
    yield from _permission_issues(claims.grants)
    yield from _limit_issues(claims.grants)
    if claims.issuer_account and not is_account_key(claims.issuer_account):
        yield Issue("account_id is not an account public key")


def activation_issues(claims: ActivationClaims, now_s: int | None) -> Iterator[Issue]:
    """Yield the issues of an activation; without a time, those that always hold."""
    if now_s is not None:
        yield from _time_issues(claims, now_s)
    if claims.kind not in ("stream", "service"):
        yield Issue('invalid import type: "unknown"')
    yield from _subject_issues(claims.import_subject)
    if claims.issuer_account and not is_account_key(claims.issuer_account):
        yield Issue("account_id is not an account public key")


def account_issues(claims: AccountClaims, now_s: int) -> Iterator[Issue]:
    """Yield the issues of an account's claims."""
    yield from _time_issues(claims, now_s)
    yield from _imports_issues(claims)
    yield from _exports_issues(claims.exports)
    yield from _tier_issues(claims.limits)
    yield from _permission_issues(claims.default_permissions)
    yield from _mapping_issues(claims)
    yield from _authorization_issues(claims)
    yield from _trace_issues(claims.trace)
    yield from _count_issues(claims)
    for key, scope in claims.signing_keys.items():
        if not is_account_key(key):
            shown = key if scope is not None else f'"{key}"'
            is_not = "an account public key" if scope is not None else "a valid account signing key"
            yield Issue(f"{shown} is not {is_not}")
    yield from _info_issues(claims)
    if claims.cluster_traffic not in ("", "system", "owner"):
        yield Issue(f'unknown cluster traffic option: "{claims.cluster_traffic}"')


def is_contained_in(subject: str, other: str) -> bool:
    """Return True if a subject is within another, as claims are compared."""
    mine, others = subject.split("."), other.split(".")
    if len(mine) > len(others) and others[-1] != ">":
        return False
    if len(mine) < len(others):
        return False
    for place, token in enumerate(others):
        if place == len(others) - 1 and token == ">":
            return True
        if token not in (mine[place], "*"):
            return False
    return True


def import_issues(taken: ImportClaims, account: str) -> Iterator[Issue]:
    """Yield the issues of an account's import."""
    if taken.type not in ("stream", "service"):
        yield Issue('invalid import type: "unknown"')
    if taken.type == "service" and taken.allow_trace:
        yield Issue("AllowTrace only valid for stream import")
    if not taken.account:
        yield Issue("account to import from is not specified")
    yield from _subject_issues(taken.subject)
    if taken.local_subject:
        yield from _renaming_issues(taken.local_subject, taken.subject)
        if taken.to:
            yield Issue("Local Subject replaces To")
    if taken.share and taken.type != "service":
        only = "sharing information (for latency tracking) is only valid for services"
        yield Issue(f'{only}: "{taken.subject}"')
    if taken.token:
        yield from _token_issues(taken, account)


def _token_issues(taken: ImportClaims, account: str) -> Iterator[Issue]:
    subject = f'"{taken.subject}"'
    try:
        activation = read_activation(taken.token)
    except FormatError:
        yield Issue(f"import {subject} contains an invalid activation token")
        return
    if taken.account not in (activation.issuer, activation.issuer_account):
        yield Issue(f"activation token doesn't match account for import {subject}")
    if activation.subject != account:
        where = "account it is being included in"
        yield Issue(f"activation token doesn't match {where}, {subject}")
    if activation.kind != taken.type:
        types = f"{activation.kind} and type of import {taken.type}"
        yield Issue(f"mismatch between token import type {types}")
    yield from activation_issues(activation, None)
    asked = taken.to if taken.type == "service" and taken.to else taken.subject
    if not is_contained_in(asked, activation.import_subject):
        offered = f'"{activation.import_subject}"'
        yield Issue(f"activation token import subject {offered} doesn't match import {subject}")


def _imports_issues(claims: AccountClaims) -> Iterator[Issue]:
    seen: dict[str, list[str]] = {}
    for taken in claims.imports:
        if taken.type == "service":
            renamed = _PLACEHOLDER.sub("*", taken.local_subject)
            local = taken.to or renamed or taken.subject
            others = seen.setdefault(taken.account, [])
            for other in others:
                if is_contained_in(local, other) or is_contained_in(other, local):
                    pair = f'"{local}" and "{other}" in same account "{taken.account}"'
                    yield Issue(f"overlapping subject namespace for {pair}")
            others.append(local)
        yield from import_issues(taken, claims.subject)


def _exports_issues(exports: Sequence[ExportClaims]) -> Iterator[Issue]:
    for export in exports:
        yield from _export_issues(export)
    for kind in ("service", "stream"):
        subjects = [each.subject for each in exports if each.type == kind]
        told: set[str] = set()
        for place, subject in enumerate(subjects):
            for other_place, other in enumerate(subjects):
                inside = place != other_place and is_contained_in(subject, other)
                if inside and other not in told:
                    told.add(other)
                    yield Issue(f'{kind} export subject "{other}" already exports "{subject}"')


def _export_issues(export: ExportClaims) -> Iterator[Issue]:
    is_service = export.type == "service"
    if export.type not in ("stream", "service"):
        yield Issue('invalid export type: "unknown"')
    response = f'"{export.response_type}"'
    if is_service and export.response_type not in _RESPONSE_TYPES:
        yield Issue(f"invalid response type for service: {response}")
    if export.type == "stream" and export.response_type:
        yield Issue(f"invalid response type for stream: {response}")
    if export.type == "stream" and export.allow_trace:
        yield Issue("AllowTrace only valid for service export")
    if export.service_latency is not None:
        if not is_service:
            yield Issue("latency tracking only permitted for services")
        yield from _subject_issues(export.service_latency.results)
        if has_wildcards(export.service_latency.results):
            yield Issue("results subject can not contain wildcards")
    if export.response_threshold < 0:
        yield Issue("negative response threshold is invalid")
    if export.response_threshold > 0 and not is_service:
        yield Issue("response threshold only valid for services")
    yield from _subject_issues(export.subject)
    yield from _position_issues(export)


def _position_issues(export: ExportClaims) -> Iterator[Issue]:
    position, tokens = export.account_token_position, export.subject.split(".")
    if position <= 0:
        return
    if not has_wildcards(export.subject):
        what = f"can only be used with wildcard subjects: {export.subject}"
        yield Issue(f"Account Token Position {what}")
    elif position > len(tokens):
        what = f"exceeds length of subject '{export.subject}'"
        yield Issue(f"Account Token Position {position} {what}")
    elif tokens[position - 1] != "*":
        what = f"matches '{tokens[position - 1]}' but must match a * in: {export.subject}"
        yield Issue(f"Account Token Position {position} {what}")


def _tier_issues(limits: LimitClaims) -> Iterator[Issue]:
    if "" in limits.tiered_limits:
        yield Issue('Tiered JetStream Limits can not contain a blank "" tier name')


def _mapping_issues(claims: AccountClaims) -> Iterator[Issue]:
    for source, destinations in claims.mappings.items():
        yield from _subject_issues(source)
        totals: dict[str, int] = {}
        for each in destinations:
            yield from _subject_issues(each.subject)
            if each.percent > 100:
                yield Issue(f'Mapping "{source}" has a weight {each.percent} that exceeds 100')
            totals[each.cluster] = totals.get(each.cluster, 0) + each.percent
        for cluster, total in totals.items():
            if total > 100:
                where = f' in cluster "{cluster}"' if cluster else ""
                among = "among all of it's weighted to mappings"
                yield Issue(f'Mapping "{source}"{where} exceeds 100% {among}')


def _authorization_issues(claims: AccountClaims) -> Iterator[Issue]:
    stated = claims.authorization
    if stated.allowed_accounts and not stated.auth_users:
        yield Issue("External authorization cannot have accounts without users specified")
    for user in stated.auth_users:
        if not is_user_key(user):
            yield Issue(f'AuthUser "{user}" is not a valid user public key')
    for account in stated.allowed_accounts:
        if account == "*" and len(stated.allowed_accounts) > 1:
            yield Issue('AllowedAccounts can only be a list of accounts or "*"')
        elif account != "*" and not is_account_key(account):
            yield Issue(f'Account "{account}" is not a valid account public key')
    if stated.xkey and find_public_key(stated.xkey, Prefix.CURVE) is None:
        yield Issue(f'XKey "{stated.xkey}" is not a valid public xkey')


def _trace_issues(trace: TraceClaims | None) -> Iterator[Issue]:
    if trace is None:
        return
    destination = "the account Trace.Destination"
    for issue in list(_subject_issues(trace.dest))[:1]:
        yield Issue(f"{destination} {issue.description}")
    if has_wildcards(trace.dest):
        yield Issue(f'{destination} subject "{trace.dest}" is not a valid publish subject')
    if not 0 <= trace.sampling <= 100:
        told = f"the account Trace.Sampling value '{trace.sampling}' is not valid"
        yield Issue(f"{told}, should be in the range [1..100]")


def _count_issues(claims: AccountClaims) -> Iterator[Issue]:
    limits, exports = claims.limits, claims.exports
    by = "allowed by the operator"
    if limits.imports != -1 and len(claims.imports) > limits.imports:
        yield Issue(f"the account contains more imports than {by}")
    if limits.exports != -1:
        if len(exports) > limits.exports:
            yield Issue(f"the account contains more exports than {by}")
        if not limits.wildcards and any(has_wildcards(each.subject) for each in exports):
            yield Issue(f"the account contains wildcard exports that are not {by}")


def _info_issues(claims: AccountClaims) -> Iterator[Issue]:
    if len(claims.description) > _INFO_MAX:
        yield Issue("Description is too long")
    if not claims.info_url:
        return
    if len(claims.info_url) > _INFO_MAX:
        yield Issue("Info URL is too long")
    try:
        split = urlsplit(claims.info_url)
        is_whole = bool(split.hostname and split.scheme)
    except ValueError:
        is_whole = False
    if not is_whole:
        yield Issue("error parsing info url: no hostname or scheme")


def _time_issues(claims: ClaimsData, now_s: int) -> Iterator[Issue]:
    if 0 < claims.expires < now_s:
        yield Issue("claim is expired", is_time=True)
    if claims.not_before > now_s:
        yield Issue("claim is not yet valid", is_time=True)


def _limit_issues(grants: UserGrants) -> Iterator[Issue]:
    for cidr in grants.src:
        if network_of(cidr) is None:
            yield Issue(f'invalid cidr "{cidr}" in user src limits')
    for each in grants.times:
        for name, moment in (("start", each.start), ("end", each.end)):
            if not moment:
                yield Issue(
                    f"time ranges {name} must contain {'a start' if name == 'start' else 'an end'}"
                )
            elif _TIME.fullmatch(moment) is None:
                yield Issue(f'{name} in time range is invalid "{moment}"')


def network_of(cidr: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network of a CIDR, or None if the text is none."""
    if "/" not in cidr:
        return None
    try:
        return ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return None


def _permission_issues(permissions: PermissionClaims) -> Iterator[Issue]:
    entries = [(each, True) for each in (*permissions.sub.allow, *permissions.sub.deny)]
    entries += [(each, False) for each in (*permissions.pub.allow, *permissions.pub.deny)]
    for entry, may_name_queue in entries:
        words = entry.split(" ")
        if len(words) > 2:
            yield Issue(f'Permission Subject "{entry}" contains too many spaces')
            continue
        for word in words:
            yield from _subject_issues(word)
        if len(words) == 2 and not may_name_queue:
            yield Issue(f'Permission Subject "{entry}" is not allowed to contain queue')


def _subject_issues(subject: str) -> Iterator[Issue]:
    if not subject:
        yield Issue("subject cannot be empty")
        return
    if " " in subject:
        yield Issue(f'subject "{subject}" cannot have spaces')
    if subject[0] == "." or subject[-1] == ".":
        yield Issue(f'subject "{subject}" cannot start or end with a `.`')
    if ".." in subject:
        yield Issue(f'subject "{subject}" cannot contain consecutive `.`')


def _renaming_issues(renamed: str, subject: str) -> Iterator[Issue]:
    yield from _subject_issues(renamed)
    if not subject:
        yield Issue("subject cannot be empty")
    tokens, wanted = renamed.split("."), subject.split(".")
    if (tokens[-1] == ">") != (wanted[-1] == ">"):
        yield Issue("both, renaming subject and subject, need to end or not end in >")
    wildcards, used = wanted.count("*"), 0
    for token in tokens:
        named = _PLACEHOLDER.fullmatch(token)
        if named is not None and int(named[1]) > wildcards:
            where = f'in "{renamed}" reference * in "{subject}" that do not exist'
            yield Issue(f"Reference ${named[1]} {where}")
        elif named is not None or token == "*":
            used += 1
    if used != wildcards:
        yield Issue("subject does not contain enough * or reference wildcards $[0-9]")


def has_wildcards(subject: str) -> bool:
    """Return True if a subject has wildcards."""
    tokens = subject.split(".")
    return "*" in tokens or tokens[-1] == ">"
