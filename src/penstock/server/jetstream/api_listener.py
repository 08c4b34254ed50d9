"""The JetStream API of one account, with the domain's name in the subject or without.

    $JS.API.>            the API; in the system account, requests about all accounts
    $JS.<domain>.API.>   the same, and `$KV` and `$OBJ` of the domain
    $PENSTOCK.PIPELINE.> reports of Spark pipelines over the account's streams

Invariants: a known request gets one answer. An unknown request, or one that comes while too many
wait, is not answered, as by the reference server. A request that another subscriber should answer
gets a "no responders" status if there is none. `request_queue` decides when a request is handled
and answered.
Subscribers of `$JS.EVENT.ADVISORY.API` in the account receive requests and answers.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from penstock import error_codes
from penstock.api.direct_get import DIRECT_PREFIX
from penstock.api.dispatch import (
    API_PREFIX,
    TYPE_PREFIX,
    Answer,
    Call,
    Outcome,
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
from penstock.server.jetstream.request_queue import Request
from penstock.store.vfs import remove_tree
from penstock.text.json.codec import to_json

if TYPE_CHECKING:
    from penstock.server.jetstream.service import JetStreamService

NEXT_PREFIX = f"{API_PREFIX}CONSUMER.MSG.NEXT."
PURGE_PREFIX = f"{API_PREFIX}ACCOUNT.PURGE."
PURGED_KIND = "account_purge_response"

_DECLINED = (DIRECT_PREFIX.encode(), NEXT_PREFIX.encode())
"""Requests that streams and consumers subscribe to; without one, the client is told at once."""

_AUDIT = b"$JS.EVENT.ADVISORY.API"
"""Where requests and their answers are published."""

_MAPPED = (b"STREAM.", b"CONSUMER.", b"DIRECT.", b"META.", b"SERVER.", b"ACCOUNT.")
_MAPPED_SPACES = (b"$KV.", b"$OBJ.")
_NOT_ENABLED = error_codes.NOT_ENABLED_FOR_ACCOUNT
_FOR_CLUSTERS = ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE")


def without_domain(subject: bytes, domain: str) -> bytes | None:
    """Return the subject that one with the domain's name stands for, or None."""
    prefix = f"$JS.{domain}.API.".encode()
    if not domain or not subject.startswith(prefix):
        return None
    rest = subject[len(prefix) :]
    if rest.startswith(_MAPPED_SPACES):
        return rest
    return API_PREFIX.encode() + rest if rest == b"INFO" or rest.startswith(_MAPPED) else None


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
        asking = self._service.hub.publisher
        client = asking if isinstance(asking, Connection) else None
        self._service.requests.take(Request(self, subject, reply, headers, body, client))

    def tell(self, request: Request, outcome: Answer) -> None:
        """Send the answer to a request, count it and publish the advisory; `request_queue` calls.

        The caller flushes.
        """
        streams = self._service.accounts.get(self._account.name)
        if outcome.is_told and streams is not None:
            streams.api_total += 1
            streams.api_errors += outcome.has_failed
        if request.reply is not None:
            sublist = self._account.sublist
            self._service.publish(sublist, request.reply, outcome.headers, outcome.body)
        if outcome.is_told and self._is_watched():
            self._advise(request, outcome)

    def _is_watched(self) -> bool:
        found = self._account.sublist.matches(_AUDIT)
        return bool(found.plain or found.queues)

    # Answers

    def begin(self, request: Request) -> Outcome:
        """Handle a request, or begin to; `request_queue` calls this."""
        if self._account.is_system:
            return self._answer_system(request.subject, request.headers)
        found = ENDPOINTS.find(request.subject.removeprefix(API_PREFIX))
        if found is None:
            return None
        endpoint, names = found
        service = self._service
        streams = service.accounts.get(self._account.name)
        if streams is None:
            is_newer = needs_newer(request.headers)
            code = error_codes.REQUIRED_API_LEVEL if is_newer else _NOT_ENABLED
            return _refused(endpoint.kind, code)
        if endpoint.may_wait and service.requests.is_full:
            service.requests.drop(request.subject)
            return None
        call = Call(
            service,
            streams,
            request.subject,
            names,
            request.headers,
            request.body,
            request.reply,
            request.client,
        )
        return answer(endpoint, call)

    def _answer_system(self, subject: str, headers: bytes) -> Outcome:
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

    def _advise(self, request: Request, outcome: Answer) -> None:
        body = request.body.decode("utf-8", "replace")
        fields = {
            "server": self._service.server_name,
            "client": self._service.client_info(self._account.name, request.client),
            "subject": request.subject,
            **({"request": body} if body else {}),
            "response": outcome.body.decode(),
        }
        sublist = self._account.sublist
        self._service.advise(sublist, "ADVISORY.API", "advisory.v1.api_audit", fields)


def _refused(kind: str, code: ErrorCode = _NOT_ENABLED) -> Answer:
    return Answer(refusal(kind, ApiError(code)), has_failed=True, is_told=True)
