"""Claims of accounts as the options that a configuration would have for them.

So imports, JetStream limits and mappings work the same for accounts of a file and of an operator.
An import whose export needs an activation is valid only with a token for it. The rest of an import
is checked when all accounts are known.

Pure: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.config.options.accounts import (
    AccountLimitsOptions,
    AccountOptions,
    ExportOptions,
    ImportOptions,
    TraceOptions,
)
from penstock.config.options.mappings import MappingDestination
from penstock.errors import FormatError
from penstock.security.jwt.authenticator import SigningAccount
from penstock.security.jwt.claim_checks import activation_issues, blocking, import_issues
from penstock.security.jwt.claims import (
    AccountClaims,
    ActivationClaims,
    ExportClaims,
    ImportClaims,
    JetStreamClaims,
    TraceClaims,
    is_revoked,
    read_activation,
)
from penstock.subjects import is_subset

if TYPE_CHECKING:
    from penstock.stream.quota import AccountLimits, TierLimits

_RESPONSES: Final = {"Stream": "stream", "Chunked": "chunk"}


def account_options(claims: AccountClaims, imports: Sequence[ImportOptions]) -> AccountOptions:
    """Return an account's options, with these imports."""
    limits = claims.limits
    return AccountOptions(
        limits=AccountLimitsOptions(
            max_connections=limits.conn,
            max_subscriptions=limits.subs,
            max_payload=limits.payload,
            max_leafnodes=limits.leaf,
        ),
        mappings={
            source: tuple(
                MappingDestination(each.subject, each.percent, each.cluster)
                for each in destinations
            )
            for source, destinations in claims.mappings.items()
        },
        exports=tuple(_export_options(each) for each in claims.exports),
        imports=tuple(imports),
        msg_trace=_trace_options(claims.trace),
    )


def _trace_options(trace: TraceClaims | None) -> TraceOptions | None:
    return None if trace is None else TraceOptions(trace.dest, trace.sampling or 100)


def _export_options(export: ExportClaims) -> ExportOptions:
    # Who needs an activation is not among its accounts: that is seen at each import.
    return ExportOptions(
        kind=export.type,
        subject=export.subject,
        response_type=_RESPONSES.get(export.response_type, "single"),
        response_threshold_ns=export.response_threshold,
        account_token_position=export.account_token_position,
        allow_trace=export.allow_trace,
    )


def import_options(taken: ImportClaims) -> ImportOptions:
    """Return an import as a configuration would state it."""
    subject, local, prefix = taken.subject, taken.local_subject, ""
    if not local and taken.type == "stream":
        prefix = taken.to
    elif not local and taken.to:
        # Of a service, the old field is what the other account calls it.
        subject, local = taken.to, taken.subject
    return ImportOptions(
        kind=taken.type,
        account=taken.account,
        subject=subject,
        to=local,
        prefix=prefix,
        share=taken.share,
        allow_trace=taken.allow_trace,
    )


def activation_of(
    taken: ImportClaims, importer: str, exporter: SigningAccount, now_s: int
) -> ActivationClaims | None:
    """Return the valid activation of an import, or None. For exports that need one."""
    if not taken.token or blocking(import_issues(taken, importer), with_time=True):
        return None
    try:
        activation = read_activation(taken.token)
    except FormatError:
        return None
    issuer_account = activation.issuer_account
    if issuer_account and (
        issuer_account != exporter.claims.subject or activation.issuer not in exporter.signing_keys
    ):
        return None
    if blocking(activation_issues(activation, now_s), with_time=True):
        return None
    if activation.expires and activation.expires <= now_s:
        return None
    export = export_of(taken, exporter.claims)
    if export is None or is_revoked(export.revocations, activation.subject, activation.issued_at):
        return None
    return activation


def export_of(taken: ImportClaims, exporter: AccountClaims) -> ExportClaims | None:
    """Return the export that an import refers to, or None."""
    subject = import_options(taken).subject
    offered = [each for each in exporter.exports if each.type == taken.type]
    for each in offered:
        if each.subject == subject:
            return each
    fitting = (each for each in offered if is_subset(subject.encode(), each.subject.encode()))
    return next(fitting, None)


def jetstream_limits(claims: AccountClaims) -> AccountLimits | None:
    """Return what an account may use of JetStream, or None if it has none."""
    if not claims.has_jetstream:
        return None
    # Only a server with streams loads what they need.
    from penstock.stream.quota import AccountLimits

    tiers = claims.limits.tiered_limits or {"": claims.limits}
    return AccountLimits({name: _tier(each) for name, each in tiers.items()})


def _tier(claims: JetStreamClaims) -> TierLimits:
    from penstock.stream.quota import TierLimits

    return TierLimits(
        max_memory=claims.mem_storage,
        max_storage=claims.disk_storage,
        max_streams=claims.streams,
        max_consumers=claims.consumer,
        max_ack_pending=_or_unbounded(claims.max_ack_pending),
        memory_max_stream_bytes=_or_unbounded(claims.mem_max_stream_bytes),
        storage_max_stream_bytes=_or_unbounded(claims.disk_max_stream_bytes),
        max_bytes_required=claims.max_bytes_required,
    )


def _or_unbounded(number: int) -> int:
    return number if number > 0 else -1
