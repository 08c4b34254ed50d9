"""What clients say of the messages that they were given.

    nothing, `+ACK`, `+OK`    done
    `-NAK`, `-NAK <delay>`    deliver it again, at once or after a delay
    `+WPI`                    work in progress: wait for longer
    `+TERM`, `+TERM <why>`    never deliver it again
    `+NXT`, `+NXT <request>`  done, and ask for more

A client that wants to know that it was heard gives a reply subject; that a message is done with is
answered when it is on stable storage.

What always holds: what concerns a message that is not pending changes nothing.

One thread: the event loop's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.config.durations import parse_duration
from penstock.consumer.config import AckPolicy
from penstock.documents.decoding import decode
from penstock.documents.shapes import DurationNs
from penstock.errors import InvalidDocument
from penstock.limits import CONSUMER_TIME_NS_MAX
from penstock.stream.headers import value_of

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer

GONE_REASON = "Unacknowledged message was deleted"
_DONE = (b"", b"+ACK", b"+OK")


class ConsumerNakOptions(msgspec.Struct, frozen=True):
    """How long to wait before a message is delivered again."""

    delay: DurationNs = 0


class About(NamedTuple):
    """Which delivery it is about."""

    deliveries: int
    stream_seq: int
    consumer_seq: int


class Acks:
    """What becomes of one consumer's deliveries; see the module."""

    __slots__ = ("_consumer", "_sampled")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._sampled = 0

    def take(self, about: About, reply: bytes | None, body: bytes) -> None:
        """Do what a client says of a delivery."""
        if body in _DONE:
            self._acknowledge(about, reply)
            return
        if body.startswith(b"+NXT"):
            self._acknowledge(about, None)
            if reply is not None:
                self._consumer.request_next(reply, b"", body[4:])
            return
        if body.startswith(b"+TERM"):
            self.terminate(about, body[5:].strip().decode("utf-8", "replace"), reply)
            return
        # What only asks for patience or for another delivery need not outlive anything.
        if reply is not None and about.stream_seq:
            self._consumer.confirm(reply)
        if body.startswith(b"-NAK"):
            self._nak(about, body[4:].strip())
        elif body == b"+WPI":
            self._progress(about.stream_seq)

    # Done

    def _acknowledge(self, about: About, reply: bytes | None, *, is_sampled: bool = True) -> None:
        consumer = self._consumer
        policy = consumer.config.ack_policy
        if policy is AckPolicy.NONE or (
            about.stream_seq >= consumer.cursor and not consumer.config.flow_control
        ):
            return
        was_at_limit = consumer.is_at_ack_limit
        if policy is AckPolicy.EXPLICIT:
            if is_sampled and about.stream_seq in consumer.pending:
                self._sample(about)
            if consumer.pending.ack(about.stream_seq):
                consumer.on_done([about.stream_seq])
            else:
                consumer.consumers.on_late(consumer, about.stream_seq)
        else:
            consumer.on_done(self._acknowledge_all(about))
        consumer.remember(reply)
        if was_at_limit:
            consumer.pump()

    def _acknowledge_all(self, about: About) -> list[int]:
        pending = self._consumer.pending
        if (
            about.consumer_seq <= pending.floor_consumer_seq
            or about.stream_seq <= pending.floor_stream_seq
        ):
            return []
        consumer_seq = min(about.consumer_seq, pending.delivered_consumer_seq)
        return pending.ack_up_to(about.stream_seq, consumer_seq)

    def confirmed(self, headers: bytes) -> None:
        """Acknowledge all that the answer to a question about the flow tells of."""
        consumer_seq = value_of(headers, b"Nats-Last-Consumer") or b"0"
        stream_seq = value_of(headers, b"Nats-Last-Stream") or b"0"
        if stream_seq.isdigit() and consumer_seq.isdigit() and int(stream_seq[:19]):
            about = About(1, int(stream_seq[:19]), int(consumer_seq[:19]))
            self._acknowledge(about, None, is_sampled=False)

    def _sample(self, about: About) -> None:
        consumer = self._consumer
        percent = consumer.config.sample_percent
        if not percent:
            return
        # Evenly: of a hundred acknowledgements exactly so many.
        self._sampled += percent
        if self._sampled < 100:
            return
        self._sampled -= 100
        consumer.host.advise(
            consumer.stream.sublist,
            f"METRIC.CONSUMER.ACK.{consumer.stream.name}.{consumer.name}",
            "metric.v1.consumer_ack",
            {
                **self._names,
                "consumer_seq": about.consumer_seq,
                "stream_seq": about.stream_seq,
                "ack_time": consumer.pending_since_ns(about.stream_seq),
                "deliveries": about.deliveries,
            },
        )

    @property
    def _names(self) -> dict[str, str]:
        return {"stream": self._consumer.stream.name, "consumer": self._consumer.name}

    def _fields(self, about: About) -> dict[str, int]:
        return {
            "consumer_seq": about.consumer_seq,
            "stream_seq": about.stream_seq,
            "deliveries": about.deliveries,
        }

    def terminate(
        self, about: About, reason: str, reply: bytes | None = None, *, is_gone: bool = False
    ) -> None:
        """Never deliver a message again; one that `is_gone` is not in the stream any more."""
        letters = None if is_gone else self._consumer.letters
        if letters is not None and letters.owe_terminated(about.stream_seq, reason):
            self._consumer.remember(reply)
        else:
            self._acknowledge(about, reply, is_sampled=False)
        why = {"reason": reason} if reason else {}
        self._consumer.advise("MSG_TERMINATED", "terminated", self._fields(about) | why)

    # Not done

    def _nak(self, about: About, delay: bytes) -> None:
        consumer = self._consumer
        pending = consumer.pending
        if (
            not (
                pending.floor_consumer_seq
                < about.consumer_seq
                <= pending.delivered_consumer_seq + 1
            )
            or about.stream_seq not in pending
        ):
            return
        consumer.advise("MSG_NAKED", "nak", self._fields(about))
        if delay:
            try:
                delay_ns = _read_delay(delay)
            except (InvalidDocument, ValueError):
                text = delay[:64].decode("utf-8", "replace")
                consumer.log("WRN", f"bad NAK delay value: {text!r}")
            else:
                now_ns = consumer.clock.now_ns()
                due_ns = max(0, min(now_ns + delay_ns, CONSUMER_TIME_NS_MAX))
                consumer.put_off(about.stream_seq, due_ns - pending.waits_ns[0])
                return
        consumer.deliver_again([about.stream_seq])

    def _progress(self, stream_seq: int) -> None:
        # One that is going to be delivered again still is: its client was too late.
        if not self._consumer.pending.is_queued(stream_seq):
            self._consumer.put_off(stream_seq, self._consumer.clock.now_ns())


def _read_delay(text: bytes) -> int:
    if text.startswith(b"{"):
        return decode(ConsumerNakOptions, text, strict=False).delay
    return parse_duration(text.decode("utf-8", "replace"))
