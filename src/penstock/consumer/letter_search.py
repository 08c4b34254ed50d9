"""Whether dead letters are in a stream already.

A stream knows message ids for some minutes. Beyond that only its messages tell whether a letter
that may have been sent before a crash has arrived: they are gone through from the time on at which
the letter was decided, a part at a time.

One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.errors import StoreError
from penstock.limits import LETTER_SEARCH_MESSAGES
from penstock.stream.headers import value_of
from penstock.stream.messages import MESSAGE_ID
from penstock.stream.stream import Stream
from penstock.subjects import SubjectFilter

_CLOCK_NS: Final = 60_000_000_000
"""By so much a clock may have been set back between a decision and its letter."""


class LetterSearch:
    """A search for letters by their message ids; see the module."""

    __slots__ = ("_seq", "_store", "_subjects", "_until", "_wanted", "found")

    def __init__(
        self, stream: Stream, subject: bytes, wanted: Mapping[bytes, int], *, since_ns: int
    ) -> None:
        """`wanted` tells whose letter it is that has a message id; `since_ns` is the first's."""
        store = self._store = stream.store
        is_renamed = stream.config.subject_transform is not None
        self._subjects = None if is_renamed else SubjectFilter([subject])
        self._wanted = wanted
        self._seq = store.seq_from_time(since_ns - _CLOCK_NS)
        self._until = store.last_seq
        self.found: dict[int, int] = {}
        """The sequences that letters have there, by whose they are."""

    @property
    def durable_seq(self) -> int:
        """What is there up to here is on stable storage."""
        return self._store.durable_seq

    def step(self) -> bool:
        """Go through some messages; True when all were gone through."""
        for _ in range(LETTER_SEARCH_MESSAGES):
            try:
                message = self._store.load_next(self._seq, self._subjects)
            except StoreError:
                # There are no more, or the stream is going to be removed.
                return True
            if message.seq > self._until:
                return True
            owner = self._wanted.get(value_of(message.headers, MESSAGE_ID) or b"")
            if owner is not None:
                self.found[owner] = message.seq
            self._seq = message.seq + 1
        return False
