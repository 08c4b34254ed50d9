"""Memory that was freed goes back to the system, though not byte by byte."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


ALLOCATING = """
import ctypes, os, sys, threading
from penstock.net.memory import share_one_heap

libc = ctypes.CDLL(None)
if not hasattr(libc, "malloc_info"):
    sys.exit("unknown")
if sys.argv[1] == "shared":
    share_one_heap()
together = threading.Barrier(4)

def allocate():
    together.wait()
    libc.malloc(100_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


def heaps_of(how: str) -> int:
    """Return how many heaps a process of several threads has."""
    command = [sys.executable, "-c", ALLOCATING, how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if ended.stderr == "unknown\n":
        pytest.skip("the allocator does not tell what heaps it has")
    return ended.stdout.count("<heap nr=")


def test_threads_have_heaps_of_their_own_unless_one_is_shared() -> None:
    assert heaps_of("apart") > 1
    assert heaps_of("shared") == 1
