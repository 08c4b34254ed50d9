"""Pipelines that run elsewhere, as they tell of themselves: kept for a while, and shown.

A pipeline publishes a report for each of its flows in the account of its streams, again every few
seconds. What always holds: reports are bounded in size, in number and in age, each account has room
of its own, and a report that cannot be read, or for which there is no room, is counted and changes
nothing: what is known is not pushed out by what is new.

One thread: the event loop's.
"""

from __future__ import annotations

import msgspec

from penstock.documents.pipeline_reports import FlowReport, names_in
from penstock.limits import (
    PIPELINE_FLOWS_PER_ACCOUNT_MAX,
    PIPELINE_FLOWS_PER_SERVER_MAX,
    PIPELINE_REPORT_BYTES_MAX,
    PIPELINE_SILENCE_S_MAX,
)


class FlowFacts(msgspec.Struct, frozen=True):
    """A flow, and what it told last."""

    account: str
    pipeline: str
    flow: str
    age_ns: int
    """How long ago that was."""
    report: FlowReport


class PipelineReports:
    """What pipelines told a server; see the module."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[tuple[str, str], tuple[int, FlowReport]]] = {}
        self._decoder = msgspec.json.Decoder(FlowReport)
        self.ignored = 0

    def take(self, account: str, subject: bytes, body: bytes, now_ns: int) -> None:
        """Keep a report that a member of an account published; `now_ns` never goes back."""
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
        """Give what is known, by account and name."""
        self._forget(now_ns)
        return [
            FlowFacts(account, pipeline, flow, now_ns - told_ns, report)
            for account, flows in sorted(self._kept.items())
            for (pipeline, flow), (told_ns, report) in sorted(flows.items())
        ]

    def _has_room(self, account: str) -> bool:
        return (
            len(self._kept.get(account, ())) < PIPELINE_FLOWS_PER_ACCOUNT_MAX
            and sum(map(len, self._kept.values())) < PIPELINE_FLOWS_PER_SERVER_MAX
        )

    def _forget(self, now_ns: int) -> None:
        oldest_ns = now_ns - PIPELINE_SILENCE_S_MAX * 1_000_000_000
        for account, flows in list(self._kept.items()):
            for name in [name for name, (told_ns, _) in flows.items() if told_ns < oldest_ns]:
                del flows[name]
            if not flows:
                del self._kept[account]
