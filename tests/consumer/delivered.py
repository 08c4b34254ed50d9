"""Stories of deliveries, run against the real server and ours.

    def naks(life: Life) -> None:
        life.stream()
        life.publish("a", "b")
        life.consumer(ack_policy="explicit")
        life.pull(2)
        life.take(2)
        life.ack(0, b"-NAK")

A life is one connection to one server; what happens in it is noted as lines in which times and ids
are replaced. A story says how many messages it waits for, so that nothing waits for time to pass;
at the end what was sent beyond that would show.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.testing.servers import server_process
from tests.support.nats_client import Delivery, NatsClient

_ACK_TIME = re.compile(r"(\$JS\.ACK\.[^ ]+\.\d+\.\d+\.\d+)\.\d{16,19}\b")
_FLOW = re.compile(r"(\$JS\.FC\.[^. ]+\.[^. ]+)\.[0-9A-Za-z]{4}")
_ID = re.compile(r"\b[0-9A-Za-z]{22}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_DURATION = re.compile(r'("(?:ack_time|pause_remaining)": ?)\d+')

Story = Callable[["Life"], None]
LongStory = Callable[["Life"], Iterator[None]]
"""One in which the server is stopped and started again wherever it yields."""

MS = 1_000_000
SECOND = 1_000 * MS


class Life(NatsClient):
    """What one server does in a story."""

    def __init__(self, port: int, stream: str) -> None:
        super().__init__(port)
        self.stream_name = stream
        self.lines: list[str] = []
        self.replies: list[str] = []
        """Of the messages that were taken."""

        self._has_consumer = False
        self._is_pending_sure = True
        """Of what comes in while a consumer is there, the real server counts some a little later
        as pending."""

        self._pulls = 0
        self._pin = ""
        self.flow = ""
        """Where the question about the flow that was taken last wants its answer."""

        self._targets = {"1": "_IN"}

    def reconnect(self, port: int) -> None:
        """Go on with another server, where it listens to nothing but answers."""
        self.close()
        super().__init__(port)
        self._targets = {"1": "_IN"}

    def _take_delivery(self, words: list[str]) -> Delivery:
        found = super()._take_delivery(words)
        self._target = self._targets.get(words[2], words[2])
        return found

    def listen(self, subject: str) -> None:
        """Listen to a subject; `take` gives what comes there too."""
        self.subscribe(subject)
        self._targets[str(len(self._targets) + 1)] = subject
        self.sync()

    def leave(self, subject: str) -> None:
        """Listen to a subject no more."""
        sid = next(sid for sid, name in self._targets.items() if name == subject)
        self._send(f"UNSUB {sid}\r\n".encode())
        self.publish("_IN.left")
        while (found := self.next_delivery()).subject != "_IN.left":
            # What was under way to the subject that is left is of no interest any more.
            assert self._target == subject, f"{found} came unexpectedly"

    def sync(self) -> None:
        """Wait until the server has done what was sent so far; nothing may be on its way."""
        self.publish("_IN.sync")
        found = self.next_delivery()
        assert found.subject == "_IN.sync", f"{found} came unexpectedly"

    def note(self, text: str) -> None:
        text = text.replace(self.stream_name, "S")
        text = _ACK_TIME.sub(r"\1.<time>", text)
        text = _FLOW.sub(r"\1.<id>", _TIME.sub("<time>", _ID.sub("<id>", text)))
        self.lines.append(_DURATION.sub(r"\1<ns>", text))

    # What is asked

    def ask(self, endpoint: str, **document: Any) -> dict[str, Any]:
        """Call the API and note what it says wrong."""
        body = json.dumps(document).encode() if document else b""
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{endpoint}", body).payload)
        if "error" in answer:
            self.note(f"{endpoint}: {answer['error']}")
        return answer

    def stream(self, **config: Any) -> None:
        subjects = [f"{self.stream_name}.>"]
        fields = {"name": self.stream_name, "subjects": subjects} | config
        self.ask(f"STREAM.CREATE.{self.stream_name}", **fields)

    def publish_all(self, *tokens: str, payload: bytes = b"body", headers: bytes = b"") -> None:
        """Publish a message to each subject, and wait until all are stored."""
        for token in tokens:
            subject = f"{self.stream_name}.{token}"
            self.publish(subject, payload, headers=headers, reply="_IN.stored")
            assert b'"seq"' in self.next_delivery().payload

    def consumer(self, name: str = "C", **config: Any) -> None:
        self._has_consumer = True
        config = {"durable_name": name, "ack_policy": "explicit"} | config
        fields = {"stream_name": self.stream_name, "config": config}
        self.ask(f"CONSUMER.CREATE.{self.stream_name}.{name}", **fields)

    def filled(self, *tokens: str, **config: Any) -> None:
        """Make a stream with messages, and a consumer."""
        self.stream()
        self.publish_all(*(tokens or ("a", "b", "a", "c", "b")))
        self.consumer(**config)

    def pull(
        self, request: bytes | int | dict[str, Any] = 1, name: str = "C", *, to: str = ""
    ) -> str:
        """Ask for messages; return the subject that they come to."""
        self._pulls += 1
        reply = to or f"_IN.{self._pulls}"
        if isinstance(request, dict):
            request = json.dumps(request).encode()
        body = b"%d" % request if isinstance(request, int) else request
        self.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream_name}.{name}", body, reply=reply)
        return reply

    @override
    def publish(
        self, subject: str, payload: bytes = b"", *, headers: bytes = b"", reply: str = ""
    ) -> None:
        """Publish without waiting."""
        if self._has_consumer and subject.startswith(f"{self.stream_name}."):
            self._is_pending_sure = False
        super().publish(subject, payload, headers=headers, reply=reply)

    def take(self, count: int = 1) -> None:
        """Wait for messages, and note them."""
        for _ in range(count):
            found = self.next_delivery()
            if found.reply.startswith("$JS.ACK."):
                self.replies.append(found.reply)
            headers = found.headers.decode("utf-8", "replace")
            if pinned := re.search(r"Nats-Pin-Id: (\w+)", headers):
                self._pin = pinned[1]
            body = found.payload.decode("utf-8", "replace")
            where = "" if self._target == "_IN" else f"{self._target}: "
            reply = found.reply
            if reply.startswith("$JS.ACK.") and not self._is_pending_sure:
                reply = reply.rpartition(".")[0]
            if reply.startswith("$JS.FC."):
                self.flow = reply
            self.note(f"{where}{found.subject} {reply} {headers!r} {body[:400]}")

    def take_until(self, text: str) -> None:
        """As `take`, up to a line with a text; a line that comes again and again is noted once."""
        before = len(self.lines)
        self.take()
        while text not in self.lines[-1]:
            self.take()
        self.lines[before:] = [line for line, _ in groupby(self.lines[before:])]

    def take_unordered(self, count: int) -> None:
        """As `take`, where servers may send them in any order."""
        before = len(self.lines)
        self.take(count)
        self.lines[before:] = sorted(self.lines[before:])

    def listen_again(self, subject: str) -> None:
        """Listen to a subject that was left; what was missed comes at once."""
        self.subscribe(subject)
        self._targets[str(len(self._targets) + 1)] = subject

    def pin(self) -> str:
        """Return the pin that was on the last message that had one."""
        return self._pin

    def ack(self, place: int = -1, body: bytes = b"+ACK") -> None:
        """Say something of a message that was taken, and wait until it was heard."""
        self.publish(self.replies[place], body, reply="_IN.acked")
        self.take()

    def say(self, place: int = -1, body: bytes = b"+ACK") -> None:
        """Say something of a message that was taken."""
        self.publish(self.replies[place], body)

    def heard(self, name: str = "C") -> None:
        """Wait until a consumer has taken in all that was said to it."""
        self.publish(f"$JS.ACK.{self.stream_name}.{name}.1.1.1.1.1", b"+WPI", reply="_IN.heard")
        assert self.next_delivery().subject == "_IN.heard"

    def answer_flow(self) -> None:
        """Answer the question about the flow that was taken last."""
        self.publish(self.flow)

    def remove(self, seq: int, **more: Any) -> None:
        """Remove a message of the stream."""
        self.ask(f"STREAM.MSG.DELETE.{self.stream_name}", seq=seq, **more)

    def purge(self, **which: Any) -> None:
        """Purge the stream."""
        self.ask(f"STREAM.PURGE.{self.stream_name}", **which)

    def pause(self, until: str = "2101-01-01T00:00:00Z", name: str = "C") -> None:
        """Have a consumer rest."""
        self.ask(f"CONSUMER.PAUSE.{self.stream_name}.{name}", pause_until=until)

    def resume(self, name: str = "C") -> None:
        """Have a consumer go on."""
        self.ask(f"CONSUMER.PAUSE.{self.stream_name}.{name}")

    def forget(self, name: str = "C") -> None:
        """Remove a consumer."""
        self.ask(f"CONSUMER.DELETE.{self.stream_name}.{name}")

    def advised(self, *events: str) -> None:
        """Listen to what is told of the consumers of the stream."""
        for event in events:
            self.listen(f"$JS.EVENT.ADVISORY.CONSUMER.{event}.{self.stream_name}.>")

    def info(self, name: str = "C", *without: str) -> None:
        """Note how a consumer is."""
        found = self.ask(f"CONSUMER.INFO.{self.stream_name}.{name}")
        unsure = () if self._is_pending_sure else ("num_pending",)
        for field in ("config", "created", "ts", "type", *unsure, *without):
            found.pop(field, None)
        for place in ("delivered", "ack_floor"):
            found.get(place, {}).pop("last_active", None)
        self.note(json.dumps(found))

    def until_waiting(self, count: int, name: str = "C") -> None:
        """Ask until so many requests wait: a server may take them in after it answers others."""
        while self.ask(f"CONSUMER.INFO.{self.stream_name}.{name}")["num_waiting"] != count:
            pass

    def until_unbound(self, name: str = "C") -> None:
        """Ask until a consumer knows that nobody listens any more: it may be told later."""
        while self.ask(f"CONSUMER.INFO.{self.stream_name}.{name}").get("push_bound"):
            pass

    def until_left(self, count: int) -> None:
        """Ask until so many messages are left in the stream, which may take its time."""
        while self.ask(f"STREAM.INFO.{self.stream_name}")["state"]["messages"] > count:
            pass

    def end(self) -> None:
        """Remove the stream, so that nothing of it comes to those who live later."""
        self.publish(f"$JS.API.STREAM.DELETE.{self.stream_name}", reply="_IN.end")
        while self.next_delivery().subject != "_IN.end":
            pass

    def state(self) -> None:
        """Note what is in the stream."""
        found = self.ask(f"STREAM.INFO.{self.stream_name}")["state"]
        self.note(f"{found['messages']} {found['first_seq']} {found['last_seq']}")


def stories_in(module: str) -> list[Any]:
    """Return the stories of a module, in their order."""
    return [
        story
        for name, story in vars(sys.modules[module]).items()
        if callable(story) and not name.startswith("_") and story.__module__ == module
    ]


def _stream_of(story: Story | LongStory) -> str:
    return story.__name__.replace("_", "-")


def lived(port: int, story: Story) -> list[str]:
    """Return what happens in a story."""
    with Life(port, _stream_of(story)) as life:
        try:
            story(life)
            life.sync()
        finally:
            life.end()
        return life.lines


class _LongLife:
    """One life over restarts, and how far its story is."""

    def __init__(self, port: int, story: LongStory) -> None:
        self.life = Life(port, _stream_of(story))
        self._steps = story(self.life)
        self.is_over = False

    def go_on(self, port: int) -> None:
        """Live on up to the next restart."""
        self.life.reconnect(port)
        self.is_over = next(self._steps, _END) is _END
        self.life.close()


_END = object()


def lived_long(kind: str, folder: Path, stories: Sequence[LongStory]) -> dict[str, list[str]]:
    """Return what happens in stories with restarts, by their names.

    Between two restarts they go on one after another.
    """
    server = server_process(kind, store_dir=folder)
    lives = {story.__name__: _LongLife(server.port, story) for story in stories}
    try:
        while going := [each for each in lives.values() if not each.is_over]:
            for each in going:
                each.go_on(server.port)
            server.stop()
            server = server_process(kind, store_dir=folder)
    finally:
        server.stop()
    return {name: each.life.lines for name, each in lives.items()}
