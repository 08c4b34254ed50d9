"""A consumer whose clients ask for messages.

Which of the waiting requests is served next depends on the consumer's priority policy: in turn; by
priority; only those of the client that holds the pin; or only while enough messages are pending.

Invariants: at most `max_waiting` requests wait. The pin is lost when its holder has not asked for
anything for `priority_timeout`.

`pump` asks it for demand; the owner (`consumer`) hands it requests and does what it returns.
Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from penstock.consumer.config.config import PriorityPolicy
from penstock.consumer.delivery import MessageSender
from penstock.consumer.demand import Demand
from penstock.consumer.info import Notices
from penstock.consumer.pull_requests import PullQueue, PullRequest, check_request, read_request
from penstock.errors import RequestRefused

if TYPE_CHECKING:
    from penstock.consumer.progress import Progress

PIN_HEADER = b"Nats-Pin-Id"
DELETED_REASON = "Consumer Deleted"


class Wake(Enum):
    """When the owner should run a turn after a request."""

    NOT = auto()
    SOON = auto()
    NOW = auto()


class PullDelivery:
    """The pull requests of one consumer, and which of them is served next; see the module."""

    __slots__ = (
        "_due_ns",
        "_is_pin_new",
        "_new_pin_id",
        "_notices",
        "_one_shots",
        "_pin_ends_ns",
        "_pin_id",
        "_pinned_ns",
        "_policy",
        "_progress",
        "_sender",
        "_sharing",
        "_used_ns",
        "_waiting",
    )

    def __init__(
        self,
        progress: Progress,
        notices: Notices,
        sender: MessageSender,
        new_pin_id: Callable[[], str],
    ) -> None:
        self._progress = progress
        self._notices = notices
        self._sender = sender
        self._new_pin_id = new_pin_id
        self._policy = progress.config.priority_policy
        self._waiting = PullQueue(by_priority=self._policy is PriorityPolicy.PRIORITIZED)
        self._one_shots = 0
        self._sharing = 1
        """The number of requests that the next messages are shared out among."""

        self._due_ns: int | None = None
        self._used_ns = progress.clock.now_ns()
        self._pin_id = ""
        self._pinned_ns = 0
        self._pin_ends_ns = 0
        self._is_pin_new = False

    @property
    def waiting_count(self) -> int:
        """How many requests wait whose clients are still subscribed."""
        if not self._waiting:
            return 0
        self._review(self._progress.clock.now_ns(), is_at_end=False)
        return len(self._waiting)

    @property
    def is_wanting(self) -> bool:
        """True if any request waits."""
        return len(self._waiting) > 0

    @property
    def pin(self) -> tuple[str, int]:
        """The id of the pinned client and when it was pinned; ("", 0) if none is."""
        return self._pin_id, self._pinned_ns

    # Requests

    def request(self, reply: bytes, body: bytes) -> Wake:
        """Queue a request for messages, or refuse it with a status."""
        now_ns = self._progress.clock.now_ns()
        self._used_ns = now_ns
        try:
            request = read_request(reply, body, now_ns)
            check_request(request, self._progress.config, now_ns, pin_id=self._pin_id)
            if self._pin_id and request.pin_id == self._pin_id:
                self._hold_pin(now_ns)
            self._check_room(request, now_ns)
        except RequestRefused as refused:
            self._notices.send_status(reply, refused.status, refused.reason)
            return Wake.NOT
        if len(self._waiting) >= self._progress.config.max_waiting:
            # A client with heartbeats asks again when they stay away; with a status it would ask
            # again at once.
            if not request.heartbeat_ns:
                self._notices.send_status(reply, 409, "Exceeded MaxWaiting")
            return Wake.NOT
        self._waiting.add(request)
        self._one_shots += request.is_one_shot
        self._note_due(request)
        # Of requests that come together, the one with the highest priority is served first.
        return Wake.SOON if self._policy is PriorityPolicy.PRIORITIZED else Wake.NOW

    def _check_room(self, request: PullRequest, now_ns: int) -> None:
        """Raise RequestRefused if a request may not wait."""
        if len(self._waiting) >= self._progress.config.max_waiting:
            self._review(now_ns, is_at_end=False)
        if request.is_one_shot:
            pending = self._progress.deliverable_count()
            if not pending and not request.expires_ns:
                raise RequestRefused(404, "No Messages")
            if pending and pending < self._review(now_ns, is_at_end=False):
                raise RequestRefused(408, "Requests Pending")

    def _note_due(self, request: PullRequest) -> None:
        for due_ns in (request.expires_ns, request.heartbeat_due_ns):
            if due_ns and (self._due_ns is None or due_ns < self._due_ns):
                self._due_ns = due_ns

    def _drop(self, request: PullRequest) -> None:
        # Its client was there until now.
        self._used_ns = self._progress.clock.now_ns()
        self._waiting.remove(request)
        self._one_shots -= request.is_one_shot

    # Serving

    def demand(self, now_ns: int) -> Demand | None:
        """Return the demand of the request whose turn it is; None if no request may be served."""
        if self._policy is PriorityPolicy.PINNED_CLIENT and not self._progress.has_deliverable:
            # No client is pinned, or refused for a wrong pin, before there is a message to deliver.
            return None
        passed = 0
        while self._waiting and passed < max(len(self._waiting), 1):
            request = self._waiting.first
            if request.expires_ns and now_ns >= request.expires_ns:
                self._notices.send_status(request.reply, 408, "Request Timeout", request.counts())
                self._drop(request)
            elif not self._may_have(request):
                if request in self._waiting:
                    self._waiting.pass_turn()
                    passed += 1
            elif not self._sender.has_interest(request.reply):
                self._drop(request)
            else:
                return self._demand_of(request, now_ns)
        return None

    def _demand_of(self, request: PullRequest, now_ns: int) -> Demand:
        is_alone = len(self._waiting) == 1 and self._policy in (
            PriorityPolicy.NONE,
            PriorityPolicy.PRIORITIZED,
        )
        self._sharing = 1
        if self._policy is PriorityPolicy.NONE and not is_alone:
            sharing = self._waiting.plain_ones(self._progress.num_pending(), now_ns)
            if len(sharing) > 1:
                return self._demand_of_all(sharing)
        header = None
        if self._policy is PriorityPolicy.PINNED_CLIENT:
            header = (PIN_HEADER, self._pin_id.encode())
        return Demand(
            request.reply,
            max(request.left, 1) if is_alone else 1,
            request.bytes_left or -1,
            header=header,
        )

    def _demand_of_all(self, sharing: list[PullRequest]) -> Demand:
        """Return a demand that serves several requests in turn."""
        self._sharing = len(sharing)
        rounds = 1
        if self._sharing == len(self._waiting):
            rounds = max(min(request.left for request in sharing), 1)
        targets = [request.reply for request in sharing]
        return Demand(targets[0], rounds * self._sharing, targets=targets)

    def _may_have(self, request: PullRequest) -> bool:
        """Return True if the policy allows a request to be served; remove one with a wrong pin."""
        asked = request.asked
        if self._policy is PriorityPolicy.PINNED_CLIENT:
            return self._is_pinned(request)
        if self._policy is PriorityPolicy.OVERFLOW and asked is not None:
            if asked.min_pending <= 0 and asked.min_ack_pending <= 0:
                return True
            # A message to deliver again counts like a new one.
            pending = self._progress.num_pending() + bool(self._progress.again)
            ack_pending = len(self._progress.pending)
            return (0 < asked.min_pending <= pending) or (0 < asked.min_ack_pending <= ack_pending)
        return True

    def _is_pinned(self, request: PullRequest) -> bool:
        if not self._pin_id and not request.pin_id:
            self._pin(request)
            return True
        if self._pin_id and request.pin_id == self._pin_id:
            return True
        if request.pin_id:
            self._notices.send_status(request.reply, 423, "Nats-Wrong-Pin-Id", request.counts())
            self._drop(request)
        return False

    def sent(self, count: int, size: int, now_ns: int) -> None:
        """Note that messages went to the request whose turn it was, or to several in turn."""
        self._used_ns = now_ns
        self._is_pin_new = False
        if self._sharing > 1:
            for request in self._waiting.serve_in_turn(self._sharing, count):
                self._note_served(request, now_ns)
        else:
            self._note_served(self._waiting.serve(count, size), now_ns)

    def _note_served(self, request: PullRequest, now_ns: int) -> None:
        if request.left <= 0:
            self._one_shots -= request.is_one_shot
            if request.bytes_left > 0:
                self._notices.send_status(request.reply, 409, "Batch Completed", request.counts())
        elif request.heartbeat_ns:
            request.heartbeat_due_ns = now_ns + request.heartbeat_ns

    def too_large(self) -> None:
        """End the request whose turn it is: the next message is larger than it allows."""
        request = self._waiting.first
        self._notices.send_status(
            request.reply, 409, "Message Size Exceeds MaxBytes", request.counts()
        )
        if self._is_pin_new:
            self._unpin()
        self._drop(request)

    def no_subscriber(self) -> None:
        """Drop the request whose turn it is: its client is not subscribed any more."""
        self._drop(self._waiting.first)

    # Time

    def settle(self, now_ns: int, *, is_at_end: bool) -> bool:
        """End requests that will not be served, and send due heartbeats.

        Return True if the pin was lost, so that other requests may be served.
        """
        is_unpinned = bool(self._pin_id) and now_ns >= self._pin_ends_ns
        if is_unpinned:
            self.unpin("timeout")
        is_due = self._due_ns is not None and now_ns >= self._due_ns
        if is_due or (is_at_end and self._one_shots):
            self._review(now_ns, is_at_end=is_at_end)
        return is_unpinned

    def _review(self, now_ns: int, *, is_at_end: bool) -> int:
        """Go through all requests; return how many messages they want together."""
        self._due_ns = None
        wanted = 0
        for request in self._waiting:
            if request.expires_ns and now_ns >= request.expires_ns:
                self._notices.send_status(request.reply, 408, "Request Timeout", request.counts())
                self._drop(request)
            elif (
                is_at_end and request.is_one_shot and (not request.expires_ns or request.delivered)
            ):
                self._notices.send_status(request.reply, 404, "No Messages")
                self._drop(request)
            elif not self._sender.has_interest(request.reply):
                self._drop(request)
            else:
                wanted += request.left
                if request.heartbeat_due_ns and now_ns >= request.heartbeat_due_ns:
                    self._notices.send_heartbeat(request.reply, self._progress)
                    request.heartbeat_due_ns = now_ns + request.heartbeat_ns
                self._note_due(request)
        return wanted

    def due_ns(self) -> int | None:
        """Return when a request ends or needs a heartbeat, or the pin is lost."""
        times_ns = [self._pin_ends_ns] if self._pin_id else []
        if self._due_ns is not None:
            times_ns.append(self._due_ns)
        return min(times_ns, default=None)

    def used_until_ns(self, now_ns: int) -> int:
        """Return when the last client was there; now, if one waits."""
        # There may be many requests; the first one is mostly enough to know.
        if self._waiting and (
            self._sender.has_interest(self._waiting.first.reply) or self.waiting_count
        ):
            return now_ns
        return self._used_ns

    # The pin

    def _pin(self, request: PullRequest) -> None:
        self._pin_id = self._new_pin_id()
        self._pinned_ns = self._progress.clock.now_ns()
        self._is_pin_new = True
        self._hold_pin(self._pinned_ns)
        request.pin_id = self._pin_id
        fields = {"group": self._group, "pinned_id": self._pin_id}
        self._notices.advise("PINNED", "consumer_group_pinned", fields, with_account=True)

    @property
    def _group(self) -> str:
        groups = self._progress.config.priority_groups
        return groups[0] if groups else ""

    def _hold_pin(self, now_ns: int) -> None:
        self._pin_ends_ns = now_ns + self._progress.config.priority_timeout

    def _unpin(self) -> None:
        self._pin_id = ""
        self._pinned_ns = 0
        self._is_pin_new = False

    def unpin(self, reason: str) -> None:
        """Take the pin from its holder, if there is one, and publish an advisory either way.

        Other requests may be served then: the caller runs a turn soon.
        """
        self._unpin()
        fields = {"group": self._group, "reason": reason}
        self._notices.advise("UNPINNED", "consumer_group_unpinned", fields, with_account=True)

    # Coming and going

    def start(self) -> None:
        """Do nothing: requests arrive through the stream's `ack_receiver`."""

    def stop(self, reason: str) -> None:
        """Drop all requests; their clients are sent the reason, unless it is empty."""
        for request in self._waiting:
            if reason:
                # A client that may come back is told what it did not get.
                more = b"" if reason == DELETED_REASON else request.counts()
                self._notices.send_status(request.reply, 409, reason, more)
            self._drop(request)
