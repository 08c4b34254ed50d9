"""The pages of JetStream, /jsz and /healthz, and its part of the page of the server. Pure.

Without a cluster every stream's leader is this server, and no stream has a group.

/healthz shows whether the server can do what it is configured for. A stream is ill if it is on the
disk and cannot be served, or takes no more messages because a write or a sync failed. Damage that
is known does not make a server ill: it serves all that is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.errors import UsageError
from penstock.monitor.facts import JetStreamAccountFacts, JetStreamFacts, Source, StreamFacts
from penstock.monitor.query import UINT64_MAX, Query, timestamp, without_empty

# JetStream

LIMIT_DEFAULT = 1024


class JszOptions(msgspec.Struct, frozen=True):
    """What a request for JetStream may ask; the names are those of the wire."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumers: bool = msgspec.field(default=False, name="consumer")
    config: bool = False
    raft: bool = False
    offset: int = 0
    limit: int = 0

    @classmethod
    def from_query(cls, query: Query) -> JszOptions:
        """Read a query string; raise UsageError if a value cannot be read."""
        options = cls(
            account=query.text("acc"),
            accounts=query.boolean("accounts"),
            streams=query.boolean("streams"),
            consumers=query.boolean("consumers"),
            config=query.boolean("config"),
            raft=query.boolean("raft"),
            offset=query.integer("offset"),
            limit=query.integer("limit"),
        )
        for name in ("direct-consumers", "leader-only", "stream-leader-only"):
            # All that is here is led here; but what is no truth value is refused.
            query.boolean(name)
        return options

    @property
    def shows_streams(self) -> bool:
        """True if streams are shown, which consumers are part of."""
        return self.streams or self.consumers


def jsz(source: Source, options: JszOptions) -> dict[str, Any]:
    """Return the page."""
    facts = source.jetstream()
    page: dict[str, Any] = {
        **_statistics(facts),
        "server_id": source.server().id,
        "now": timestamp(source.now_ns()),
        "disabled": facts is None,
        "config": {"max_memory": 0, "max_storage": 0} if facts is None else _config(facts),
        "limits": None if facts is None else facts.limits,
        **_totals(facts, options),
        "account_details": [] if facts is None else _details(facts, options),
        "total": 0 if facts is None else len(facts.accounts),
    }
    if page["limits"] is None:
        del page["limits"]
    return without_empty(page, "disabled", "streams_leader", "consumers_leader", "account_details")


def account_jsz(source: Source, options: JszOptions) -> dict[str, Any]:
    """Return the page's part about one account; raise UsageError if it has no JetStream."""
    facts, name = source.jetstream(), options.account
    if facts is None:
        raise UsageError("jetstream not enabled")
    if all(each.name != name for each in source.accounts()):
        raise UsageError(f'account "{name}" not found')
    for account in facts.accounts:
        if account.name == name:
            # Here consumers alone show no streams, as in the reference server.
            shown = (
                options if options.streams else msgspec.structs.replace(options, consumers=False)
            )
            return _account(facts, account, shown)
    raise UsageError(f'account "{name}" not jetstream enabled')


def varz_part(facts: JetStreamFacts | None) -> dict[str, Any]:
    """Return what /varz shows of JetStream."""
    if facts is None:
        return {}
    return {"config": _config(facts), "stats": _statistics(facts), "limits": facts.limits}


def _statistics(facts: JetStreamFacts | None) -> dict[str, Any]:
    accounts = () if facts is None else facts.accounts
    return {
        "memory": sum(each.memory_bytes for each in accounts),
        "storage": sum(each.storage_bytes for each in accounts),
        "reserved_memory": 0 if facts is None else facts.memory_bytes_reserved,
        "reserved_storage": 0 if facts is None else facts.storage_bytes_reserved,
        "accounts": len(accounts),
        "ha_assets": 0,
        "api": {
            "level": 0 if facts is None else facts.api_level,
            "total": sum(each.api_total for each in accounts),
            "errors": sum(each.api_errors for each in accounts),
        },
    }


def _config(facts: JetStreamFacts) -> dict[str, Any]:
    fields = {
        "max_memory": facts.memory_bytes_max,
        "max_storage": facts.storage_bytes_max,
        "store_dir": facts.store_dir,
        "sync_interval": facts.sync_interval_ns,
        "sync_always": facts.sync_always,
        "domain": facts.domain,
        "compress_ok": True,
        "unique_tag": facts.unique_tag,
        "strict": facts.strict,
    }
    return without_empty(
        fields, "store_dir", "sync_interval", "sync_always", "domain", "unique_tag", "strict"
    )


def _totals(facts: JetStreamFacts | None, options: JszOptions) -> dict[str, int]:
    accounts = () if facts is None else facts.accounts
    streams = [stream for account in accounts for stream in account.streams]
    consumers = sum(stream.consumer_count for stream in streams)
    return {
        "streams": len(streams),
        "streams_leader": len(streams) if options.raft else 0,
        "consumers": consumers,
        "consumers_leader": consumers if options.raft else 0,
        "messages": sum(stream.messages for stream in streams),
        "bytes": sum(stream.bytes for stream in streams),
    }


def _details(facts: JetStreamFacts, options: JszOptions) -> list[dict[str, Any]]:
    return [_account(facts, account, options) for account in _chosen(facts.accounts, options)]


def _chosen(
    accounts: Sequence[JetStreamAccountFacts], options: JszOptions
) -> Sequence[JetStreamAccountFacts]:
    named = [each for each in accounts if each.name == options.account]
    if named:
        return named
    if not (options.accounts or (options.shows_streams and not options.account)):
        return []
    in_order = sorted(accounts, key=lambda each: each.name)
    limit = options.limit or LIMIT_DEFAULT
    if limit < 0:
        return in_order
    offset = max(options.offset, 0)
    return in_order[offset : offset + limit]


def _account(
    facts: JetStreamFacts, account: JetStreamAccountFacts, options: JszOptions
) -> dict[str, Any]:
    detail: dict[str, Any] = {
        "name": account.tag or account.name,
        "id": account.name,
        "memory": account.memory_bytes,
        "storage": account.storage_bytes,
        # The reference server writes its -1 without a sign.
        "reserved_memory": account.memory_bytes_max & UINT64_MAX,
        "reserved_storage": account.storage_bytes_max & UINT64_MAX,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": account.api_total, "errors": account.api_errors},
    }
    if options.shows_streams and account.streams:
        detail["stream_detail"] = [_stream(facts, each, options) for each in account.streams]
    return detail


def _stream(facts: JetStreamFacts, stream: StreamFacts, options: JszOptions) -> dict[str, Any]:
    fields = {
        "name": stream.name,
        "created": stream.created,
        "cluster": {"leader": facts.leader},
        "config": stream.config() if options.config else None,
        "state": stream.state(),
        "consumer_detail": _consumers(stream, options),
        "mirror": stream.mirror(),
        "sources": stream.sources(),
    }
    return without_empty(fields, "config", "consumer_detail", "mirror", "sources")


def _consumers(stream: StreamFacts, options: JszOptions) -> list[dict[str, Any]]:
    if not options.consumers:
        return []
    left_out = set() if options.config else {"config"}
    return [
        {name: value for name, value in each.items() if name not in left_out}
        for each in stream.consumers()
    ]


# Health

OK, BAD_REQUEST, NOT_FOUND, UNAVAILABLE = 200, 400, 404, 503


class HealthzOptions(msgspec.Struct, frozen=True):
    """What a request for health may ask; the names are those of the wire."""

    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False
    js_enabled: bool = msgspec.field(default=False, name="js-enabled")
    js_enabled_only: bool = msgspec.field(default=False, name="js-enabled-only")
    js_server_only: bool = msgspec.field(default=False, name="js-server-only")

    @classmethod
    def from_query(cls, query: Query) -> HealthzOptions:
        """Read a query string; raise UsageError if a value cannot be read."""
        # Alone there is no meta layer; but what is no truth value is refused.
        query.boolean("js-meta-only")
        return cls(
            account=query.text("account"),
            stream=query.text("stream"),
            consumer=query.text("consumer"),
            details=query.boolean("details"),
            js_enabled=query.boolean("js-enabled"),
            js_enabled_only=query.boolean("js-enabled-only"),
            js_server_only=query.boolean("js-server-only"),
        )

    @property
    def skips_streams(self) -> bool:
        """True if streams are not looked at."""
        return self.js_enabled or self.js_enabled_only or self.js_server_only


class Illness(msgspec.Struct, frozen=True):
    """What is wrong, and with what; its fields in this order are the wire's."""

    type: str
    error: str
    account: str = ""
    stream: str = ""
    consumer: str = ""

    def document(self) -> dict[str, str]:
        """Return it as the page shows it."""
        fields = {
            "type": self.type,
            "account": self.account,
            "stream": self.stream,
            "consumer": self.consumer,
            "error": self.error,
        }
        return {name: value for name, value in fields.items() if value}


def healthz(jetstream: JetStreamFacts | None, options: HealthzOptions) -> dict[str, Any]:
    """Return the page; `status_code` is HTTP's."""
    missing = ""
    if options.stream and not options.account:
        missing = '"account" must not be empty when checking stream health'
    elif options.consumer and not options.stream:
        missing = '"stream" must not be empty when checking consumer health'
    if missing:
        return _page(options, "error", BAD_REQUEST, [Illness("BAD_REQUEST", missing)])
    if jetstream is None or options.skips_streams:
        return _page(options, "ok", OK, [])
    unknown = _unknown(jetstream, options)
    if unknown is not None:
        return _page(options, "unavailable", NOT_FOUND, [unknown])
    ill = list(_ill(jetstream, options))
    return _page(options, "unavailable" if ill else "ok", UNAVAILABLE if ill else OK, ill)


def _page(
    options: HealthzOptions, status: str, status_code: int, ill: list[Illness]
) -> dict[str, Any]:
    if not ill:
        return {"status": "ok", "status_code": status_code}
    if options.details:
        errors = [each.document() for each in ill]
        return {"status": "error", "status_code": status_code, "errors": errors}
    return {"status": status, "status_code": status_code, "error": ill[0].error}


def _unknown(facts: JetStreamFacts, options: HealthzOptions) -> Illness | None:
    """Return what the request names and does not exist, or None."""
    account_name, name, consumer = options.account, options.stream, options.consumer
    if not account_name:
        return None
    account = next((each for each in facts.accounts if each.name == account_name), None)
    if account is None:
        text = f'JetStream account "{account_name}" not found'
        return Illness("ACCOUNT", text, account_name)
    if not name or name in account.offline:
        return None
    stream = next((each for each in account.streams if each.name == name), None)
    if stream is None:
        text = f'JetStream stream "{name}" not found on account "{account_name}"'
        return Illness("STREAM", text, account_name, name)
    if consumer in stream.offline_consumers:
        return None
    if consumer and not any(each["name"] == consumer for each in stream.consumers()):
        text = (
            f'JetStream consumer "{consumer}" not found for stream "{name}" on account'
            f' "{account_name}"'
        )
        return Illness("CONSUMER", text, account_name, name, consumer)
    return None


def _ill(facts: JetStreamFacts, options: HealthzOptions) -> Iterator[Illness]:
    for account in facts.accounts:
        if options.account in ("", account.name):
            yield from _ill_streams(account, options.stream)


def _ill_streams(account: JetStreamAccountFacts, wanted: str) -> Iterator[Illness]:
    for name in account.offline:
        if wanted in ("", name):
            text = f"JetStream stream '{account.name} > {name}' could not be recovered"
            yield Illness("STREAM", text, account.name, name)
    for stream in account.streams:
        if stream.failure and wanted in ("", stream.name):
            where = f"'{account.name} > {stream.name}'"
            text = f"JetStream stream {where} write error: {stream.failure}"
            yield Illness("STREAM", text, account.name, stream.name)
        for consumer in stream.offline_consumers if wanted in ("", stream.name) else ():
            where = f"'{account.name} > {stream.name} > {consumer}'"
            text = f"JetStream consumer {where} could not be recovered"
            yield Illness("CONSUMER", text, account.name, stream.name, consumer)
