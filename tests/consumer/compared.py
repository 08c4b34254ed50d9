"""Requests for consumers, put to the real server and to our rules alike.

A case is a stream and a list of requests. Each answer is boiled down to what the configuration
rules decide: the bytes of the configuration, or the error.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.consumer.config.config import ConsumerConfig, CreateConsumerRequest
from penstock.consumer.config.create import (
    Address,
    CreationContext,
    Form,
    addressed_config,
    checked_creation,
    for_answer,
)
from penstock.errors import ApiError
from penstock.stream.config.config import StreamConfig, StreamConfigRequest
from penstock.stream.config.known import KnownStreams
from penstock.stream.config.requests import checked_creation as checked_stream
from penstock.stream.quota import AccountLimits, ServerLimits
from penstock.text.json.codec import decode, decode_request, encode, to_json
from tests.support.nats_client import NatsClient

HEARD = "heard"
"""A subject with subscribers."""

MADE_UP = "????????"
"""Stands in both answers for what the server makes up of a name."""


@dataclass(frozen=True)
class Request:
    """What stands in the subject, and the body."""

    address: Address
    body: bytes

    def __str__(self) -> str:
        return f"{'.'.join(self.address[1:])} {self.body.decode('utf-8', 'replace')}"[:150]

    @property
    def subject(self) -> str:
        """The subject below the API's prefix."""
        _, *tokens = self.address
        verb = "DURABLE.CREATE" if self.address.form is Form.DURABLE else "CREATE"
        return ".".join(("CONSUMER", verb, *filter(None, tokens)))


def _body(fields: dict[str, Any]) -> bytes:
    around = {name: fields.pop(name) for name in ("action", "pedantic") if name in fields}
    return json.dumps({"stream_name": "S", "config": fields} | around).encode()


def named(_name: str = "C", _filter: str = "", /, **fields: Any) -> Request:
    return Request(Address(Form.NAMED, "S", _name, _filter), _body(fields))


def unnamed(**fields: Any) -> Request:
    return Request(Address(Form.UNNAMED, "S"), _body(fields))


def durable(_name: str = "D", /, **fields: Any) -> Request:
    return Request(Address(Form.DURABLE, "S", _name), _body({"durable_name": _name} | fields))


@dataclass(frozen=True)
class Case:
    """A stream, and what is asked of it one after the other."""

    requests: tuple[Request, ...]
    stream: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stream_body(self) -> bytes:
        """The request for the stream."""
        chosen = {"name": "S", "subjects": ["s.>"], "storage": "memory"} | dict(self.stream)
        return json.dumps(chosen).encode()


def alone(**fields: Any) -> Case:
    return Case((named(**fields),))


def changed(before: dict[str, Any], after: dict[str, Any]) -> Case:
    return Case((named(**before), named(**after)))


def ask_reference(client: NatsClient, request: Request) -> bytes:
    """Return the configuration that the real server answers with, or its error."""
    answer = client.request(f"$JS.API.{request.subject}", request.body).payload
    document = json.loads(answer)
    if "error" in document:
        return to_json(document["error"])
    start = answer.index(b'"config":') + len(b'"config":')
    text = answer[start:].decode()
    _, end = json.JSONDecoder().raw_decode(text)
    return _without_made_up(text[:end].encode(), request, document["name"])


def _without_made_up(answer: bytes, request: Request, name: str) -> bytes:
    asked_name = request.address.consumer or json.loads(request.body)["config"].get("name")
    if name == asked_name:
        return answer
    return answer.replace(name[-len(MADE_UP) :].encode(), MADE_UP.encode())


@dataclass
class OurRules:
    """Our answers to the same requests; `consumers` are those that were made so far."""

    server_version: str
    server: ServerLimits = field(default_factory=ServerLimits)
    account: AccountLimits = field(default_factory=AccountLimits)
    stream: StreamConfig | None = None
    consumers: dict[str, ConsumerConfig] = field(default_factory=dict)
    names: Iterator[str] = field(default_factory=lambda: map("made{:04}".format, itertools.count()))

    def make_stream(self, case: Case) -> None:
        """Take a case's stream."""
        self.stream = checked_stream(
            decode(StreamConfigRequest, case.stream_body),
            name="S",
            server=self.server,
            account=self.account,
            existing=KnownStreams(),
        )

    def ask(self, request: Request) -> bytes:
        """Return the configuration, or the error."""
        assert self.stream is not None
        try:
            document = decode_request(CreateConsumerRequest, request.body)
            config = addressed_config(document, request.address, is_clustered=False)
            checked = checked_creation(
                config,
                self._around(self.stream),
                action=document.action,
                pedantic=document.pedantic,
            )
        except ApiError as error:
            return to_json(error.document())
        assert checked.is_new == (checked.name not in self.consumers)
        self.consumers[checked.name] = checked.config
        answer = encode(for_answer(checked.config, self.server_version))
        return _without_made_up(answer, request, checked.name)

    def _around(self, stream: StreamConfig) -> CreationContext:
        return CreationContext(
            stream,
            self.consumers,
            self.server,
            self.account,
            has_interest=lambda subject: subject == HEARD,
            new_name=lambda: next(self.names),
        )


def differences(
    client: NatsClient, rules: OurRules, case: Case
) -> list[tuple[str, Mapping[str, str]]]:
    """Put the requests of one case to both; give those whose answers differ."""
    made = json.loads(client.request("$JS.API.STREAM.CREATE.S", case.stream_body).payload)
    assert "error" not in made, made
    rules.make_stream(case)
    found: list[tuple[str, Mapping[str, str]]] = []
    for request in case.requests:
        theirs, ours = ask_reference(client, request), rules.ask(request)
        if theirs != ours:
            found.append((str(request), {"theirs": theirs.decode(), "ours": ours.decode()}))
    client.api("STREAM.DELETE.S")
    return found


def answers_that_differ(
    port: int,
    cases: list[Case],
    server: ServerLimits | None = None,
    account: AccountLimits | None = None,
) -> list[object]:
    """Put cases to the real server at a port and to our rules; give what differs."""
    found: list[object] = []
    with NatsClient(port) as listener:
        listener.subscribe(HEARD)
        # Answered: so the subscription is there.
        listener.api("INFO")
        with NatsClient(port) as client:
            for case in cases:
                limits = (server or ServerLimits(), account or AccountLimits())
                found += differences(client, OurRules(client.server_version, *limits), case)
    return found
