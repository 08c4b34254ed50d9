"""Messages that a consumer gives up, and sends elsewhere instead: exactly once.

A message that was delivered as often as it may be, or that a client terminated, is *owed* to the
subject that the consumer's metadata names. It stays pending, without a deadline, until it has
arrived there; then it is done with as if it had been acknowledged. Until then it counts as one that
is out unacknowledged, so that `max_ack_pending` bounds what is owed.

    decided ──> in the consumer's state, on disk ──> sent ──> stored there, on disk ──> done with

What always holds: nothing is sent before the decision is on stable storage, so that a message is
never delivered again once its letter was sent; nothing is done with before its letter is on stable
storage, so that none is lost. Each letter has a message id of its own that never changes, and one
that may have been sent before a crash is looked for where it would be stored before it is sent
again. Where no stream stores the subject, whoever listens gets it; nobody there: it waits.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.consumer.extensions import dead_letter_subject
from penstock.consumer.letter_search import LetterSearch
from penstock.documents.times import timestamp
from penstock.errors import CorruptStore, RecordNotFound
from penstock.format.consumer_state import TEXT_BYTES_MAX, DeadLetter
from penstock.limits import DEAD_LETTER_RETRY_S, DEAD_LETTER_RETRY_S_MAX, DEAD_LETTERS_SENT_MAX
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription
from penstock.store.block_files import StoredMessage
from penstock.stream.headers import value_of, with_added, without_prefix
from penstock.stream.ingest import Ingest
from penstock.stream.messages import MESSAGE_ID
from penstock.stream.stream import Stream

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer

HEADER_PREFIX: Final = b"Penstock-Dead-Letter-"
ORIGINAL_PREFIX: Final = b"Penstock-Original-"
"""Before the names of a message's own headers that would tell a stream what to do."""


class _Answer(msgspec.Struct, frozen=True):
    """What a stream says of a letter."""

    seq: int = 0
    error: dict[str, object] | None = None


class DeadLetters:
    """What one consumer owes; see the module."""

    __slots__ = (
        "_answers",
        "_consumer",
        "_inbox",
        "_owed",
        "_queue",
        "_retry_s",
        "_search",
        "_sent",
        "_subscription",
        "_timer",
        "_told",
        "_unsure",
        "subject",
    )

    def __init__(self, consumer: Consumer, subject: bytes) -> None:
        self._consumer = consumer
        self.subject = subject
        self._owed: dict[int, DeadLetter] = {}
        self._queue: deque[int] = deque()
        """Those whose decision is on stable storage, and that are to be sent."""

        self._sent: set[int] = set()
        """Those that a stream has still to answer."""

        self._unsure: set[int] = set()
        """Those that may have been sent before, and are looked for before they are sent."""

        self._search: LetterSearch | None = None

        self._answers: list[tuple[int, bytes]] = []
        self._told = ""
        """What is wrong, as it was logged last."""

        self._retry_s = DEAD_LETTER_RETRY_S
        self._timer: asyncio.TimerHandle | None = None
        self._inbox = b"_INBOX.%b." % consumer.consumers.unique_id().encode()
        receiver = Service(self._answered)
        self._subscription = Subscription(receiver, self._inbox + b"*", b"4")

    def __contains__(self, stream_seq: int) -> bool:
        return stream_seq in self._owed

    def __len__(self) -> int:
        return len(self._owed)

    def copy(self) -> Mapping[int, DeadLetter]:
        """Give what is owed now, by stream sequence."""
        return dict(self._owed)

    # Coming and going

    def start(self) -> None:
        """Send what is owed from before, once all streams are there."""
        consumer = self._consumer
        consumer.stream.sublist.insert(self._subscription)
        consumer.consumers.interest.watch(self.subject, self._interest_changed)
        if self._owed:
            consumer.host.loop.call_soon(self._retry)

    def stop(self) -> None:
        """Send no more."""
        consumer = self._consumer
        consumer.stream.sublist.remove(self._subscription)
        consumer.consumers.interest.unwatch(self.subject, self._interest_changed)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def recover(self, letters: Mapping[int, DeadLetter]) -> None:
        """Take over what was owed before a restart; these may have been sent already."""
        self._owed.update(letters)
        self._unsure.update(letters)
        for stream_seq in letters:
            self._consumer.pending.queue(stream_seq)

    def forget(self) -> None:
        """Owe nothing any more: the consumer begins anew."""
        for each in (self._owed, self._queue, self._sent, self._unsure):
            each.clear()
        self._search = None

    def drop(self) -> None:
        """Be done with all that is owed, without sending it."""
        for stream_seq in tuple(self._owed):
            self._settle(stream_seq)

    # Deciding

    def owe(self, stream_seq: int, deliveries: int) -> None:
        """Send a pending message that was delivered as often as it may be."""
        self._owe(stream_seq, deliveries, is_terminated=False, text=b"")

    def owe_terminated(self, stream_seq: int, text: str) -> bool:
        """Send a message that a client gave up; False where it is not pending."""
        pending = self._consumer.pending
        if stream_seq not in pending:
            return False
        if stream_seq not in self._owed:
            deliveries = pending.redelivered.get(stream_seq, 0) + 1
            self._owe(stream_seq, deliveries, is_terminated=True, text=_one_line(text))
        return True

    def _owe(self, stream_seq: int, deliveries: int, *, is_terminated: bool, text: bytes) -> None:
        consumer = self._consumer
        now_ns = consumer.host.clock.now_ns()
        self._owed[stream_seq] = DeadLetter(deliveries, now_ns, is_terminated, text)
        consumer.again.remove(stream_seq)
        consumer.pending.queue(stream_seq)
        consumer.consumers.keeper.mark(consumer, lambda: self._recorded((stream_seq,)))
        self._plan()

    def _recorded(self, stream_seqs: Iterable[int]) -> None:
        self._queue.extend(stream_seqs)
        self._send_some()

    # Sending

    def _send_some(self) -> None:
        consumer = self._consumer
        if consumer.is_closed or self._is_searching():
            return
        while self._queue and len(self._sent) < DEAD_LETTERS_SENT_MAX:
            stream_seq = self._queue.popleft()
            if stream_seq in self._sent or stream_seq not in self._owed:
                continue
            if stream_seq not in consumer.pending:
                # It was acknowledged after all, or purged.
                self._settle(stream_seq)
                continue
            try:
                message = consumer.stream.store.load(stream_seq)
            except (RecordNotFound, CorruptStore):
                self._settle(stream_seq)
                continue
            if not self._send(message, self._owed[stream_seq]):
                # Nobody is there: the others need not be tried.
                self._queue.clear()
        consumer.host.hub.flush()

    def _send(self, message: StoredMessage, letter: DeadLetter) -> bool:
        """Send a letter; False where nobody takes it."""
        consumer = self._consumer
        if self._is_own(message.headers):
            self._settle(message.seq)
            return True
        sublist = consumer.stream.sublist
        found = sublist.matches(self.subject)
        if not (found.plain or found.queues):
            self._tell("nobody listens, and no stream stores them")
            return False
        if consumer.courier.is_behind(self.subject):
            return False
        is_stored = self._stream() is not None
        reply = b"%b%d" % (self._inbox, message.seq) if is_stored else None
        if is_stored:
            self._sent.add(message.seq)
        headers = self._headers(message, letter)
        consumer.host.hub.publish(sublist, self.subject, reply, headers, message.payload)
        if not is_stored:
            self._settle(message.seq)
        return True

    def _is_own(self, headers: bytes) -> bool:
        """Whether a message is a letter of this very consumer, which has come back to it."""
        return (
            value_of(headers, HEADER_PREFIX + b"Stream") == self._consumer.stream.name.encode()
            and value_of(headers, HEADER_PREFIX + b"Consumer") == self._consumer.name.encode()
        )

    def _stream(self) -> Stream | None:
        """Give the stream that stores the subject and says so."""
        found = self._consumer.stream.sublist.matches(self.subject)
        takers = [each.receiver for each in found.plain if isinstance(each.receiver, Ingest)]
        return next(
            (
                stream
                for stream in self._consumer.consumers.streams.values()
                if stream.ingest in takers and not stream.ingest.silent
            ),
            None,
        )

    def _is_searching(self) -> bool:
        """Look for letters that may be there already; False when that is done."""
        if self._search is None:
            stream = self._stream() if self._unsure else None
            if stream is None:
                return False
            wanted = {self._id(seq, self._owed[seq]): seq for seq in self._unsure}
            since_ns = min(self._owed[seq].time_ns for seq in self._unsure)
            self._search = LetterSearch(stream, self.subject, wanted, since_ns=since_ns)
        search = self._search
        if not search.step():
            self._consumer.host.loop.call_soon(self._send_some)
            return True
        self._search = None
        self._unsure.clear()
        for stream_seq, arrived_seq in search.found.items():
            if arrived_seq > search.durable_seq:
                # What it waits for is still under way.
                self._sent.add(stream_seq)
            elif stream_seq in self._owed:
                self._settle(stream_seq)
        return False

    def _id(self, stream_seq: int, letter: DeadLetter) -> bytes:
        # With the time, since a consumer that was reset may come to the same message again.
        name = f"{self._consumer.stream.name}.{self._consumer.name}"
        return f"{name}.{stream_seq}.{letter.time_ns}".encode()

    def _headers(self, message: StoredMessage, letter: DeadLetter) -> bytes:
        consumer = self._consumer
        headers = without_prefix(message.headers, HEADER_PREFIX)
        headers = headers.replace(b"\r\nNats-", b"\r\n" + ORIGINAL_PREFIX + b"Nats-")
        headers = with_added(headers, MESSAGE_ID, self._id(message.seq, letter))
        for name, value in (
            (b"Stream", consumer.stream.name.encode()),
            (b"Consumer", consumer.name.encode()),
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
                # Not while the stream is still at its answers: they may be about to change it.
                self._consumer.host.loop.call_soon(self._take_answers)
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
        consumer = self._consumer
        self._owed.pop(stream_seq, None)
        self._sent.discard(stream_seq)
        self._unsure.discard(stream_seq)
        self._retry_s = DEAD_LETTER_RETRY_S
        self._told = ""
        was_at_limit = consumer.is_at_ack_limit
        if consumer.pending.ack(stream_seq):
            consumer.on_done([stream_seq])
            consumer.remember()
        if was_at_limit:
            consumer.pump_soon()

    def _tell(self, what: str) -> None:
        if what != self._told:
            self._told = what
            subject = self.subject.decode()
            self._consumer.log("WRN", f"dead letters for {subject!r} wait: {what[:200]}")

    # Trying again

    def _plan(self) -> None:
        if self._timer is None and self._owed and not self._consumer.is_closed:
            loop = self._consumer.host.loop
            self._timer = loop.call_later(self._retry_s, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._retry_s = min(self._retry_s * 2, DEAD_LETTER_RETRY_S_MAX)
        self._unsure |= self._sent & self._owed.keys()
        self._sent.clear()
        self._retry()

    def _interest_changed(self) -> None:
        if self._owed:
            self._consumer.host.loop.call_soon(self._retry)

    def _retry(self) -> None:
        """Send everything that is owed and not under way."""
        if self._consumer.is_closed or not self._owed:
            return
        self._queue.clear()
        owed = sorted(self._owed)
        keeper = self._consumer.consumers.keeper
        keeper.mark(self._consumer, lambda: self._recorded(owed))
        self._plan()


def new_letters(consumer: Consumer) -> DeadLetters | None:
    """Give a consumer what its metadata asks for."""
    subject = dead_letter_subject(consumer.config)
    return DeadLetters(consumer, subject) if subject else None


def changed_letters(consumer: Consumer) -> DeadLetters | None:
    """Give a consumer with another configuration what its metadata asks for now.

    What is owed goes to the new subject; where there is none any more, it goes nowhere.
    """
    old, subject = consumer.letters, dead_letter_subject(consumer.config)
    if old is None or old.subject != subject:
        letters = new_letters(consumer)
        if old is not None:
            old.stop()
            if letters is None:
                old.drop()
            else:
                letters.recover(old.copy())
        if letters is not None:
            letters.start()
        return letters
    return old


def _one_line(text: str) -> bytes:
    """Give what a client said as the value of a header."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable.encode()[:TEXT_BYTES_MAX].decode("utf-8", "ignore").strip().encode()
