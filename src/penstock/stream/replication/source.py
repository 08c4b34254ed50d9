"""Sources: origins whose messages a stream takes among its own, with new sequences.

Each message gets a mark, the header `Nats-Stream-Source`, that says where it came from. By the
newest mark of a source the stream knows its position there after a restart. Positions are also
written to a document (`source_positions`), so that a purged stream does not take everything again.

    ORDERS 17 orders.> > orders.eu Qd3kPw0Z
    |      |  |        | |         identity of the origin: created again, it is another stream
    |      |  |        | the subject there
    |      |  |        the destinations of the transforms, one for each pattern
    |      |  the patterns that selected it
    |      its sequence there
    the origin, with a hash of its API prefix if it is not of this account

Counters tell origins apart by the mark too, so its form is the reference server's to the byte.

Thread: the event loop's; the functions about marks are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import ApiError
from penstock.limits import COPIED_MESSAGES_MAX, FEED_BYTES_MAX
from penstock.protocol.headers import with_added, without
from penstock.store.log.fast_copy import Copier
from penstock.stream.config.config import RetentionPolicy, StreamSource
from penstock.stream.publish.message import STREAM_SOURCE, IncomingMessage
from penstock.stream.publish.refusals import AlreadyStored
from penstock.stream.replication.feed import Feed, OriginMessage, Start, without_expectations
from penstock.text.times import Instant, timestamp

if TYPE_CHECKING:
    from penstock.stream.stream import Stream


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_LENGTH: Final = 8
_EVERYTHING: Final = ">"
# Patterns have neither blanks nor form feeds, so both can separate them.
_BETWEEN: Final = "\f"


def short_hash(text: str) -> str:
    """Return eight letters and digits as a hash of a text."""
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_HASH_LENGTH])


def identity_of(created: Instant) -> str:
    """Return the identity of a stream: another one for a later stream of the same name."""
    return short_hash(timestamp(created.time_ns))


class SourceName(msgspec.Struct, frozen=True):
    """What makes a source different from the stream's others."""

    place: str
    patterns: str
    destinations: str

    def mark(self, seq: int, subject: bytes, identity: str) -> bytes:
        """Return the mark of a message."""
        start = f"{self.place} {seq} {self.patterns} {self.destinations} ".encode()
        return start + subject + (b" " + identity.encode() if identity else b"")


def name_of(source: StreamSource) -> SourceName:
    """Return the name of a source."""
    place = source.name
    if source.external is not None:
        place += ":" + short_hash(source.external.api)
    if source.consumer is not None:
        place += ":C=" + short_hash(source.consumer.name)
    if not source.subject_transforms:
        return SourceName(place, source.filter_subject or _EVERYTHING, _EVERYTHING)
    pairs = source.subject_transforms
    return SourceName(
        place,
        _BETWEEN.join(pair.src or _EVERYTHING for pair in pairs),
        _BETWEEN.join(pair.dest or _EVERYTHING for pair in pairs),
    )


class Mark(msgspec.Struct, frozen=True):
    """A mark: which source, the sequence there, and the identity of the origin."""

    name: SourceName
    seq: int
    identity: str


def read_mark(value: bytes) -> Mark | None:
    """Parse a mark; return None for anything else.

    Servers before 2.10 wrote origin and sequence only, or an acknowledgement's subject. Such a
    stream has newer marks by now, or starts by its configuration.
    """
    fields = value.decode("utf-8", "replace").split(" ")
    if len(fields) < 4 or not fields[1].isascii() or not fields[1].isdigit():
        return None
    identity = fields[5] if len(fields) >= 6 else ""
    # A sequence has twenty digits at most.
    return Mark(SourceName(fields[0], fields[2], fields[3]), int(fields[1][:20]), identity)


class Source(Feed):
    """One of a stream's sources; see the module."""

    def __init__(self, stream: Stream, origin: StreamSource) -> None:
        super().__init__(stream, origin)
        self.name = name_of(origin)
        self.identity = ""
        """The identity of the stream that the position counts in; empty if unknown."""

        self.stored_seq = 0
        """The stream's own sequence of the last message from this source; 0 for none."""

        self.on_progress: Callable[[], None] | None = None
        """Called when the position has changed."""

        self._is_made_again = False

    def meet(self, identity: str) -> None:
        """Note which stream the origin is; one that was created again is read from its start."""
        self._is_made_again = bool(identity and self.identity and identity != self.identity)
        if self._is_made_again:
            host, name = self.stream.host, self.stream.name
            text = f"source {self.origin.name!r} of stream {name!r} was made again"
            host.log("WRN", f"JetStream: {text}: starting at its first message")
            self.position = 0
        self.identity = identity

    def start(self) -> Start:
        """Return where to begin reading the origin."""
        if self.position:
            return Start(self.position + 1)
        if self.origin.opt_start_seq:
            return Start(self.origin.opt_start_seq)
        state = self.stream.store.state()
        time = self.origin.opt_start_time
        # A stream that has had messages, without a known position, continues where it ended.
        if time is not None:
            return Start(time_ns=max(time.time_ns, state.last_time_ns))
        if state.first_seq > 1 and state.last_time_ns and not self._is_made_again:
            return Start(time_ns=state.last_time_ns)
        return Start()

    def begin(self, position: int) -> None:
        """Note that no message up to `position` will come."""
        self.position = max(self.position, position)

    def rest(self) -> None:
        """Nothing to do: no one waits for a source to catch up."""

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
        together: list[tuple[int, IncomingMessage]] = []
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

    def _copy(self, original: OriginMessage, together: list[tuple[int, IncomingMessage]]) -> None:
        """Judge a message; plain ones are collected to be stored together."""
        is_plain = self._is_plain(original)
        if not is_plain:
            # Its rules read what is stored, so the messages before it must be.
            self._store(together)
        message = self._marked(original)
        try:
            self.stream.publishing.judge(message)
        except AlreadyStored:
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

    def _marked(self, original: OriginMessage) -> IncomingMessage:
        headers = original.headers
        if headers:
            headers = without_expectations(without(headers, STREAM_SOURCE))
        mark = self.name.mark(original.seq, original.subject, self.identity)
        return IncomingMessage(
            self.renamed(original.subject),
            with_added(headers, STREAM_SOURCE, mark),
            original.payload,
            is_sourced=True,
        )

    def _store(self, together: list[tuple[int, IncomingMessage]]) -> None:
        """Store judged messages together; one by one if there is no room for all."""
        publishing = self.stream.publishing
        if len(together) > 1:
            try:
                self.stored_seq = publishing.store_copies([message for _, message in together])
            except ApiError:
                pass
            else:
                self.position = together[-1][0]
                together.clear()
        while together:
            seq, message = together[0]
            self.stored_seq = publishing.store_copy(message)
            self.position = seq
            del together[0]
