"""One timer for all that publishing leaves to be done later.

Message ids become too old, batches wait too long, schedules are due: the timer runs when the first
of these may be, looks after all of them, and sets itself again.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.stream.publishing import Publishing

PRUNE_S_MIN = 0.05
"""How often message ids are looked through at the most."""

DELAY_S_MAX = 86_400.0
"""A timer a day at the least: the wall clock may be set meanwhile."""


class PublishingTimer:
    """The timer of one stream's publishing; see the module."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._handle: asyncio.TimerHandle | None = None
        self._is_behind = False
        """Message ids that are too old are still there."""

    @property
    def is_set(self) -> bool:
        """Whether it will run."""
        return self._handle is not None

    def plan(self) -> None:
        """See to it that the timer runs when something is due."""
        stream = self._publishing.stream
        delay_s = self._delay_s()
        if delay_s is None or stream.is_stopped:
            return
        loop = stream.host.loop
        if self._handle is not None:
            if self._handle.when() <= loop.time() + delay_s:
                return
            self._handle.cancel()
        self._handle = loop.call_later(delay_s, self._run)

    def _delay_s(self) -> float | None:
        publishing = self._publishing
        delays_s = [publishing.atomic_batches.due_in_s(), publishing.fast_batches.due_in_s()]
        if self._is_behind:
            delays_s.append(0.0)
        elif len(publishing.message_ids):
            delays_s.append(max(publishing.message_ids.window_ns / 1e9, PRUNE_S_MIN))
        due_ns = publishing.schedules.next_due_ns()
        if due_ns is not None:
            away_s = (due_ns - publishing.stream.host.clock.now_ns()) / 1e9
            delays_s.append(min(max(away_s, 0.0), DELAY_S_MAX))
        return min((each for each in delays_s if each is not None), default=None)

    def cancel(self) -> None:
        """Never run again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        publishing = self._publishing
        stream = publishing.stream
        now_ns = stream.host.clock.now_ns()
        self._is_behind = publishing.message_ids.prune(now_ns)
        publishing.atomic_batches.abandon_idle()
        publishing.fast_batches.abandon_idle()
        for message in publishing.schedules.take_due(stream.store, now_ns):
            publishing.publish(message, None)
        self.plan()
        stream.host.hub.flush()
