"""Every monitoring page by its path, without HTTP.

Invariant: a request that cannot be read gets the reference server's words and status, and no
request raises. Requests are counted by page, for /varz.

One thread: the event loop's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from html import escape
from typing import Any, TypeAlias

import msgspec

from penstock.errors import UsageError
from penstock.monitor.absent import gatewayz, leafz, routez
from penstock.monitor.accountz import accountz, accstatz
from penstock.monitor.connz import ConnzOptions, SubszOptions, connz, subsz
from penstock.monitor.facts import Source
from penstock.monitor.jsz import HealthzOptions, JszOptions, healthz, jsz
from penstock.monitor.metrics import CONTENT_TYPE, exposition
from penstock.monitor.pipelines import pipelinez
from penstock.monitor.query import Query, to_json
from penstock.monitor.varz import stacks, variables, varz
from penstock.text.json.codec import to_json_in_slices

JSON = "application/json"
PLAIN = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"

LINKS = (
    ("/varz", "General"),
    ("/connz", "Connections"),
    ("/subsz", "Subscriptions"),
    ("/accountz", "Accounts"),
    ("/accstatz", "Account statistics"),
    ("/routez", "Routes"),
    ("/gatewayz", "Gateways"),
    ("/leafz", "Leaf nodes"),
    ("/jsz", "JetStream"),
    ("/pipelinez", "Pipelines"),
    ("/healthz", "Health"),
    ("/stacksz", "Stacks"),
    ("/metrics", "Metrics"),
)
"""The links of the first page."""


class Page(msgspec.Struct, frozen=True):
    """An answer; `shared` is True if scripts of every origin may read it."""

    status: int
    content_type: str
    body: bytes
    shared: bool = False


SlicedPage: TypeAlias = Generator[None, None, Page]

NOT_FOUND = Page(404, PLAIN, b"404 page not found\n")


class Pages:
    """The pages of one server; see the module."""

    def __init__(self, source: Source, base_path: str = "") -> None:
        self._source = source
        self._base_path = "/" + base_path.strip("/") if base_path.strip("/") else ""
        self.requests: Counter[str] = Counter()
        self._pages: dict[str, Callable[[Query], Page | SlicedPage]] = {
            "/": self._root,
            "/varz": self._varz,
            "/connz": self._connz,
            "/subsz": self._subsz,
            "/subscriptionsz": self._subsz,
            "/routez": self._routez,
            "/gatewayz": self._gatewayz,
            "/leafz": self._leafz,
            "/accountz": self._accountz,
            "/accstatz": self._accstatz,
            "/jsz": self._jsz,
            "/pipelinez": self._pipelinez,
            "/healthz": self._healthz,
            "/raftz": self._raftz,
            "/ipqueuesz": self._ipqueuesz,
            "/stacksz": self._stacksz,
            "/debug/vars": self._variables,
            "/metrics": self._metrics,
        }

    def answer(self, path: str, query: str) -> Page | SlicedPage:
        """Return the page of a path, or the one for a path that there is not.

        A page of JSON is written by its generator, which yields where others may have their turn.
        """
        if not path.startswith(self._base_path):
            return NOT_FOUND
        page = self._pages.get(path[len(self._base_path) :] or "/")
        if page is None or path == f"{self._base_path}/" != "/":
            return NOT_FOUND
        try:
            return page(Query(query))
        except UsageError as error:
            return Page(400, PLAIN, str(error).encode("utf-8", "replace"))

    def _root(self, query: Query) -> Page:
        self.requests["/"] += 1
        server = self._source.server()
        links = "\n".join(
            f'      <li><a href=".{path}">{title}</a> <code>{path}</code></li>'
            if not self._base_path
            else f'      <li><a href="{escape(self._base_path)}{path}">{title}</a>'
            f" <code>{path}</code></li>"
            for path, title in LINKS
        )
        text = (
            '<!DOCTYPE html>\n<html lang="en">\n  <head>\n    <meta charset="utf-8">\n'
            f"    <title>{escape(server.name)}</title>\n  </head>\n  <body>\n"
            f"    <h1>{escape(server.name)}</h1>\n"
            f"    <p>Penstock, speaking as nats-server {escape(server.version)}.</p>\n"
            f"    <ul>\n{links}\n    </ul>\n{_pipeline_table(self._source)}  </body>\n</html>\n"
        )
        return Page(200, HTML, text.encode())

    def _varz(self, query: Query) -> SlicedPage:
        self.requests["/varz"] += 1
        return _json(varz(self._source, self.requests))

    def _connz(self, query: Query) -> SlicedPage:
        options = ConnzOptions.from_query(query)
        # The reference server counts these only once they could be read.
        self.requests["/connz"] += 1
        return _json(connz(self._source, options))

    def _subsz(self, query: Query) -> SlicedPage:
        self.requests["/subsz"] += 1
        return _json(subsz(self._source, SubszOptions.from_query(query)))

    def _routez(self, query: Query) -> SlicedPage:
        query.subscriptions()
        self.requests["/routez"] += 1
        return _json(routez(self._source))

    def _gatewayz(self, query: Query) -> SlicedPage:
        self.requests["/gatewayz"] += 1
        query.subscriptions()
        query.boolean("accs")
        return _json(gatewayz(self._source))

    def _leafz(self, query: Query) -> SlicedPage:
        self.requests["/leafz"] += 1
        query.boolean("subs")
        return _json(leafz(self._source))

    def _accountz(self, query: Query) -> SlicedPage:
        self.requests["/accountz"] += 1
        return _json(accountz(self._source, query.text("acc")))

    def _accstatz(self, query: Query) -> SlicedPage:
        self.requests["/accstatz"] += 1
        return _json(accstatz(self._source, unused=query.boolean("unused")))

    def _jsz(self, query: Query) -> SlicedPage:
        self.requests["/jsz"] += 1
        return _json(jsz(self._source, JszOptions.from_query(query)))

    def _pipelinez(self, query: Query) -> SlicedPage:
        self.requests["/pipelinez"] += 1
        return _json(pipelinez(self._source))

    def _healthz(self, query: Query) -> Page:
        self.requests["/healthz"] += 1
        page = healthz(self._source.jetstream(), HealthzOptions.from_query(query))
        status = page.pop("status_code")
        return Page(status, JSON, to_json(page, indented=False), shared=True)

    def _stacksz(self, query: Query) -> Page:
        # The type is the reference server's, though what it sends is text too.
        return Page(200, JSON, stacks().encode("utf-8", "replace"), shared=True)

    def _variables(self, query: Query) -> Page:
        return Page(200, f"{JSON}; charset=utf-8", to_json(variables(self._source), indented=True))

    def _raftz(self, query: Query) -> Page:
        return Page(404, PLAIN, b"No Raft nodes registered")

    def _ipqueuesz(self, query: Query) -> SlicedPage:
        return _json({})

    def _metrics(self, query: Query) -> Page:
        self.requests["/metrics"] += 1
        return Page(200, CONTENT_TYPE, exposition(self._source).encode(), shared=True)


def _json(value: Any) -> SlicedPage:
    return Page(200, JSON, (yield from to_json_in_slices(value)), shared=True)


def _pipeline_table(source: Source) -> str:
    """Return a table of HTML for the first page, "" where there is no flow."""
    jetstream = source.jetstream()
    if jetstream is None or not jetstream.flows:
        return ""
    headings = ("pipeline", "flow", "account", "state", "rows", "rows/s", "lag", "dead letters")
    lines = ["    <h2>Pipelines</h2>", "    <table>", _row("th", headings)]
    for each in jetstream.flows:
        report = each.report
        cells = (
            each.pipeline,
            each.flow,
            each.account,
            f"{report.state}: {report.error}" if report.error else str(report.state),
            f"{report.rows:,}",
            f"{report.rows_per_second:,.0f}",
            f"{report.lag_messages:,}",
            f"{report.dead_letters:,}",
        )
        lines.append(_row("td", cells))
    return "\n".join([*lines, "    </table>"]) + "\n"


def _row(tag: str, cells: Sequence[str]) -> str:
    inner = "".join(f"<{tag}>{escape(each)}</{tag}>" for each in cells)
    return f"      <tr>{inner}</tr>"
