"""A consumer that sends messages to a subject as they come.

It sends while the subject has subscribers. With flow control it sends a window ahead of what its
client has confirmed: at half of the window it asks, and each answer widens the window. With
heartbeats its client hears of it even when there is nothing to send.

Invariant: with flow control no more than a window, and one message, is out unconfirmed.

`pump` asks it for demand. Subscribers that come or go, and answers about the flow, reach it by
themselves; it calls the owner's `wake` and `confirmed` then.
Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.consumer.config.config import AckPolicy
from penstock.consumer.demand import Demand
from penstock.consumer.info import Notices
from penstock.limits import DELIVERY_TURN_MESSAGES, FLOW_WINDOW_BYTES_MAX
from penstock.routing.hub import Service
from penstock.routing.interest import InterestWatch
from penstock.routing.sublist import Sublist, Subscription

if TYPE_CHECKING:
    from penstock.consumer.progress import Progress


FLOW_PREFIX = "$JS.FC."
_WINDOW_STEPS = 16


class PushTarget(NamedTuple):
    """What a push consumer needs of the server around it."""

    sublist: Sublist
    interest: InterestWatch
    flow_start: bytes
    """What the subjects of its flow control begin with."""

    unique_id: Callable[[], str]


class PushDelivery:
    """The deliver subject of one consumer; see the module."""

    def __init__(
        self,
        progress: Progress,
        notices: Notices,
        target: PushTarget,
        *,
        wake: Callable[[], None],
        confirmed: Callable[[bytes], None],
    ) -> None:
        """Call `wake` when a turn may send more, `confirmed(headers)` for an answer that acks."""
        self._progress = progress
        self._notices = notices
        self._around = target
        self._wake = wake
        self._confirmed = confirmed
        self._target = progress.config.deliver_subject.encode()
        self._used_ns = progress.clock.now_ns()
        self._heard_ns = self._used_ns
        """When the consumer last sent something to the client."""

        self._is_active = False
        self._window_bytes = (
            FLOW_WINDOW_BYTES_MAX // _WINDOW_STEPS if progress.config.flow_control else 0
        )
        self._out_bytes = 0
        self._flow_subject = b""
        """Where the answer to the last flow control request is awaited; empty if none is."""

        self._flow_bytes = 0
        self._answers: Subscription | None = None

    @property
    def is_wanting(self) -> bool:
        """True if the deliver subject has subscribers."""
        return self._is_active

    @property
    def waiting_count(self) -> int:
        """How many pull requests wait: none can."""
        return 0

    @property
    def pin(self) -> tuple[str, int]:
        """The pinned client: there is none."""
        return "", 0

    def demand(self, now_ns: int) -> Demand | None:
        """Return how much may be sent; None without subscribers or with a full window."""
        if not self._is_active:
            return None
        if not self._window_bytes:
            return Demand(self._target, DELIVERY_TURN_MESSAGES)
        if self._out_bytes > self._window_bytes:
            return None
        # The flow control request is sent at half of the window, so a run ends there.
        end_bytes = self._window_bytes if self._flow_subject else self._window_bytes // 2
        left_bytes = max(end_bytes - self._out_bytes, 0)
        return Demand(self._target, DELIVERY_TURN_MESSAGES, left_bytes, first_goes=True)

    def sent(self, count: int, size: int, now_ns: int) -> None:
        """Note that messages were sent; ask for a confirmation at half of the window."""
        self._heard_ns = now_ns
        if not self._window_bytes:
            return
        self._out_bytes += size
        if not self._flow_subject:
            is_acked_so = self._progress.config.ack_policy is AckPolicy.FLOW_CONTROL
            if self._out_bytes > self._window_bytes // 2 or (
                is_acked_so and self._progress.is_at_ack_limit
            ):
                self._ask()
        elif self._out_bytes - self._flow_bytes >= self._window_bytes:
            self._flow_bytes += size

    def too_large(self) -> None:
        """Do nothing: a first message of any size goes, so this does not happen."""

    def no_subscriber(self) -> None:
        """Wait until the subject has subscribers again."""
        self._set_active(False)

    # Flow control

    def _ask(self) -> None:
        token = self._around.unique_id()[-4:].encode()
        self._flow_subject = self._around.flow_start + token
        self._flow_bytes = self._out_bytes
        self._notices.send_status(
            self._target, 100, "FlowControl Request", reply=self._flow_subject
        )

    def _answered(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        if not self._flow_subject or subject != self._flow_subject:
            return
        self._window_bytes = min(self._window_bytes * 2, FLOW_WINDOW_BYTES_MAX)
        self._out_bytes = max(self._out_bytes - self._flow_bytes, 0)
        self._flow_subject = b""
        self._flow_bytes = 0
        if self._progress.config.ack_policy is AckPolicy.FLOW_CONTROL:
            self._confirmed(headers)
        self._wake()

    # Interest

    def on_interest(self) -> None:
        """Look again whether the subject has subscribers; the interest watch calls this."""
        self._set_active(self._is_heard())

    def _is_heard(self) -> bool:
        found = self._around.sublist.matches(self._target)
        group = self._progress.config.deliver_group.encode()
        if not group:
            return bool(found.plain or found.queues)
        return any(members[0].queue == group for members in found.queues)

    def _set_active(self, is_active: bool) -> None:
        if is_active == self._is_active:
            return
        now_ns = self._progress.clock.now_ns()
        self._is_active = is_active
        self._used_ns = self._heard_ns = now_ns
        if is_active:
            self._out_bytes = self._flow_bytes = 0
            self._flow_subject = b""
        self._wake()

    # Time

    def settle(self, now_ns: int, *, is_at_end: bool) -> bool:
        """Send a heartbeat if one is due; return False: no turn need follow."""
        config = self._progress.config
        heartbeat_ns = config.idle_heartbeat
        if not heartbeat_ns or not self._is_active or now_ns < self._heard_ns + heartbeat_ns:
            return False
        stalled = b""
        if self._flow_subject:
            stalled = b"Nats-Consumer-Stalled: %b\r\n" % self._flow_subject
        self._notices.send_heartbeat(self._target, self._progress, stalled)
        self._heard_ns = now_ns
        if (
            config.ack_policy is AckPolicy.FLOW_CONTROL
            and len(self._progress.pending)
            and not self._flow_subject
        ):
            self._ask()
        return False

    def due_ns(self) -> int | None:
        """Return when the next heartbeat is due; None if there is none."""
        heartbeat_ns = self._progress.config.idle_heartbeat
        return self._heard_ns + heartbeat_ns if heartbeat_ns and self._is_active else None

    def used_until_ns(self, now_ns: int) -> int:
        """Return when the subject last had subscribers; now, if it has."""
        return now_ns if self._is_active else self._used_ns

    # Coming and going

    def start(self) -> None:
        """Follow the subject's subscribers, and take answers about the flow."""
        self._around.interest.watch(self._target, self.on_interest)
        if self._window_bytes:
            subject = self._around.flow_start + b"*"
            self._answers = Subscription(Service(self._answered), subject, b"4")
            self._around.sublist.insert(self._answers)
        self._is_active = self._is_heard()

    def stop(self, reason: str) -> None:
        """Send no more; subscribers are not told a reason."""
        self._around.interest.unwatch(self._target, self.on_interest)
        if self._answers is not None:
            self._around.sublist.remove(self._answers)
            self._answers = None
        self._is_active = False
