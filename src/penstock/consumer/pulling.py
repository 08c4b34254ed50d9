"""A consumer whose clients ask for messages.

Which of the requests that wait is served next depends on the consumer's priority policy: in turn;
by their priority; only those whose client holds the pin; or only while enough is pending.

What always holds: at most `max_waiting` requests wait; the pin is lost when its holder has not
asked for anything for `priority_timeout`.

One thread: the event loop's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.consumer.config import PriorityPolicy
from penstock.consumer.demand import Demand, status
from penstock.consumer.pull import Waiting, WaitingQueue, check_request, read_request
from penstock.errors import RequestRefused

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer

PIN_HEADER = b"Nats-Pin-Id"
DELETED_REASON = "Consumer Deleted"


class PullOutlet:
    """The requests of one consumer, and who is served next; see the module."""

    __slots__ = (
        "_consumer",
        "_due_ns",
        "_is_pin_new",
        "_one_shots",
        "_pin_ends_ns",
        "_policy",
        "_sharing",
        "_used_ns",
        "_waiting",
        "pin_id",
        "pinned_ns",
    )

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._policy = consumer.config.priority_policy
        self._waiting = WaitingQueue(by_priority=self._policy is PriorityPolicy.PRIORITIZED)
        self._one_shots = 0
        self._sharing = 1
        """Among how many of them what is sent next is shared out."""

        self._due_ns: int | None = None
        self._used_ns = consumer.clock.now_ns()
        self.pin_id = ""
        self.pinned_ns = 0
        self._pin_ends_ns = 0
        self._is_pin_new = False

    @property
    def waiting_count(self) -> int:
        """How many requests wait whose clients still listen."""
        self._review(self._consumer.clock.now_ns(), is_at_end=False)
        return len(self._waiting)

    @property
    def is_wanting(self) -> bool:
        """Whether any request waits."""
        return len(self._waiting) > 0

    # Requests

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a request for messages, or refuse it."""
        now_ns = self._consumer.clock.now_ns()
        self._used_ns = now_ns
        try:
            request = read_request(reply, body, now_ns)
            check_request(request, self._consumer.config, now_ns, pin_id=self.pin_id)
            if self.pin_id and request.pin_id == self.pin_id:
                self._hold_pin(now_ns)
            self._check_room(request, now_ns)
        except RequestRefused as refused:
            self._tell(reply, refused.status, refused.reason)
            return
        if len(self._waiting) >= self._consumer.config.max_waiting:
            # A client that gets heartbeats asks again when they stay away; told at once, it would
            # ask again at once.
            if not request.heartbeat_ns:
                self._tell(reply, 409, "Exceeded MaxWaiting")
            return
        self._waiting.add(request)
        self._one_shots += request.is_one_shot
        self._note_due(request)
        if self._policy is PriorityPolicy.PRIORITIZED:
            # Of requests that come together, the first in rank is to be served first.
            self._consumer.pump_soon()
        else:
            self._consumer.pump()

    def _check_room(self, request: Waiting, now_ns: int) -> None:
        """See whether a request may wait; raises RequestRefused."""
        if len(self._waiting) >= self._consumer.config.max_waiting:
            self._review(now_ns, is_at_end=False)
        if request.is_one_shot:
            pending = self._consumer.deliverable_count()
            if not pending and not request.expires_ns:
                raise RequestRefused(404, "No Messages")
            if pending and pending < self._review(now_ns, is_at_end=False):
                raise RequestRefused(408, "Requests Pending")

    def _note_due(self, request: Waiting) -> None:
        for due_ns in (request.expires_ns, request.heartbeat_due_ns):
            if due_ns and (self._due_ns is None or due_ns < self._due_ns):
                self._due_ns = due_ns

    def _tell(self, reply: bytes, code: int, text: str, more: bytes = b"") -> None:
        self._consumer.send_status(reply, status(code, text, more))

    def _drop(self, request: Waiting) -> None:
        # Until now its client was there.
        self._used_ns = self._consumer.clock.now_ns()
        self._waiting.remove(request)
        self._one_shots -= request.is_one_shot

    # Serving

    def demand(self, now_ns: int) -> Demand | None:
        """Tell whose turn it is; None where nobody may have the next message."""
        if self._policy is PriorityPolicy.PINNED_CLIENT and not self._consumer.has_deliverable:
            # Nobody is pinned, nor told that his pin is wrong, before there is something to have.
            return None
        passed = 0
        while self._waiting and passed < max(len(self._waiting), 1):
            request = self._waiting.first
            if request.expires_ns and now_ns >= request.expires_ns:
                self._tell(request.reply, 408, "Request Timeout", request.counts())
                self._drop(request)
            elif not self._may_have(request):
                if request in self._waiting:
                    self._waiting.pass_turn()
                    passed += 1
            elif not self._consumer.courier.has_interest(request.reply):
                self._drop(request)
            else:
                return self._demand_of(request, now_ns)
        return None

    def _demand_of(self, request: Waiting, now_ns: int) -> Demand:
        is_alone = len(self._waiting) == 1 and self._policy in (
            PriorityPolicy.NONE,
            PriorityPolicy.PRIORITIZED,
        )
        self._sharing = 1
        if self._policy is PriorityPolicy.NONE and not is_alone:
            sharing = self._waiting.plain_ones(self._consumer.num_pending(), now_ns)
            if len(sharing) > 1:
                return self._demand_of_all(sharing)
        header = None
        if self._policy is PriorityPolicy.PINNED_CLIENT:
            header = (PIN_HEADER, self.pin_id.encode())
        return Demand(
            request.reply,
            max(request.left, 1) if is_alone else 1,
            request.bytes_left or -1,
            header=header,
        )

    def _demand_of_all(self, sharing: list[Waiting]) -> Demand:
        """Have several requests served in turn, at once."""
        self._sharing = len(sharing)
        rounds = 1
        if self._sharing == len(self._waiting):
            rounds = max(min(request.left for request in sharing), 1)
        targets = [request.reply for request in sharing]
        return Demand(targets[0], rounds * self._sharing, targets=targets)

    def _may_have(self, request: Waiting) -> bool:
        """Whether a request may be served by the policy; one with a wrong pin is removed."""
        asked = request.asked
        if self._policy is PriorityPolicy.PINNED_CLIENT:
            return self._is_pinned(request)
        if self._policy is PriorityPolicy.OVERFLOW and asked is not None:
            if asked.min_pending <= 0 and asked.min_ack_pending <= 0:
                return True
            # One that is delivered again counts like one that comes for the first time.
            pending = self._consumer.num_pending() + bool(self._consumer.again)
            ack_pending = len(self._consumer.pending)
            return (0 < asked.min_pending <= pending) or (0 < asked.min_ack_pending <= ack_pending)
        return True

    def _is_pinned(self, request: Waiting) -> bool:
        if not self.pin_id and not request.pin_id:
            self._pin(request)
            return True
        if self.pin_id and request.pin_id == self.pin_id:
            return True
        if request.pin_id:
            self._tell(request.reply, 423, "Nats-Wrong-Pin-Id", request.counts())
            self._drop(request)
        return False

    def sent(self, count: int, size: int, now_ns: int) -> None:
        """Messages went to the request whose turn it was, or to several in turn."""
        self._used_ns = now_ns
        self._is_pin_new = False
        if self._sharing > 1:
            for request in self._waiting.serve_in_turn(self._sharing, count):
                self._note_served(request, now_ns)
        else:
            self._note_served(self._waiting.serve(count, size), now_ns)

    def _note_served(self, request: Waiting, now_ns: int) -> None:
        if request.left <= 0:
            self._one_shots -= request.is_one_shot
            if request.bytes_left > 0:
                self._tell(request.reply, 409, "Batch Completed", request.counts())
        elif request.heartbeat_ns:
            request.heartbeat_due_ns = now_ns + request.heartbeat_ns

    def too_large(self) -> None:
        """Be done with the request whose turn it is: it may not have the next message."""
        request = self._waiting.first
        self._tell(request.reply, 409, "Message Size Exceeds MaxBytes", request.counts())
        if self._is_pin_new:
            self._unpin()
        self._drop(request)

    def nobody(self) -> None:
        """Forget the request whose turn it is: its client listens no more."""
        self._drop(self._waiting.first)

    # Time

    def settle(self, now_ns: int, *, is_at_end: bool) -> None:
        """Be done with requests that will not be served, and tell the others that it is there."""
        if self.pin_id and now_ns >= self._pin_ends_ns:
            self.unpin("timeout")
        is_due = self._due_ns is not None and now_ns >= self._due_ns
        if is_due or (is_at_end and self._one_shots):
            self._review(now_ns, is_at_end=is_at_end)

    def _review(self, now_ns: int, *, is_at_end: bool) -> int:
        """Go through all requests; give how many messages they want together."""
        self._due_ns = None
        wanted = 0
        for request in self._waiting:
            if request.expires_ns and now_ns >= request.expires_ns:
                self._tell(request.reply, 408, "Request Timeout", request.counts())
                self._drop(request)
            elif (
                is_at_end and request.is_one_shot and (not request.expires_ns or request.delivered)
            ):
                self._tell(request.reply, 404, "No Messages")
                self._drop(request)
            elif not self._consumer.courier.has_interest(request.reply):
                self._drop(request)
            else:
                wanted += request.left
                if request.heartbeat_due_ns and now_ns >= request.heartbeat_due_ns:
                    self._consumer.send_heartbeat(request.reply)
                    request.heartbeat_due_ns = now_ns + request.heartbeat_ns
                self._note_due(request)
        return wanted

    def due_ns(self) -> int | None:
        """Tell when a request ends or wants a heartbeat, or the pin is lost."""
        times_ns = [self._pin_ends_ns] if self.pin_id else []
        if self._due_ns is not None:
            times_ns.append(self._due_ns)
        return min(times_ns, default=None)

    def used_until_ns(self, now_ns: int) -> int:
        """Tell when the last client was there; now, where one waits."""
        # Mostly the first one is enough to know: there may be many.
        if self._waiting and (
            self._consumer.courier.has_interest(self._waiting.first.reply) or self.waiting_count
        ):
            return now_ns
        return self._used_ns

    # The pin

    def _pin(self, request: Waiting) -> None:
        consumer = self._consumer
        self.pin_id = consumer.consumers.unique_id()
        self.pinned_ns = consumer.clock.now_ns()
        self._is_pin_new = True
        self._hold_pin(self.pinned_ns)
        request.pin_id = self.pin_id
        fields = {"group": self._group, "pinned_id": self.pin_id}
        consumer.advise("PINNED", "consumer_group_pinned", fields, with_account=True)

    @property
    def _group(self) -> str:
        groups = self._consumer.config.priority_groups
        return groups[0] if groups else ""

    def _hold_pin(self, now_ns: int) -> None:
        self._pin_ends_ns = now_ns + self._consumer.config.priority_timeout

    def _unpin(self) -> None:
        self.pin_id = ""
        self.pinned_ns = 0
        self._is_pin_new = False

    def unpin(self, reason: str) -> None:
        """Take the pin from its holder, if there is one; that is told either way."""
        self._unpin()
        fields = {"group": self._group, "reason": reason}
        self._consumer.advise("UNPINNED", "consumer_group_unpinned", fields, with_account=True)
        self._consumer.pump_soon()

    # Coming and going

    def start(self) -> None:
        """Requests come by themselves."""

    def stop(self, reason: str) -> None:
        """Serve no more; whoever waits is told why."""
        for request in self._waiting:
            if reason:
                # Whoever may come back to the consumer is told what he did not get.
                more = b"" if reason == DELETED_REASON else request.counts()
                self._tell(request.reply, 409, reason, more)
            self._drop(request)
