"""Requests about streams, sent to the real server and to our rules alike."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import ApiError
from penstock.stream.config.config import StorageType, StreamConfig, StreamConfigRequest, for_answer
from penstock.stream.config.known import KnownStreams
from penstock.stream.config.requests import checked_creation, checked_update
from penstock.stream.quota import AccountLimits, ServerLimits
from penstock.testing.servers import WAIT_S, reference_server
from penstock.text.json.codec import decode_request, encode, to_json
from tests.support.nats_client import NatsClient


@dataclass(frozen=True)
class Reference:
    """The real server, and the folder of its streams."""

    port: int
    store_dir: Path

    def connect(self) -> NatsClient:
        """Open a connection."""
        return NatsClient(self.port)


@contextmanager
def reference_in(folder: Path, settings: str = "") -> Iterator[Reference]:
    """Run the real server."""
    with reference_server(settings=settings, store_dir=folder) as server:
        yield Reference(server.port, folder)


ACCOUNTS = ("$G", "A")
"""The accounts in which streams are requested."""


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
    """A stream S beside others that exist already."""
    return (*(create(other.pop("name"), **other) for other in others), create(**fields))


def ask_reference(client: NatsClient, request: Request) -> bytes:
    """Return the configuration that the real server answers with, or its error."""
    subject = f"$JS.API.STREAM.{request.verb}.{request.name}"
    answer = client.request(subject, request.body).payload
    document = json.loads(answer)
    if "error" in document:
        return to_json(document["error"])
    start = answer.index(b'"config":') + len(b'"config":')
    text = answer[start:].decode()
    _, end = json.JSONDecoder().raw_decode(text)
    return text[:end].encode()


def forget_streams(client: NatsClient) -> None:
    for name in client.api("STREAM.NAMES")["streams"] or ():
        client.api(f"STREAM.DELETE.{name}")


def wait_until_cleared(server: Reference, names: Collection[str]) -> None:
    """Wait until nothing is left of streams with these names."""
    give_up_s = time.monotonic() + WAIT_S
    folders = {folder for name in names for folder in (name, f".{name}")}
    for account in ACCOUNTS:
        streams = server.store_dir / "jetstream" / account / "streams"
        # The folder of an account that is not empty stays.
        (streams / ".kept").mkdir(exist_ok=True, parents=True)
        while not folders.isdisjoint(os.listdir(streams)):
            assert time.monotonic() < give_up_s, f"{names} are still there"
            os.sched_yield()


@dataclass
class OurRules:
    """Our answers to the same requests; `streams` are those created so far."""

    server_version: str
    strict: bool = True
    server: ServerLimits = field(default_factory=ServerLimits)
    account: AccountLimits = field(default_factory=AccountLimits)
    streams: dict[str, StreamConfig] = field(default_factory=dict)

    def ask(self, request: Request) -> bytes:
        """Return the configuration, or the error."""
        try:
            document = decode_request(StreamConfigRequest, request.body, strict=self.strict)
            config = self._decide(request, document)
        except ApiError as error:
            return to_json(error.document())
        self.streams[config.name] = config
        return encode(for_answer(config, self.server_version))

    def _decide(self, request: Request, document: StreamConfigRequest) -> StreamConfig:
        server, account = self._reserved(), self.account
        existing = KnownStreams(self.streams.values())
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
    server: Reference, client: NatsClient, rules: OurRules, case: Case
) -> list[tuple[str, Mapping[str, str]]]:
    """Send the requests of one case to both; return those whose answers differ."""
    wait_until_cleared(server, {request.name for request in case})
    found: list[tuple[str, Mapping[str, str]]] = []
    for request in case:
        theirs, ours = ask_reference(client, request), rules.ask(request)
        if theirs != ours:
            found.append((str(request), {"theirs": theirs.decode(), "ours": ours.decode()}))
    if rules.streams:
        forget_streams(client)
    return found
