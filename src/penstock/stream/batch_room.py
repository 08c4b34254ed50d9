"""How many batches there may be at once, and how large they may become.

One for the whole server: streams take room from it and give it back. One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.limits import (
    BATCH_BYTES_MAX,
    BATCH_ID_BYTES_MAX,
    BATCH_IDLE_NS_MAX,
    BATCH_MESSAGES_MAX,
    BATCHES_PER_SERVER_MAX,
    BATCHES_PER_STREAM_MAX,
    FAST_BATCHES_PER_SERVER_MAX,
    FAST_BATCHES_PER_STREAM_MAX,
)

ID_BYTES_MAX = BATCH_ID_BYTES_MAX


class BatchRoom(msgspec.Struct):
    """The bounds, and what of them is taken."""

    per_stream_max: int = BATCHES_PER_STREAM_MAX
    total_max: int = BATCHES_PER_SERVER_MAX
    fast_per_stream_max: int = FAST_BATCHES_PER_STREAM_MAX
    fast_total_max: int = FAST_BATCHES_PER_SERVER_MAX
    messages_max: int = BATCH_MESSAGES_MAX
    idle_ns_max: int = BATCH_IDLE_NS_MAX
    bytes_max: int = BATCH_BYTES_MAX
    total: int = 0
    fast_total: int = 0
    bytes: int = 0
    """What batches that are not committed hold in memory."""

    def idle_in_s(self, touched_ns: Iterable[int], now_ns: int) -> float | None:
        """Tell when the first of some batches, by when their last messages came, has to go."""
        oldest_ns = min(touched_ns, default=None)
        if oldest_ns is None:
            return None
        return max((self.idle_ns_max - (now_ns - oldest_ns)) / 1e9, 0.0)
