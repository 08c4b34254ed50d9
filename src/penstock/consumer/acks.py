"""What clients say of the messages that they were given, and what follows from it.

    nothing, `+ACK`, `+OK`    done
    `-NAK`, `-NAK <delay>`    deliver it again, at once or after a delay
    `+WPI`                    work in progress: wait for longer
    `+TERM`, `+TERM <why>`    never deliver it again
    `+NXT`, `+NXT <request>`  done, and ask for more

A client that wants a confirmation gives a reply subject. That a message is done is confirmed when
it is on stable storage.

`Acks` notes what was said in the consumer's progress and returns an `AckOutcome`: what the owner
(`consumer`) has to do. Plain acknowledgements do not come here; `ack_receiver` notes them.

Invariant: an acknowledgement of a message that is not pending changes nothing in the progress.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.consumer.config.config import AckPolicy
from penstock.consumer.info import Notices
from penstock.errors import InvalidDocument
from penstock.limits import CONSUMER_TIME_NS_MAX
from penstock.protocol.headers import value_of
from penstock.text.json.codec import decode
from penstock.text.json.shapes import DurationNs
from penstock.text.times import parse_duration

if TYPE_CHECKING:
    from penstock.consumer.extensions.dead_letters import DeadLetters
    from penstock.consumer.progress import Progress

GONE_REASON = "Unacknowledged message was deleted"
_DONE = (b"", b"+ACK", b"+OK")


class ConsumerNakOptions(msgspec.Struct, frozen=True):
    """How long to wait before a message is delivered again."""

    delay: DurationNs = 0


class AckedDelivery(NamedTuple):
    """The delivery that a client speaks of, as its reply subject names it."""

    deliveries: int
    stream_seq: int
    consumer_seq: int


class AckOutcome(msgspec.Struct):
    """What the owner of a consumer does after an acknowledgement, in this order."""

    done: list[int] = []
    """Messages that are done with; the stream may remove them."""

    late_seq: int = 0
    """A message that was not pending, e.g. because it was given up before; 0 for none."""

    is_changed: bool = False
    """The progress is to be saved."""

    reply: bytes | None = None
    """Where to confirm once the progress is on stable storage."""

    is_put_off: bool = False
    """The wait for a message begins at another time: the timer is to be set."""

    wakes: bool = False
    """Messages may be deliverable now."""

    terminated: Mapping[str, Any] | None = None
    """The fields of an advisory that a message is never delivered again."""

    request: tuple[bytes, bytes] | None = None
    """A pull request that came with the acknowledgement: reply subject and body."""


class Acks:
    """What becomes of one consumer's deliveries; see the module."""

    __slots__ = ("_notices", "_progress", "_sampled", "letters")

    def __init__(self, progress: Progress, notices: Notices) -> None:
        self._progress = progress
        self._notices = notices
        self._sampled = 0
        self.letters: DeadLetters | None = None
        """Where terminated messages go instead; set by the owner."""

    def take(self, about: AckedDelivery, reply: bytes | None, body: bytes) -> AckOutcome:
        """Note what a client says of a delivery."""
        if body in _DONE:
            return self._acknowledge(about, reply)
        if body.startswith(b"+NXT"):
            outcome = self._acknowledge(about, None)
            if reply is not None:
                outcome.request = (reply, body[4:])
            return outcome
        if body.startswith(b"+TERM"):
            return self.terminate(about, body[5:].strip().decode("utf-8", "replace"), reply)
        # A NAK or a +WPI need not outlive anything: it is confirmed at once.
        if reply is not None and about.stream_seq:
            self._notices.confirm(reply)
        if body.startswith(b"-NAK"):
            return self._nak(about, body[4:].strip())
        if body == b"+WPI" and not self._progress.pending.is_queued(about.stream_seq):
            # A message that is about to be delivered again still is: its client was too late.
            return self._put_off(about.stream_seq, self._progress.clock.now_ns())
        return AckOutcome()

    # Done

    def _acknowledge(
        self, about: AckedDelivery, reply: bytes | None, *, is_sampled: bool = True
    ) -> AckOutcome:
        progress = self._progress
        policy = progress.config.ack_policy
        if policy is AckPolicy.NONE or (
            about.stream_seq >= progress.position.cursor and not progress.config.flow_control
        ):
            return AckOutcome()
        outcome = AckOutcome(is_changed=True, reply=reply, wakes=progress.is_at_ack_limit)
        if policy is not AckPolicy.EXPLICIT:
            outcome.done = self._acknowledge_all(about)
            return outcome
        if is_sampled and about.stream_seq in progress.pending:
            self._sample(about)
        if progress.pending.ack(about.stream_seq):
            outcome.done = [about.stream_seq]
        else:
            outcome.late_seq = about.stream_seq
        return outcome

    def _acknowledge_all(self, about: AckedDelivery) -> list[int]:
        pending = self._progress.pending
        if (
            about.consumer_seq <= pending.floor_consumer_seq
            or about.stream_seq <= pending.floor_stream_seq
        ):
            return []
        consumer_seq = min(about.consumer_seq, pending.delivered_consumer_seq)
        return pending.ack_up_to(about.stream_seq, consumer_seq)

    def confirmed(self, headers: bytes) -> AckOutcome:
        """Acknowledge all messages that the answer to a flow control request names."""
        consumer_seq = value_of(headers, b"Nats-Last-Consumer") or b"0"
        stream_seq = value_of(headers, b"Nats-Last-Stream") or b"0"
        if stream_seq.isdigit() and consumer_seq.isdigit() and int(stream_seq[:19]):
            about = AckedDelivery(1, int(stream_seq[:19]), int(consumer_seq[:19]))
            return self._acknowledge(about, None, is_sampled=False)
        return AckOutcome()

    def _sample(self, about: AckedDelivery) -> None:
        progress = self._progress
        percent = progress.config.sample_percent
        if not percent:
            return
        # Evenly: of a hundred acknowledgements exactly `percent`.
        self._sampled += percent
        if self._sampled < 100:
            return
        self._sampled -= 100
        time_ns = progress.pending.time_of(about.stream_seq)
        since_ns = 0 if time_ns is None else progress.clock.now_ns() - time_ns
        self._notices.publish_ack_metric(
            {
                "consumer_seq": about.consumer_seq,
                "stream_seq": about.stream_seq,
                "ack_time": since_ns,
                "deliveries": about.deliveries,
            }
        )

    def terminate(
        self, about: AckedDelivery, reason: str, reply: bytes | None = None
    ) -> AckOutcome:
        """Never deliver a message again; its dead letter, if there is a subject for it, is owed."""
        letters = self.letters
        if letters is not None and letters.owe_terminated(about.stream_seq, reason):
            outcome = AckOutcome(is_changed=True, reply=reply)
        else:
            outcome = self._acknowledge(about, reply, is_sampled=False)
        outcome.terminated = _fields(about) | ({"reason": reason} if reason else {})
        return outcome

    def lose(self, stream_seq: int) -> AckOutcome:
        """Be done with a pending message that is not in the stream any more."""
        progress = self._progress
        consumer_seq = progress.pending.consumer_seq_of(stream_seq)
        about = AckedDelivery(progress.deliveries_of(stream_seq), stream_seq, consumer_seq)
        outcome = self._acknowledge(about, None, is_sampled=False)
        outcome.terminated = _fields(about) | {"reason": GONE_REASON}
        return outcome

    # Not done

    def _nak(self, about: AckedDelivery, delay: bytes) -> AckOutcome:
        progress = self._progress
        pending = progress.pending
        is_known = (
            pending.floor_consumer_seq < about.consumer_seq <= pending.delivered_consumer_seq + 1
        )
        if not is_known or about.stream_seq not in pending:
            return AckOutcome()
        self._notices.advise("MSG_NAKED", "nak", _fields(about))
        if delay:
            try:
                delay_ns = _read_delay(delay)
            except (InvalidDocument, ValueError):
                text = delay[:64].decode("utf-8", "replace")
                self._notices.log("WRN", f"bad NAK delay value: {text!r}")
            else:
                now_ns = progress.clock.now_ns()
                due_ns = max(0, min(now_ns + delay_ns, CONSUMER_TIME_NS_MAX))
                return self._put_off(about.stream_seq, due_ns - pending.waits_ns[0])
        progress.deliver_again([about.stream_seq])
        return AckOutcome(wakes=True)

    def _put_off(self, stream_seq: int, time_ns: int) -> AckOutcome:
        if self.letters is not None and stream_seq in self.letters:
            return AckOutcome()
        is_put_off = self._progress.put_off(stream_seq, time_ns)
        return AckOutcome(is_changed=is_put_off, is_put_off=is_put_off)


def _fields(about: AckedDelivery) -> dict[str, Any]:
    return {
        "consumer_seq": about.consumer_seq,
        "stream_seq": about.stream_seq,
        "deliveries": about.deliveries,
    }


def _read_delay(text: bytes) -> int:
    if text.startswith(b"{"):
        return decode(ConsumerNakOptions, text, strict=False).delay
    return parse_duration(text.decode("utf-8", "replace"))
