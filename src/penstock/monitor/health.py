"""The page of health: whether the server can do what it was told to. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.monitor.queries import Query

_SWITCHES = ("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only")


class HealthzOptions(msgspec.Struct, frozen=True):
    """What a request for health may ask; the names are those of the wire."""

    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False

    @classmethod
    def from_query(cls, query: Query) -> HealthzOptions:
        """Read a query string; raises UsageError."""
        for name in _SWITCHES:
            # There is no JetStream that could be ill; but what is no truth value is refused.
            query.boolean(name)
        return cls(
            account=query.text("account"),
            stream=query.text("stream"),
            consumer=query.text("consumer"),
            details=query.boolean("details"),
        )


def healthz(options: HealthzOptions) -> dict[str, Any]:
    """Give the page; `status_code` is HTTP's."""
    missing = ""
    if options.stream and not options.account:
        missing = '"account" must not be empty when checking stream health'
    elif options.consumer and not options.stream:
        missing = '"stream" must not be empty when checking consumer health'
    if not missing:
        return {"status": "ok", "status_code": 200}
    page: dict[str, Any] = {"status": "error", "status_code": 400}
    if options.details:
        return page | {"errors": [{"type": "BAD_REQUEST", "error": missing}]}
    return page | {"error": missing}
