"""JetStream over the client: API calls, publishing with acknowledgement, messages of consumers.

    streams = JetStream(client)
    streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    streams.publish(b"orders.1", b"hello")
    for message in streams.each("ORDERS", ">"): …
    for message in pull(client, b"ORDERS", b"worker", 10): …

A consumer's deliveries have a reply subject that says what they are (`read_delivered`); the newer
form has a domain and an account before the stream, and may grow at its end:

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>

Invariant: an error that the server answers is raised as ApiError with the server's code and text;
an answer that is no JSON object is a FormatError. Works with any NATS server.

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
from penstock.client.wire import ReceivedMessage
from penstock.errors import ApiError, ErrorCode, FormatError, NoAnswer, RefusedByServer
from penstock.format.columns import ColumnBuilder
from penstock.limits import CLIENT_REQUESTS_MAX

API_PREFIX = "$JS.API"
"""The prefix of JetStream's API; a domain or another account has its own."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored message; `time` is the server's text for when it was stored."""

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
        """Call `$JS.API.<name>`, or the same below another prefix; return the answer.

        Raise ApiError, NoAnswer, FormatError, TimeoutError.
        """
        return self.read(self.client.next_answer(self.begin(name, document)))

    def begin(self, name: str, document: object = None) -> bytes:
        """Call without waiting; return the subject that the answer comes to."""
        body = b"" if document is None else json.dumps(document).encode()
        subject = f"{self.api_prefix}.{name}".encode("utf-8", "surrogateescape")
        return self.client.begin_request(subject, body)

    def read(self, answer: ReceivedMessage) -> dict[str, Any]:
        """Return the document of an answer; raise as `call` does."""
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
        """Yield all items of an answer that comes in pages."""
        offset = 0
        while True:
            page = self.call(name, document | {"offset": offset})
            items = page.get(field) or []
            yield from items
            offset += len(items)
            if not items or offset >= page.get("total", 0):
                return

    def subjects(self, stream: str, pattern: str) -> Iterator[tuple[str, int]]:
        """Yield the matching subjects of a stream, and how many messages each has."""
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
        """Publish and wait for the acknowledgement; raise as `call` does."""
        return self.read(self.client.request(subject, payload, headers=headers))

    def publish_all(self, subject: bytes, payloads: Iterable[bytes]) -> Iterator[int]:
        """Publish payloads with many outstanding; yield each size once it is acknowledged."""
        waiting: deque[tuple[bytes, int]] = deque()
        for payload in payloads:
            waiting.append((self.client.begin_request(subject, payload), len(payload)))
            if len(waiting) >= CLIENT_REQUESTS_MAX:
                yield self._acknowledged(waiting)
        while waiting:
            yield self._acknowledged(waiting)

    def _acknowledged(self, waiting: deque[tuple[bytes, int]]) -> int:
        reply, size = waiting.popleft()
        self.read(self.client.next_answer(reply))
        return size

    def find(self, stream: str, **request: object) -> Stored | None:
        """Return the message that a MSG.GET request names; None if there is none."""
        return self._found(self.begin(f"STREAM.MSG.GET.{stream}", request))

    def find_last(self, stream: str, subjects: Iterable[str]) -> Iterator[Stored | None]:
        """Yield the last message of each subject; several requests are out at a time."""
        waiting: deque[bytes] = deque()
        for subject in subjects:
            waiting.append(self.begin(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}))
            if len(waiting) >= CLIENT_REQUESTS_MAX:
                yield self._found(waiting.popleft())
        while waiting:
            yield self._found(waiting.popleft())

    def each(self, stream: str, pattern: str = ">", first_seq: int = 1) -> Iterator[Stored]:
        """Yield the messages of matching subjects, in their order."""
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
    # The text is the server's own: what looks like a placeholder is not one.
    text = str(document.get("description", "")).replace("{", "{{").replace("}", "}}")
    return ApiError(ErrorCode(document.get("code", 0), document.get("err_code", 0), text))


def pull(
    client: Client,
    stream: bytes,
    consumer: bytes,
    batch: int,
    *,
    expires_s: float = 5.0,
    **more: object,
) -> list[ReceivedMessage]:
    """Return up to `batch` messages of a consumer, fewer if no more come in time.

    Acknowledge each by publishing to its `reply`. `more` are other fields of the request, as
    `group`. Raise RefusedByServer if there is no such consumer, or it is not a pull consumer.
    """
    body = json.dumps({"batch": batch, "expires": int(expires_s * 1e9)} | more).encode()
    subject = b"$JS.API.CONSUMER.MSG.NEXT.%b.%b" % (stream, consumer)
    # Messages have their own subjects: only the subscription says which request they are for.
    inbox = client.new_inbox() + b".pull"
    sid = client.subscribe(inbox)
    client.publish(subject, body, reply=inbox)
    client.send()
    fetched: list[ReceivedMessage] = []
    try:
        while len(fetched) < batch:
            message = client.next_message(sid)
            if message.subject == inbox:
                # A status instead of a message: the server has no more for this request.
                status = status_of(message)
                if status.startswith(("404", "408")):
                    break
                raise RefusedByServer(status)
            fetched.append(message)
    finally:
        client.unsubscribe(sid)
    return fetched


AHEAD = 2
"""Batches that are requested ahead: one comes while the other is read."""


class Pulling:
    """Reads what a consumer delivers into columns, with the next batch requested ahead.

        pulling = Pulling(streams, "ORDERS", "reader", batch=1000, bytes_max=16 << 20)
        while not pulling.collect(builder, last_seq, 10_000, 8 << 20): …
        pulling.end()

    For reading what a stream holds already: when the server has no more messages, that is the end.
    Nothing is acknowledged.
    """

    def __init__(
        self, streams: JetStream, stream: str, consumer: str, *, batch: int, bytes_max: int
    ) -> None:
        self._client = client = streams.client
        asked = f"{streams.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._subject = asked.encode("utf-8", "surrogateescape")
        self._batch = batch
        self._bytes_max = bytes_max
        self._inbox = client.new_inbox() + b".pull"
        self._sid = client.subscribe(self._inbox)
        # A request with a byte limit always ends with a status.
        self._outstanding = 0
        self._is_drained = False

    def collect(self, builder: ColumnBuilder, last_seq: int, rows_max: int, bytes_max: int) -> bool:
        """Add messages until the columns are full; return True at `last_seq` or the end.

        Raise RefusedByServer, TimeoutError, ConnectionError.
        """
        while True:
            self._ask()
            before = builder.count
            status, is_last = self._client.collect(
                builder, self._sid, last_seq, rows_max=rows_max, bytes_max=bytes_max
            )
            if status is None:
                return is_last
            self._note(status, came=builder.count - before)
            # A server may answer "no messages" to the second request before the messages of the
            # first have come: the end is reached only when no request is left.
            if self._is_drained and not self._outstanding:
                return True

    def _ask(self) -> None:
        while self._outstanding < AHEAD and not self._is_drained:
            body = {"batch": self._batch, "no_wait": True, "max_bytes": self._bytes_max}
            self._client.publish(self._subject, json.dumps(body).encode(), reply=self._inbox)
            self._outstanding += 1
        self._client.send()

    def _note(self, status: ReceivedMessage, *, came: int) -> None:
        self._outstanding -= 1
        text = status.headers[9:].partition(b"\r\n")[0]
        if text.startswith((b"404", b"408")):
            self._is_drained = True
        elif text.startswith(b"409 Message Size Exceeds"):
            # A message that is larger than the requested bytes would never come.
            if not came:
                self._bytes_max *= 2
        elif not text.startswith(b"409 Batch Completed"):
            raise RefusedByServer(text.decode(errors="replace"))

    def end(self) -> None:
        """End the subscription."""
        self._client.unsubscribe(self._sid)


VERSION = b"NATS/1.0 "
STALLED = b"Nats-Consumer-Stalled: "
PREFIX = b"$JS.ACK."
TOKENS = 9
TOKENS_WITH_DOMAIN = 11


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the reply subject of a delivery says; `pending` messages are still to come."""

    deliveries: int
    seq: int
    consumer_seq: int
    time_ns: int
    pending: int


def is_delivered(message: ReceivedMessage) -> bool:
    """Return True if a message is a consumer's delivery, and not a status."""
    return message.reply.startswith(PREFIX)


def read_delivered(message: ReceivedMessage) -> Delivered:
    """Return what a message's reply subject says; raise FormatError."""
    tokens = message.reply.split(b".")
    first = 4 if len(tokens) < TOKENS_WITH_DOMAIN else 6
    numbers = tokens[first : first + 5]
    if len(tokens) < TOKENS or not all(number.isdigit() for number in numbers):
        raise FormatError("a message of a consumer without its sequence")
    return Delivered(*map(int, numbers))


def status_of(message: ReceivedMessage) -> str:
    """Return the text of a status, as "408 Request Timeout"; "" for a message."""
    line = message.headers.partition(b"\r\n")[0]
    return line[len(VERSION) :].decode(errors="replace") if line.startswith(VERSION) else ""


def flow_reply(message: ReceivedMessage) -> bytes:
    """Return the subject to answer a flow control status at; b"" if no answer is due.

    Raise RefusedByServer for any status that ends the delivery.
    """
    status = status_of(message)
    if not status.startswith("100"):
        raise RefusedByServer(status)
    # A request has a reply subject; a heartbeat names the subject of a request without answer.
    return message.reply or message.headers.partition(STALLED)[2].partition(b"\r")[0]
