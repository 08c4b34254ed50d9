"""Messages that a consumer gives up, and sends elsewhere instead: exactly once.

A message that was delivered as often as allowed, or that a client terminated, is *owed* to the
subject that the consumer's metadata names. It stays pending, without a deadline, until its letter
has arrived there. Then it is done with as if it had been acknowledged. Until then it counts as out
unacknowledged, so that `max_ack_pending` bounds what is owed.

    decided ──> in the consumer's state, on disk ──> sent ──> stored there, on disk ──> done with

Invariants:

- Nothing is sent before the decision is on stable storage: a message is never delivered again once
  its letter was sent.
- Nothing is done with before its letter is on stable storage: no letter is lost.
- Each letter has a message id that never changes. A letter that may have been sent before a crash
  is looked for in the stream that stores the subject before it is sent again.

If no stream captures the subject, a letter is published to subscribers; without any, it is retried.

The owner (`consumer`) says what is owed and is called back to save its state and to settle
messages. Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.consumer.delivery import MessageSender
from penstock.consumer.info import Notices
from penstock.errors import CorruptStore, RecordNotFound, StoreError
from penstock.format.state.consumer import DeadLetter
from penstock.limits import (
    DEAD_LETTER_RETRY_S,
    DEAD_LETTER_RETRY_S_MAX,
    DEAD_LETTERS_SENT_MAX,
    LETTER_SEARCH_MESSAGES,
    TERM_REASON_BYTES_MAX,
)
from penstock.protocol.headers import value_of, with_added, without_prefix
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription
from penstock.store.log.block import StoredMessage
from penstock.stream.publish.ingest import Ingest
from penstock.stream.publish.message import MESSAGE_ID
from penstock.stream.stream import Stream
from penstock.subjects import SubjectFilter
from penstock.text.times import timestamp

if TYPE_CHECKING:
    from penstock.consumer.progress import Progress
    from penstock.consumer.registry import StreamConsumers


_CLOCK_NS: Final = 60_000_000_000
"""How far a clock may have been set back between a decision and its letter."""


class LetterSearch:
    """A search for letters in a stream, by their message ids.

    A stream knows message ids for some minutes only. Beyond that its messages are gone through,
    from the time on at which the first letter was decided, a part at a time.
    """

    __slots__ = ("_seq", "_store", "_subjects", "_until", "_wanted", "found")

    def __init__(
        self, stream: Stream, subject: bytes, wanted: Mapping[bytes, int], *, since_ns: int
    ) -> None:
        """`wanted` maps message ids to owed messages; `since_ns` is the time of the first."""
        store = self._store = stream.store
        is_renamed = stream.config.subject_transform is not None
        self._subjects = None if is_renamed else SubjectFilter([subject])
        self._wanted = wanted
        self._seq = store.seq_from_time(since_ns - _CLOCK_NS)
        self._until = store.last_seq
        self.found: dict[int, int] = {}
        """The sequences that letters have in the stream, by the message they are for."""

    @property
    def durable_seq(self) -> int:
        """The last sequence of the stream that is on stable storage."""
        return self._store.durable_seq

    def step(self) -> bool:
        """Go through some messages; return True when all were gone through."""
        for _ in range(LETTER_SEARCH_MESSAGES):
            try:
                message = self._store.load_next(self._seq, self._subjects)
            except StoreError:
                # There are no more, or the stream is being removed.
                return True
            if message.seq > self._until:
                return True
            owner = self._wanted.get(value_of(message.headers, MESSAGE_ID) or b"")
            if owner is not None:
                self.found[owner] = message.seq
            self._seq = message.seq + 1
        return False


HEADER_PREFIX: Final = b"Penstock-Dead-Letter-"
ORIGINAL_PREFIX: Final = b"Penstock-Original-"
"""Put before the names of a message's own headers that a stream would obey."""


class _Answer(msgspec.Struct, frozen=True):
    """A stream's answer to a published letter."""

    seq: int = 0
    error: dict[str, object] | None = None


class DeadLetters:
    """What one consumer owes; see the module."""

    __slots__ = (
        "_answers",
        "_consumers",
        "_inbox",
        "_is_stopped",
        "_name",
        "_notices",
        "_owed",
        "_progress",
        "_queue",
        "_retry_s",
        "_save",
        "_search",
        "_sender",
        "_sent",
        "_settle_owed",
        "_subscription",
        "_timer",
        "_told",
        "_unsure",
        "subject",
    )

    def __init__(
        self,
        name: str,
        progress: Progress,
        notices: Notices,
        sender: MessageSender,
        consumers: StreamConsumers,
        *,
        subject: bytes,
        save: Callable[[Callable[[], None]], None],
        settle: Callable[[int], None],
    ) -> None:
        """Make the letters of the consumer `name`.

        `save(then)` saves the consumer's state and calls `then` when it is on stable storage.
        `settle(stream_seq)` is called for a message whose letter has arrived or is not needed.
        """
        self._name = name
        self._progress = progress
        self._notices = notices
        self._sender = sender
        self._consumers = consumers
        self._save = save
        self._settle_owed = settle
        self._is_stopped = False
        self.subject = subject
        self._owed: dict[int, DeadLetter] = {}
        self._queue: deque[int] = deque()
        """Messages whose decision is on stable storage, and whose letters are to be sent."""

        self._sent: set[int] = set()
        """Messages whose letters a stream has still to answer."""

        self._unsure: set[int] = set()
        """Messages whose letters may have been sent before; these are looked for first."""

        self._search: LetterSearch | None = None

        self._answers: list[tuple[int, bytes]] = []
        self._told = ""
        """The last logged reason why letters wait."""

        self._retry_s = DEAD_LETTER_RETRY_S
        self._timer: asyncio.TimerHandle | None = None
        self._inbox = b"_INBOX.%b." % consumers.unique_id().encode()
        receiver = Service(self._answered)
        self._subscription = Subscription(receiver, self._inbox + b"*", b"4")

    def __contains__(self, stream_seq: int) -> bool:
        return stream_seq in self._owed

    def __len__(self) -> int:
        return len(self._owed)

    def copy(self) -> Mapping[int, DeadLetter]:
        """Return what is owed now, by stream sequence."""
        return dict(self._owed)

    # Coming and going

    def start(self) -> None:
        """Send what is owed from before, once all streams are open."""
        consumers = self._consumers
        consumers.stream.sublist.insert(self._subscription)
        consumers.interest.watch(self.subject, self._interest_changed)
        if self._owed:
            consumers.host.loop.call_soon(self._retry)

    def stop(self) -> None:
        """Send no more."""
        self._is_stopped = True
        self._consumers.stream.sublist.remove(self._subscription)
        self._consumers.interest.unwatch(self.subject, self._interest_changed)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def recover(self, letters: Mapping[int, DeadLetter]) -> None:
        """Take over what was owed before; these letters may have been sent already."""
        self._owed.update(letters)
        self._unsure.update(letters)
        for stream_seq in letters:
            self._progress.pending.queue(stream_seq)

    def forget(self) -> None:
        """Owe nothing any more: the consumer starts again."""
        for each in (self._owed, self._queue, self._sent, self._unsure):
            each.clear()
        self._search = None

    def drop(self) -> None:
        """Settle all that is owed, without sending it."""
        for stream_seq in tuple(self._owed):
            self._settle(stream_seq)

    # Deciding

    def owe(self, stream_seq: int, deliveries: int) -> None:
        """Owe the letter of a pending message that was delivered as often as allowed."""
        self._owe(stream_seq, deliveries, is_terminated=False, text=b"")

    def owe_terminated(self, stream_seq: int, text: str) -> bool:
        """Owe the letter of a message that a client terminated; False if it is not pending."""
        pending = self._progress.pending
        if stream_seq not in pending:
            return False
        if stream_seq not in self._owed:
            deliveries = self._progress.deliveries_of(stream_seq)
            self._owe(stream_seq, deliveries, is_terminated=True, text=_one_line(text))
        return True

    def _owe(self, stream_seq: int, deliveries: int, *, is_terminated: bool, text: bytes) -> None:
        now_ns = self._consumers.host.clock.now_ns()
        self._owed[stream_seq] = DeadLetter(deliveries, now_ns, is_terminated, text)
        self._progress.again.remove(stream_seq)
        self._progress.pending.queue(stream_seq)
        self._save(lambda: self._recorded((stream_seq,)))
        self._plan()

    def _recorded(self, stream_seqs: Iterable[int]) -> None:
        self._queue.extend(stream_seqs)
        self._send_some()

    # Sending

    def _send_some(self) -> None:
        if self._is_stopped or self._is_searching():
            return
        while self._queue and len(self._sent) < DEAD_LETTERS_SENT_MAX:
            stream_seq = self._queue.popleft()
            if stream_seq in self._sent or stream_seq not in self._owed:
                continue
            if stream_seq not in self._progress.pending:
                # It was acknowledged after all, or purged.
                self._settle(stream_seq)
                continue
            try:
                message = self._progress.store.load(stream_seq)
            except (RecordNotFound, CorruptStore):
                self._settle(stream_seq)
                continue
            if not self._send(message, self._owed[stream_seq]):
                # No subscriber: the others need not be tried.
                self._queue.clear()
        self._consumers.host.hub.flush()

    def _send(self, message: StoredMessage, letter: DeadLetter) -> bool:
        """Send a letter; return False if no subscriber can take it now."""
        if self._is_own(message.headers):
            self._settle(message.seq)
            return True
        sublist = self._consumers.stream.sublist
        found = sublist.matches(self.subject)
        if not (found.plain or found.queues):
            self._tell("nobody listens, and no stream stores them")
            return False
        if self._sender.is_behind(self.subject):
            return False
        is_stored = self._stream() is not None
        reply = b"%b%d" % (self._inbox, message.seq) if is_stored else None
        if is_stored:
            self._sent.add(message.seq)
        headers = self._headers(message, letter)
        hub = self._consumers.host.hub
        hub.publish(sublist, self.subject, reply, headers, message.payload)
        if not is_stored:
            self._settle(message.seq)
        return True

    def _is_own(self, headers: bytes) -> bool:
        """Return True if a message is a letter of this consumer that came back to it."""
        return (
            value_of(headers, HEADER_PREFIX + b"Stream") == self._consumers.stream.name.encode()
            and value_of(headers, HEADER_PREFIX + b"Consumer") == self._name.encode()
        )

    def _stream(self) -> Stream | None:
        """Return the stream that stores the subject and acknowledges messages."""
        found = self._consumers.stream.sublist.matches(self.subject)
        ingests = [each.receiver for each in found.plain if isinstance(each.receiver, Ingest)]
        return next(
            (
                stream
                for stream in self._consumers.streams.values()
                if stream.ingest in ingests and not stream.ingest.silent
            ),
            None,
        )

    def _is_searching(self) -> bool:
        """Look for letters that may have arrived already; return False when that is done."""
        if self._search is None:
            stream = self._stream() if self._unsure else None
            if stream is None:
                return False
            wanted = {self._id(seq, self._owed[seq]): seq for seq in self._unsure}
            since_ns = min(self._owed[seq].time_ns for seq in self._unsure)
            self._search = LetterSearch(stream, self.subject, wanted, since_ns=since_ns)
        search = self._search
        if not search.step():
            self._consumers.host.loop.call_soon(self._send_some)
            return True
        self._search = None
        self._unsure.clear()
        for stream_seq, arrived_seq in search.found.items():
            if arrived_seq > search.durable_seq:
                # The stream has it, but not on stable storage yet.
                self._sent.add(stream_seq)
            elif stream_seq in self._owed:
                self._settle(stream_seq)
        return False

    def _id(self, stream_seq: int, letter: DeadLetter) -> bytes:
        # With the time: a consumer that was reset may come to the same message again.
        name = f"{self._consumers.stream.name}.{self._name}"
        return f"{name}.{stream_seq}.{letter.time_ns}".encode()

    def _headers(self, message: StoredMessage, letter: DeadLetter) -> bytes:
        headers = without_prefix(message.headers, HEADER_PREFIX)
        headers = headers.replace(b"\r\nNats-", b"\r\n" + ORIGINAL_PREFIX + b"Nats-")
        headers = with_added(headers, MESSAGE_ID, self._id(message.seq, letter))
        for name, value in (
            (b"Stream", self._consumers.stream.name.encode()),
            (b"Consumer", self._name.encode()),
            (b"Sequence", b"%d" % message.seq),
            (b"Subject", message.subject),
            (b"Deliveries", b"%d" % letter.deliveries),
            (b"Reason", b"terminated" if letter.is_terminated else b"max_deliver"),
            (b"Text", letter.text),
            (b"Time", timestamp(letter.time_ns).encode()),
        ):
            if value:
                headers = with_added(headers, HEADER_PREFIX + name, value)
        return headers

    # What comes of it

    def _answered(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        token = subject.removeprefix(self._inbox)
        if token.isdigit() and len(token) <= 20 and int(token) in self._owed:
            if not self._answers:
                # Not while the stream is still sending its answers: settling may change it.
                self._consumers.host.loop.call_soon(self._take_answers)
            self._answers.append((int(token), body))

    def _take_answers(self) -> None:
        answers, self._answers = self._answers, []
        for stream_seq, body in answers:
            self._sent.discard(stream_seq)
            try:
                answer = msgspec.json.decode(body, type=_Answer)
            except msgspec.DecodeError:
                continue
            if answer.error is not None:
                self._tell(str(answer.error.get("description", "it is refused")))
            elif answer.seq and stream_seq in self._owed:
                self._settle(stream_seq)
        self._send_some()

    def _settle(self, stream_seq: int) -> None:
        """Be done with a message whose letter has arrived, or is not needed."""
        self._owed.pop(stream_seq, None)
        self._sent.discard(stream_seq)
        self._unsure.discard(stream_seq)
        self._retry_s = DEAD_LETTER_RETRY_S
        self._told = ""
        self._settle_owed(stream_seq)

    def _tell(self, what: str) -> None:
        if what != self._told:
            self._told = what
            subject = self.subject.decode()
            self._notices.log("WRN", f"dead letters for {subject!r} wait: {what[:200]}")

    # Trying again

    def _plan(self) -> None:
        if self._timer is None and self._owed and not self._is_stopped:
            loop = self._consumers.host.loop
            self._timer = loop.call_later(self._retry_s, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._retry_s = min(self._retry_s * 2, DEAD_LETTER_RETRY_S_MAX)
        self._unsure |= self._sent & self._owed.keys()
        self._sent.clear()
        self._retry()

    def _interest_changed(self) -> None:
        if self._owed:
            self._consumers.host.loop.call_soon(self._retry)

    def _retry(self) -> None:
        """Send everything that is owed and not on its way."""
        if self._is_stopped or not self._owed:
            return
        self._queue.clear()
        owed = sorted(self._owed)
        self._save(lambda: self._recorded(owed))
        self._plan()


def _one_line(text: str) -> bytes:
    """Return what a client said as the value of a header."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable.encode()[:TERM_REASON_BYTES_MAX].decode("utf-8", "ignore").strip().encode()
