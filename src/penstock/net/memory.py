"""Memory that was freed, and its way back to the system.

A client may announce a large message and go away in the middle of it. The memory of the part that
came is free then, but lies among what is in use, and the allocator keeps it; clients that do this
again and again would touch more and more of it. So after so many bytes the allocator is asked to
give back what is free, wherever it lies.

One thread: the event loop's. Used by `net.channel`, and by what starts a server's streams.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.limits import FREED_BYTES_KEPT_MAX

_ARENA_MAX_OPTION = -8
"""The number of glibc's parameter M_ARENA_MAX."""


class FreedMemory:
    """Counts what connections leave behind when they close; see the module."""

    def __init__(self, give_back: Callable[[], None] | None = None) -> None:
        self._give_back = give_back or trim_heap
        self._freed_bytes = 0

    def note(self, byte_count: int) -> None:
        """Note that so many bytes were freed at once."""
        self._freed_bytes += byte_count
        if self._freed_bytes > FREED_BYTES_KEPT_MAX:
            self._freed_bytes = 0
            self._give_back()


def share_one_heap() -> None:
    """Have the threads that are started from now on use the heap of the first one.

    Otherwise each may get one of its own, of which the allocator does not give back what is free at
    the end. Nothing where the allocator is another one, as musl's.
    """
    _ask_allocator("mallopt", _ARENA_MAX_OPTION, 1)


def trim_heap() -> None:
    """Ask the allocator to give back what is free; nothing where it cannot, as musl's."""
    _ask_allocator("malloc_trim", 0)


def _ask_allocator(name: str, *arguments: int) -> None:
    # Most servers never come to this, and need not load it to start.
    import ctypes

    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
