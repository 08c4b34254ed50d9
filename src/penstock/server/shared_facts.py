"""What monitoring shows of what accounts share. Pure. Loaded when somebody looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.config.options_accounts import AccountOptions
from penstock.config.options_sharing import ExportOptions, ImportOptions
from penstock.config.sharing import local_name
from penstock.monitor.facts import ExportFacts, ImportFacts, SharedFacts

if TYPE_CHECKING:
    from penstock.security.claims import AccountClaims, ExportClaims

_RESPONSES: Final = {"single": "Singleton", "stream": "Streamed", "chunk": "Chunked"}


def shared_facts(options: AccountOptions, claims: AccountClaims | None) -> SharedFacts:
    """Give what an account shares, with what only claims know of its exports."""
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
