"""What a store is asked and what it answers: configuration, state, the interface of both stores.

Sequences count from 1; 0 means none. Times are Unix nanoseconds. Subjects, headers and payloads are
bytes. A filter is a `SubjectFilter`, or None for every message.

`CommitStatistics` counts how large the commits of all stores of a server are and how long they
take. Invariant: counts only grow, and a reading is consistent. Any thread.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.errors import UsageError
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, Compression
from penstock.format.sequence_set import SequenceSet
from penstock.limits import (
    BLOCK_BYTES_DEFAULT,
    BLOCK_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    RESTING_SHARE,
)
from penstock.store.log.block import StoredMessage
from penstock.subjects import SubjectFilter

if TYPE_CHECKING:
    from penstock.store.store_state import StoreState

NewMessage = tuple[bytes, bytes, bytes]
"""(subject, headers, payload) of a message to be stored."""

RawMessage = tuple[int, int, bytes, bytes, bytes, int]
"""(seq, timestamp_ns, subject, headers, payload, expires_ns) of a message that keeps its place."""


NEVER_NS = 2**63 - 1
"""As the time at which a message expires: not even the maximum age removes it."""


class Discard(StrEnum):
    """Which message gives way when a limit is reached."""

    OLD = "old"
    NEW = "new"


class StoreConfig(msgspec.Struct, frozen=True):
    """What a store keeps, and how. Limits of 0 or less mean none."""

    name: str = "stream"
    """The stream's name: part of what binds an encrypted record to its place."""

    max_msgs: int = 0
    max_bytes: int = 0
    """Counted as the reference server counts: 30 + subject + payload (+ 4 + headers) a message."""

    max_age_ns: int = 0
    max_msgs_per_subject: int = 0
    max_msg_bytes: int = 0
    """Headers and payload of one message together."""

    discard: Discard = Discard.OLD
    discard_new_per_subject: bool = False
    """With discard new: a full subject refuses, rather than dropping its oldest message."""

    hands_over_expired: bool = False
    """What has outlived its time stays until its owner, who asks for it with `due`, removes it."""

    block_bytes: int = BLOCK_BYTES_DEFAULT
    sync_interval_ns: int = 0
    """0: every acknowledged message is synced. Otherwise what was written is synced this often, and
    what was acknowledged within the interval is lost when the power fails."""

    compression: Compression = Compression.NONE
    cipher: Cipher = Cipher.NONE

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 4096 <= self.block_bytes <= BLOCK_BYTES_MAX // 2:
            raise UsageError(
                f"block_bytes must be between 4096 and {BLOCK_BYTES_MAX // 2}: {self.block_bytes}"
            )
        if self.max_msg_bytes > PAYLOAD_BYTES_MAX:
            raise UsageError(f"max_msg_bytes can be at most {PAYLOAD_BYTES_MAX}")
        if self.discard_new_per_subject and (
            self.discard is not Discard.NEW or self.max_msgs_per_subject <= 0
        ):
            raise UsageError("discard_new_per_subject needs discard new and max_msgs_per_subject")

    @property
    def resting_bytes_min(self) -> int:
        """How long a block is at least that is sealed when the store stops or is opened."""
        return self.block_bytes // RESTING_SHARE


class FilteredState(msgspec.Struct, frozen=True):
    """The messages that a filter wants, from a sequence on."""

    messages: int
    first_seq: int
    last_seq: int


class SubjectState(msgspec.Struct, frozen=True):
    """One subject's messages."""

    messages: int
    first_seq: int
    last_seq: int


class RecoveryReport(msgspec.Struct):
    """What opening a store found and did."""

    path: str
    blocks: int = 0
    checkpoint_used: bool = False
    scanned_blocks: list[int] = msgspec.field(default_factory=list)
    rebuilt_indexes: list[int] = msgspec.field(default_factory=list)
    torn_bytes: int = 0
    """Bytes after the last whole record of the last block: never acknowledged, kept aside."""

    damage: list[Damage] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    migrated_messages: int = 0
    duration_ns: int = 0

    @property
    def clean(self) -> bool:
        """Nothing was lost and nothing had to be mended."""
        return not (self.damage or self.torn_bytes or self.notes)


class StreamStore(Protocol):
    """One stream's messages. Safe from any thread; every call blocks until it is done."""

    # Writing. Nothing is durable before `flush` or the durable callback says so.

    def store(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        *,
        expires_ns: int = 0,
        keep: int = 0,
    ) -> tuple[int, int]:
        """Keep a message under the next sequence; return (sequence, time).

        `keep` is how many of its subject's messages stay, this one included; 0 for all.
        """
        ...

    def store_raw(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        *,
        seq: int,
        timestamp_ns: int,
        expires_ns: int = 0,
        keep: int = 0,
        is_refusable: bool = False,
    ) -> None:
        """Keep a message under a given sequence, above the last, and time.

        `keep` as in `store`. Without `is_refusable` no limit refuses it: the oldest give way.
        """
        ...

    def store_batch(
        self,
        messages: Sequence[NewMessage],
        *,
        expires_ns: Sequence[int] = (),
        keep: Sequence[int] = (),
        durable: bool = False,
    ) -> tuple[int, int]:
        """Keep all of them, or none if one is refused; return (first, last sequence).

        What `store` has for one message is given for each of them, or for none. They are `durable`
        when this returns, or with the next commit.
        """
        ...

    def skip(self, count: int = 1) -> int:
        """Skip sequences without messages; return the last of them."""
        ...

    def flush(self) -> int:
        """Make everything stored and removed so far durable; return the last sequence."""
        ...

    # Reading

    def load(self, seq: int) -> StoredMessage:
        """Return one message; raise RecordNotFound, or CorruptStore if it is damaged."""
        ...

    def load_next(self, seq: int, subjects: SubjectFilter | None = None) -> StoredMessage:
        """Return the first wanted message from `seq` on; raise RecordNotFound."""
        ...

    def load_previous(self, seq: int, subjects: SubjectFilter | None = None) -> StoredMessage:
        """Return the last wanted message up to `seq`; raise RecordNotFound."""
        ...

    def load_last(self, subject: bytes) -> StoredMessage:
        """Return the newest message of a subject; raise RecordNotFound."""
        ...

    def seq_from_time(self, time_ns: int) -> int:
        """Return the first sequence not before a time, or one past the last if there is none."""
        ...

    def multi_last(
        self,
        subjects: SubjectFilter,
        *,
        up_to_seq: int = 0,
        up_to_time_ns: int = 0,
        count_max: int = 0,
    ) -> list[int]:
        """Return the newest sequence of each wanted subject, in order.

        Raises LimitReached where there are more than `count_max` (0: no limit).
        """
        ...

    def all_last(self) -> list[int]:
        """Return the newest sequence of every subject, in order."""
        ...

    # State

    def state(self) -> StoreState:
        """Return the stream's numbers, in constant time."""
        ...

    def filtered_state(self, subjects: SubjectFilter | None, seq: int = 0) -> FilteredState:
        """Return the number of wanted messages from `seq` on, and their first and last sequence."""
        ...

    def subjects_state(self, subjects: SubjectFilter) -> dict[bytes, SubjectState]:
        """Return each wanted subject's number of messages, first and last sequence."""
        ...

    def subjects_totals(self, subjects: SubjectFilter) -> dict[bytes, int]:
        """Return the number of messages of each wanted subject."""
        ...

    def count_pending(
        self, subjects: SubjectFilter | None, seq: int, *, last_per_subject: bool = False
    ) -> int:
        """Count the wanted messages from `seq` on (only each subject's newest, if so asked)."""
        ...

    def deleted(self) -> SequenceSet:
        """Return the sequences between first and last without a message."""
        ...

    # Removing. As durable as storing is.

    def remove(self, seq: int) -> bool:
        """Remove a message; return False if there is none."""
        ...

    def erase(self, seq: int) -> bool:
        """Remove a message and overwrite its bytes on the disk before returning."""
        ...

    def purge(
        self,
        subjects: SubjectFilter | None = None,
        *,
        seq: int = 0,
        keep: int = 0,
        durable: bool = True,
    ) -> int:
        """Remove the wanted messages below `seq` (0: all), but the newest `keep`.

        It is `durable` when this returns, or with the next commit.
        """
        ...

    def compact(self, seq: int) -> int:
        """Remove everything below `seq`, which becomes the first sequence even if it is new."""
        ...

    def truncate(self, seq: int) -> None:
        """Remove everything above `seq`, which must exist, and go on after it."""
        ...

    def expire(self) -> int:
        """Remove the messages that have outlived their time; return how many."""
        ...

    def due(self, count_max: int) -> list[int]:
        """Return the first messages that have outlived their time, for the owner to remove."""
        ...

    # Living

    def update_config(self, config: StoreConfig) -> None:
        """Go over to another configuration and apply its limits."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """Yield the stream as bytes that `restore` takes."""
        ...

    def reset(self) -> None:
        """Forget everything, sequences too."""
        ...

    def stop(self) -> None:
        """Make everything durable, then refuse writes."""
        ...

    def delete(self) -> None:
        """Remove the store and everything in it."""
        ...


DurableCallback = Callable[[int], None]
"""Called with the durable sequence after each commit, from the thread that committed."""

CommitCallback = Callable[[int, float], None]
"""Called with the messages and the seconds of each commit, from the thread that committed."""

FailureCallback = Callable[[BaseException], None]
"""Called once when a store fails, from any thread and with the store's lock: it only takes note."""


MESSAGES_BOUNDS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536)
SECONDS_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)
"""From a sync on fast flash to a disk that is ill."""


class Histogram(msgspec.Struct, frozen=True):
    """How often values were at most each bound, and above all of them; and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class CommitStatistics:
    """The counts; see the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages = [0] * (len(MESSAGES_BOUNDS) + 1)
        self._seconds = [0] * (len(SECONDS_BOUNDS) + 1)
        self._messages_total = 0
        self._seconds_total = 0.0

    def note(self, messages: int, seconds: float) -> None:
        """Count a commit."""
        with self._lock:
            self._messages[bisect_left(MESSAGES_BOUNDS, messages)] += 1
            self._seconds[bisect_left(SECONDS_BOUNDS, seconds)] += 1
            self._messages_total += messages
            self._seconds_total += seconds

    def messages(self) -> Histogram:
        """Return how many messages commits had."""
        with self._lock:
            return Histogram(MESSAGES_BOUNDS, tuple(self._messages), self._messages_total)

    def seconds(self) -> Histogram:
        """Return how long commits took."""
        with self._lock:
            return Histogram(SECONDS_BOUNDS, tuple(self._seconds), self._seconds_total)
