"""Traces of messages where reloads, samples, restarts and batches decide on them."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from penstock.server.server import Server
from penstock.testing.servers import ServerThread, start_server
from tests.server.test_reload import DONE, Configured, both
from tests.support.dialogue import Dialogue

SAMPLED = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASKED = "Nats-Trace-Dest: traces"
ONLY = "Nats-Trace-Only: true"


class Tracer:
    """A client that hears its own messages on `plain`, and traces on `traces`."""

    def __init__(self, port: int, **fields: str) -> None:
        self._dialogue = Dialogue(port)
        assert self._dialogue.login(**fields, headers=True) == []
        self._dialogue.send("SUB traces 1", "SUB plain 2", "SUB back 3")

    def publish(self, subject: str, *headers: str, reply: str = "", body: str = "hi") -> None:
        """Publish something."""
        block = "".join(f"{line}\r\n" for line in ("NATS/1.0", *headers, ""))
        sizes = f"{len(block)} {len(block) + len(body)}"
        self._dialogue.send(f"HPUB {subject} {reply} {sizes}", block + body)

    def listen(self, subject: str) -> None:
        """Subscribe to something else."""
        self._dialogue.send(f"SUB {subject} 4")
        assert self._dialogue.answers() == []

    def heard(self) -> list[list[str]]:
        """Return the headers of what came to `plain`."""
        lines = self._dialogue.answers()
        starts = [place for place, line in enumerate(lines) if line.startswith("HMSG plain")]
        return [lines[place + 2 : lines.index("", place)] for place in starts]

    def trace(self) -> dict[str, Any]:
        """Wait for the next trace."""
        while not self._dialogue.next().startswith("MSG traces"):
            pass
        found: dict[str, Any] = json.loads(self._dialogue.next())
        return found

    def kinds(self) -> list[str]:
        """Wait for the next trace; give what happened."""
        return [event["type"] for event in self.trace()["events"]]

    def ask(self, subject: str, **fields: Any) -> dict[str, Any]:
        """Ask the server for something."""
        body = json.dumps(fields) if fields else ""
        self._dialogue.send(f"PUB {subject} back {len(body)}", body)
        while not self._dialogue.next().startswith("MSG back"):
            pass
        answer: dict[str, Any] = json.loads(self._dialogue.next())
        assert "error" not in answer, answer
        return answer

    def close(self) -> None:
        self._dialogue.close()

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def account(more: str) -> str:
    return f"accounts {{ A {{ users: [ {{ user: a, password: p }} ], {more} }} }}"


@pytest.mark.oracle
@pytest.mark.slow
@both
def test_a_reload_begins_and_ends_the_tracing_of_parents(name: str, tmp_path: Path) -> None:
    with (
        Configured(name, tmp_path, account("")) as configured,
        Tracer(configured.server.port, user="a", **{"pass": "p"}) as tracer,
    ):
        tracer.publish("plain", SAMPLED)
        assert tracer.heard() == [[SAMPLED]]

        assert configured.reload(account("msg_trace: traces")).startswith(DONE)
        tracer.publish("plain", SAMPLED)
        assert tracer.kinds() == ["in", "eg"]

        assert configured.reload(account("")).startswith(DONE)
        tracer.publish("plain", SAMPLED)
        tracer.publish("plain", ASKED, ONLY)
        trace = tracer.trace()
        assert "Nats-Trace-Only" in trace["request"]["header"]


def traced_server(more: str = "") -> ServerThread:
    settings = account("msg_trace: { dest: traces, sampling: 25 }")
    return start_server(settings=f"{settings}\nno_auth_user: a\n{more}")


@pytest.mark.parametrize("drawn", [0, 25])
def test_who_is_drawn_is_traced(monkeypatch: pytest.MonkeyPatch, drawn: int) -> None:
    monkeypatch.setattr(Server, "random_below", lambda *_: drawn)
    with traced_server() as server, Tracer(server.port) as tracer:
        tracer.publish("plain", SAMPLED)

        assert tracer.kinds() == ["in", "eg"]


def test_who_is_not_drawn_is_delivered_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "random_below", lambda *_: 26)
    with traced_server() as server, Tracer(server.port) as tracer:
        tracer.publish("plain", SAMPLED)

        assert tracer.heard() == [[SAMPLED, "Nats-Trace-Dest: trace disabled"]]


def test_a_trace_does_not_tell_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.trace.message_trace.TRACE_EVENTS_MAX", 2)
    with start_server() as server, Tracer(server.port) as tracer, Tracer(server.port) as other:
        assert other.heard() == []
        tracer.publish("plain", ASKED)

        assert tracer.kinds() == ["in", "eg"]
        assert other.heard() == [[ASKED]]


def test_without_a_system_account_nobody_tells(tmp_path: Path) -> None:
    with start_server(settings="no_system_account: true") as server, Tracer(server.port) as tracer:
        tracer.publish("plain", ASKED)

        assert tracer.heard() == [[ASKED]]


def test_a_request_that_is_only_traced_waits_for_no_answer() -> None:
    settings = """no_auth_user: b
    accounts {
      A { users: [ { user: a, password: p } ], exports: [ { service: help, allow_trace: true } ] }
      B { users: [ { user: b, password: p } ]
          imports: [ { service: { account: A, subject: help } } ] }
    }"""
    with (
        start_server(settings=settings, monitor_port=-1) as server,
        Tracer(server.port, user="a", **{"pass": "p"}) as serving,
        Tracer(server.port) as tracer,
    ):
        serving.listen("help")
        before = subscriptions_of(server)
        tracer.publish("help", ASKED, ONLY, reply="back")
        assert tracer.kinds() == ["in", "si", "eg"]
        assert subscriptions_of(server) == before
        tracer.publish("help", ASKED, reply="back")
        assert tracer.kinds() == ["in", "si", "eg"]
        assert subscriptions_of(server) == before + 1


def subscriptions_of(server: ServerThread) -> int:
    with urllib.request.urlopen(f"{server.monitor_url}/subsz", timeout=30) as answer:
        return int(json.load(answer)["num_subscriptions"])


def stored_in(folder: Path) -> ServerThread:
    return start_server(settings=f'jetstream {{ store_dir: "{folder}" }}')


def test_a_stream_that_looks_for_its_ids_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with stored_in(tmp_path) as server, Tracer(server.port) as tracer:
        tracer.ask("$JS.API.STREAM.CREATE.S", name="S", subjects=["js.>"])
        for number in range(20):
            tracer.publish(f"js.{number}", f"Nats-Msg-Id: {number}")
        tracer.publish("js.last", ASKED)
        assert tracer.kinds() == ["in", "js"]
    monkeypatch.setattr("penstock.stream.publish.message_id_recovery.MESSAGE_IDS_READ_AT_ONCE", 1)
    with stored_in(tmp_path) as server, Tracer(server.port) as tracer:
        tracer.publish("js.1", ASKED, "Nats-Msg-Id: 7")
        tracer.publish("js.2", ASKED, "Nats-Msg-Id: new")

        told = [tracer.trace()["events"][1] for _ in range(2)]

    assert [event["stream"] for event in told] == ["S", "S"]
    assert [event.get("error") for event in told] == ["msgid is duplicate", None]
    assert [event.get("subject") for event in told] == [None, "js.2"]


def test_a_member_of_a_batch_that_is_only_traced_is_no_member(tmp_path: Path) -> None:
    with stored_in(tmp_path) as server, Tracer(server.port) as tracer:
        tracer.ask("$JS.API.STREAM.CREATE.S", name="S", subjects=["js.>"], allow_atomic=True)
        batch = ("Nats-Batch-Id: b", "Nats-Batch-Sequence: 1")
        tracer.publish("js.1", ASKED, ONLY, *batch, "Nats-Batch-Commit: 1", reply="back")
        assert tracer.kinds() == ["in", "js"]
        tracer.publish("js.2", ASKED, *batch, "Nats-Batch-Commit: 1")
        assert tracer.kinds() == ["in", "js"]

        assert tracer.ask("$JS.API.STREAM.INFO.S")["state"]["messages"] == 1
        message = tracer.ask("$JS.API.STREAM.MSG.GET.S", seq=1)["message"]
        assert message["subject"] == "js.2"


def test_a_member_of_a_fast_batch_that_is_only_traced_is_no_member(tmp_path: Path) -> None:
    with stored_in(tmp_path) as server, Tracer(server.port) as tracer:
        tracer.ask("$JS.API.STREAM.CREATE.S", name="S", subjects=["js.>"], allow_batched=True)
        tracer.publish("js.1", ASKED, ONLY, reply="back.b.10.fail.1.2.$FI")
        assert tracer.kinds() == ["in", "js"]
        tracer.publish("js.2", ASKED, reply="back.b.10.fail.1.2.$FI")
        assert tracer.trace()["events"][1]["subject"] == "js.2"

        assert tracer.ask("$JS.API.STREAM.INFO.S")["state"]["messages"] == 1
