"""Requests for streams, put to the real server and to our rules alike.

A case is a list of requests. Each answer is boiled down to what the configuration rules decide: the
bytes of the configuration, or the error.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.documents.decoding import decode_request
from penstock.documents.encoding import encode, to_json
from penstock.errors import ApiError
from penstock.stream.allowances import AccountLimits, ServerLimits
from penstock.stream.config import StorageType, StreamConfig, StreamConfigRequest
from penstock.stream.creation import checked_creation
from penstock.stream.updates import checked_update
from penstock.stream.versioning import for_answer
from tests.support.executables import WAIT_S
from tests.support.nats_server import NatsClient, NatsServer


@dataclass(frozen=True)
class Request:
    """CREATE or UPDATE, the stream's name in the subject, and the body."""

    verb: str
    name: str
    body: bytes

    def __str__(self) -> str:
        return f"{self.verb} {self.body.decode('utf-8', 'replace')}"[:120]


def create(_name: str = "S", /, **fields: Any) -> Request:
    return Request("CREATE", _name, json.dumps({"name": _name} | fields).encode())


def update(_name: str = "S", /, **fields: Any) -> Request:
    return Request("UPDATE", _name, json.dumps({"name": _name} | fields).encode())


Case = tuple[Request, ...]


def alone(**fields: Any) -> Case:
    return (create(**fields),)


def changed(before: dict[str, Any], after: dict[str, Any]) -> Case:
    return (create(**before), update(**after))


def beside(*others: dict[str, Any], **fields: Any) -> Case:
    """A stream S beside others that are there already."""
    return (*(create(other.pop("name"), **other) for other in others), create(**fields))


def ask_reference(client: NatsClient, request: Request) -> bytes:
    """Give the configuration that the real server answers with, or its error."""
    subject = f"$JS.API.STREAM.{request.verb}.{request.name}"
    answer = client.request(subject, request.body).payload
    document = json.loads(answer)
    if "error" in document:
        return to_json(document["error"])
    start = answer.index(b'"config":') + len(b'"config":')
    text = answer[start:].decode()
    _, end = json.JSONDecoder().raw_decode(text)
    return text[:end].encode()


def forget_streams(server: NatsServer, client: NatsClient) -> None:
    """Delete all streams, and wait until the real server has cleared their folders away.

    It does so behind its answer, and a stream of the same name cannot be made meanwhile.
    """
    for name in client.api("STREAM.NAMES")["streams"] or ():
        client.api(f"STREAM.DELETE.{name}")
    give_up_s = time.monotonic() + WAIT_S
    while any(server.store_dir.glob("jetstream/*/streams/*")):
        assert time.monotonic() < give_up_s, "the real server keeps folders of deleted streams"
        os.sched_yield()


@dataclass
class OurRules:
    """Our answers to the same requests; `streams` are those that were made so far."""

    server_version: str
    strict: bool = True
    server: ServerLimits = field(default_factory=ServerLimits)
    account: AccountLimits = field(default_factory=AccountLimits)
    streams: dict[str, StreamConfig] = field(default_factory=dict)

    def ask(self, request: Request) -> bytes:
        """Give the configuration, or the error."""
        try:
            document = decode_request(StreamConfigRequest, request.body, strict=self.strict)
            config = self._decide(request, document)
        except ApiError as error:
            return to_json(error.document())
        self.streams[config.name] = config
        return encode(for_answer(config, self.server_version))

    def _decide(self, request: Request, document: StreamConfigRequest) -> StreamConfig:
        server, account, existing = self._reserved(), self.account, list(self.streams.values())
        if request.verb == "CREATE":
            return checked_creation(
                document, name=request.name, server=server, account=account, existing=existing
            )
        return checked_update(
            document,
            name=request.name,
            server=server,
            account=account,
            existing=existing,
            consumers={},
        )

    def _reserved(self) -> ServerLimits:
        def sum_of(storage: StorageType) -> int:
            kept = (each for each in self.streams.values() if each.storage is storage)
            return sum(max(each.max_bytes, 0) for each in kept)

        return ServerLimits(
            self.server.memory_bytes_max,
            self.server.storage_bytes_max,
            sum_of(StorageType.MEMORY),
            sum_of(StorageType.FILE),
            self.server.duplicate_window_ns_max,
        )


def differences(
    client: NatsClient, rules: OurRules, requests: tuple[Request, ...]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Put the requests of one case to both; give those whose answers differ."""
    for request in requests:
        theirs, ours = ask_reference(client, request), rules.ask(request)
        if theirs != ours:
            yield str(request), {"theirs": theirs.decode(), "ours": ours.decode()}
