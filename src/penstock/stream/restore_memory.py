"""The memory that all restores of a server may hold together.

A snapshot is packed: a few bytes may become very many, and an entry is kept in memory until it is
whole. Each restore reports what it holds. One that would go beyond the bound is refused, so that
the others and the server's clients lose nothing.

Thread: any.
"""

from __future__ import annotations

import threading

from penstock import error_codes
from penstock.errors import ApiError
from penstock.limits import RESTORE_MEMORY_BYTES_MAX


class RestoreMemory:
    """Counts what the restores of a server hold; see the module."""

    def __init__(self, bytes_max: int = RESTORE_MEMORY_BYTES_MAX) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._lock = threading.Lock()

    def change(self, difference: int) -> None:
        """Count more or fewer bytes; raise ApiError, with nothing counted, if it is too much."""
        with self._lock:
            if difference > 0 and self.bytes + difference > self._bytes_max:
                raise ApiError(error_codes.MEMORY_RESOURCES_EXCEEDED)
            self.bytes += difference
