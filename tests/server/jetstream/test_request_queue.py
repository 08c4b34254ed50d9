"""Requests have a share of each turn; what is left waits for the next, in order and bounded."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.dispatch import Answer
from penstock.limits import API_TURN_NS
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription
from penstock.server.embedded import EmbeddedServer
from penstock.server.jetstream import request_queue
from penstock.server.jetstream.request_queue import Request, RequestQueue
from penstock.testing.clock import FakeClock

HALF = API_TURN_NS // 2


class Loop:
    """Calls what is to be called soon when the test says that a turn begins."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()

    def call_soon(self, action: Callable[[], None]) -> None:
        self.soon.append(action)

    def turn(self) -> None:
        for _ in range(len(self.soon)):
            self.soon.popleft()()


class Client:
    """A connection: what it sends is taken while it is not held."""

    def __init__(self, queue: RequestQueue, requests: list[Request]) -> None:
        self._queue = queue
        self._coming = deque(requests)
        self.is_held = False

    def send(self) -> None:
        while self._coming and not self.is_held:
            request = self._coming.popleft()
            request.client = self  # type: ignore[assignment]
            self._queue.take(request)

    def rest(self) -> None:
        assert not self.is_held
        self.is_held = True

    def go_on(self) -> None:
        assert self.is_held
        self.is_held = False
        self.send()


class Accounts:
    """Where requests come from; each takes its time, in steps, and is answered with its subject."""

    def __init__(self, limit: int = 100) -> None:
        self.clock = FakeClock()
        self.loop = Loop()
        self.told: list[str] = []
        self.dropped: list[str] = []
        self.flushes = 0
        options = SimpleNamespace(request_queue_limit=limit)
        service = SimpleNamespace(
            clock=self.clock, loop=self.loop, options=options, log=self._log, flush=self._flush
        )
        self.queue = RequestQueue(service, self._advise)  # type: ignore[arg-type]

    def _log(self, level: str, text: str) -> None:
        self.dropped.append(text.rpartition(" ")[2])

    def _advise(self, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        assert kind == "api_limit_reached"

    def _flush(self) -> None:
        self.flushes += 1

    def request(self, name: str, *steps_ns: int) -> Request:
        return Request(self, name, b"reply", b"", json.dumps(steps_ns).encode(), None)

    def begin(self, request: Request) -> Answer | Generator[None, None, Answer | None]:
        first, *rest = json.loads(request.body)
        self.clock.advance_ns(first)
        answer = Answer(request.subject.encode(), has_failed=False, is_told=False)
        return self._steps(rest, answer) if rest else answer

    def _steps(self, steps_ns: list[int], answer: Answer) -> Generator[None, None, Answer | None]:
        for step_ns in steps_ns:
            self.clock.advance_ns(step_ns)
            yield
        return answer

    def tell(self, request: Request, outcome: Answer) -> None:
        self.told.append(outcome.body.decode())

    def client(self, *requests: Request) -> Client:
        client = Client(self.queue, list(requests))
        client.send()
        return client


def test_requests_are_handled_at_once_until_the_turn_is_over() -> None:
    here = Accounts()
    client = here.client(*(here.request(name, HALF) for name in "abcde"))

    assert here.told == ["a", "b"]
    held = [client.is_held]
    here.loop.turn()
    assert here.told == ["a", "b", "c", "d"]
    here.loop.turn()
    assert here.told == ["a", "b", "c", "d", "e"]
    assert [*held, client.is_held] == [True, False]
    assert here.flushes == 2
    here.loop.turn()
    assert not here.loop.soon


def test_short_requests_of_many_turns_count_together() -> None:
    here = Accounts()
    for name in "ab":
        here.queue.take(here.request(name, HALF))
    here.queue.take(here.request("c", 0))

    assert here.told == ["a", "b"]
    here.loop.turn()
    assert here.told == ["a", "b", "c"]


def test_clients_take_turns_each_with_its_own_requests_in_order() -> None:
    here = Accounts()
    here.client(*(here.request(f"a{place}", API_TURN_NS) for place in range(3)))
    here.client(*(here.request(f"b{place}", API_TURN_NS) for place in range(3)))
    while here.loop.soon:
        here.loop.turn()

    assert here.told == ["a0", "a1", "b0", "a2", "b1", "b2"]


def test_a_long_request_gives_way_to_those_that_came_behind_it() -> None:
    here = Accounts()
    here.client(here.request("long", 0, *[API_TURN_NS] * 5), here.request("behind", 0))
    here.client(here.request("short", 0))
    turns = 0
    while here.loop.soon:
        here.loop.turn()
        turns += 1

    assert here.told == ["short", "long", "behind"]
    assert turns == 5


def test_a_long_request_goes_on_within_its_turn() -> None:
    here = Accounts()
    here.client(here.request("long", 0, *[API_TURN_NS // 100] * 99))

    assert here.told == ["long"]


def test_what_no_client_waits_for_is_dropped_beyond_the_limit_and_told_of() -> None:
    here = Accounts(limit=3)
    here.queue.take(here.request("first", API_TURN_NS))
    for place in range(5):
        here.queue.take(here.request(f"r{place}", 0))
    here.loop.turn()

    assert here.told == ["first", "r0", "r1", "r2"]
    assert here.dropped == ["r3", "r4"]


def test_a_stopping_server_answers_what_waits() -> None:
    here = Accounts()
    here.queue.take(here.request("first", API_TURN_NS))
    here.queue.take(here.request("second", 0))

    async def stop() -> None:
        asyncio.get_running_loop().call_soon(here.loop.turn)
        await here.queue.finish()

    asyncio.run(stop())
    assert here.told == ["first", "second"]


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("STREAM.LIST", b""),
        ("STREAM.INFO.n000", b'{"subjects_filter":">"}'),
        ("STREAM.INFO.n000", b'{"deleted_details":true}'),
        ("CONSUMER.LIST.n000", b""),
    ],
)
def test_others_are_answered_while_much_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, body: bytes
) -> None:
    # No time at all: every request gives way wherever it can.
    monkeypatch.setattr(request_queue, "API_TURN_NS", 0)
    for name in ("SUBJECTS_LISTED_PER_TURN", "DELETED_LISTED_PER_TURN", "STREAMS_LISTED_PER_TURN"):
        monkeypatch.setattr(f"penstock.api.streams.{name}", 10)
    answered: list[bytes] = []

    async def story() -> None:
        settings = f"port: -1, jetstream {{ store_dir: {json.dumps(str(tmp_path))} }}"
        async with EmbeddedServer(settings=settings) as server:
            asking = Asking(server)
            await fill(asking)
            asking.ask(endpoint, body, b"long")
            for place in range(3):
                asking.ask("STREAM.INFO.n000", b"", b"%d" % place)
            answered.extend([await asking.answers.get() for _ in range(4)])

    asyncio.run(story())
    assert answered == [b"0", b"1", b"2", b"long"]


class Asking:
    """A part of the server that asks; answers come to `answers`, each as what it was asked as."""

    def __init__(self, server: EmbeddedServer) -> None:
        jetstream = server._server.jetstream
        assert jetstream is not None
        self._hub = jetstream.hub
        self.account = jetstream.accounts["$G"]
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.account.sublist.insert(Subscription(Service(self._take), b"answer.*", b"1"))

    def _take(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        assert b'"error"' not in body
        self.answers.put_nowait(subject.removeprefix(b"answer."))

    def ask(self, endpoint: str, body: bytes, name: bytes) -> None:
        subject = f"$JS.API.{endpoint}".encode()
        self._hub.publish(self.account.sublist, subject, b"answer." + name, b"", body)

    async def make(self, endpoint: str, document: dict[str, Any]) -> None:
        self.ask(endpoint, json.dumps(document).encode(), b"made")
        await self.answers.get()


async def fill(asking: Asking) -> None:
    """Make forty streams; the first has forty consumers, subjects and gaps."""
    for place in range(40):
        config = {"name": f"n{place:03}", "subjects": [f"n{place:03}.>"], "storage": "memory"}
        await asking.make(f"STREAM.CREATE.n{place:03}", config)
    stream = asking.account.streams["n000"]
    for place in range(40):
        asked = {"stream_name": "n000", "config": {"durable_name": f"c{place}"}}
        await asking.make(f"CONSUMER.CREATE.n000.c{place}", asked)
        stream.store.store(b"n000.%d" % place, b"", b"x")
        stream.store.store(b"n000.%d" % place, b"", b"x")
        stream.store.remove(2 * place + 2)
