"""When a request to the JetStream API is handled: at once, or when it is its turn.

All requests together have a share of each turn of the event loop. While it lasts, a request is
handled as it comes in. Then requests wait in the order in which they came, and go on with the next
turns. A request with much to compute is handled in slices, and goes to the end of the queue when
the turn is over before it is done. One that waits for the disk waits beside the queue. A request
whose change is in force, but not yet on stable storage, is answered later, while its client's next
messages are handled.

Invariants: while a client's request waits, nothing more is read from that client. So later messages
of the client are handled after it, other clients continue, and a client has one request in the
queue. Requests that no client waits for, and all together, are bounded by `request_queue_limit`;
beyond it a request is not answered, the log says so, and an advisory is published.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.api.dispatch import Answer, AnswerInSlices, Outcome
from penstock.limits import API_TURN_NS
from penstock.net.connection import Connection

if TYPE_CHECKING:
    from penstock.server.jetstream.service import JetStreamService


class Listener(Protocol):
    """Where requests come from, and answers go to."""

    def begin(self, request: Request) -> Outcome:
        """Handle a request, or begin to."""
        ...

    def tell(self, request: Request, outcome: Answer) -> None:
        """Send the answer to a request."""
        ...


class Request(msgspec.Struct):
    """A request, and the client that waits for its answer."""

    listener: Listener
    subject: str
    reply: bytes | None
    headers: bytes
    body: bytes
    client: Connection | None
    slices: AnswerInSlices | None = None
    """The rest of the work, once it has begun."""

    is_waiting: bool = False
    """Whether nothing is read from the client until the answer."""


class RequestQueue:
    """The requests of all accounts of a server; see the module."""

    def __init__(
        self, service: JetStreamService, advise: Callable[[str, str, Mapping[str, Any]], None]
    ) -> None:
        self._service = service
        self._advise = advise
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[Request] = deque()
        self._used_ns = 0
        """Time of this turn, or of several short ones, that went to requests."""

        self._is_turn_over = False
        self._held_count = 0
        self._none_held: asyncio.Future[None] | None = None
        self._is_flush_due = False

    @property
    def is_full(self) -> bool:
        """Whether as many requests wait as may wait."""
        waiting = len(self._tasks) + len(self._waiting) + self._held_count
        return waiting >= self._service.options.request_queue_limit

    def take(self, request: Request) -> None:
        """Handle a request now, or when it is its turn."""
        if not self._is_turn_over:
            self._handle(request)
        elif self.is_full:
            self.drop(request.subject)
        else:
            self._wait(request)

    def drop(self, subject: str) -> None:
        """Leave a request unanswered because too many wait; publish an advisory about it."""
        told = f"JetStream API queue limit reached, dropping a request on {subject}"
        self._service.log("WRN", told)
        self._advise("API.LIMIT_REACHED", "api_limit_reached", {"dropped": 1})

    async def finish(self) -> None:
        """Wait until every request is answered."""
        while self._tasks or self._waiting or self._held_count:
            if self._tasks:
                await asyncio.wait(self._tasks)
            elif self._waiting:
                await asyncio.sleep(0)
            else:
                self._none_held = self._service.loop.create_future()
                await self._none_held

    # Turns

    def _wait(self, request: Request) -> None:
        self._hold(request)
        self._waiting.append(request)

    def _hold(self, request: Request) -> None:
        if request.client is not None and not request.is_waiting:
            request.client.rest()
        request.is_waiting = True

    def _spend(self, since_ns: int) -> None:
        self._used_ns += self._service.clock.monotonic_ns() - since_ns
        if self._used_ns >= API_TURN_NS and not self._is_turn_over:
            self._end_turn()

    def _end_turn(self) -> None:
        self._is_turn_over = True
        self._service.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._used_ns = 0
        while self._waiting:
            self._handle(self._waiting.popleft())
            if self._used_ns >= API_TURN_NS:
                break
        self._is_turn_over = False
        if self._waiting:
            self._end_turn()
        self._service.flush()

    # Requests

    def _handle(self, request: Request) -> None:
        since_ns = self._service.clock.monotonic_ns()
        try:
            outcome: Outcome = request.slices
            if outcome is None:
                outcome = request.listener.begin(request)
            if outcome is None or isinstance(outcome, Answer):
                self._answer(request, outcome)
            elif isinstance(outcome, Generator):
                request.slices = outcome
                self._go_on(request, outcome, since_ns)
            else:
                self._hold(request)
                self._await(request, outcome)
        finally:
            self._spend(since_ns)

    def _go_on(self, request: Request, slices: AnswerInSlices, since_ns: int) -> None:
        """Have a request with much to do go on until the turn is over."""
        until_ns = since_ns + API_TURN_NS - self._used_ns
        try:
            while True:
                next(slices)
                if self._service.clock.monotonic_ns() >= until_ns:
                    break
        except StopIteration as end:
            self._answer(request, end.value)
            return
        self._wait(request)

    def _answer(self, request: Request, outcome: Answer | None) -> None:
        if outcome is not None:
            self._tell(request, outcome)
        if request.is_waiting and request.client is not None:
            request.client.go_on()

    def _await(self, request: Request, work: Coroutine[Any, Any, Answer | None]) -> None:
        task = self._service.loop.create_task(
            self._answer_later(request, work), name=f"request {request.subject}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_later(
        self, request: Request, work: Coroutine[Any, Any, Answer | None]
    ) -> None:
        try:
            outcome = await work
            if outcome is not None:
                self._tell(request, outcome)
            self._service.flush()
        finally:
            if request.client is not None:
                request.client.go_on()

    # Answers

    def _tell(self, request: Request, outcome: Answer) -> None:
        """Answer now, or when what the request has changed is on stable storage."""
        if outcome.change is None:
            request.listener.tell(request, outcome)
            return
        self._held_count += 1

        def release(error: OSError | None) -> None:
            self._held_count -= 1
            told = outcome if error is None else outcome.if_failed(error)
            request.listener.tell(request, told)
            if not self._is_flush_due:
                self._is_flush_due = True
                self._service.loop.call_soon(self._flush)

        outcome.change.then(release)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._service.flush()
        if not self._held_count and self._none_held is not None:
            self._none_held.set_result(None)
            self._none_held = None
