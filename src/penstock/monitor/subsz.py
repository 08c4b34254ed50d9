"""The page of subscriptions: how many there are, and which. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import UsageError
from penstock.monitor.connz import subscription_in_account
from penstock.monitor.facts import Source, SublistFacts
from penstock.monitor.queries import Query
from penstock.monitor.rendering import number, timestamp
from penstock.subjects import is_literal, is_valid_subject, matches

PAGE_SIZE = 1024
"""Subscriptions on a page where the request does not say."""


class SubszOptions(msgspec.Struct, frozen=True):
    """What a request for subscriptions may ask; the names are those of the wire."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""

    @classmethod
    def from_query(cls, query: Query) -> SubszOptions:
        """Read a query string; raises UsageError."""
        return cls(
            subscriptions=query.boolean("subs"),
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            account=query.text("acc"),
            test=query.text("test"),
        )


def subsz(source: Source, options: SubszOptions) -> dict[str, Any]:
    """Give the page; raises UsageError for what cannot be asked."""
    test = options.test.encode("utf-8", "replace")
    if test and not (is_valid_subject(test) and is_literal(test)):
        raise UsageError(f"invalid test subject, must be valid publish subject: {options.test}")
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else PAGE_SIZE
    chosen = [
        each for each in source.accounts() if not options.account or each.name == options.account
    ]
    totals = sum((each.sublist() for each in chosen), SublistFacts())
    page: dict[str, Any] = {
        "server_id": source.server().id,
        "now": timestamp(source.now_ns()),
        **statistics(totals),
        "total": 0,
        "offset": offset,
        "limit": limit,
    }
    if not options.subscriptions:
        return page
    found = [
        each
        for account in chosen
        for each in source.subscriptions(account.name)
        if not test or matches(each.subject.encode("utf-8", "replace"), test)
    ]
    page["total"] = len(found)
    part = found[offset : offset + limit]
    if part:
        page["subscriptions_list"] = [subscription_in_account(each) for each in part]
    return page


def statistics(facts: SublistFacts) -> dict[str, Any]:
    """Give how a sublist, or several, are doing."""
    return {
        "num_subscriptions": facts.count,
        "num_cache": facts.cached,
        "num_inserts": facts.inserts,
        "num_removes": facts.removes,
        "num_matches": facts.matches,
        # Hits are not counted: that would cost every publish.
        "cache_hit_rate": 0,
        "max_fanout": facts.fanout_max,
        "avg_fanout": number(facts.fanout_total / facts.cached if facts.cached else 0),
    }
