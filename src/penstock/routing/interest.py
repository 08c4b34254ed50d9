"""Who listens to a subject: told to those who wait for it to change.

One watch for each sublist. What is watched are literal subjects; whoever watches one is told after
every subscription that is put in or taken out and that matches it, and asks the sublist for itself.

One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.routing.sublist import Sublist, Subscription
from penstock.subjects import is_literal, matches

Changed = Callable[[], None]


class InterestWatch:
    """The watched subjects of one sublist; see the module."""

    def __init__(self, sublist: Sublist) -> None:
        self._sublist = sublist
        self._watched: dict[bytes, list[Changed]] = {}

    def watch(self, subject: bytes, changed: Changed) -> None:
        """Call `changed` whenever the interest in a subject may have changed."""
        self._watched.setdefault(subject, []).append(changed)
        self._sublist.observer = self._observe

    def unwatch(self, subject: bytes, changed: Changed) -> None:
        """Call it no more."""
        watchers = self._watched.get(subject, [])
        if changed in watchers:
            watchers.remove(changed)
        if not watchers:
            self._watched.pop(subject, None)
        if not self._watched:
            self._sublist.observer = None

    def _observe(self, subscription: Subscription) -> None:
        pattern = subscription.subject
        if is_literal(pattern):
            for changed in tuple(self._watched.get(pattern, ())):
                changed()
            return
        for subject, watchers in tuple(self._watched.items()):
            if matches(pattern, subject):
                for changed in tuple(watchers):
                    changed()
