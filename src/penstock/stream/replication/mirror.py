"""Mirrors: a stream that is a copy of another one, with its sequences, times and gaps.

A mirror continues behind its own last sequence. Messages that the origin has lost meanwhile are a
gap in the mirror too. An origin that was deleted and created again begins at 1; its messages below
the mirror's end are skipped, as in the reference server.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ApiError
from penstock.limits import COPIED_MESSAGES_MAX, FEED_BYTES_MAX
from penstock.store.log.fast_copy import Copier
from penstock.stream.config.config import StreamSource
from penstock.stream.publish.message import IncomingMessage, OriginPosition
from penstock.stream.replication.feed import Feed, OriginMessage, Start, without_expectations

if TYPE_CHECKING:
    from penstock.stream.stream import Stream


class Mirror(Feed):
    """The one feed of a mirror; see the module."""

    def __init__(self, stream: Stream, origin: StreamSource) -> None:
        super().__init__(stream, origin)
        stream.follow_origin()

    def rest(self) -> None:
        """Note that there are no more messages for now: the mirror can answer for its origin."""
        self.stream.catch_up()

    def meet(self, identity: str) -> None:
        """Nothing to note: a mirror follows whichever stream has the origin's name."""

    def start(self) -> Start:
        """Return where to begin reading the origin: behind the mirror's end."""
        last_seq = self.stream.store.state().last_seq
        if last_seq:
            return Start(last_seq + 1)
        time = self.origin.opt_start_time
        if self.origin.opt_start_seq or time is None:
            return Start(self.origin.opt_start_seq)
        return Start(time_ns=time.time_ns)

    def begin(self, position: int) -> None:
        """Make a gap up to where the origin's messages begin."""
        store = self.stream.store
        state = store.state()
        if position > state.last_seq:
            if state.messages:
                store.skip(position - state.last_seq)
            else:
                store.compact(position + 1)
        self.position = max(position, state.last_seq)

    def copy_run(self, copier: Copier, until: int) -> int:
        """Copy plain messages with their sequences and times."""
        self._follow_store()
        return copier.copy_placed(
            self.subjects,
            self.position + 1,
            until,
            count_max=COPIED_MESSAGES_MAX,
            bytes_max=FEED_BYTES_MAX,
        )

    def take(self, messages: Sequence[OriginMessage]) -> bool:
        """Store messages with their sequences and times."""
        self._follow_store()
        before = self.position
        try:
            for each in messages:
                # An origin that was created again has lower ones.
                if each.seq > self.position:
                    self._copy(each)
                    self.position = each.seq
            self.error = None
        except ApiError as error:
            self.error = error
        if self.position != before:
            self.stream.on_stored()
        return self.error is None

    def _follow_store(self) -> None:
        # A purge may have moved the mirror beyond its position.
        self.position = max(self.position, self.stream.store.last_seq)

    def _copy(self, original: OriginMessage) -> None:
        headers = without_expectations(original.headers)
        message = IncomingMessage(
            self.renamed(original.subject), headers, original.payload, is_sourced=True
        )
        self.stream.publishing.judge(message)
        position = OriginPosition(original.seq, original.timestamp_ns)
        self.stream.publishing.store_at(message, position)

    def shown_position(self) -> int:
        """Return 0: a mirror's position is its last sequence, and not shown."""
        return 0
