"""Pull requests: read, checked, and waiting in a queue.

A request is for a number of messages, perhaps with a size limit, perhaps for some time. Each
message goes to the first request that may have it. A request that wants more goes behind the
others, so that all get their share. At its end the client gets a status.

Invariants: a request is answered with messages or a status once its number, bytes or time is used
up. A request whose client is not subscribed any more is dropped without a status.

Thread: the event loop's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from penstock.consumer.config.config import ConsumerConfig, PriorityPolicy
from penstock.errors import InvalidDocument, RequestRefused
from penstock.text.json.codec import decode
from penstock.text.json.shapes import DurationNs, Int, Int64
from penstock.text.times import format_duration

PRIORITY_MAX = 9
"""The lowest priority of a pull request: the reference server's bound."""

_PLAIN_PRIORITY = 2**31 - 1


class JSApiConsumerGetNextRequest(msgspec.Struct, frozen=True):
    """The body of a pull request."""

    expires: DurationNs = 0
    batch: Int = 0
    max_bytes: Int = 0
    no_wait: bool = False
    idle_heartbeat: DurationNs = 0
    group: str = ""
    min_pending: Int64 = 0
    min_ack_pending: Int64 = 0
    id: str = ""
    priority: Int = 0


class PullRequest(msgspec.Struct, eq=False):
    """A pull request that waits."""

    reply: bytes
    left: int
    """Messages that it may still have; a request for none gets one."""

    bytes_left: int = 0
    """Bytes that it may still have; 0 for any number."""

    is_one_shot: bool = False
    """It takes what is there, and does not wait for more once it had a message."""

    expires_ns: int = 0
    heartbeat_ns: int = 0
    heartbeat_due_ns: int = 0
    delivered: int = 0
    asked: JSApiConsumerGetNextRequest | None = None
    """The body, unless that was only a number."""

    pin_id: str = ""
    """The pin that the client sent or was given."""

    @property
    def priority(self) -> int:
        """The priority; requests with lower numbers go first."""
        return _PLAIN_PRIORITY if self.asked is None else self.asked.priority

    def counts(self) -> bytes:
        """Return the headers that say what the client did not get."""
        return b"Nats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n" % (
            self.left,
            self.bytes_left,
        )


def read_request(reply: bytes, body: bytes, now_ns: int) -> PullRequest:
    """Return the request of a body; raise RequestRefused if it is not valid."""
    text = body.strip()
    if not text.startswith(b"{"):
        return PullRequest(reply, _read_count(text))
    try:
        asked = decode(JSApiConsumerGetNextRequest, text, strict=False)
    except InvalidDocument as error:
        # The reference server reads a pull into a class without a name.
        reason = error.reason.replace(f" {JSApiConsumerGetNextRequest.__name__}.", " .")
        raise RequestRefused(400, f"Bad Request - {reason}") from None
    if asked.idle_heartbeat > 0 and asked.idle_heartbeat * 2 > asked.expires:
        raise RequestRefused(400, "Bad Request - heartbeat value too large")
    return PullRequest(
        reply,
        asked.batch,
        max(asked.max_bytes, 0),
        asked.no_wait,
        now_ns + asked.expires if asked.expires else 0,
        max(asked.idle_heartbeat, 0),
        now_ns + asked.idle_heartbeat if asked.idle_heartbeat > 0 else 0,
        asked=asked,
        pin_id=asked.id,
    )


def _read_count(text: bytes) -> int:
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    # The reference server does not read more than nineteen digits either.
    if not digits.isdigit() or len(digits) > 19:
        return 1
    return max(int(text), 1)


def check_request(
    request: PullRequest, config: ConsumerConfig, now_ns: int, *, pin_id: str
) -> None:
    """Raise RequestRefused if the consumer's configuration does not allow a request."""
    if 0 < config.max_batch < request.left:
        raise RequestRefused(409, f"Exceeded MaxRequestBatch of {config.max_batch}")
    if request.expires_ns and 0 < config.max_expires < request.expires_ns - now_ns:
        longest = format_duration(config.max_expires)
        raise RequestRefused(409, f"Exceeded MaxRequestExpires of {longest}")
    if 0 < config.max_bytes < request.bytes_left:
        raise RequestRefused(409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}")
    if request.asked is not None:
        _check_priority(request.asked, config, pin_id)


def _check_priority(
    asked: JSApiConsumerGetNextRequest, config: ConsumerConfig, pin_id: str
) -> None:
    policy = config.priority_policy
    if (asked.min_pending or asked.min_ack_pending) and policy is not PriorityPolicy.OVERFLOW:
        raise RequestRefused(400, "Bad Request - Not a Overflow Priority consumer")
    if asked.id and policy is not PriorityPolicy.PINNED_CLIENT:
        raise RequestRefused(400, "Bad Request - Not a Pinned Client Priority consumer")
    if not 0 <= asked.priority <= PRIORITY_MAX:
        raise RequestRefused(400, "Bad Request - Priority must be between 0 and 9")
    if policy is PriorityPolicy.NONE:
        return
    if not asked.group:
        raise RequestRefused(400, "Bad Request - Priority Group missing")
    if asked.group not in config.priority_groups:
        raise RequestRefused(400, "Bad Request - Invalid Priority Group")
    if pin_id and asked.id and asked.id != pin_id:
        raise RequestRefused(423, "Nats-Pin-Id mismatch")


class PullQueue:
    """The requests of one consumer, in the order in which they will be served."""

    __slots__ = ("_by_priority", "_requests")

    def __init__(self, *, by_priority: bool) -> None:
        self._by_priority = by_priority
        self._requests: list[PullRequest] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: PullRequest) -> bool:
        return any(each is request for each in self._requests)

    def __iter__(self) -> Iterator[PullRequest]:
        return iter(tuple(self._requests))

    @property
    def first(self) -> PullRequest:
        """The request whose turn it is."""
        return self._requests[0]

    def add(self, request: PullRequest) -> None:
        """Add a request behind the others, or behind those of its priority."""
        if not self._by_priority:
            self._requests.append(request)
            return
        place = len(self._requests)
        while place and self._requests[place - 1].priority > request.priority:
            place -= 1
        self._requests.insert(place, request)

    def plain_ones(self, count_max: int, now_ns: int) -> list[PullRequest]:
        """Return the first requests, up to one with a byte limit or one that has expired."""
        return list(
            itertools.takewhile(
                lambda each: (
                    not each.bytes_left and not (each.expires_ns and now_ns >= each.expires_ns)
                ),
                self._requests[:count_max],
            )
        )

    def serve_in_turn(self, requests: int, count: int) -> list[PullRequest]:
        """Note that the first `requests` had `count` messages together, one each in turn.

        Several rounds are only for all that wait. Served requests go behind the others, or are
        removed if they are done. Return the requests that had a message.
        """
        others = self._requests[requests:]
        rounds, rest = (0, count) if others else divmod(count, requests)
        served = self._requests[:requests] if rounds else self._requests[:rest]
        for place, request in enumerate(served):
            had = rounds + (place < rest)
            request.delivered += had
            request.left -= had
        in_order = [*self._requests[rest:requests], *others, *self._requests[:rest]]
        had_all = {id(request) for request in served if request.left <= 0}
        self._requests = [each for each in in_order if id(each) not in had_all]
        return served

    def remove(self, request: PullRequest) -> None:
        """Remove a request."""
        self._requests.remove(request)

    def pass_turn(self) -> None:
        """Move the first request behind the others."""
        self._requests.append(self._requests.pop(0))

    def serve(self, count: int, size: int) -> PullRequest:
        """Note that the first request had messages, and return it.

        It goes behind the others, or is removed if it is done.
        """
        request = self._requests.pop(0)
        request.delivered += count
        request.left -= count
        if request.bytes_left:
            request.bytes_left = max(request.bytes_left - size, 0)
            if not request.bytes_left:
                request.left = 0
        if request.left > 0:
            self.add(request)
        return request
