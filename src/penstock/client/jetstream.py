"""JetStream over the wire client: API calls, publishing with acknowledgement, stored messages.

    streams = JetStream(client)
    streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    streams.publish(b"orders.1", b"hello")
    for message in streams.each("ORDERS", ">"): …

What always holds: an error that the server answers is raised as ApiError with the server's code and
text; an answer that is no JSON object is a FormatError. Works with any NATS server, and needs
nothing of it but the API for streams.

Blocking; one thread at a time, as the client that it uses.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock import error_codes
from penstock.client.client import Client
from penstock.client.wire import Message
from penstock.errors import ApiError, ErrorCode, FormatError, NoAnswer

API_PREFIX = "$JS.API"
"""Where a server listens for JetStream calls; a domain or another account has its own."""

IN_FLIGHT_MAX = 100
"""Requests that wait for their answers at a time, where there are many to make."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a stream keeps it; `time` is the server's text for when it came."""

    subject: bytes
    seq: int
    headers: bytes
    payload: bytes
    time: str


class JetStream:
    """JetStream as one client sees it; see the module."""

    def __init__(self, client: Client, api_prefix: str = API_PREFIX) -> None:
        self.client = client
        self.api_prefix = api_prefix

    def call(self, name: str, document: object = None) -> dict[str, Any]:
        """Ask `$JS.API.<name>`, or below another prefix.

        Raises ApiError, NoAnswer, FormatError, TimeoutError.
        """
        return self.read(self.client.next_answer(self.begin(name, document)))

    def begin(self, name: str, document: object = None) -> bytes:
        """Ask, and do not wait; gives the subject that the answer comes to."""
        body = b"" if document is None else json.dumps(document).encode()
        subject = f"{self.api_prefix}.{name}".encode("utf-8", "surrogateescape")
        return self.client.begin_request(subject, body)

    def read(self, answer: Message) -> dict[str, Any]:
        """Give the document of an answer; raises as `call` does."""
        if answer.headers.startswith(b"NATS/1.0 503") and not answer.payload:
            raise NoAnswer("nobody answers: the server or our account has no JetStream")
        try:
            document = json.loads(answer.payload)
        except ValueError as error:
            raise FormatError(f"an answer of JetStream is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise FormatError("an answer of JetStream is not a JSON object")
        refusal = document.get("error")
        if refusal is not None:
            raise _api_error(refusal)
        return document

    def pages(self, name: str, field: str, document: dict[str, Any]) -> Iterator[Any]:
        """Give all items of an answer that comes in pages."""
        offset = 0
        while True:
            page = self.call(name, document | {"offset": offset})
            items = page.get(field) or []
            yield from items
            offset += len(items)
            if not items or offset >= page.get("total", 0):
                return

    def subjects(self, stream: str, pattern: str) -> Iterator[tuple[str, int]]:
        """Give the subjects of a stream that match, and how many messages each has."""
        offset = 0
        while True:
            asked = {"subjects_filter": pattern, "offset": offset}
            page = self.call(f"STREAM.INFO.{stream}", asked)
            found: dict[str, int] = page["state"].get("subjects") or {}
            yield from found.items()
            offset += len(found)
            if not found or offset >= page.get("total", 0):
                return

    # Messages

    def publish(
        self, subject: bytes, payload: bytes = b"", *, headers: bytes | None = None
    ) -> dict[str, Any]:
        """Publish, and wait for the acknowledgement; raises as `call` does."""
        return self.read(self.client.request(subject, payload, headers=headers))

    def publish_all(self, subject: bytes, payloads: Iterable[bytes]) -> Iterator[int]:
        """Publish payloads with many outstanding; give each one's size once it is acknowledged."""
        waiting: deque[tuple[bytes, int]] = deque()
        for payload in payloads:
            waiting.append((self.client.begin_request(subject, payload), len(payload)))
            if len(waiting) >= IN_FLIGHT_MAX:
                yield self._acknowledged(waiting)
        while waiting:
            yield self._acknowledged(waiting)

    def _acknowledged(self, waiting: deque[tuple[bytes, int]]) -> int:
        reply, size = waiting.popleft()
        self.read(self.client.next_answer(reply))
        return size

    def find(self, stream: str, **request: object) -> Stored | None:
        """Give the message that a MSG.GET request names; None where there is none."""
        return self._found(self.begin(f"STREAM.MSG.GET.{stream}", request))

    def find_last(self, stream: str, subjects: Iterable[str]) -> Iterator[Stored | None]:
        """Give the last message of each subject, several of which are asked for at a time."""
        waiting: deque[bytes] = deque()
        for subject in subjects:
            waiting.append(self.begin(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}))
            if len(waiting) >= IN_FLIGHT_MAX:
                yield self._found(waiting.popleft())
        while waiting:
            yield self._found(waiting.popleft())

    def each(self, stream: str, pattern: str = ">", first_seq: int = 1) -> Iterator[Stored]:
        """Give the messages of subjects that match, in their order."""
        seq = max(first_seq, 1)
        while (found := self.find(stream, seq=seq, next_by_subj=pattern)) is not None:
            yield found
            seq = found.seq + 1

    def _found(self, reply: bytes) -> Stored | None:
        try:
            document = self.read(self.client.next_answer(reply))
        except ApiError as error:
            if error.err_code == error_codes.NO_MESSAGE_FOUND.err_code:
                return None
            raise
        message = document["message"]
        return Stored(
            subject=message["subject"].encode(),
            seq=message["seq"],
            headers=_decoded(message.get("hdrs")),
            payload=_decoded(message.get("data")),
            time=message["time"],
        )


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except binascii.Error as error:
        raise FormatError(f"a stored message is not base64: {error}") from None


def _api_error(document: dict[str, Any]) -> ApiError:
    # The text is the server's own: what looks like a placeholder in it is none.
    text = str(document.get("description", "")).replace("{", "{{").replace("}", "}}")
    return ApiError(ErrorCode(document.get("code", 0), document.get("err_code", 0), text))
