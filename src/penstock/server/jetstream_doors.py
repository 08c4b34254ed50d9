"""Where members of an account ask JetStream, with the domain's name in the subject or without.

    $JS.API.>            the API; of the system account, what concerns all accounts
    $JS.<domain>.API.>   the same, and what stands for `$KV` and `$OBJ` of the domain

Pipelines over their streams tell here how they are: `$PENSTOCK.PIPELINE.>`.

What always holds: a request that is known gets one answer, and one that is not, or that comes while
too many wait, is met with silence, as by the reference server; where somebody else would have to
answer and nobody does, the client is told so. While a client's request waits for a disk nothing
more is read of that client, so that what it sends comes after what it asked for; others go on.
Whoever watches `$JS.EVENT.ADVISORY.API` in the account sees requests and answers.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock import error_codes
from penstock.api.direct import DIRECT_PREFIX
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
from penstock.documents.encoding import to_json
from penstock.documents.pipeline_reports import SUBJECT_PREFIX
from penstock.errors import ApiError, ErrorCode
from penstock.net.connection import Connection
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription
from penstock.store.vfs import remove_tree

if TYPE_CHECKING:
    from penstock.server.jetstream import JetStreamService

NEXT_PREFIX = f"{API_PREFIX}CONSUMER.MSG.NEXT."
PURGE_PREFIX = f"{API_PREFIX}ACCOUNT.PURGE."
PURGED_KIND = "account_purge_response"

_DECLINED = (DIRECT_PREFIX.encode(), NEXT_PREFIX.encode())
"""Whoever can answer these subscribes for itself; where nobody does, clients are told at once."""

_MAPPED = (b"STREAM.", b"CONSUMER.", b"DIRECT.", b"META.", b"SERVER.", b"ACCOUNT.")
_MAPPED_SPACES = (b"$KV.", b"$OBJ.")
_NOT_ENABLED = error_codes.NOT_ENABLED_FOR_ACCOUNT
_FOR_CLUSTERS = ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE")


_Outcome: TypeAlias = Answer | Coroutine[Any, Any, Answer | None] | None


class _Asked(msgspec.Struct, frozen=True):
    """A request, and who is waiting for its answer."""

    subject: str
    reply: bytes | None
    body: bytes
    client: Connection | None


def without_domain(subject: bytes, domain: str) -> bytes | None:
    """Give what a subject with the domain's name in it stands for; None where for nothing."""
    prefix = f"$JS.{domain}.API.".encode()
    if not domain or not subject.startswith(prefix):
        return None
    rest = subject[len(prefix) :]
    if rest.startswith(_MAPPED_SPACES):
        return rest
    return API_PREFIX.encode() + rest if rest == b"INFO" or rest.startswith(_MAPPED) else None


class Door:
    """One account's door; see the module."""

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
        """Let nobody ask any more."""
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
            self._nobody(subject, reply)
        elif target.startswith((*_MAPPED_SPACES, *_DECLINED)):
            self._forward(target, reply, headers, body)
        else:
            self._take(target.decode("utf-8", "replace"), reply, headers, body)

    def _forward(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        if not self._service.hub.publish(self._account.sublist, subject, reply, headers, body):
            self._nobody(subject, reply)

    def _nobody(self, subject: bytes, reply: bytes | None) -> None:
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
            self._service.answer_later(self._tell_later(asked, outcome), f"request {subject}")
        elif outcome is not None:
            self._tell(asked, outcome)

    async def _tell_later(self, asked: _Asked, work: Coroutine[Any, Any, Answer | None]) -> None:
        try:
            outcome = await work
            if outcome is not None:
                self._tell(asked, outcome)
            self._service.flush()
        finally:
            if asked.client is not None:
                asked.client.go_on()

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
        if self._service.is_full and endpoint.may_wait:
            self._service.drop_request(subject)
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
        """Remove everything that an account has, be it one that is no longer known."""
        # Without a name it would be everybody's.
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
            account.offline.clear()
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
