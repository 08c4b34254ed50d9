"""Pipelines that run elsewhere: what they report of themselves, and the page /pipelinez.

A pipeline publishes a report for each of its flows in the account of its streams, again every few
seconds. Invariant: reports are bounded in size, in number and in age, and each account has room of
its own. A report that cannot be read, or for which there is no room, is counted and changes nothing
else: a new flow never pushes out a known one.

One thread: the event loop's. `server.jetstream` hands reports in, `monitor.pages` shows them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.limits import (
    PIPELINE_FLOWS_PER_ACCOUNT_MAX,
    PIPELINE_FLOWS_PER_SERVER_MAX,
    PIPELINE_REPORT_BYTES_MAX,
    PIPELINE_SILENCE_S_MAX,
)
from penstock.monitor.facts import FlowFacts, Source
from penstock.monitor.query import timestamp
from penstock.protocol.pipeline_reports import FlowReport, names_in


class PipelineReports:
    """What pipelines have reported to one server; see the module."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[tuple[str, str], tuple[int, FlowReport]]] = {}
        self._decoder = msgspec.json.Decoder(FlowReport)
        self.ignored = 0

    def take(self, account: str, subject: bytes, body: bytes, now_ns: int) -> None:
        """Keep a report that a client of an account published, or count it as ignored.

        `now_ns` is of a clock that never goes back.
        """
        name = names_in(subject)
        if name is None or len(body) > PIPELINE_REPORT_BYTES_MAX:
            self.ignored += 1
            return
        try:
            report = self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self.ignored += 1
            return
        if name not in self._kept.get(account, {}):
            self._forget(now_ns)
            if not self._has_room(account):
                self.ignored += 1
                return
        self._kept.setdefault(account, {})[name] = (now_ns, report)

    def current(self, now_ns: int) -> list[FlowFacts]:
        """Return the flows that reported lately, ordered by account and name."""
        self._forget(now_ns)
        return [
            FlowFacts(account, pipeline, flow, now_ns - reported_ns, report)
            for account, flows in sorted(self._kept.items())
            for (pipeline, flow), (reported_ns, report) in sorted(flows.items())
        ]

    def _has_room(self, account: str) -> bool:
        return (
            len(self._kept.get(account, ())) < PIPELINE_FLOWS_PER_ACCOUNT_MAX
            and sum(map(len, self._kept.values())) < PIPELINE_FLOWS_PER_SERVER_MAX
        )

    def _forget(self, now_ns: int) -> None:
        oldest_ns = now_ns - PIPELINE_SILENCE_S_MAX * 1_000_000_000
        for account, flows in list(self._kept.items()):
            for name in [
                name for name, (reported_ns, _) in flows.items() if reported_ns < oldest_ns
            ]:
                del flows[name]
            if not flows:
                del self._kept[account]


def pipelinez(source: Source) -> dict[str, Any]:
    """Return the page /pipelinez, which is empty where JetStream is off."""
    jetstream = source.jetstream()
    return {
        "server_id": source.server().id,
        "now": timestamp(source.now_ns()),
        "flows": [
            {
                "account": each.account,
                "pipeline": each.pipeline,
                "flow": each.flow,
                **msgspec.to_builtins(each.report),
                "age_seconds": each.age_ns / 1e9,
            }
            for each in (jetstream.flows if jetstream is not None else ())
        ],
        "reports_ignored": jetstream.reports_ignored if jetstream is not None else 0,
    }
