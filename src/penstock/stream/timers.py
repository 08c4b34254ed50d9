"""The timers of a stream: one for expiry, one for everything else that publishing does later.

A timer asks its owner when something is due, calls it then, and is set again by the owner.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.limits import TIMER_S_MAX
from penstock.store.filestore import FileStore

if TYPE_CHECKING:
    from penstock.stream.stream import StreamHost


class DueTimer:
    """Calls `run` when `due_in_s` says so; None is never."""

    def __init__(
        self, host: StreamHost, due_in_s: Callable[[], float | None], run: Callable[[], None]
    ) -> None:
        self._host = host
        self._due_in_s = due_in_s
        self._run = run
        self._handle: asyncio.TimerHandle | None = None
        self._is_stopped = False

    @property
    def is_set(self) -> bool:
        """Whether it will run."""
        return self._handle is not None

    def plan(self) -> None:
        """Set the timer, unless it runs early enough already."""
        delay_s = self._due_in_s()
        if delay_s is None or self._is_stopped:
            return
        loop = self._host.loop
        if self._handle is not None:
            if self._handle.when() <= loop.time() + delay_s:
                return
            self._handle.cancel()
        self._handle = loop.call_later(min(delay_s, TIMER_S_MAX), self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._run()

    def stop(self) -> None:
        """Never run again."""
        self._is_stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class ExpiryTimer:
    """Calls `run` when the store's next message expires."""

    def __init__(self, host: StreamHost, store: FileStore, run: Callable[[], None]) -> None:
        self._host = host
        self._store = store
        self._run = run
        self._handle: asyncio.TimerHandle | None = None
        self._due_ns = 0
        self._is_stopped = False

    @property
    def is_set(self) -> bool:
        """Whether it will run."""
        return self._handle is not None

    def expires_by(self, expires_ns: int) -> None:
        """Note that a message was stored that expires then, perhaps before all others."""
        if self._handle is None or expires_ns < self._due_ns:
            self.plan()

    def plan(self) -> None:
        """Set the timer for the store's next expiry, or clear it if there is none."""
        due_ns = self._store.next_expiry_ns()
        self._due_ns = due_ns or 0
        self._cancel()
        if due_ns is None or self._is_stopped:
            return
        delay_s = max((due_ns - self._host.clock.now_ns()) / 1e9, 0.0)
        self._handle = self._host.loop.call_later(min(delay_s, TIMER_S_MAX), self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._run()

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def stop(self) -> None:
        """Never run again."""
        self._is_stopped = True
        self._cancel()
