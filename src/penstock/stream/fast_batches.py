"""Fast batches: a publisher streams messages and is told now and then how far they have come.

All there is to know stands at the end of a message's reply:

    <inbox>.<batch id>.<flow>.<fail|ok>.<number>.<operation>.$FI

`flow` is how many messages the publisher would like to send between two answers, `fail` or `ok`
says what a gap in the numbers means to it. Each message is stored by itself; the last one is
answered with an acknowledgement of them all.

What always holds: an answer that tells of a number leaves when all up to it is durable.

One thread: the event loop's.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from penstock import error_codes
from penstock.documents.encoding import to_json
from penstock.errors import ApiError
from penstock.stream import expectations
from penstock.stream.batch_room import ID_BYTES_MAX
from penstock.stream.batches import ack_part
from penstock.stream.messages import Message
from penstock.stream.open_batches import OpenBatch, OpenBatches
from penstock.stream.staging import AlreadyThere, Staged

FAST_BATCH_END: Final = b".$FI"
FLOW_DEFAULT: Final = 10
FLOW_MAX: Final = 500
"""Messages between two answers at the most, of all batches of a stream together."""

FLOW_WISH_MAX: Final = 65_535


class Operation(IntEnum):
    """What a message is to a batch."""

    START = 0
    APPEND = 1
    COMMIT = 2
    COMMIT_WITHOUT = 3
    PING = 4


class Place(msgspec.Struct, frozen=True):
    """Where a message belongs, by its reply."""

    batch_id: bytes
    flow: int
    gaps_allowed: bool
    seq: int
    operation: Operation

    @property
    def commits(self) -> bool:
        """Whether the batch ends here."""
        return self.operation in (Operation.COMMIT, Operation.COMMIT_WITHOUT)


def parse_reply(reply: bytes) -> Place | None:
    """Read a reply; None where it cannot be understood."""
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
    return Place(batch_id, min(wish or FLOW_DEFAULT, FLOW_WISH_MAX), gaps == b"ok", seq, operation)


class _Batch(OpenBatch):
    """How far a batch has come."""

    flow_max: int
    """What the publisher would like."""

    flow: int
    """Messages until the next answer."""

    gaps_allowed: bool
    last: int = 0
    """The number of the last message that came."""

    kept: int = 0
    """The number of the last one that is in the stream, or was passed over as a duplicate."""

    is_stuck: bool = False
    """A message was refused so late that it counts as one that is still to be stored."""

    is_closed: bool = False
    """It was broken off where its last message had been refused: it is left to wait for its end."""

    answered: int = 0
    """The number up to which the publisher was told of."""

    stored_seq: int = 0


class FastBatches(OpenBatches[_Batch]):
    """The fast batches of one stream; see the module."""

    def take(self, message: Message, reply: bytes) -> None:
        """Take a message of a batch, and answer its publisher where it is time to."""
        try:
            place = self._check(message, parse_reply(reply))
            if message.is_only_traced:
                self._publishing.tell_accepted(message)
                return
            batch = self._batches.get(place.batch_id) or self._opened(place)
            self._check_level(place.batch_id, message)
        except ApiError as error:
            self._publishing.refuse(reply, error, message)
            return
        batch.touched_ns = self._now_ns()
        if place.operation is Operation.PING:
            self._ping(batch, place, reply)
        elif not batch.is_closed and self._is_next(batch, place, reply):
            self._publish(batch, place, message, reply)

    def _check(self, message: Message, place: Place | None) -> Place:
        self._check_message(message)
        if not self._publishing.stream.config.allow_batched:
            raise ApiError(error_codes.BATCH_PUBLISH_DISABLED)
        if place is None:
            raise ApiError(error_codes.BATCH_PUBLISH_INVALID_PATTERN)
        if len(place.batch_id) > ID_BYTES_MAX:
            raise ApiError(error_codes.BATCH_PUBLISH_INVALID_BATCH_ID)
        return place

    def _opened(self, place: Place) -> _Batch:
        room = self._room
        if place.seq != 1:
            raise ApiError(error_codes.BATCH_PUBLISH_UNKNOWN_BATCH_ID)
        is_full = len(self._batches) >= room.fast_per_stream_max
        if is_full or room.fast_total >= room.fast_total_max:
            raise ApiError(error_codes.BATCH_PUBLISH_TOO_MANY_INFLIGHT)
        room.fast_total += 1
        flow = 1 if self._batches else min(FLOW_MAX, place.flow)
        batch = _Batch(self._now_ns(), place.flow, flow, place.gaps_allowed)
        self._batches[place.batch_id] = batch
        self._publishing.timer.plan()
        return batch

    def _ping(self, batch: _Batch, place: Place, reply: bytes) -> None:
        """The publisher wants to know how far it is."""
        if place.seq > batch.last:
            self._tell_gap(batch, reply, batch.last + 1, place.seq + 1)
            if batch.gaps_allowed:
                batch.last = place.seq
                self._catch_up(batch)
                if self._tell_flow_if_due(batch, reply):
                    return
            elif self._finish(batch, place, reply):
                return
        self._tell_flow(batch, reply)

    def _is_next(self, batch: _Batch, place: Place, reply: bytes) -> bool:
        """Count a message in; False where it ends the batch without being part of it."""
        expected = batch.last + 1
        if place.seq != expected:
            self._tell_gap(batch, reply, expected, place.seq)
        if place.seq < expected or (place.seq > expected and not batch.gaps_allowed):
            self._finish(batch, place, reply)
            return False
        if place.operation is Operation.COMMIT_WITHOUT:
            batch.last = place.seq - 1
            self._catch_up(batch)
            self._finish(batch, place, reply)
            return False
        batch.last = place.seq
        return True

    def _publish(self, batch: _Batch, place: Place, message: Message, reply: bytes) -> None:
        publishing = self._publishing
        if place.seq == 1 and not place.commits:
            publishing.answer(reply, 0, _flow_answer(0, batch.flow))
        try:
            publishing.transform(message)
            Staged(publishing).add(message)
            if not self._has_expected_id(message, reply):
                batch.is_stuck = True
                batch.is_closed = place.commits
                return
            seq = publishing.keep(message)
        except AlreadyThere as known:
            publishing.tell_refused(message, known)
            self._pass_over(batch, place, reply, known)
            return
        except ApiError as error:
            publishing.tell_refused(message, error)
            self._refuse(batch, place, reply, error)
            return
        publishing.tell_accepted(message)
        batch.stored_seq = seq
        batch.kept = batch.last
        if place.commits:
            self._finish(batch, place, reply)
        else:
            self._tell_flow_if_due(batch, reply)
        publishing.stream.on_stored()

    def _has_expected_id(self, message: Message, reply: bytes) -> bool:
        """Tell whether the stream's last id is as expected; this alone is refused as by itself."""
        publishing = self._publishing
        last_seq = publishing.stream.store.last_seq
        try:
            expectations.check_last_id(message, publishing.known_ids, last_seq)
        except ApiError as error:
            publishing.refuse(reply, error, message)
            return False
        return True

    @staticmethod
    def _catch_up(batch: _Batch) -> None:
        if not batch.is_stuck:
            batch.kept = batch.last

    def _pass_over(self, batch: _Batch, place: Place, reply: bytes, known: AlreadyThere) -> None:
        """A message is in the stream already."""
        self._catch_up(batch)
        self._tell_flow_if_due(batch, reply)
        if not place.commits:
            return
        if place.gaps_allowed or batch.last != 1:
            self._finish(batch, place, reply)
            return
        self._drop(place.batch_id)
        more = b',"duplicate": true' + ack_part(place.batch_id, place.seq)
        ingest = self._publishing.stream.ingest
        ingest.hold(known.seq, reply, ingest.ack(known.seq, more))

    def _refuse(self, batch: _Batch, place: Place, reply: bytes, error: ApiError) -> None:
        if not place.gaps_allowed and batch.last == 1:
            self._drop(place.batch_id)
            self._publishing.answer_refused(reply, error)
            return
        answer = {"type": "err", "seq": place.seq, "error": error.document()}
        self._publishing.stream.ingest.hold(batch.stored_seq, reply, to_json(answer))
        if place.gaps_allowed and not place.commits:
            return
        batch.last -= 1
        self._catch_up(batch)
        self._finish(batch, place, reply)

    # Answers

    def _tell_gap(self, batch: _Batch, reply: bytes, expected: int, found: int) -> None:
        answer = {"type": "gap", "last_seq": expected, "seq": found}
        self._publishing.stream.ingest.hold(batch.stored_seq, reply, to_json(answer))

    def _tell_flow(self, batch: _Batch, reply: bytes) -> None:
        answer = _flow_answer(batch.answered, batch.flow)
        self._publishing.stream.ingest.hold(batch.stored_seq, reply, answer)

    def _tell_flow_if_due(self, batch: _Batch, reply: bytes) -> bool:
        """Answer after as many messages as were agreed on, and agree on the next."""
        steps = (batch.kept - batch.answered) // batch.flow
        if steps < 1:
            return False
        batch.answered += steps * batch.flow
        share = min(max(FLOW_MAX // len(self._batches), 1), batch.flow_max)
        if batch.flow < share:
            batch.flow = min(batch.flow * 2, share)
        elif batch.flow > share:
            batch.flow = max(batch.flow // 2, share)
        self._tell_flow(batch, reply)
        return True

    def _finish(self, batch: _Batch, place: Place, reply: bytes) -> bool:
        """Acknowledge all that came, and be done with the batch; False where that cannot be."""
        if batch.kept != batch.last:
            batch.is_closed = True
            return False
        self._drop(place.batch_id)
        ingest = self._publishing.stream.ingest
        ack = ingest.ack(batch.stored_seq, ack_part(place.batch_id, batch.last))
        ingest.hold(batch.stored_seq, reply, ack)
        return True

    # Coming to nothing

    def _drop(self, batch_id: bytes) -> None:
        del self._batches[batch_id]
        self._room.fast_total -= 1

    def _abandon(self, batch_id: bytes, reason: str) -> None:
        # Nobody is told: what came of it is in the stream.
        self._drop(batch_id)


def _flow_answer(seq: int, messages: int) -> bytes:
    return to_json({"type": "ack", "seq": seq, "msgs": messages})
