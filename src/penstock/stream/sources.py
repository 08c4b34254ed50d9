"""Sources: origins whose messages a stream takes among its own, numbered anew.

Each message carries a mark that tells where it came from; by the newest mark of a source the
stream knows how far it has come there. What was removed since is remembered in a document beside
the stream (`source_positions`), so that an emptied stream does not take everything again.

One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import ApiError
from penstock.limits import COPIED_MESSAGES_MAX, FEED_BYTES_MAX
from penstock.store.copying import Copier
from penstock.stream.config import RetentionPolicy, StreamSource
from penstock.stream.feeds import Feed, OriginMessage, Start, without_expectations
from penstock.stream.headers import with_added, without
from penstock.stream.messages import STREAM_SOURCE, Message
from penstock.stream.source_marks import name_of

if TYPE_CHECKING:
    from penstock.stream.stream import Stream


class Source(Feed):
    """One of a stream's sources; see the module."""

    def __init__(self, stream: Stream, origin: StreamSource) -> None:
        super().__init__(stream, origin)
        self.name = name_of(origin)
        self.identity = ""
        """Which stream the position counts in; empty where that is not known."""

        self.stored_seq = 0
        """The stream's own sequence of the last message from there; 0 for none."""

        self.on_progress: Callable[[], None] | None = None
        """Called when the position has changed."""

        self._is_made_again = False

    def meet(self, identity: str) -> None:
        """Learn which stream the origin is: one that was made again begins anew."""
        self._is_made_again = bool(identity and self.identity and identity != self.identity)
        if self._is_made_again:
            host, name = self.stream.host, self.stream.name
            text = f"source {self.origin.name!r} of stream {name!r} was made again"
            host.log("WRN", f"JetStream: {text}: starting at its first message")
            self.position = 0
        self.identity = identity

    def start(self) -> Start:
        """Tell where the origin is to be read from."""
        if self.position:
            return Start(self.position + 1)
        if self.origin.opt_start_seq:
            return Start(self.origin.opt_start_seq)
        state = self.stream.store.state()
        time = self.origin.opt_start_time
        # A stream that has had messages, and does not know where from, goes on where it ended.
        if time is not None:
            return Start(time_ns=max(time.time_ns, state.last_time_ns))
        if state.first_seq > 1 and state.last_time_ns and not self._is_made_again:
            return Start(time_ns=state.last_time_ns)
        return Start()

    def begin(self, position: int) -> None:
        """Learn that nothing up to `position` will come."""
        self.position = max(self.position, position)

    def rest(self) -> None:
        """Learn that there is nothing more for now: nobody waits for that."""

    def copy_run(self, copier: Copier, until: int) -> int:
        """Copy plain messages, each with its mark."""
        last_seq = copier.copy_marked(
            self.subjects,
            self.position + 1,
            until,
            b"%b: %b " % (STREAM_SOURCE, self.name.place.encode()),
            f" {self.name.patterns} {self.name.destinations} ".encode(),
            f" {self.identity}\r\n\r\n".encode() if self.identity else b"\r\n\r\n",
            count_max=COPIED_MESSAGES_MAX,
            bytes_max=FEED_BYTES_MAX,
        )
        if last_seq:
            self.stored_seq = self.stream.store.last_seq
            self._tell()
        return last_seq

    def _tell(self) -> None:
        if self.on_progress is not None:
            self.on_progress()

    def take(self, messages: Sequence[OriginMessage]) -> bool:
        """Store messages behind the stream's own."""
        before = self.position
        together: list[tuple[int, Message]] = []
        try:
            try:
                for each in messages:
                    self._copy(each, together)
            finally:
                self._store(together)
            self.error = None
        except ApiError as error:
            self.error = error
        if self.position != before:
            self.stream.on_stored()
            self._tell()
        return self.error is None

    def _copy(self, original: OriginMessage, together: list[tuple[int, Message]]) -> None:
        """Judge a message; plain ones are gathered to be stored together."""
        is_plain = self._is_plain(original)
        if not is_plain:
            # The rules for it look at what is stored.
            self._store(together)
        message = self._marked(original)
        self.stream.publishing.transform(message)
        if self.stream.publishing.judge(message):
            # It is here already.
            self.position = original.seq
            return
        together.append((original.seq, message))
        if not is_plain:
            self._store(together)

    def _is_plain(self, message: OriginMessage) -> bool:
        config = self.stream.config
        return not (
            b"Nats-" in message.headers
            or config.allow_msg_counter
            or config.retention is RetentionPolicy.INTEREST
        )

    def _marked(self, original: OriginMessage) -> Message:
        headers = original.headers
        if headers:
            headers = without_expectations(without(headers, STREAM_SOURCE))
        mark = self.name.mark(original.seq, original.subject, self.identity)
        return Message(
            self.renamed(original.subject),
            with_added(headers, STREAM_SOURCE, mark),
            original.payload,
            is_sourced=True,
        )

    def _store(self, together: list[tuple[int, Message]]) -> None:
        """Store what was judged; one by one where not all of it finds room."""
        publishing = self.stream.publishing
        if len(together) > 1:
            try:
                self.stored_seq = publishing.store([message for _, message in together])
            except ApiError:
                pass
            else:
                self.position = together[-1][0]
                together.clear()
        while together:
            seq, message = together[0]
            self.stored_seq = publishing.keep(message)
            self.position = seq
            del together[0]
