"""A watch of a subject is called when subscriptions to it change, and no other watch is."""

from __future__ import annotations

import pytest

from penstock.routing.hub import Service
from penstock.routing.interest import InterestWatch, observe
from penstock.routing.interest import ignore as stop_observing
from penstock.routing.sublist import Sublist, Subscription


def ignore(subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
    """Take a message and do nothing."""


@pytest.mark.parametrize("pattern", [b"a.b", b"a.*", b">"])
def test_a_subscription_that_matches_is_told_when_it_comes_and_when_it_goes(pattern: bytes) -> None:
    sublist = Sublist()
    seen: list[bool] = []
    watch = InterestWatch(sublist)
    watch.watch(b"a.b", lambda: seen.append(bool(sublist.matches(b"a.b").plain)))
    subscription = Subscription(Service(ignore), pattern, b"1")

    sublist.insert(subscription)
    sublist.remove(subscription)

    assert seen == [True, False]


@pytest.mark.parametrize("pattern", [b"a", b"a.b.c", b"x.*", b"a.c"])
def test_other_subscriptions_are_not_told(pattern: bytes) -> None:
    sublist = Sublist()
    watch = InterestWatch(sublist)
    watch.watch(b"a.b", lambda: pytest.fail("nobody listens to it"))

    sublist.insert(Subscription(Service(ignore), pattern, b"1"))


def test_nobody_is_told_who_watches_no_more() -> None:
    sublist = Sublist()
    seen: list[str] = []
    watch = InterestWatch(sublist)

    def first() -> None:
        seen.append("first")

    def second() -> None:
        seen.append("second")

    watch.watch(b"a", first)
    watch.watch(b"a", second)
    watch.unwatch(b"a", first)
    sublist.insert(Subscription(Service(ignore), b"a", b"1"))
    watch.unwatch(b"a", second)
    sublist.insert(Subscription(Service(ignore), b"a", b"2"))

    assert seen == ["second"]
    assert sublist.observer is None


def test_each_observer_is_told_until_it_ignores_the_sublist() -> None:
    sublist = Sublist()
    first: list[bytes] = []
    second: list[bytes] = []

    def note_first(subscription: Subscription) -> None:
        first.append(subscription.subject)

    def note_second(subscription: Subscription) -> None:
        second.append(subscription.subject)

    observe(sublist, note_first)
    observe(sublist, note_second)
    observe(sublist, note_second)
    sublist.insert(Subscription(Service(ignore), b"a", b"1"))
    stop_observing(sublist, note_first)
    sublist.insert(Subscription(Service(ignore), b"b", b"2"))
    stop_observing(sublist, note_second)

    assert (first, second) == ([b"a"], [b"a", b"b"])
    assert sublist.observer is None
