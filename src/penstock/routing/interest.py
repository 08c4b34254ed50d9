"""Changes of interest: calls when subscriptions to a subject come or go.

A sublist may have several observers, each of which is called with every subscription that is
inserted or removed. `InterestWatch` is one of them: it watches literal subjects, calls back after
every change that may concern one, and leaves it to the callback to look at the sublist.

One thread: the event loop's. Used by consumers with a delivery subject, and by imports.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.routing.sublist import Sublist, Subscription
from penstock.subjects import is_literal, matches

Changed = Callable[[], None]
Observer = Callable[[Subscription], None]


class _Observers:
    """All observers of one sublist, in the order in which they came."""

    def __init__(self) -> None:
        self.each: tuple[Observer, ...] = ()

    def __call__(self, subscription: Subscription) -> None:
        for observer in self.each:
            observer(subscription)


def observe(sublist: Sublist, observer: Observer) -> None:
    """Call an observer with every subscription from now on; adding it twice does nothing."""
    if not isinstance(sublist.observer, _Observers):
        sublist.observer = _Observers()
    if observer not in sublist.observer.each:
        sublist.observer.each += (observer,)


def ignore(sublist: Sublist, observer: Observer) -> None:
    """Call an observer no more."""
    observers = sublist.observer
    if isinstance(observers, _Observers):
        observers.each = tuple(each for each in observers.each if each != observer)
        if not observers.each:
            sublist.observer = None


class InterestWatch:
    """The watched subjects of one sublist; see the module."""

    def __init__(self, sublist: Sublist) -> None:
        self._sublist = sublist
        self._watched: dict[bytes, list[Changed]] = {}

    def watch(self, subject: bytes, changed: Changed) -> None:
        """Call `changed` whenever the interest in a subject may have changed."""
        self._watched.setdefault(subject, []).append(changed)
        observe(self._sublist, self._observe)

    def unwatch(self, subject: bytes, changed: Changed) -> None:
        """Stop calling `changed` for a subject."""
        watchers = self._watched.get(subject, [])
        if changed in watchers:
            watchers.remove(changed)
        if not watchers:
            self._watched.pop(subject, None)
        if not self._watched:
            ignore(self._sublist, self._observe)

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
