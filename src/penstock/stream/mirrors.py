"""Mirrors: a stream that is a copy of another one, with its sequences, times and gaps.

A mirror goes on where it ends: behind its own last sequence. What the origin has lost meanwhile is
a gap here too. An origin that was made again under its name begins at 1; what it has below the
mirror's end is passed over, as the reference server does.

One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ApiError
from penstock.limits import COPIED_MESSAGES_MAX, FEED_BYTES_MAX
from penstock.store.copying import Copier
from penstock.stream.config import StreamSource
from penstock.stream.feeds import Feed, OriginMessage, Start, without_expectations
from penstock.stream.messages import Message, Place

if TYPE_CHECKING:
    from penstock.stream.stream import Stream


class Mirror(Feed):
    """A mirror's one feed; see the module."""

    def __init__(self, stream: Stream, origin: StreamSource) -> None:
        super().__init__(stream, origin)
        stream.is_caught_up = False

    def rest(self) -> None:
        """Learn that there is nothing more for now: the mirror can answer for its origin."""
        if not self.stream.is_caught_up:
            self.stream.is_caught_up = True
            for each in tuple(self.stream.on_caught_up):
                each()
            self.stream.on_caught_up.clear()

    def meet(self, identity: str) -> None:
        """Learn which stream the origin is: a mirror follows whichever has the name."""

    def start(self) -> Start:
        """Tell where the origin is to be read from: where the mirror ends."""
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
        """Store messages under their sequences and times."""
        self._follow_store()
        before = self.position
        try:
            for each in messages:
                # An origin that was made again has lower ones.
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
        # A purge may have led the mirror beyond what it had.
        self.position = max(self.position, self.stream.store.last_seq)

    def _copy(self, original: OriginMessage) -> None:
        publishing = self.stream.publishing
        headers = without_expectations(original.headers)
        message = Message(
            self.renamed(original.subject), headers, original.payload, is_sourced=True
        )
        publishing.transform(message)
        publishing.judge(message)
        if publishing.is_wanted(message):
            publishing.store([message], place=Place(original.seq, original.timestamp_ns))
        else:
            self.stream.store.skip(original.seq - self.stream.store.last_seq)

    def shown_position(self) -> int:
        """Tell no position: it is the mirror's last sequence."""
        return 0
