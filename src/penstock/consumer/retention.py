"""Which messages a stream removes because no consumer needs them any more.

A stream with retention by interest keeps a message while a consumer or a fed stream needs it; a
work queue removes a message once its consumer is done with it. `needs` says who still needs a
message; here is what follows, for all but plain acknowledgements (`ack_receiver` removes those).

Called by the stream's consumers (`registry`) and by each consumer. Thread: the event loop's.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.consumer.needs import Position, StreamNeeds
from penstock.errors import CorruptStore, RecordNotFound, StoreReadOnly
from penstock.stream.config.config import RetentionPolicy
from penstock.stream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.consumer.consumer import Consumer


class Retention:
    """What one stream keeps for its consumers; see the module."""

    def __init__(self, stream: Stream, consumers: Mapping[str, Consumer]) -> None:
        """`consumers` are the stream's, as they come and go."""
        self._stream = stream
        self._consumers = consumers
        self.needs = StreamNeeds(stream.fed_streams, self._load_subject)

    def _load_subject(self, stream_seq: int) -> bytes:
        with contextlib.suppress(RecordNotFound, CorruptStore):
            return self._stream.store.load(stream_seq).subject
        return b""

    def on_done(self, stream_seqs: list[int]) -> None:
        """Remove messages that a consumer is done with, unless others need them."""
        retention = self._stream.config.retention
        if retention is RetentionPolicy.LIMITS:
            return
        for seq in stream_seqs:
            if retention is RetentionPolicy.WORK_QUEUE or not self.needs.needs(seq):
                self._remove(seq)

    def on_late(self, position: Position, stream_seq: int) -> None:
        """Remove a message that was acknowledged when it was not pending, unless it is needed.

        It may have been given up before. An ack for a message outside the consumer's filter is
        ignored.
        """
        if self._stream.config.retention is RetentionPolicy.LIMITS:
            return
        subject = None
        if position.subjects is not None:
            subject = self._load_subject(stream_seq)
            if not position.matches(subject):
                return
        if not self.needs.needs(stream_seq, subject):
            self._remove(stream_seq)

    def _remove(self, stream_seq: int) -> None:
        # From a store that has failed it goes when that was reopened.
        with contextlib.suppress(StoreReadOnly):
            self._stream.store.remove(stream_seq)

    def sweep(self) -> None:
        """Remove what no consumer needs, if the stream keeps only what is needed."""
        retention = self._stream.config.retention
        if retention is RetentionPolicy.LIMITS or self._stream.is_stopped:
            return
        if retention is RetentionPolicy.WORK_QUEUE:
            # Messages without a consumer wait for one; what was done with goes.
            self._sweep_up_to(self._last_passed(), spares_unclaimed=True)
        elif self._consumers or self._stream.fed_streams:
            self._sweep_up_to(self._stream.store.state().last_seq)
        else:
            self._stream.store.purge(durable=False)

    def begin_with_interest(self) -> None:
        """Remove what consumers are done with, when a stream changes from limits to interest.

        Messages that were never meant for any consumer stay, unless there is no consumer at all.
        """
        if self._consumers or self._stream.fed_streams:
            self._sweep_up_to(self._last_passed(), spares_unclaimed=True)
        else:
            self._stream.store.purge(durable=False)

    def _last_passed(self) -> int:
        """Return the last sequence that any consumer has passed."""
        positions = self.needs.positions.values()
        return max((each.cursor - 1 for each in positions), default=0)

    def _sweep_up_to(self, last_seq: int, *, spares_unclaimed: bool = False) -> None:
        store = self._stream.store
        seq = store.state().first_seq
        while seq <= last_seq:
            try:
                message = store.load_next(seq)
            except RecordNotFound:
                return
            seq = message.seq + 1
            if message.seq > last_seq:
                return
            positions = self.needs.positions.values()
            if spares_unclaimed and not any(each.matches(message.subject) for each in positions):
                continue
            if not self.needs.needs(message.seq, message.subject):
                self._remove(message.seq)
                self._take_from_all(message.seq)

    def _take_from_all(self, stream_seq: int) -> None:
        """Lose a removed message also where it is pending because of an earlier filter."""
        for consumer in self._consumers.values():
            if stream_seq in consumer.progress.pending:
                consumer.on_removed(stream_seq)
