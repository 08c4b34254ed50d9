"""Fast batches: a publisher streams messages and is told now and then how far they have come.

Everything about a message stands at the end of its reply subject:

    <inbox>.<batch id>.<flow>.<fail|ok>.<number>.<operation>.$FI

`flow` is how many messages the publisher would like to send between two answers. `fail` or `ok`
says what a gap in the numbers means to it. Each message is stored by itself; the last one is
answered with an acknowledgement of them all.

Here is only how far each batch is and what its publisher is answered. `Publishing` judges and
stores the messages, reports what became of them, and sends the answers that are returned.

Invariant: an answer that names a number is sent when everything up to it is durable.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

import msgspec

from penstock import error_codes
from penstock.clock import Clock
from penstock.errors import ApiError
from penstock.limits import BATCH_ID_BYTES_MAX, FAST_FLOW_ASKED_MAX, FAST_FLOW_MAX
from penstock.stream.publish.batches import (
    BatchQuota,
    OpenBatch,
    OpenBatches,
    ack_part,
    refusal_body,
)
from penstock.stream.publish.facts import StreamFacts
from penstock.stream.publish.message import IncomingMessage
from penstock.text.json.codec import to_json

FAST_BATCH_END: Final = b".$FI"
FLOW_DEFAULT: Final = 10


class Operation(IntEnum):
    """What a message does in its batch."""

    START = 0
    APPEND = 1
    COMMIT = 2
    COMMIT_WITHOUT = 3
    PING = 4


class BatchPosition(msgspec.Struct, frozen=True):
    """A message's batch and number, as its reply subject says."""

    batch_id: bytes
    flow: int
    gaps_allowed: bool
    seq: int
    operation: Operation

    @property
    def commits(self) -> bool:
        """Whether the message ends the batch."""
        return self.operation in (Operation.COMMIT, Operation.COMMIT_WITHOUT)


def parse_reply(reply: bytes) -> BatchPosition | None:
    """Read a reply subject; return None if it is malformed."""
    parts = reply.removesuffix(FAST_BATCH_END).rsplit(b".", 5)
    if len(parts) != 6:
        return None
    _, batch_id, flow, gaps, seq_digits, operation_digits = parts
    if not operation_digits.isdigit() or not seq_digits.isdigit() or gaps not in (b"fail", b"ok"):
        return None
    code, seq = int(operation_digits[:20]), int(seq_digits[:21])
    if code > Operation.PING or not 0 < seq < 2**64 - 1:
        return None
    operation = Operation(code)
    is_first = seq == 1
    if (
        (operation is Operation.COMMIT_WITHOUT and is_first)
        or (operation is Operation.START and not is_first)
        or (operation is Operation.APPEND and is_first)
    ):
        return None
    wish = int(flow[:20]) if flow.isdigit() else 0
    return BatchPosition(
        batch_id, min(wish or FLOW_DEFAULT, FAST_FLOW_ASKED_MAX), gaps == b"ok", seq, operation
    )


class _Batch(OpenBatch):
    """How far a batch is."""

    flow_max: int
    """How many messages between two answers the publisher would like."""

    flow: int
    """Messages between the last answer and the next."""

    gaps_allowed: bool
    last: int = 0
    """The number of the last message that came."""

    kept: int = 0
    """The number of the last message that was stored, or skipped as a duplicate."""

    is_stuck: bool = False
    """A message was refused so late that it counts as not stored yet."""

    is_closed: bool = False
    """Its last message was refused: nothing more is taken, and it ends when it is idle."""

    answered: int = 0
    """The number up to which the publisher has been answered."""

    stored_seq: int = 0


class FlowAnswer(msgspec.Struct, frozen=True):
    """An answer to the publisher, for when a sequence is durable (0: at once, in order)."""

    seq: int
    body: bytes
    heeds_no_ack: bool = False
    """Not sent if the stream never acknowledges."""


class Arrival(msgspec.Struct):
    """A message of a batch that has come: what is answered, and whether it is to be stored."""

    position: BatchPosition
    batch: _Batch
    answers: list[FlowAnswer] = msgspec.field(default_factory=list)
    is_to_store: bool = False


class FastBatches(OpenBatches[_Batch]):
    """The open fast batches of one stream; see the module."""

    def __init__(
        self,
        facts: StreamFacts,
        quota: BatchQuota,
        clock: Clock,
        ack: Callable[[int, bytes], bytes],
    ) -> None:
        """`ack` returns the acknowledgement of a sequence with more fields."""
        super().__init__(facts, quota, clock)
        self._ack = ack

    def check(self, message: IncomingMessage, reply: bytes) -> BatchPosition:
        """Return which message of which batch this is; raise ApiError if it cannot be in any."""
        self._check_message(message)
        if not self._facts.config.allow_batched:
            raise ApiError(error_codes.BATCH_PUBLISH_DISABLED)
        position = parse_reply(reply)
        if position is None:
            raise ApiError(error_codes.BATCH_PUBLISH_INVALID_PATTERN)
        if len(position.batch_id) > BATCH_ID_BYTES_MAX:
            raise ApiError(error_codes.BATCH_PUBLISH_INVALID_BATCH_ID)
        return position

    def arrive(self, position: BatchPosition, message: IncomingMessage) -> Arrival:
        """Count a message in, opening its batch if it is the first. Raise ApiError.

        If the message is to be stored, the caller reports what became of it by `stored`,
        `duplicate`, `refused` or `stuck`.
        """
        batch = self._batches.get(position.batch_id) or self._opened(position)
        self._check_level(position.batch_id, message)
        batch.touched_ns = self._now_ns()
        arrival = Arrival(position, batch)
        if position.operation is Operation.PING:
            self._ping(arrival)
        elif not batch.is_closed and self._is_next(arrival):
            arrival.is_to_store = True
            if position.seq == 1 and not position.commits:
                first = _flow_answer(0, batch.flow)
                arrival.answers.append(FlowAnswer(0, first, heeds_no_ack=True))
        return arrival

    def _opened(self, position: BatchPosition) -> _Batch:
        quota = self._quota
        if position.seq != 1:
            raise ApiError(error_codes.BATCH_PUBLISH_UNKNOWN_BATCH_ID)
        is_full = len(self._batches) >= quota.fast_per_stream_max
        if is_full or quota.fast_total >= quota.fast_total_max:
            raise ApiError(error_codes.BATCH_PUBLISH_TOO_MANY_INFLIGHT)
        quota.fast_total += 1
        flow = 1 if self._batches else min(FAST_FLOW_MAX, position.flow)
        batch = _Batch(self._now_ns(), position.flow, flow, position.gaps_allowed)
        self._batches[position.batch_id] = batch
        return batch

    def _ping(self, arrival: Arrival) -> None:
        """Answer a publisher that asks how far its batch is."""
        batch, position = arrival.batch, arrival.position
        if position.seq > batch.last:
            self._add_gap(arrival, batch.last + 1, position.seq + 1)
            if batch.gaps_allowed:
                batch.last = position.seq
                self._catch_up(batch)
                if self._add_flow_if_due(arrival):
                    return
            elif self._finish(arrival):
                return
        self._add_flow(arrival)

    def _is_next(self, arrival: Arrival) -> bool:
        """Count a message in; return False if it ends the batch and is not part of it."""
        batch, position = arrival.batch, arrival.position
        expected = batch.last + 1
        if position.seq != expected:
            self._add_gap(arrival, expected, position.seq)
        if position.seq < expected or (position.seq > expected and not batch.gaps_allowed):
            self._finish(arrival)
            return False
        if position.operation is Operation.COMMIT_WITHOUT:
            batch.last = position.seq - 1
            self._catch_up(batch)
            self._finish(arrival)
            return False
        batch.last = position.seq
        return True

    # What became of a message

    def stored(self, arrival: Arrival, seq: int) -> list[FlowAnswer]:
        """Note that a message was stored under a sequence; return the answers."""
        arrival.answers = []
        batch = arrival.batch
        batch.stored_seq = seq
        batch.kept = batch.last
        if arrival.position.commits:
            self._finish(arrival)
        else:
            self._add_flow_if_due(arrival)
        return arrival.answers

    def stuck(self, arrival: Arrival) -> None:
        """Note that a message was refused like a single one; its number stays open."""
        arrival.batch.is_stuck = True
        arrival.batch.is_closed = arrival.position.commits

    def duplicate(self, arrival: Arrival, known_seq: int) -> list[FlowAnswer]:
        """Note that the stream has a message already, under `known_seq`; return the answers."""
        arrival.answers = []
        batch, position = arrival.batch, arrival.position
        self._catch_up(batch)
        self._add_flow_if_due(arrival)
        if not position.commits:
            return arrival.answers
        if position.gaps_allowed or batch.last != 1:
            self._finish(arrival)
            return arrival.answers
        self._drop(position.batch_id)
        more = b',"duplicate": true' + ack_part(position.batch_id, position.seq)
        arrival.answers.append(FlowAnswer(known_seq, self._ack(known_seq, more)))
        return arrival.answers

    def refused(self, arrival: Arrival, error: ApiError) -> list[FlowAnswer]:
        """Note that a message broke a rule; return the answers."""
        arrival.answers = []
        batch, position = arrival.batch, arrival.position
        if not position.gaps_allowed and batch.last == 1:
            self._drop(position.batch_id)
            answer = refusal_body(error, self._facts.config.name)
            return [FlowAnswer(0, answer, heeds_no_ack=True)]
        told = {"type": "err", "seq": position.seq, "error": error.document()}
        self._add(arrival, to_json(told))
        if position.gaps_allowed and not position.commits:
            return arrival.answers
        batch.last -= 1
        self._catch_up(batch)
        self._finish(arrival)
        return arrival.answers

    @staticmethod
    def _catch_up(batch: _Batch) -> None:
        if not batch.is_stuck:
            batch.kept = batch.last

    # Answers

    @staticmethod
    def _add(arrival: Arrival, body: bytes) -> None:
        arrival.answers.append(FlowAnswer(arrival.batch.stored_seq, body))

    def _add_gap(self, arrival: Arrival, expected: int, found: int) -> None:
        self._add(arrival, to_json({"type": "gap", "last_seq": expected, "seq": found}))

    def _add_flow(self, arrival: Arrival) -> None:
        self._add(arrival, _flow_answer(arrival.batch.answered, arrival.batch.flow))

    def _add_flow_if_due(self, arrival: Arrival) -> bool:
        """Answer after the agreed number of messages, and set the next one."""
        batch = arrival.batch
        steps = (batch.kept - batch.answered) // batch.flow
        if steps < 1:
            return False
        batch.answered += steps * batch.flow
        share = min(max(FAST_FLOW_MAX // len(self._batches), 1), batch.flow_max)
        if batch.flow < share:
            batch.flow = min(batch.flow * 2, share)
        elif batch.flow > share:
            batch.flow = max(batch.flow // 2, share)
        self._add_flow(arrival)
        return True

    def _finish(self, arrival: Arrival) -> bool:
        """Acknowledge the whole batch and drop it; False if a message of it is not stored."""
        batch, batch_id = arrival.batch, arrival.position.batch_id
        if batch.kept != batch.last:
            batch.is_closed = True
            return False
        self._drop(batch_id)
        self._add(arrival, self._ack(batch.stored_seq, ack_part(batch_id, batch.last)))
        return True

    def _drop(self, batch_id: bytes) -> None:
        del self._batches[batch_id]
        self._quota.fast_total -= 1


def _flow_answer(seq: int, messages: int) -> bytes:
    return to_json({"type": "ack", "seq": seq, "msgs": messages})
