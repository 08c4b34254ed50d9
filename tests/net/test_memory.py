"""Memory that was freed goes back to the system, though not byte by byte."""

from __future__ import annotations

from penstock.limits import FREED_BYTES_KEPT_MAX
from penstock.net.memory import FreedMemory, trim_heap


def test_memory_is_given_back_each_time_that_enough_was_freed() -> None:
    given_back: list[int] = []
    freed = FreedMemory(lambda: given_back.append(place))

    for place in range(10):
        freed.note(FREED_BYTES_KEPT_MAX // 4 + 1)

    assert given_back == [3, 7]


def test_the_heap_can_be_trimmed_at_any_time() -> None:
    trim_heap()
