"""Stories for both servers: clients of a group, and which of them is served."""

from __future__ import annotations

from typing import Any

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in


def _pinned(life: Life, *tokens: str, timeout: int = 60 * SECOND) -> None:
    life.filled(
        *(tokens or "abcd"),
        priority_policy="pinned_client",
        priority_groups=["G"],
        priority_timeout=timeout,
    )


def _ask(life: Life, to: str = "", batch: int = 1, **more: Any) -> None:
    life.pull({"batch": batch, "group": "G", "expires": 60 * SECOND, **more}, to=to)


# Pinned


def the_pinned_one_is_served_alone(life: Life) -> None:
    _pinned(life, "a")
    life.listen("in1")
    life.listen("in2")
    _ask(life, "in1")
    life.take()
    _ask(life, "in2")
    life.until_waiting(1)
    _ask(life, "in1", 2, id=life.pin())
    life.until_waiting(2)
    life.publish(f"{life.stream_name}.b")
    life.publish(f"{life.stream_name}.c")
    life.take(2)
    life.info("C", "priority_groups")


def another_is_pinned_when_the_first_is_silent(life: Life) -> None:
    _pinned(life, "a", "b", timeout=SECOND)
    life.advised("PINNED", "UNPINNED")
    life.listen("in1")
    life.listen("in2")
    _ask(life, "in1")
    life.take_unordered(2)
    _ask(life, "in2")
    life.take_unordered(3)
    life.info("C", "priority_groups")


def a_lost_pin_is_of_no_use(life: Life) -> None:
    _pinned(life, "a", "b", timeout=SECOND)
    life.advised("UNPINNED")
    _ask(life)
    life.take()
    lost = life.pin()
    life.take()
    _ask(life, id=lost)
    life.take()
    life.info("C", "priority_groups")


def a_pin_that_never_was(life: Life) -> None:
    _pinned(life, "a", "b")
    _ask(life, id="madeup")
    life.take()
    _ask(life)
    life.take()
    _ask(life, id="madeup")
    life.take()
    life.info("C", "priority_groups")


def pins_nobody_without_messages(life: Life) -> None:
    life.stream()
    life.consumer(priority_policy="pinned_client", priority_groups=["G"])
    life.advised("PINNED")
    _ask(life)
    life.until_waiting(1)
    life.info("C", "priority_groups")
    life.publish(f"{life.stream_name}.a")
    life.take_unordered(2)


def unpins_where_nobody_is_pinned(life: Life) -> None:
    _pinned(life, "a")
    life.advised("UNPINNED")
    name = life.stream_name
    life.publish(f"$JS.API.CONSUMER.UNPIN.{name}.C", b'{"group":"G"}', reply="_IN.unpinned")
    life.take_unordered(2)
    for body in (b"", b"{}", b"x", b'{"group":5}', b'{"group":""}'):
        life.publish(f"$JS.API.CONSUMER.UNPIN.{name}.C", body, reply="_IN.unpinned")
        life.take()
    life.consumer("plain")
    life.ask(f"CONSUMER.UNPIN.{name}.plain", group="G")
    life.ask(f"CONSUMER.UNPIN.{name}.nobody", group="G")


def the_pin_is_on_what_comes_again(life: Life) -> None:
    _pinned(life, "a", "b")
    _ask(life, batch=1)
    life.take()
    life.ack(0, b"-NAK")
    _ask(life, batch=1, id=life.pin())
    life.take()
    life.info("C", "priority_groups")


def a_pinned_one_may_not_wait(life: Life) -> None:
    _pinned(life, "a")
    life.pull({"batch": 1, "group": "G", "no_wait": True})
    life.take()
    life.pull({"batch": 1, "group": "G", "no_wait": True, "id": life.pin()})
    life.take()
    life.pull({"batch": 1, "group": "G", "no_wait": True})
    life.take()


def the_pinned_group_changes(life: Life) -> None:
    _pinned(life, "a", "b", "c")
    _ask(life)
    life.take()
    life.consumer(
        priority_policy="pinned_client", priority_groups=["H"], priority_timeout=60 * SECOND
    )
    _ask(life, id=life.pin())
    life.take()
    life.pull({"batch": 1, "group": "H", "expires": 60 * SECOND, "id": life.pin()})
    life.take()


# Overflow


def an_overflow_by_what_is_out(life: Life) -> None:
    life.filled(*"abcdef", priority_policy="overflow", priority_groups=["G"])
    life.listen("in1")
    life.listen("in2")
    _ask(life, "in2", 2, min_ack_pending=3)
    life.until_waiting(1)
    _ask(life, "in1", 2)
    life.take(2)
    _ask(life, "in1", 1)
    life.take(3)
    life.info()


def an_overflow_by_what_is_left(life: Life) -> None:
    life.filled(*"abcd", priority_policy="overflow", priority_groups=["G"])
    _ask(life, batch=10, min_pending=3)
    life.take(2)
    life.until_waiting(1)
    life.info()
    _ask(life, batch=1)
    life.take()
    life.info()


def an_overflow_by_either(life: Life) -> None:
    life.filled(*"abc", priority_policy="overflow", priority_groups=["G"])
    _ask(life, batch=1, min_pending=100, min_ack_pending=1)
    life.until_waiting(1)
    _ask(life, batch=1)
    life.take(2)
    life.info()


def an_overflow_with_odd_bounds(life: Life) -> None:
    life.filled(*"abc", priority_policy="overflow", priority_groups=["G"])
    odd: list[dict[str, Any]] = [{"min_pending": -1}, {"min_ack_pending": -5}, {"min_pending": 0}]
    for more in odd:
        _ask(life, **more)
        life.take()
    life.info()


def an_overflow_that_times_out(life: Life) -> None:
    life.filled("a", priority_policy="overflow", priority_groups=["G"])
    life.pull({"batch": 1, "group": "G", "min_pending": 5, "expires": 200 * MS})
    life.take()
    life.pull({"batch": 1, "group": "G", "min_pending": 5, "no_wait": True})
    life.take()
    life.info()


# Prioritized


def lower_priorities_go_first(life: Life) -> None:
    life.stream()
    life.consumer(priority_policy="prioritized", priority_groups=["G"])
    for place in (1, 2, 3, 4):
        life.listen(f"in{place}")
    for waiting, (place, priority) in enumerate(((1, 9), (2, 3), (3, 3), (4, 0))):
        _ask(life, f"in{place}", 2, priority=priority)
        life.until_waiting(waiting + 1)
    for token in "abcdefgh":
        life.publish(f"{life.stream_name}.{token}", token.encode())
    life.take(8)


def one_more_important_comes_later(life: Life) -> None:
    life.stream()
    life.consumer(priority_policy="prioritized", priority_groups=["G"])
    life.listen("in1")
    life.listen("in2")
    _ask(life, "in1", 3, priority=5)
    life.until_waiting(1)
    life.publish(f"{life.stream_name}.a")
    life.take()
    _ask(life, "in2", 1, priority=1)
    life.until_waiting(2)
    for token in "bcd":
        life.publish(f"{life.stream_name}.{token}")
    life.take(3)
    life.info()


def what_comes_again_goes_to_the_first_in_rank(life: Life) -> None:
    life.filled("a", priority_policy="prioritized", priority_groups=["G"])
    life.listen("in1")
    life.listen("in2")
    _ask(life, "in1", 1, priority=5)
    life.take()
    _ask(life, "in1", 1, priority=5)
    life.until_waiting(1)
    _ask(life, "in2", 1, priority=0)
    life.until_waiting(2)
    life.say(0, b"-NAK")
    life.take()
    life.info()


def priorities_out_of_range(life: Life) -> None:
    life.filled(*"abc", priority_policy="prioritized", priority_groups=["G"])
    for priority in (-1, 10, 2**31, 9, 0):
        _ask(life, priority=priority)
        life.take()
    life.pull({"batch": 1, "group": "G", "min_pending": 1})
    life.take()
    life.pull({"batch": 1, "group": "G", "id": "x"})
    life.take()
    life.info()


STORIES: list[Story] = stories_in(__name__)
