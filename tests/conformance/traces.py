"""Clients of several accounts that have their messages traced, and the traces they receive."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.conformance.companies import Company, plain
from tests.conformance.transcripts import Peer

CONFIG = """
jetstream: enabled
max_payload: 2048
accounts {
  A {
    jetstream: enabled
    users: [
      { user: a, password: p }, { user: other, password: p }
      { user: few, password: p, permissions: {
        publish: { deny: [ "secret", "hidden.>" ] }, subscribe: { deny: [ "wide.denied" ] } } }
    ]
    mappings { mapped: elsewhere, "turned.*": "to.$1" }
    exports: [
      { stream: "orders.>" }, { stream: "open.>" }, { stream: "chain.>" }
      { service: help }, { service: "calc.*.*", allow_trace: true }, { service: "kept.*" }
      { service: mapped, allow_trace: true }, { service: "in.*", allow_trace: true }
      { service: "orders.ask", allow_trace: true }
    ]
  }
  B {
    jetstream: enabled
    users: [ { user: b, password: p } ]
    msg_trace: { dest: "traces.b", sampling: "100%" }
    imports: [
      { stream: { account: A, subject: "orders.>" }, to: "from_a.>" }
      { stream: { account: A, subject: "open.>" }, prefix: before, allow_trace: true }
      { stream: { account: A, subject: "chain.>" }, allow_trace: true }
      { service: { account: A, subject: help } }
      { service: { account: A, subject: "calc.*.*" }, to: "sums.$2.$1" }
      { service: { account: A, subject: mapped } }
      { service: { account: A, subject: "in.*" } }
      { service: { account: A, subject: "kept.*" } }
      { service: { account: A, subject: "orders.ask" } }
    ]
    exports: [ { service: help, allow_trace: true }, { service: "sums.*.*", allow_trace: true } ]
  }
  C {
    users: [ { user: c, password: p } ]
    trace_dest: "not.for.few"
    imports: [
      { service: { account: B, subject: "sums.*.*" }, to: "far.$1.$2" }
      { service: { account: B, subject: help }, to: "help.through" }
    ]
  }
}
"""


class Traced(Company):
    """Clients by name, and the traces that came to them."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._ends = 0

    def peer(self, member: str, **fields: Any) -> Peer:
        """Return a client."""
        return super().peer(member, **{"name": f"{member}'s", **fields})

    def publish(self, user: str, subject: str, reply: str = "", **headers: str) -> None:
        """Publish `hi` with headers, whose names have dashes."""
        lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        block = f"NATS/1.0\r\n{''.join(lines)}\r\n"
        target = f"{subject} {reply}".rstrip()
        self.say(user, f"HPUB {target} {len(block)} {len(block) + 2}", f"{block}hi")

    def trace(self, user: str, subject: str, reply: str = "", **headers: str) -> None:
        """Publish `hi`, and have it traced to `traces.<user>`."""
        self.publish(user, subject, reply, Nats_Trace_Dest=f"traces.{user}", **headers)

    def try_out(self, user: str, subject: str, reply: str = "", **headers: str) -> None:
        """Publish `hi` to be traced but not delivered."""
        self.trace(user, subject, reply, Nats_Trace_Only="true", **headers)

    def traced(self, user: str = "a", end: str = "end") -> tuple[list[Any], list[bytes]]:
        """Return the traces that a client received, and its other messages."""
        self._ends += 1
        last = f"{end}.{self._ends}"
        self.try_out(user, last)
        traces, others = self._apart(user)
        while not (traces and traces[-1]["events"][0]["subj"] == last):
            more_traces, more = self._apart(user)
            traces, others = traces + more_traces, others + more
        return traces[:-1], others

    def settled(self, user: str = "a", end: str = "js.end") -> tuple[list[Any], list[bytes]]:
        """Return the same when a stream has answered all, in the order of its messages."""
        traces, others = self.traced(user, end)
        self.say(user, "SUB last 99", f"PUB {end}.last last 0", "")
        while not any(b"MSG last" in each for each in others):
            others += self._apart(user)[1]
        return traces, sorted(others)

    def _apart(self, user: str) -> tuple[list[Any], list[bytes]]:
        frames = self.frames(user)
        traces = [shown(frame) for frame in frames if is_trace(frame)]
        return traces, [plain(frame) for frame in frames if not is_trace(frame)]


def is_trace(frame: bytes) -> bool:
    """Return True if a message is a trace."""
    return frame.split(b" ")[1].startswith(b"traces.")


def shown(frame: bytes) -> Any:
    """Return a trace without what always differs, with its fields in order."""
    head, _, rest = frame.partition(b"\r\n")
    trace: dict[str, Any] = json.loads(rest)
    assert next(iter(trace)) == "server"
    trace["server"] = list(trace["server"])
    for event in trace["events"]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", event["ts"])
        event["ts"] = "<time>"
        if event.get("cid"):
            event["cid"] = "<cid>"
    # Subscriptions of one place come in any order.
    first, *others = trace["events"]
    trace["events"] = [first, *sorted(others, key=json.dumps)]
    trace["names"] = [list(event) for event in trace["events"]]
    return trace | {"head": head.split(b" ")[0]}


Story = Callable[[Traced], object]
