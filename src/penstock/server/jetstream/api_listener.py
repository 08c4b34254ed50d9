"""The JetStream API of one account, with the domain's name in the subject or without.

    $JS.API.>            the API; in the system account, requests about all accounts
    $JS.<domain>.API.>   the same, and `$KV` and `$OBJ` of the domain
    $PENSTOCK.PIPELINE.> reports of Spark pipelines over the account's streams

Invariants: a known request gets one answer. An unknown request, or one that comes while too many
wait, is not answered, as by the reference server. A request that another subscriber should answer
gets a "no responders" status if there is none. A request whose change is in force, but not yet on
stable storage, is answered later. While a request waits to be handled, nothing more is read from
its client, so that later messages are handled after it; other clients continue.
Subscribers of `$JS.EVENT.ADVISORY.API` in the account receive requests and answers.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock import error_codes
from penstock.api.direct_get import DIRECT_PREFIX
from penstock.api.dispatch import (
    API_PREFIX,
    TYPE_PREFIX,
    Answer,
    Call,
    answer,
    needs_newer,
    refusal,
)
from penstock.api.endpoints import ENDPOINTS
from penstock.errors import ApiError, ErrorCode
from penstock.net.connection import Connection
from penstock.protocol.pipeline_reports import SUBJECT_PREFIX
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription
from penstock.store.vfs import remove_tree
from penstock.stream.changes import Change
from penstock.text.json.codec import to_json

if TYPE_CHECKING:
    from penstock.server.jetstream.service import JetStreamService

NEXT_PREFIX = f"{API_PREFIX}CONSUMER.MSG.NEXT."
PURGE_PREFIX = f"{API_PREFIX}ACCOUNT.PURGE."
PURGED_KIND = "account_purge_response"

_DECLINED = (DIRECT_PREFIX.encode(), NEXT_PREFIX.encode())
"""Requests that streams and consumers subscribe to; without one, the client is told at once."""

_MAPPED = (b"STREAM.", b"CONSUMER.", b"DIRECT.", b"META.", b"SERVER.", b"ACCOUNT.")
_MAPPED_SPACES = (b"$KV.", b"$OBJ.")
_NOT_ENABLED = error_codes.NOT_ENABLED_FOR_ACCOUNT
_FOR_CLUSTERS = ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE")


_Outcome: TypeAlias = Answer | Coroutine[Any, Any, Answer | None] | None


class _Asked(msgspec.Struct, frozen=True):
    """A request, and the client that waits for its answer."""

    subject: str
    reply: bytes | None
    body: bytes
    client: Connection | None


def without_domain(subject: bytes, domain: str) -> bytes | None:
    """Return the subject that one with the domain's name stands for, or None."""
    prefix = f"$JS.{domain}.API.".encode()
    if not domain or not subject.startswith(prefix):
        return None
    rest = subject[len(prefix) :]
    if rest.startswith(_MAPPED_SPACES):
        return rest
    return API_PREFIX.encode() + rest if rest == b"INFO" or rest.startswith(_MAPPED) else None


class WaitingRequests:
    """Requests whose answers have to wait, at most as many as the options allow."""

    def __init__(
        self, service: JetStreamService, advise: Callable[[str, str, Mapping[str, Any]], None]
    ) -> None:
        self._service = service
        self._advise = advise
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_count = 0
        self._none_held: asyncio.Future[None] | None = None
        self._is_flush_due = False

    @property
    def is_full(self) -> bool:
        """Whether as many requests wait as may wait."""
        waiting = len(self._tasks) + self._held_count
        return waiting >= self._service.options.request_queue_limit

    def add(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run the work that answers a request; a stopping server waits for it."""
        task = self._service.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def hold(self, change: Change, tell: Callable[[OSError | None], None]) -> None:
        """Answer a request when what it has changed is on stable storage, or cannot be."""
        self._held_count += 1

        def release(error: OSError | None) -> None:
            self._held_count -= 1
            tell(error)
            if not self._is_flush_due:
                self._is_flush_due = True
                self._service.loop.call_soon(self._flush)

        change.then(release)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._service.flush()
        if not self._held_count and self._none_held is not None:
            self._none_held.set_result(None)
            self._none_held = None

    def drop(self, subject: str) -> None:
        """Leave a request unanswered because too many wait; publish an advisory about it."""
        told = f"JetStream API queue limit reached, dropping a request on {subject}"
        self._service.log("WRN", told)
        self._advise("API.LIMIT_REACHED", "api_limit_reached", {"dropped": 1})

    async def finish(self) -> None:
        """Wait until every request is answered."""
        while self._tasks or self._held_count:
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                self._none_held = self._service.loop.create_future()
                await self._none_held


class ApiListener:
    """One account's listener; see the module."""

    def __init__(self, service: JetStreamService, account: Any) -> None:
        self._service = service
        self._account = account
        declined = () if account.is_system else _DECLINED
        subjects = {f"{API_PREFIX}>": Service(self._asked, declined)}
        if service.domain:
            subjects[f"$JS.{service.domain}.API.>"] = Service(self._asked_by_domain)
        if not account.is_system:
            subjects[f"{SUBJECT_PREFIX}>"] = Service(self._told_by_pipeline)
        self._subscriptions = [
            Subscription(receiver, subject.encode(), b"%d" % place)
            for place, (subject, receiver) in enumerate(subjects.items(), start=1)
        ]
        for subscription in self._subscriptions:
            account.sublist.insert(subscription)

    def close(self) -> None:
        """Remove the subscriptions: requests are no longer answered."""
        for subscription in self._subscriptions:
            self._account.sublist.remove(subscription)

    def _told_by_pipeline(
        self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes
    ) -> None:
        service = self._service
        service.pipelines.take(self._account.name, subject, body, service.clock.monotonic_ns())

    # Requests

    def _asked(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        self._take(subject.decode("utf-8", "replace"), reply, headers, body)

    def _asked_by_domain(
        self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes
    ) -> None:
        target = without_domain(subject, self._service.domain)
        if target is None:
            self._no_responders(subject, reply)
        elif target.startswith((*_MAPPED_SPACES, *_DECLINED)):
            self._forward(target, reply, headers, body)
        else:
            self._take(target.decode("utf-8", "replace"), reply, headers, body)

    def _forward(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        if not self._service.hub.publish(self._account.sublist, subject, reply, headers, body):
            self._no_responders(subject, reply)

    def _no_responders(self, subject: bytes, reply: bytes | None) -> None:
        asking = self._service.hub.publisher
        if reply is not None and isinstance(asking, Connection) and asking.no_responders:
            status = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
            self._service.publish(self._account.sublist, reply, status, b"")

    def _take(self, subject: str, reply: bytes | None, headers: bytes, body: bytes) -> None:
        if self._account.is_system:
            outcome = self._answer_system(subject, headers)
        else:
            outcome = self._answer(subject, reply, headers, body)
        asking = self._service.hub.publisher
        asked = _Asked(subject, reply, body, asking if isinstance(asking, Connection) else None)
        if isinstance(outcome, Coroutine):
            if asked.client is not None:
                asked.client.rest()
            self._service.requests.add(self._tell_later(asked, outcome), f"request {subject}")
        elif outcome is not None:
            self._tell_durable(asked, outcome)

    async def _tell_later(self, asked: _Asked, work: Coroutine[Any, Any, Answer | None]) -> None:
        try:
            outcome = await work
            if outcome is not None:
                self._tell_durable(asked, outcome)
            self._service.flush()
        finally:
            if asked.client is not None:
                asked.client.go_on()

    def _tell_durable(self, asked: _Asked, outcome: Answer) -> None:
        """Answer now, or when what the request has changed is on stable storage."""
        if (change := outcome.change) is None:
            self._tell(asked, outcome)
            return

        def tell(error: OSError | None) -> None:
            self._tell(asked, outcome if error is None else outcome.if_failed(error))

        self._service.requests.hold(change, tell)

    def _tell(self, asked: _Asked, outcome: Answer) -> None:
        streams = self._service.accounts.get(self._account.name)
        if outcome.is_told and streams is not None:
            streams.api_total += 1
            streams.api_errors += outcome.has_failed
        if asked.reply is not None:
            sublist = self._account.sublist
            self._service.publish(sublist, asked.reply, outcome.headers, outcome.body)
        if outcome.is_told:
            self._advise(asked, outcome)

    # Answers

    def _answer(self, subject: str, reply: bytes | None, headers: bytes, body: bytes) -> _Outcome:
        found = ENDPOINTS.find(subject.removeprefix(API_PREFIX))
        if found is None:
            return None
        endpoint, names = found
        streams = self._service.accounts.get(self._account.name)
        if streams is None:
            is_newer = needs_newer(headers)
            code = error_codes.REQUIRED_API_LEVEL if is_newer else _NOT_ENABLED
            return _refused(endpoint.kind, code)
        if self._service.requests.is_full and endpoint.may_wait:
            self._service.requests.drop(subject)
            return None
        call = Call(self._service, streams, subject, names, headers, body, reply)
        return answer(endpoint, call)

    def _answer_system(self, subject: str, headers: bytes) -> _Outcome:
        rest = subject.removeprefix(API_PREFIX)
        if subject.startswith(PURGE_PREFIX) and not needs_newer(headers):
            return self._purge(subject.removeprefix(PURGE_PREFIX))
        if rest in _FOR_CLUSTERS or rest.startswith("ACCOUNT."):
            return None
        return _refused("account_info_response" if rest == "INFO" else "system_response")

    async def _purge(self, name: str) -> Answer | None:
        """Remove everything that an account has stored, even if it is no longer configured."""
        # Without a name it would be the folder of all accounts.
        if not name or "." in name:
            return None
        if "/" in name or "\\" in name:
            reason = "account name can not contain path separators"
            error = ApiError(error_codes.STREAM_GENERAL_ERROR, err=reason)
            return Answer(refusal(PURGED_KIND, error), has_failed=True, is_told=True)
        service = self._service
        account = service.accounts.get(name)
        names = [] if account is None else list(account.streams)
        counted = f"streams: {len(names)}, hasAccount: {str(account is not None).lower()}"
        service.log("INF", f"Purge request for account {name} ({counted})")
        for stream in names:
            assert account is not None, "it has the streams"
            await account.delete(stream)
        path = os.path.join(service.resources.path, name)
        if service.files.is_dir(path):
            await asyncio.get_running_loop().run_in_executor(None, remove_tree, service.files, path)
        if account is not None:
            account.forget()
        body = to_json({"type": TYPE_PREFIX + PURGED_KIND, "initiated": True})
        return Answer(body, has_failed=False, is_told=True)

    def _advise(self, asked: _Asked, outcome: Answer) -> None:
        def fields() -> Mapping[str, Any]:
            request = {"request": asked.body.decode("utf-8", "replace")} if asked.body else {}
            return {
                "server": self._service.server_name,
                "client": self._service.client_info(self._account.name, asked.client),
                "subject": asked.subject,
                **request,
                "response": outcome.body.decode(),
            }

        sublist = self._account.sublist
        self._service.advise_of(sublist, "ADVISORY.API", "advisory.v1.api_audit", fields)


def _refused(kind: str, code: ErrorCode = _NOT_ENABLED) -> Answer:
    return Answer(refusal(kind, ApiError(code)), has_failed=True, is_told=True)
