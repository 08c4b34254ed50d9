"""Memory that was freed goes back to the system, though not byte by byte."""

from __future__ import annotations

from penstock.limits import FREED_BYTES_KEPT_MAX
from penstock.net.memory import FreedMemory, trim_heap


def test_memory_is_given_back_each_time_that_enough_was_freed() -> None:
    calls: list[None] = []
    freed = FreedMemory(lambda: calls.append(None))
    counts = []

    for _ in range(8):
        freed.note(FREED_BYTES_KEPT_MAX // 4 + 1)
        counts.append(len(calls))

    assert counts == [0, 0, 0, 1, 1, 1, 1, 2]


def test_the_heap_can_be_trimmed_at_any_time() -> None:
    trim_heap()
