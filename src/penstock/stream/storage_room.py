"""How much a stream may still store, as far as its account and the server go.

Nobody adds up all streams for each message: a stream is granted some bytes of what is left, and
asks again when they are used up. Near the limit grants become nothing, and each message is asked
for. Pure.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.limits import STORAGE_GRANT_BYTES_MAX

UNBOUNDED: Final = 2**62


class StorageRoom(msgspec.Struct, frozen=True):
    """What is left, in bytes; below zero where a limit was lowered, or was passed by a little."""

    server_bytes: int = UNBOUNDED
    account_bytes: int = UNBOUNDED
    stream_count: int = 1
    """How many share it."""

    def grant(self, size: int) -> int:
        """Give what a stream may store without asking, after a message of a size."""
        left = min(self.server_bytes, self.account_bytes) - size
        if left >= UNBOUNDED // 2:
            return left
        # All of them together never get more than half of it.
        return min(max(left, 0) // (2 * self.stream_count), STORAGE_GRANT_BYTES_MAX)
