"""What the process itself is doing: stacks, and the variables that Go's expvar would show.

Stacks name code and never values, so nothing that a client sent is in them. The command line is
left out but for its first word: passwords may stand in it.

One thread: the event loop's; it looks at the others without stopping them.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import sys
import threading
import traceback
from typing import Any

import msgspec

from penstock.config.quoting import quoted
from penstock.monitor.facts import Source

TASKS_SHOWN_MAX = 1000
"""Tasks of the event loop whose stacks are shown: monitoring requests have one each."""


def stacks() -> str:
    """Give the stack of each thread and of each task of the event loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {ident} [{names.get(ident, 'unknown')}]:\n{lines}")
    try:
        tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    except RuntimeError:
        tasks = []
    for task in tasks[:TASKS_SHOWN_MAX]:
        lines = "".join(
            line for frame in task.get_stack() for line in traceback.format_stack(frame, limit=1)
        )
        parts.append(f"task {task.get_name()}:\n{lines}")
    return "\n".join(parts)


def variables(source: Source) -> dict[str, Any]:
    """Give what expvar would: the program, and its memory in bytes."""
    collections = sum(each["collections"] for each in gc.get_stats())
    in_use = source.counters().memory_bytes
    return {
        "cmdline": sys.argv[:1],
        "memstats": {"Alloc": in_use, "Sys": in_use, "NumGC": collections},
    }


class ProfilezOptions(msgspec.Struct, frozen=True):
    """Which profile is asked for."""

    name: str = ""


def profilez(options: ProfilezOptions) -> dict[str, Any]:
    """Give a profile in base64: there is only that of stacks, by Go's name for it."""
    if not options.name:
        return {"profile": None, "error": "Profile name not specified"}
    if options.name != "goroutine":
        return {"profile": None, "error": f"Profile {quoted(options.name)} not found"}
    return {"profile": base64.b64encode(stacks().encode("utf-8", "replace")).decode()}
