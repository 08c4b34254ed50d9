"""Direct gets: messages as they are, without a document around them.

    $JS.API.DIRECT.GET.<stream>              one message, several, or the last of several subjects
    $JS.API.DIRECT.GET.<stream>.<subject>    the last message of a subject

A stream that allows it subscribes, and so does a mirror that may answer for its origin. They form a
queue group, so one of them answers. Without any, a client gets "no responders" at once.

An answer of several messages ends with a message without a body that says how many are left. An
error is a status line.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.api.dispatch import API_PREFIX, JetStream, needs_newer
from penstock.api.documents import JSApiMsgGetRequest
from penstock.api.messages import find, is_contradictory, load_last, names_nothing, start_of
from penstock.api.streams import filter_of
from penstock.errors import (
    CorruptStore,
    InvalidDocument,
    LimitReached,
    PenstockError,
    RecordNotFound,
)
from penstock.limits import DIRECT_SUBJECTS_MAX
from penstock.protocol.headers import FIRST_LINE
from penstock.routing.hub import Service
from penstock.routing.sublist import Sublist, Subscription
from penstock.store.log.block import StoredMessage
from penstock.stream.account import StreamAction
from penstock.stream.config.config import StorageType
from penstock.stream.lookup import Lookup
from penstock.stream.stream import Stream
from penstock.text.json.codec import decode_one
from penstock.text.times import timestamp

DIRECT_PREFIX = f"{API_PREFIX}DIRECT.GET."
QUEUE = b"_sys_"
Asked = Callable[[bytes, bytes | None, bytes, bytes], None]
FILE = StorageType.FILE

_TOKENS_BEFORE_SUBJECT = 5


class Status(PenstockError):
    """An error that is answered instead of a message."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(f"{code} {words}")

    @property
    def headers(self) -> bytes:
        """The answer: a status line without headers."""
        return f"NATS/1.0 {self}\r\n\r\n".encode()


def _status_of(error: PenstockError) -> Status:
    match error:
        case Status():
            return error
        case RecordNotFound() | CorruptStore():
            return Status(404, "Message Not Found")
        case LimitReached():
            return Status(413, "Too Many Results")
        case _:
            return Status(500, str(error))


class DirectGets:
    """The direct gets of one account's streams; see the module."""

    def __init__(self, service: JetStream, sublist: Sublist) -> None:
        self._service = service
        self._sublist = sublist
        self._subscriptions: dict[str, list[Subscription]] = {}

    def follow(self, action: StreamAction, stream: Stream) -> None:
        """Subscribe for a stream that allows direct gets, unsubscribe for one that does not."""
        for subscription in self._subscriptions.pop(stream.name, ()):
            self._sublist.remove(subscription)
        if action is not StreamAction.DELETE:
            self._subscribe(stream)

    def close(self) -> None:
        """Unsubscribe for all streams."""
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                self._sublist.remove(subscription)
        self._subscriptions.clear()

    def _subscribe(self, stream: Stream) -> None:
        config = stream.config
        names = [config.name] if config.allow_direct else []
        if config.mirror_direct and config.mirror is not None:
            if stream.is_caught_up:
                names.append(config.mirror.name)
            else:
                stream.on_caught_up.append(lambda: self.follow(StreamAction.OPEN, stream))
        asked = _Answering(self._service, self._sublist, stream).asked
        subscriptions: list[Subscription] = []
        for name in names:
            subject = f"{DIRECT_PREFIX}{name}".encode()
            subscriptions += (
                Subscription(Service(asked), subject, b"1", QUEUE),
                Subscription(
                    self._lookup(stream, len(subject) + 1, asked), subject + b".>", b"2", QUEUE
                ),
            )
        for subscription in subscriptions:
            self._sublist.insert(subscription)
        self._subscriptions[config.name] = subscriptions

    def _lookup(self, stream: Stream, start_size: int, asked: Asked) -> Lookup:
        name = stream.name.encode()
        return Lookup(stream.host.hub, self._sublist, stream.store, name, start_size, asked)


class _Answering(msgspec.Struct, frozen=True):
    """Answers for one stream."""

    service: JetStream
    sublist: Sublist
    stream: Stream

    def asked(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        """Answer a request."""
        if reply is None:
            return
        try:
            if needs_newer(headers):
                raise Status(412, "Required Api Level")
            tokens = subject.split(b".", _TOKENS_BEFORE_SUBJECT)
            if len(tokens) > _TOKENS_BEFORE_SUBJECT:
                self._answer_last(tokens[-1], body, reply)
            else:
                self._answer(self._read(body), reply)
        except PenstockError as error:
            if isinstance(error, CorruptStore):
                self.service.log("ERR", f"JetStream stream {self.stream.name!r}: {error}")
            self._send(reply, _status_of(error).headers, b"")

    def _send(self, reply: bytes, headers: bytes, body: bytes) -> None:
        self.service.publish(self.sublist, reply, headers, body)

    # Requests

    def _read(self, body: bytes) -> JSApiMsgGetRequest:
        if not body:
            raise Status(408, "Empty Request")
        request = _decoded(body)
        if names_nothing(request) and not request.multi_last:
            raise Status(408, "Empty Request")
        wants_last = bool(request.last_by_subj)
        if (
            is_contradictory(request)
            or (wants_last and (request.batch > 0 or request.multi_last))
            or (request.next_by_subj and request.multi_last)
            or (request.up_to_seq and request.up_to_time is not None)
        ):
            raise Status(408, "Bad Request")
        return request

    # Answers

    def _answer_last(self, subject: bytes, body: bytes, reply: bytes) -> None:
        request = _decoded(body) if body else JSApiMsgGetRequest()
        bare = JSApiMsgGetRequest(max_bytes=request.max_bytes, no_hdr=request.no_hdr)
        if request != bare:
            raise Status(408, "Bad Request")
        self._send_message(reply, load_last(self.stream.store, subject), request)

    def _answer(self, request: JSApiMsgGetRequest, reply: bytes) -> None:
        if request.multi_last:
            self._send_last_of_many(request, reply)
        elif request.batch:
            self._send_batch(request, reply)
        else:
            self._send_message(reply, find(self.stream.store, request), request)

    def _send_message(
        self, reply: bytes, found: StoredMessage, request: JSApiMsgGetRequest, more: bytes = b""
    ) -> None:
        headers = b"" if request.no_hdr else _with_origin(self.stream.name, found, more)
        self._send(reply, headers, found.payload)

    def _send_batch(self, request: JSApiMsgGetRequest, reply: bytes) -> None:
        store = self.stream.store
        subjects = filter_of(request.next_by_subj)
        if request.next_by_subj and subjects is None:
            raise Status(404, "Message Not Found")
        seq = start_of(store, request)
        pending = store.count_pending(subjects, seq)
        bytes_left = request.max_bytes or self.service.pending_bytes_max
        last_seq = 0
        for _ in range(request.batch):
            try:
                found = store.load_next(seq, subjects)
            except RecordNotFound:
                if request.batch > 1 and last_seq:
                    break
                raise
            if not request.no_hdr:
                pending = max(pending - 1, 0)
            self._send_message(reply, found, request, _progress(pending, last_seq))
            last_seq, seq = found.seq, found.seq + 1
            bytes_left -= _size(found)
            if bytes_left <= 0:
                break
        self._send(reply, b"NATS/1.0 204 EOB\r\n%b\r\n" % _progress(pending, last_seq), b"")

    def _send_last_of_many(self, request: JSApiMsgGetRequest, reply: bytes) -> None:
        store = self.stream.store
        up_to_seq = self._up_to(request)
        subjects = filter_of(*request.multi_last)
        if subjects is None:
            raise Status(404, "No Results")
        found = store.multi_last(subjects, up_to_seq=up_to_seq, count_max=DIRECT_SUBJECTS_MAX)
        if not found:
            raise Status(404, "No Results")
        wanted = [seq for seq in found if seq >= request.seq]
        bytes_left = request.max_bytes or self.service.pending_bytes_max
        last_seq, pending = 0, len(wanted)
        for count, seq in enumerate(wanted, start=1):
            message = store.load(seq)
            pending -= 1
            headers = _with_origin(self.stream.name, message, _progress(pending, last_seq))
            self._send(reply, headers, message.payload)
            last_seq = seq
            bytes_left -= _size(message)
            if bytes_left <= 0 or count == request.batch:
                break
        end = b"%bNats-UpTo-Sequence: %d\r\n" % (_progress(pending, last_seq), up_to_seq)
        self._send(reply, b"NATS/1.0 204 EOB\r\n%b\r\n" % end, b"")

    def _up_to(self, request: JSApiMsgGetRequest) -> int:
        state = self.stream.store.state()
        if request.up_to_time is None:
            # Beyond the end the reference server finds nothing on disk, as in an empty stream.
            if request.up_to_seq > state.last_seq and self.stream.config.storage is FILE:
                raise Status(404, "No Results")
            return request.up_to_seq or state.last_seq
        seq = self.stream.store.seq_from_time(request.up_to_time.time_ns)
        if seq <= state.first_seq:
            raise Status(404, "No Results")
        return seq - 1


def _decoded(body: bytes) -> JSApiMsgGetRequest:
    try:
        return decode_one(JSApiMsgGetRequest, body)
    except InvalidDocument:
        raise Status(408, "Malformed Request") from None


def _with_origin(stream: str, message: StoredMessage, more: bytes) -> bytes:
    own = message.headers
    start = own[:-2] if own else FIRST_LINE
    return b"%bNats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\n%b%b\r\n" % (
        start,
        stream.encode(),
        message.subject,
        message.seq,
        b"Nats-Time-Stamp: %b\r\n" % timestamp(message.timestamp_ns).encode(),
        more,
    )


def _progress(pending: int, last_seq: int) -> bytes:
    return b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last_seq)


def _size(message: StoredMessage) -> int:
    return len(message.subject) + len(message.headers) + len(message.payload)
