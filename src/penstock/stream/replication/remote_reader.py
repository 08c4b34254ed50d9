"""Reading an origin through a push consumer, like any client: for one elsewhere, or by a named one.

The consumer pushes to a subject of this server, sends a heartbeat every second, and waits for a
flow-control reply after each window of bytes. Its delivery sequence shows when messages were lost
on the way.

A consumer that this reader creates needs no acknowledgements. When messages were lost it is given
up, and another is created behind what is stored; the old one is removed when it has no subscriber.

A consumer that the stream's configuration names exists already. It is reset to behind what it knows
to be acknowledged, and the flow-control reply acknowledges.

Invariants: a flow-control reply is sent after what came is stored, so memory holds one window at
most. If the reply acknowledges, what came is durable before it is sent.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import Annotated, Any, Final

import msgspec

from penstock.errors import ApiError, ErrorCode, StoreError
from penstock.limits import FEED_RETRY_S, REMOTE_ORIGIN_SILENCE_S, SEQUENCE_MAX
from penstock.protocol.headers import value_of, with_added
from penstock.stream.replication.feed import Feed, Start
from penstock.stream.replication.remote_api import RemoteApi, Unsubscribe
from penstock.text.json.codec import to_json
from penstock.text.times import SECOND_NS, timestamp

_IDENTITY: Final = b"Nats-Stream-Identity"
_LAST_DELIVERED: Final = b"Nats-Last-Consumer"
_LAST_TAKEN: Final = b"Nats-Last-Stream"
_ACKED_BY_FLOW_CONTROL: Final = "flow_control"
_STALLED: Final = b"Nats-Consumer-Stalled"
_CONTROL: Final = b"NATS/1.0 100"
_NO_RESPONDERS: Final = b"NATS/1.0 503"


class _Fault(msgspec.Struct):
    code: int = 500
    err_code: int = 0
    description: str = ""


class _Delivered(msgspec.Struct):
    stream_seq: Annotated[int, msgspec.Meta(ge=0, lt=SEQUENCE_MAX)] = 0


class _Config(msgspec.Struct):
    ack_policy: str = ""


class _Created(msgspec.Struct):
    """The answer to the request for a consumer, as far as it is read."""

    error: _Fault | None = None
    config: _Config = msgspec.field(default_factory=_Config)
    delivered: _Delivered = msgspec.field(default_factory=_Delivered)
    num_pending: int = 0


class RemoteMessage(msgspec.Struct, frozen=True):
    """A message from the origin."""

    seq: int
    timestamp_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


class Delivery(msgspec.Struct, frozen=True):
    """What the reply subject of a delivered message says about it."""

    seq: int
    delivered_seq: int
    time_ns: int
    pending: int


def read_delivery(reply: bytes) -> Delivery | None:
    """Read `$JS.ACK.<stream>.<consumer>.<n>.<seq>.<delivered>.<time>.<pending>`, or its newer form.

    That has domain and account before the stream, and may have more tokens behind. Return None for
    any other subject.
    """
    tokens = reply.split(b".")
    if tokens[:2] != [b"$JS", b"ACK"]:
        return None
    numbers = tokens[5:9] if len(tokens) == 9 else tokens[7:11]
    if len(numbers) != 4 or not all(each.isdigit() and len(each) < 20 for each in numbers):
        return None
    read = Delivery(*map(int, numbers))
    return read if max(read.seq, read.time_ns) <= SEQUENCE_MAX else None


class OriginAddress(msgspec.Struct, frozen=True):
    """How an origin is reached, and the prefixes of its subjects there."""

    remote: RemoteApi
    api: str
    deliver: str


class Refusals(msgspec.Struct, frozen=True):
    """The errors that are shown when a consumer cannot be used."""

    setup_failed: ErrorCode
    requires_flow_control: ErrorCode


class _Word(msgspec.Struct, frozen=True):
    """A flow-control reply, to be sent when a sequence is durable."""

    durable_seq: int
    subject: bytes
    headers: bytes


class RemoteReader:
    """Brings the messages of a stream elsewhere to a feed; see the module."""

    def __init__(self, feed: Feed, address: OriginAddress, refusals: Refusals) -> None:
        self._feed = feed
        self._address = address
        self._refusals = refusals
        self._named = feed.origin.consumer
        self._loop = feed.stream.host.loop
        self._clock = feed.stream.host.clock
        self._subscriptions: list[Unsubscribe] = []
        self._asked = Start()
        self._delivered_seq = 0
        self._gathered: list[RemoteMessage] = []
        self._asking: list[bytes] = []
        """Subjects of flow-control requests that are not replied to yet."""

        self._words: deque[_Word] = deque()
        self._is_begun = False
        """Whether the answer about the consumer came, which says where its messages begin."""

        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._pending = 0
        self._heard_ns = 0
        address.remote.on_connected.append(self._begin_anew)
        feed.stream.on_durable.append(self._speak)
        self._begin_anew()

    def lag(self) -> int:
        """Return how many messages are still to come, as the origin last said."""
        return self._pending

    def active_ns(self) -> int:
        """Return how many nanoseconds ago the origin was heard from; -1 for never."""
        return self._clock.now_ns() - self._heard_ns if self._heard_ns else -1

    def stop(self) -> None:
        """Bring no more messages."""
        self._address.remote.on_connected.remove(self._begin_anew)
        self._feed.stream.on_durable.remove(self._speak)
        self._let_go()
        if self._timer is not None:
            self._timer.cancel()

    # The consumer

    def _set_up(self) -> None:
        """Ask for a consumer that starts behind what is stored, or reset the named one."""
        self._take()
        self._let_go()
        self._asked = self._feed.start()
        if self._named is not None:
            # Without an origin nobody answers; one that is created now is to be found soon.
            self._ask(*self._reset_request(self._named.name))
            self._wait(FEED_RETRY_S)
            return
        name = secrets.token_hex(8)
        deliver = f"{self._address.deliver}.{name}"
        self._listen(deliver)
        self._ask(*self._request(f"PENSTOCK_{name}", deliver))
        self._wait(REMOTE_ORIGIN_SILENCE_S)

    def _listen(self, deliver: str) -> None:
        subscription = self._address.remote.subscribe(deliver.encode(), self._on_message)
        self._subscriptions.append(subscription)

    def _ask(self, subject: str, headers: bytes, body: bytes) -> None:
        remote, answer = self._address.remote, f"_INBOX.{secrets.token_hex(8)}"
        self._subscriptions.append(remote.subscribe(answer.encode(), self._on_answer))
        if not remote.publish(subject.encode(), answer.encode(), headers, body):
            self._fail("no responders")

    def _fail(self, reason: str) -> None:
        self._feed.error = ApiError(self._refusals.setup_failed, err=reason)

    def _reset_request(self, name: str) -> tuple[str, bytes, bytes]:
        # The origin sends its identity to clients that ask for it.
        headers = with_added(b"", _IDENTITY, b"")
        return f"{self._address.api}.CONSUMER.RESET.{self._feed.origin.name}.{name}", headers, b""

    def _request(self, name: str, deliver: str) -> tuple[str, bytes, bytes]:
        origin, patterns = self._feed.origin.name, self._feed.patterns
        config: dict[str, Any] = {
            "name": name,
            "deliver_subject": deliver,
            "deliver_policy": "all",
            "ack_policy": "none",
            "max_deliver": 1,
            "idle_heartbeat": SECOND_NS,
            "flow_control": True,
            "inactive_threshold": int(REMOTE_ORIGIN_SILENCE_S) * SECOND_NS,
            "direct": True,
        }
        if self._asked.seq:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self._asked.seq}
        elif self._asked.time_ns is not None:
            config |= {
                "deliver_policy": "by_start_time",
                "opt_start_time": timestamp(self._asked.time_ns),
            }
        subject = f"{self._address.api}.CONSUMER.CREATE.{origin}"
        if len(patterns) == 1:
            config["filter_subject"] = patterns[0]
            subject += f".{name}.{patterns[0]}"
        elif patterns:
            config["filter_subjects"] = patterns
        return subject, b"", to_json({"stream_name": origin, "config": config})

    def _on_answer(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        feed = self._feed
        if headers.startswith(_NO_RESPONDERS):
            self._fail("no responders")
            return
        try:
            created = msgspec.json.decode(body, type=_Created)
        except msgspec.DecodeError:
            self._fail("invalid consumer create response")
            return
        if created.error is not None:
            fault = created.error
            entry = ErrorCode(fault.code, fault.err_code, "{err}")
            feed.error = ApiError(entry, err=fault.description)
            self._wait(FEED_RETRY_S)
            return
        if self._named is not None and created.config.ack_policy != _ACKED_BY_FLOW_CONTROL:
            feed.error = ApiError(self._refusals.requires_flow_control)
            self._wait(FEED_RETRY_S)
            return
        feed.meet((value_of(headers, _IDENTITY) or b"").decode("utf-8", "replace"))
        if self._named is None and feed.start() != self._asked:
            # The origin was created again, and is read from its start.
            self._begin_anew()
            return
        feed.error = None
        feed.begin(created.delivered.stream_seq)
        self._is_begun = True
        if self._named is not None:
            # Not before: the consumer may have been about to deliver from where it was.
            self._listen(self._named.deliver_subject)
        if not self._gathered:
            self._pending = created.num_pending
        self._hear()
        # The first messages may have come before the answer.
        self._take_soon()

    def _let_go(self) -> None:
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._subscriptions = []
        self._is_begun = False
        self._delivered_seq = 0
        self._gathered = []
        self._asking = []
        self._words.clear()

    def _begin_anew(self) -> None:
        # Not at once: a message may be in delivery, and `publish` may not be called then.
        self._wait(0.0)

    def _wait(self, delay_s: float) -> None:
        """Begin anew after a time, unless the origin is heard from."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._set_up)

    def _hear(self) -> None:
        self._heard_ns = self._clock.now_ns()
        self._wait(REMOTE_ORIGIN_SILENCE_S)

    # Messages

    def _on_message(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        self._hear()
        if headers.startswith(_CONTROL) and not body:
            self._on_control(reply, headers)
            return
        delivery = read_delivery(reply or b"")
        if delivery is None or delivery.delivered_seq <= self._delivered_seq:
            return
        if delivery.delivered_seq != self._delivered_seq + 1:
            # A message was lost on the way.
            self._begin_anew()
            return
        self._delivered_seq = delivery.delivered_seq
        if self._gathered and delivery.seq <= self._gathered[-1].seq:
            # It will come again.
            return
        self._pending = delivery.pending
        message = RemoteMessage(delivery.seq, delivery.time_ns, subject, headers, body)
        self._gathered.append(message)
        self._take_soon()

    def _on_control(self, reply: bytes | None, headers: bytes) -> None:
        word = reply or value_of(headers, _STALLED)
        last = value_of(headers, _LAST_DELIVERED)
        if word:
            self._asking.append(word)
            self._take_soon()
        elif last is not None and last != b"%d" % self._delivered_seq:
            self._begin_anew()

    def _take_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        """Store what has come, and reply to flow control."""
        self._is_due = False
        if not self._is_begun:
            return
        feed = self._feed
        messages = [each for each in self._gathered if each.seq > feed.position]
        self._gathered = []
        try:
            is_all_taken = not messages or feed.take(messages)
        except StoreError as error:
            feed.stream.host.log("ERR", f"JetStream stream {feed.stream.name!r}: {error}")
            is_all_taken = False
        if not is_all_taken:
            self._let_go()
            self._wait(FEED_RETRY_S)
            return
        if not self._pending:
            feed.rest()
        self._answer()

    def _answer(self) -> None:
        """Reply to flow control: at once, or when all is durable if the reply acknowledges."""
        asking, self._asking = self._asking, []
        durable_seq = 0 if self._named is None else self._feed.stream.store.last_seq
        for subject in asking:
            headers = b"NATS/1.0\r\n%b: %d\r\n%b: %d\r\n\r\n" % (
                _LAST_DELIVERED,
                self._delivered_seq,
                _LAST_TAKEN,
                self._feed.position,
            )
            self._words.append(_Word(durable_seq, subject, headers))
        self._speak()

    def _speak(self) -> None:
        durable_seq = self._feed.stream.store.durable_seq
        while self._words and self._words[0].durable_seq <= durable_seq:
            word = self._words.popleft()
            self._address.remote.publish(word.subject, None, word.headers, b"")
