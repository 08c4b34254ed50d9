"""The page /healthz: whether the server can do what it is configured for. Pure.

A stream is ill if it is on the disk and cannot be served, or takes no more messages because a write
or a sync failed. Damage that is known does not make a server ill: it serves all that is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.monitor.facts import JetStreamAccountFacts, JetStreamFacts
from penstock.monitor.query import Query

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
