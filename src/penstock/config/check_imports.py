"""Checks that the imports of accounts fit the exports of others. Pure.

Called when all accounts are known, for a configuration without other faults. Exports must name
accounts that exist, imports must be allowed by an export, and no message may come back to where it
started. Errors are in the reference server's words.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Final

from penstock import limits
from penstock.config.options.accounts import AccountOptions, ExportOptions, ImportOptions
from penstock.config.options.authorization import is_subject
from penstock.subjects import is_literal, is_subset, patterns_overlap
from penstock.text.quoting import quoted

Accounts = Mapping[str, AccountOptions]

_INVALID_SUBJECT: Final = "invalid subject"
_CYCLE: Final = "import forms a cycle"
_PLACEHOLDER: Final = re.compile(r"\$[1-9].*|\{\{\s*[wW]ildcard\s*\([^)]+\)\s*\}\}")


def wrong_sharing(accounts: Accounts, *, has_system_account: bool) -> Iterator[str]:
    """Return what is wrong with exports and imports, the most important first."""
    known = {*accounts, "$G"}
    for kind in ("stream", "service"):
        for name, account in accounts.items():
            for export in account.exports:
                if export.kind == kind:
                    yield from _wrong_export(accounts[name], export, known, has_system_account)
    done: dict[str, list[ImportOptions]] = {name: [] for name in accounts}
    for kind in ("stream", "service"):
        for name, account in accounts.items():
            for taken in account.imports:
                if taken.kind != kind:
                    continue
                reason = wrong_import(accounts, known, name, taken, done)
                if reason:
                    yield reason
                else:
                    done[name].append(taken)


def _wrong_export(
    account: AccountOptions, export: ExportOptions, known: set[str], has_system_account: bool
) -> Iterator[str]:
    subject = quoted(export.subject)
    for name in export.accounts:
        if name not in known:
            yield f"{quoted(name)} account not defined for {export.kind} export"
    position = export.account_token_position
    if position > 0:
        tokens = export.subject.split(".")
        if len(tokens) < position or tokens[position - 1] != "*":
            yield f"Error adding {export.kind} export {subject}: {_INVALID_SUBJECT}"
    if export.latency is None:
        return
    target = export.latency.subject
    prefix = f"Error adding service latency sampling for {subject}"
    if not has_system_account:
        yield f"{prefix}: system account not setup"
    elif not (is_subject(target) and is_literal(_bytes(target))) or _offers(account, target):
        yield f"{prefix} on subject {quoted(target)}: invalid publish subject"
    elif export.response_type != "single":
        yield f"{prefix} on subject {quoted(target)}: bad service response type"


def _offers(account: AccountOptions, subject: str) -> bool:
    services = (export.subject for export in account.exports if export.kind == "service")
    return any(is_subset(_bytes(subject), _bytes(service)) for service in services)


def wrong_import(
    accounts: Accounts,
    known: Container[str],
    name: str,
    taken: ImportOptions,
    done: Mapping[str, list[ImportOptions]],
) -> str:
    """Say why an account may not have an import besides those that are done; "" where it may."""
    if taken.account not in known:
        return f"{quoted(taken.account)} account not defined for {taken.kind} import"
    prefix = f"Error adding {taken.kind} import {quoted(taken.subject)}: "
    offered = accounts.get(taken.account)
    reason = (
        _wrong_stream_import(accounts, name, taken, done)
        if taken.kind == "stream"
        else _wrong_service_import(accounts, name, taken, done)
    )
    if reason is None and offered is not None:
        return ""
    return prefix + (reason or f"{taken.kind} import not authorized")


def _wrong_stream_import(
    accounts: Accounts, name: str, taken: ImportOptions, done: Mapping[str, list[ImportOptions]]
) -> str | None:
    if not is_subject(taken.subject) or not _is_authorized(accounts, name, taken):
        return "stream import not authorized"
    if taken.prefix and not is_literal(_bytes(taken.prefix)):
        return "stream import prefix can not contain wildcard tokens"
    for subject in (local_name(taken), taken.subject):
        if _stream_cycles(accounts, taken.account, subject, {name}, done):
            return _CYCLE
    same = [one for one in done[name] if one.kind == "stream" and one.account == taken.account]
    if any(one.subject == taken.subject for one in same):
        return "stream import already exists"
    return None


def _wrong_service_import(
    accounts: Accounts, name: str, taken: ImportOptions, done: Mapping[str, list[ImportOptions]]
) -> str | None:
    local = local_name(taken)
    if not is_subject(local) or not is_subject(taken.subject):
        return _INVALID_SUBJECT
    if not _is_authorized(accounts, name, taken):
        return "service import not authorized"
    asked = local if is_literal(_bytes(taken.subject)) else _with_wildcards(local)
    if _service_cycles(accounts, taken.account, asked, {name}, done):
        return _CYCLE
    return None


def local_name(taken: ImportOptions) -> str:
    """Return the subject of an import in the importing account."""
    if taken.prefix and taken.kind == "stream":
        return f"{taken.prefix.removesuffix('.')}.{taken.subject}"
    return taken.to or taken.subject


def _with_wildcards(subject: str) -> str:
    """Return a destination with its placeholders as wildcards: foo.$2.$1 as foo.*.*"""
    tokens = subject.split(".")
    return ".".join("*" if _PLACEHOLDER.fullmatch(token) else token for token in tokens)


def _is_authorized(accounts: Accounts, name: str, taken: ImportOptions) -> bool:
    offered = accounts.get(taken.account)
    if offered is None:
        return False
    exports = {one.subject: one for one in offered.exports if one.kind == taken.kind}
    exact = exports.get(taken.subject)
    if exact is not None:
        return _lets_in(exact, name, ())
    tokens = tuple(taken.subject.split("."))
    for subject, export in exports.items():
        if is_subset(_bytes(taken.subject), _bytes(subject)):
            return _lets_in(export, name, tokens)
    return False


def _lets_in(export: ExportOptions, name: str, tokens: tuple[str, ...]) -> bool:
    position = export.account_token_position
    if position > 0:
        return position <= len(tokens) and tokens[position - 1] == name
    return not export.accounts or name in export.accounts


def _stream_cycles(
    accounts: Accounts,
    name: str,
    subject: str,
    visited: set[str],
    done: Mapping[str, list[ImportOptions]],
) -> bool:
    """Return True if a stream would come back to an account that it went through."""
    account = accounts.get(name)
    if account is None or len(visited) >= limits.IMPORT_CYCLE_DEPTH_MAX:
        return account is not None
    exports = (one.subject for one in account.exports if one.kind == "stream")
    if not any(is_subset(_bytes(subject), _bytes(one)) for one in exports):
        return False
    for taken in done[name]:
        local = _with_wildcards(local_name(taken))
        if taken.kind != "stream" or not patterns_overlap(_bytes(subject), _bytes(local)):
            continue
        if taken.account in visited:
            return True
        visited.add(name)
        further = local if is_subset(_bytes(local), _bytes(subject)) else subject
        if _stream_cycles(accounts, taken.account, further, visited, done):
            return True
    return False


def _service_cycles(
    accounts: Accounts,
    name: str,
    subject: str,
    visited: set[str],
    done: Mapping[str, list[ImportOptions]],
) -> bool:
    """Return True if a request would come back to an account that it went through."""
    if name not in accounts or len(visited) >= limits.IMPORT_CYCLE_DEPTH_MAX:
        return name in accounts
    for taken in done[name]:
        if taken.kind != "service" or not patterns_overlap(_bytes(subject), _bytes(taken.subject)):
            continue
        if taken.account in visited:
            return True
        visited.add(name)
        local = _with_wildcards(local_name(taken))
        further = local if is_subset(_bytes(local), _bytes(subject)) else subject
        if _service_cycles(accounts, taken.account, further, visited, done):
            return True
    return False


def _bytes(subject: str) -> bytes:
    return subject.encode("utf-8", "surrogateescape")
