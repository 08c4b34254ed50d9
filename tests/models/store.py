"""A stream store as a dictionary: slow, and obviously right. The oracle for both stores.

It is told the time with each call, knows nothing of blocks, and answers every question by looking
at all its messages. It raises the same errors as the stores do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.errors import LimitReached, RecordNotFound, SequenceOutOfOrder
from penstock.store.interface import NEVER_NS, Discard, NewMessage, StoreConfig
from tests.models.subjects import matches

Patterns = Sequence[bytes] | None
"""What a filter is made of; None and nothing at all want every message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message with all that a store must give back of it."""

    seq: int
    timestamp_ns: int
    subject: bytes
    headers: bytes
    payload: bytes
    expires_ns: int = 0


@dataclass(frozen=True, slots=True)
class Counting:
    """What a message counts for beside its bytes."""

    message: int
    headers: int

    def size(self, message: Message) -> int:
        """Return what a message counts for in the stream's bytes."""
        headers = self.headers + len(message.headers) if message.headers else 0
        return self.message + len(message.subject) + len(message.payload) + headers


IN_FILES = Counting(30, 4)
IN_MEMORY = Counting(16, 0)


def wants(patterns: Patterns, subject: bytes) -> bool:
    """Return True if a filter wants a subject."""
    return not patterns or any(matches(pattern, subject) for pattern in patterns)


class StoreModel:
    """A stream's messages by sequence."""

    def __init__(self, config: StoreConfig, counting: Counting = IN_FILES) -> None:
        self.config = config
        self.counting = counting
        self.messages: dict[int, Message] = {}
        self.last_seq = 0
        self.last_time_ns = 0

    # What is there

    @property
    def first_seq(self) -> int:
        """The first message's sequence; the next one's where there is no message."""
        return min(self.messages, default=self.last_seq + 1)

    @property
    def first_time_ns(self) -> int:
        """The first message's time; 0 where there is no message."""
        return self.messages[self.first_seq].timestamp_ns if self.messages else 0

    @property
    def size(self) -> int:
        """What the messages count for."""
        return sum(self.counting.size(message) for message in self.messages.values())

    @property
    def deleted(self) -> list[tuple[int, int]]:
        """The ranges of sequences between first and last without a message."""
        seqs = [*sorted(self.messages), self.last_seq + 1]
        return [(a + 1, b - 1) for a, b in itertools.pairwise(seqs) if a + 1 < b]

    def wanted(self, patterns: Patterns, seq: int = 0) -> list[Message]:
        """Return the wanted messages from a sequence on, in order."""
        return [
            message
            for _, message in sorted(self.messages.items())
            if message.seq >= seq and wants(patterns, message.subject)
        ]

    def subjects(self, patterns: Patterns = None) -> dict[bytes, list[int]]:
        """Return the sequences of each wanted subject."""
        found: dict[bytes, list[int]] = {}
        for message in self.wanted(patterns):
            found.setdefault(message.subject, []).append(message.seq)
        return found

    # Writing

    def store(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        *,
        now_ns: int,
        expires_ns: int = 0,
        keep: int = 0,
    ) -> tuple[int, int]:
        """Keep a message under the next sequence, and `keep` messages of its subject (0: all)."""
        stamp_ns = max(now_ns, self.last_time_ns)
        message = Message(self.last_seq + 1, stamp_ns, subject, headers, payload, expires_ns)
        self._refuse(message, keep)
        self._keep(message)
        self._enforce_totals()
        if keep:
            self._trim(subject, keep)
        return message.seq, stamp_ns

    def store_raw(self, message: Message) -> None:
        """Keep a message as it is."""
        if message.seq <= self.last_seq:
            raise SequenceOutOfOrder(message.seq, self.last_seq)
        self._keep(message)
        self._enforce_totals()

    def store_batch(self, batch: Sequence[NewMessage], *, now_ns: int) -> tuple[int, int]:
        """Keep all of them or none."""
        stamp_ns = max(now_ns, self.last_time_ns)
        first = self.last_seq + 1
        messages = [Message(first + place, stamp_ns, *each) for place, each in enumerate(batch)]
        self._refuse_batch(messages)
        for message in messages:
            self._keep(message)
        self._enforce_totals()
        return first, self.last_seq

    def skip(self, count: int) -> int:
        """Pass over sequences."""
        self.last_seq += count
        return self.last_seq

    def _keep(self, message: Message) -> None:
        self.messages[message.seq] = message
        self.last_seq = message.seq
        self.last_time_ns = message.timestamp_ns
        self._enforce_subject(message.subject)

    def _refuse(self, message: Message, keep: int) -> None:
        config = self.config
        if 0 < config.max_msg_bytes < len(message.headers) + len(message.payload):
            raise LimitReached("message size", config.max_msg_bytes)
        if config.discard is Discard.OLD:
            return
        held = self.subjects().get(message.subject, [])
        full = 0 < config.max_msgs_per_subject <= len(held)
        if full and config.discard_new_per_subject and not keep:
            raise LimitReached("maximum messages per subject", config.max_msgs_per_subject)
        if not full and 0 < config.max_msgs <= len(self.messages):
            raise LimitReached("maximum messages", config.max_msgs)
        size = self.counting.size(message)
        # A full subject gives up its oldest message, which may leave all the room that is needed.
        makes_room = full and self.counting.size(self.messages[held[0]]) >= size
        if 0 < config.max_bytes < self.size + size and not makes_room:
            raise LimitReached("maximum bytes", config.max_bytes)

    def _refuse_batch(self, messages: list[Message]) -> None:
        """A batch must fit as a whole: what it would push out itself makes no room for it."""
        config = self.config
        for message in messages:
            if 0 < config.max_msg_bytes < len(message.headers) + len(message.payload):
                raise LimitReached("message size", config.max_msg_bytes)
        if config.discard is Discard.OLD:
            return
        per_subject = config.max_msgs_per_subject
        held = {subject: len(seqs) for subject, seqs in self.subjects().items()}
        growth = 0
        for message in messages:
            full = 0 < per_subject <= held.get(message.subject, 0)
            if full and config.discard_new_per_subject:
                raise LimitReached("maximum messages per subject", per_subject)
            if not full:
                growth += 1
                held[message.subject] = held.get(message.subject, 0) + 1
        if growth and 0 < config.max_msgs < len(self.messages) + growth:
            raise LimitReached("maximum messages", config.max_msgs)
        size = sum(self.counting.size(message) for message in messages)
        if 0 < config.max_bytes < self.size + size:
            raise LimitReached("maximum bytes", config.max_bytes)

    # Limits

    def _enforce_subject(self, subject: bytes) -> None:
        if self.config.max_msgs_per_subject > 0:
            self._trim(subject, self.config.max_msgs_per_subject)

    def _trim(self, subject: bytes, keep: int) -> None:
        for seq in self.subjects().get(subject, [])[:-keep]:
            del self.messages[seq]

    def _enforce_totals(self) -> None:
        if self.config.discard is Discard.NEW:
            return
        if self.config.max_msgs > 0:
            while len(self.messages) > self.config.max_msgs:
                del self.messages[self.first_seq]
        if self.config.max_bytes > 0:
            while self.size > self.config.max_bytes:
                del self.messages[self.first_seq]

    def enforce_all(self, now_ns: int) -> None:
        """Apply every limit, as opening a store and changing its limits do."""
        for subject in self.subjects():
            self._enforce_subject(subject)
        self._enforce_totals()
        self.expire(now_ns)

    def expire(self, now_ns: int) -> int:
        """Remove what is too old: from the front by age, anywhere by its own time to live."""
        before = len(self.messages)
        ageing = [each for each in self.wanted(None) if each.expires_ns != NEVER_NS]
        age_ns = self.config.max_age_ns
        for message in ageing if age_ns > 0 else ():
            if message.timestamp_ns + age_ns > now_ns:
                break
            del self.messages[message.seq]
        for message in list(self.messages.values()):
            if 0 < message.expires_ns <= now_ns:
                del self.messages[message.seq]
        return before - len(self.messages)

    # Removing

    def remove(self, seq: int) -> bool:
        """Remove a message; erasing does the same to the stream."""
        return self.messages.pop(seq, None) is not None

    def purge(self, patterns: Patterns = None, *, seq: int = 0, keep: int = 0) -> int:
        """Remove the wanted messages below a sequence, but the newest of all wanted ones."""
        wanted = self.wanted(patterns)
        candidates = wanted[: max(len(wanted) - keep, 0)]
        return self._remove_all(m for m in candidates if not seq or m.seq < seq)

    def compact(self, seq: int) -> int:
        """Remove everything below a sequence, which may be new."""
        removed = self._remove_all(m for m in self.wanted(None) if m.seq < seq)
        self.last_seq = max(self.last_seq, seq - 1)
        return removed

    def truncate(self, seq: int) -> None:
        """Remove everything above a message and go on after it."""
        if seq not in self.messages:
            raise RecordNotFound(seq)
        self._remove_all(self.wanted(None, seq + 1))
        self.last_seq = seq
        self.last_time_ns = self.messages[seq].timestamp_ns

    def reset(self) -> None:
        """Forget everything."""
        self.messages.clear()
        self.last_seq = self.last_time_ns = 0

    def _remove_all(self, messages: Iterable[Message]) -> int:
        gone = list(messages)
        for message in gone:
            del self.messages[message.seq]
        return len(gone)

    # Reading

    def next_seq(self, patterns: Patterns, seq: int) -> int | None:
        """Return the first wanted sequence from one on."""
        return next((message.seq for message in self.wanted(patterns, seq)), None)

    def previous_seq(self, patterns: Patterns, seq: int) -> int | None:
        """Return the last wanted sequence up to one."""
        return max((m.seq for m in self.wanted(patterns) if m.seq <= seq), default=None)

    def seq_from_time(self, time_ns: int) -> int:
        """Return the first sequence not before a time, or the one after the last."""
        later = (m.seq for m in self.wanted(None) if m.timestamp_ns >= time_ns)
        return next(later, self.last_seq + 1)

    def multi_last(
        self, patterns: Patterns, *, up_to_seq: int = 0, up_to_time_ns: int = 0
    ) -> list[int]:
        """Return the newest sequence of each wanted subject, up to a sequence or a time."""
        bound = up_to_seq or self.last_seq
        if up_to_time_ns:
            bound = self.seq_from_time(up_to_time_ns + 1) - 1
        newest = {m.subject: m.seq for m in self.wanted(patterns) if m.seq <= bound}
        return sorted(newest.values())

    def count_pending(self, patterns: Patterns, seq: int, *, last_per_subject: bool = False) -> int:
        """Count the wanted messages from a sequence on."""
        if last_per_subject:
            return sum(1 for last in self.multi_last(patterns) if last >= seq)
        return len(self.wanted(patterns, seq))
