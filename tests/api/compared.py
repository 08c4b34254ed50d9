"""Stories of requests, played on the real server and on ours; their answers must be the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Any

from tests.api.schema_checks import faults_of
from tests.support.nats_client import Delivery, NatsClient

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_NO_TIME = b"0001-01-01T00:00:00Z"
_ID = re.compile(rb'("id\\?":\\?")[0-9A-Za-z]{22}')
_NUID = re.compile(rb"(\.)[0-9A-Za-z]{22}\b")
_SERVER = re.compile(rb"\bN[A-Z2-7]{55}\b")
_RTT = re.compile(rb'"rtt":\d+,')
_CID = re.compile(rb'"id":\d+,"acc"')
_REMAINING = re.compile(rb'"pause_remaining":\d+')
_IDENTITY = re.compile(rb"(Nats-Stream-Identity: |identity does not match: )\w{8}\b")


class Answers(Enum):
    """How many messages answer a step."""

    NONE = auto()
    ONE = auto()
    UNTIL_STATUS = auto()
    """The last message is a status line."""


@dataclass(frozen=True)
class Step:
    """A published message, and what is answered."""

    subject: str
    body: bytes = b""
    headers: bytes = b""
    answers: Answers = Answers.ONE

    def __str__(self) -> str:
        return f"{self.subject} {self.body.decode('utf-8', 'replace')}"[:150]


Story = list[Step]
Teller = Callable[[str], Story]


def body_of(document: Mapping[str, Any] | bytes | None) -> bytes:
    if document is None:
        return b""
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def headers_of(values: Mapping[str, str] | None) -> bytes:
    if not values:
        return b""
    lines = "".join(f"{name}: {value}\r\n" for name, value in values.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def ask(
    endpoint: str,
    document: Mapping[str, Any] | bytes | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> Step:
    """Ask `$JS.API.<endpoint>`."""
    return Step(f"$JS.API.{endpoint}", body_of(document), headers_of(headers))


def ask_in_vain(endpoint: str, document: Mapping[str, Any] | bytes | None = None) -> Step:
    """Ask a request that is not answered."""
    return Step(f"$JS.API.{endpoint}", body_of(document), answers=Answers.NONE)


def get_many(stream: str, **request: Any) -> Step:
    """Ask for several messages directly."""
    subject = f"$JS.API.DIRECT.GET.{stream}"
    return Step(subject, body_of(request), answers=Answers.UNTIL_STATUS)


def create(stream: str, **config: Any) -> Step:
    """Create a stream that listens to everything under its own name."""
    fields = {"name": stream, "subjects": [f"{stream}.>"]} | config
    return ask(f"STREAM.CREATE.{stream}", fields)


def update(stream: str, **config: Any) -> Step:
    fields = {"name": stream, "subjects": [f"{stream}.>"]} | config
    return ask(f"STREAM.UPDATE.{stream}", fields)


def publish(
    subject: str, payload: bytes = b"hello", *, headers: Mapping[str, str] | None = None
) -> Step:
    return Step(subject, payload, headers_of(headers))


def info(stream: str, **request: Any) -> Step:
    return ask(f"STREAM.INFO.{stream}", request or None)


def purge(stream: str, **request: Any) -> Step:
    return ask(f"STREAM.PURGE.{stream}", request or None)


def get(stream: str, **request: Any) -> Step:
    return ask(f"STREAM.MSG.GET.{stream}", request)


def delete_message(stream: str, **request: Any) -> Step:
    return ask(f"STREAM.MSG.DELETE.{stream}", request)


def direct(stream: str, **request: Any) -> Step:
    return ask(f"DIRECT.GET.{stream}", request)


def filled(stream: str, **config: Any) -> Story:
    """A stream with five messages: two subjects, one with headers."""
    return [
        create(stream, **config),
        publish(f"{stream}.a", b"one"),
        publish(f"{stream}.b", b"two", headers={"X": "1", "Y": "a b"}),
        publish(f"{stream}.a", b"three"),
        publish(f"{stream}.b", b""),
        publish(f"{stream}.c.d", b"five"),
    ]


def shown(data: bytes) -> bytes:
    """Remove what no two servers have in common."""
    data = _TIME.sub(lambda found: found[0] if found[0] == _NO_TIME else b"<time>", data)
    data = _ID.sub(rb"\1<id>", data)
    data = _NUID.sub(rb"\1<id>", data)
    data = _IDENTITY.sub(rb"\1<id>", _REMAINING.sub(b'"pause_remaining":<ns>', data))
    data = _RTT.sub(b'"rtt":<rtt>,', _CID.sub(b'"id":<cid>,"acc"', data))
    return _SERVER.sub(b"<server>", data)


class Listener:
    """A connection that plays stories on one server."""

    def __init__(self, port: int, **fields: Any) -> None:
        """`fields` are sent in CONNECT besides the usual ones."""
        self._client = NatsClient(port, **fields)
        self._count = 0
        self.schema_faults: list[str] = []
        """Violations of the published schemas in all answers."""

    def tell(self, story: Iterable[Step]) -> list[list[bytes]]:
        """Return the answers to each step."""
        return [self.answers(step) for step in story]

    def answers(self, step: Step) -> list[bytes]:
        """Return the answers to a step, headers and body in one."""
        self._count += 1
        reply = f"_IN.{self._count}"
        self._client.publish(step.subject, step.body, headers=step.headers, reply=reply)
        if step.answers is Answers.NONE:
            self._client.publish("$JS.API.STREAM.NAMES", reply="_IN.after")
            found = self._client.next_delivery()
            return [] if found.subject == "_IN.after" else [self._shown(found, reply)]
        found = self._client.next_delivery()
        answered = [self._shown(found, reply)]
        while step.answers is Answers.UNTIL_STATUS and not found.headers.startswith(b"NATS/1.0 "):
            found = self._client.next_delivery()
            answered.append(self._shown(found, reply))
        return answered

    def watch(self, subject: str) -> None:
        """Have `events` return what is published to a subject."""
        self._client.subscribe(subject)

    def events(self, step: Step, count: int) -> list[bytes]:
        """Return all that a step causes, in the order of subjects: the answer and events."""
        self._count += 1
        reply = f"_IN.{self._count}"
        self._client.publish(step.subject, step.body, headers=step.headers, reply=reply)
        found = [self._client.next_delivery() for _ in range(count)]
        return sorted(
            shown(each.subject.replace(reply, "reply").encode() + b" " + each.payload)
            for each in found
        )

    def _shown(self, found: Delivery, reply: str) -> bytes:
        assert found.subject == reply, f"{found} is no answer to {reply}"
        if found.payload.startswith(b'{"type":'):
            self.schema_faults += faults_of(json.loads(found.payload))
        return shown(found.headers + found.payload)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def differences(real: Listener, ours: Listener, story: Story) -> list[object]:
    """Return each step with different answers, and our violations of schemas."""
    told = zip(story, real.tell(story), ours.tell(story), strict=True)
    differing = [(str(step), wanted, found) for step, wanted, found in told if wanted != found]
    faults = set(ours.schema_faults) - set(real.schema_faults)
    return [*differing, *sorted(faults)]
