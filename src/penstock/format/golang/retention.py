"""A stream's limits applied again, to blocks without a valid index.db.

The server writes a tombstone for what a user deletes, acknowledges or purges, but none for what
max_msgs, max_bytes, max_age or max_msgs_per_subject remove: those records stand in the blocks as if
they lived. So whoever reads the blocks alone must apply the limits, newest message first: a message
stays if its subject still has room, the stream has, and it is not too old.

Limits per subject go first, as when messages are stored. Where a user deleted a message that had
pushed out an older one, the older one is kept: showing one too many is better than losing one.

Pure; one `Retention` serves one scan, over blocks in falling order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.format.columns import ColumnBatch, Message
from penstock.format.sequence_set import SequenceSet

_NO_LIMIT = 2**63
_KEPT_FOREVER = b"\r\nNats-TTL: never\r\n"


class Kept(msgspec.Struct):
    """What remains of one block."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_timestamp_ns: int = 0
    removed: SequenceSet = msgspec.field(default_factory=SequenceSet)


def _limit(config: Mapping[str, Any], name: str) -> int:  # Any: a JSON document
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else _NO_LIMIT


class Retention:
    """The limits of one stream and what they still leave room for."""

    def __init__(self, config: Mapping[str, Any], now_ns: int | None) -> None:  # Any: JSON
        discards_old = config.get("discard", "old") == "old"
        self._messages_left = _limit(config, "max_msgs") if discards_old else _NO_LIMIT
        self._bytes_left = _limit(config, "max_bytes") if discards_old else _NO_LIMIT
        self._per_subject_max = _limit(config, "max_msgs_per_subject")
        age_ns_max = _limit(config, "max_age")
        # A server that leaves markers for what expires does so when it runs, not at its start.
        if now_ns is None or config.get("subject_delete_marker_ttl"):
            age_ns_max = _NO_LIMIT
        self._oldest_ns = -_NO_LIMIT if age_ns_max == _NO_LIMIT else (now_ns or 0) - age_ns_max
        self._subject_counts: dict[bytes, int] = {}
        self._full = False
        self.removes_nothing = (
            min(self._messages_left, self._bytes_left, self._per_subject_max, age_ns_max)
            == _NO_LIMIT
        )

    def apply(self, batch: ColumnBatch, sizes: memoryview) -> Kept:
        """Decide about the messages of a block, of which all newer ones were decided already."""
        if self.removes_nothing:
            return self._keep_all(batch, sizes)
        kept = Kept()
        for row, message in reversed(list(enumerate(batch.messages()))):
            if self._stays(message, sizes[row]):
                kept.messages += 1
                kept.bytes += sizes[row]
                kept.first_seq, kept.first_timestamp_ns = message.seq, message.timestamp_ns
            else:
                kept.removed.add(message.seq)
        return kept

    def _keep_all(self, batch: ColumnBatch, sizes: memoryview) -> Kept:
        if not batch.count:
            return Kept()
        first_seq = memoryview(batch.sequences).cast("Q")[0]
        first_timestamp_ns = memoryview(batch.timestamps).cast("q")[0]
        return Kept(batch.count, sum(sizes), first_seq, first_timestamp_ns)

    def _stays(self, message: Message, size: int) -> bool:
        if message.timestamp_ns <= self._oldest_ns and _KEPT_FOREVER not in message.headers:
            return False
        count = self._subject_counts.get(message.subject, 0)
        if count >= self._per_subject_max:
            return False
        # These two limits cut off the oldest: once one is reached, nothing older has room.
        self._full = self._full or self._messages_left < 1 or self._bytes_left < size
        if self._full:
            return False
        if self._per_subject_max != _NO_LIMIT:
            self._subject_counts[message.subject] = count + 1
        self._messages_left -= 1
        self._bytes_left -= size
        return True
