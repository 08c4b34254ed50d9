"""A consumer that sends messages to a subject as they come.

It sends while anybody listens to the subject. With flow control it sends a window ahead of what
its client has confirmed: at half of the window it asks, and when the answer comes the window grows.
With heartbeats its client hears of it even when there is nothing to send.

What always holds: with flow control no more than a window, and one message, is out unconfirmed.

One thread: the event loop's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.consumer.config import AckPolicy
from penstock.consumer.demand import Demand, status
from penstock.limits import DELIVERY_TURN_MESSAGES, FLOW_WINDOW_BYTES_MAX
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer

FLOW_PREFIX = "$JS.FC."
_WINDOW_STEPS = 16


class PushOutlet:
    """The deliver subject of one consumer; see the module."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._target = consumer.config.deliver_subject.encode()
        self._used_ns = consumer.clock.now_ns()
        self._heard_ns = self._used_ns
        """When the client heard from the consumer last."""

        self.is_active = False
        self._window_bytes = (
            FLOW_WINDOW_BYTES_MAX // _WINDOW_STEPS if consumer.config.flow_control else 0
        )
        self._out_bytes = 0
        self._flow_subject = b""
        """Where the answer to the last question is awaited; empty while none is."""

        self._flow_bytes = 0
        self._answers: Subscription | None = None
        consumers = consumer.consumers
        start = f"{FLOW_PREFIX}{consumers.long_name}." if consumers.sends_long else FLOW_PREFIX
        self._flow_start = f"{start}{consumer.stream.name}.{consumer.name}.".encode()

    @property
    def is_wanting(self) -> bool:
        """Whether anybody listens."""
        return self.is_active

    def demand(self, now_ns: int) -> Demand | None:
        """Tell whether messages may be sent."""
        if not self.is_active:
            return None
        if not self._window_bytes:
            return Demand(self._target, DELIVERY_TURN_MESSAGES)
        if self._out_bytes > self._window_bytes:
            return None
        # At half of the window it asks, so what goes at once ends there.
        end_bytes = self._window_bytes if self._flow_subject else self._window_bytes // 2
        left_bytes = max(end_bytes - self._out_bytes, 0)
        return Demand(self._target, DELIVERY_TURN_MESSAGES, left_bytes, first_goes=True)

    def sent(self, count: int, size: int, now_ns: int) -> None:
        """Messages went out."""
        self._heard_ns = now_ns
        if not self._window_bytes:
            return
        self._out_bytes += size
        if not self._flow_subject:
            is_acked_so = self._consumer.config.ack_policy is AckPolicy.FLOW_CONTROL
            if self._out_bytes > self._window_bytes // 2 or (
                is_acked_so and self._consumer.is_at_ack_limit
            ):
                self._ask()
        elif self._out_bytes - self._flow_bytes >= self._window_bytes:
            self._flow_bytes += size

    def too_large(self) -> None:
        """Nothing is: a first message always goes."""

    def nobody(self) -> None:
        """Wait for somebody to listen again."""
        self._set_active(False)

    # Flow control

    def _ask(self) -> None:
        consumer = self._consumer
        self._flow_subject = self._flow_start + consumer.consumers.unique_id()[-4:].encode()
        self._flow_bytes = self._out_bytes
        consumer.send_status(
            self._target, status(100, "FlowControl Request"), reply=self._flow_subject
        )

    def _answered(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        if not self._flow_subject or subject != self._flow_subject:
            return
        self._window_bytes = min(self._window_bytes * 2, FLOW_WINDOW_BYTES_MAX)
        self._out_bytes = max(self._out_bytes - self._flow_bytes, 0)
        self._flow_subject = b""
        self._flow_bytes = 0
        if self._consumer.config.ack_policy is AckPolicy.FLOW_CONTROL:
            self._consumer.acks.confirmed(headers)
        self._consumer.pump_soon()

    # Interest

    def on_interest(self) -> None:
        """Somebody has begun or ceased to listen, perhaps."""
        self._set_active(self._is_heard())

    def _is_heard(self) -> bool:
        found = self._consumer.stream.sublist.matches(self._target)
        group = self._consumer.config.deliver_group.encode()
        if not group:
            return bool(found.plain or found.queues)
        return any(members[0].queue == group for members in found.queues)

    def _set_active(self, is_active: bool) -> None:
        if is_active == self.is_active:
            return
        now_ns = self._consumer.clock.now_ns()
        self.is_active = is_active
        self._used_ns = self._heard_ns = now_ns
        if is_active:
            self._out_bytes = self._flow_bytes = 0
            self._flow_subject = b""
        self._consumer.pump_soon()

    # Time

    def settle(self, now_ns: int, *, is_at_end: bool) -> None:
        """Let the client know that the consumer is there."""
        heartbeat_ns = self._consumer.config.idle_heartbeat
        if not heartbeat_ns or not self.is_active or now_ns < self._heard_ns + heartbeat_ns:
            return
        stalled = b""
        if self._flow_subject:
            stalled = b"Nats-Consumer-Stalled: %b\r\n" % self._flow_subject
        self._consumer.send_heartbeat(self._target, stalled)
        self._heard_ns = now_ns
        if (
            self._consumer.config.ack_policy is AckPolicy.FLOW_CONTROL
            and len(self._consumer.pending)
            and not self._flow_subject
        ):
            self._ask()

    def due_ns(self) -> int | None:
        """Tell when the next heartbeat is due."""
        heartbeat_ns = self._consumer.config.idle_heartbeat
        return self._heard_ns + heartbeat_ns if heartbeat_ns and self.is_active else None

    def used_until_ns(self, now_ns: int) -> int:
        """Tell when somebody listened last; now, if somebody does."""
        return now_ns if self.is_active else self._used_ns

    # Coming and going

    def start(self) -> None:
        """Follow who listens, and take answers about the flow."""
        consumer = self._consumer
        consumer.consumers.interest.watch(self._target, self.on_interest)
        if self._window_bytes:
            subject = self._flow_start + b"*"
            self._answers = Subscription(Service(self._answered), subject, b"4")
            consumer.stream.sublist.insert(self._answers)
        self.is_active = self._is_heard()

    def stop(self, reason: str) -> None:
        """Send no more."""
        self._consumer.consumers.interest.unwatch(self._target, self.on_interest)
        if self._answers is not None:
            self._consumer.stream.sublist.remove(self._answers)
            self._answers = None
        self.is_active = False
