"""Stories of interest retention beside consumers that do not begin with the first message.

Each runs against the real server and ours. The consumer `all` acknowledges what it was given;
messages that the other consumer has chosen and was not given yet must stay in the stream.
"""

from __future__ import annotations

from typing import Any

from tests.consumer.delivered import Life, stories_in


def _last_of_each(life: Life, **more: Any) -> dict[str, Any]:
    subjects = f"{life.stream_name}.*"
    return {"deliver_policy": "last_per_subject", "filter_subject": subjects} | more


def _begin(life: Life, tokens: str, **config: Any) -> None:
    """Fill a stream that `all` consumes, and add the consumer `late`."""
    life.stream(retention="interest")
    life.consumer("all")
    life.publish_all(*tokens)
    life.consumer("late", **config)


def _take_all(life: Life, count: int) -> None:
    """Have `all` take and acknowledge every message."""
    life.pull(count, "all")
    life.take(count)
    for place in range(count):
        life.ack(place)
    life.state()


def _take_late(life: Life, count: int, taken: int) -> None:
    """Have `late` take and acknowledge what it has chosen, after `taken` messages of `all`."""
    life.info("late")
    life.pull({"batch": 9, "no_wait": True}, "late")
    life.take(count + 1)
    for place in range(count):
        life.ack(taken + place)
    life.state()
    life.info("late")


def the_last_of_each_subject_stays(life: Life) -> None:
    _begin(
        life, "abcabc", deliver_policy="last_per_subject", filter_subject=f"{life.stream_name}.*"
    )
    _take_all(life, 6)
    _take_late(life, 3, 6)


def the_last_of_each_subject_within_filters(life: Life) -> None:
    name = life.stream_name
    filters = [f"{name}.a", f"{name}.c"]
    _begin(life, "abcabcd", deliver_policy="last_per_subject", filter_subjects=filters)
    _take_all(life, 7)
    _take_late(life, 2, 7)


def the_last_of_each_subject_in_small_bites(life: Life) -> None:
    _begin(
        life,
        "abcabc",
        **_last_of_each(life, max_ack_pending=1),
    )
    life.pull(1, "late")
    life.take()
    life.pull(6, "all")
    life.take(6)
    for place in range(1, 7):
        life.ack(place)
    life.state()
    life.ack(0, b"-NAK")
    for place in (7, 8, 9):
        life.pull(1, "late")
        life.take()
        life.ack(place)
        life.state()
    life.info("late")


def the_last_of_each_subject_is_pushed_later(life: Life) -> None:
    _begin(
        life,
        "abcabc",
        **_last_of_each(life, deliver_subject="to.late"),
    )
    _take_all(life, 6)
    life.listen_again("to.late")
    life.take(3)
    for place in (6, 7, 8):
        life.ack(place)
    life.state()


def the_last_of_each_subject_where_one_ack_is_for_all(life: Life) -> None:
    _begin(
        life,
        "abcabc",
        **_last_of_each(life, ack_policy="all"),
    )
    _take_all(life, 6)
    life.pull(3, "late")
    life.take(3)
    life.ack(8)
    life.state()
    life.info("late")


def the_last_of_each_subject_without_acks(life: Life) -> None:
    _begin(
        life,
        "abcabc",
        **_last_of_each(life, ack_policy="none"),
    )
    _take_all(life, 6)
    life.pull(3, "late")
    life.take(3)
    life.until_left(0)
    life.state()


def two_that_want_the_last_of_each_subject(life: Life) -> None:
    filters = {"filter_subject": f"{life.stream_name}.*"}
    _begin(life, "abcabc", deliver_policy="last_per_subject", **filters)
    life.consumer("later", deliver_policy="last_per_subject", **filters)
    _take_all(life, 6)
    _take_late(life, 3, 6)
    life.pull(3, "later")
    life.take(3)
    for place in (9, 10, 11):
        life.ack(place)
    life.state()


def the_last_of_each_subject_of_one_that_goes(life: Life) -> None:
    _begin(
        life, "abcabc", deliver_policy="last_per_subject", filter_subject=f"{life.stream_name}.*"
    )
    _take_all(life, 6)
    life.forget("late")
    life.until_left(0)
    life.state()


def the_last_stays(life: Life) -> None:
    _begin(life, "abc", deliver_policy="last")
    _take_all(life, 3)
    _take_late(life, 1, 3)


def the_last_of_a_filter_stays(life: Life) -> None:
    _begin(life, "abcabc", deliver_policy="last", filter_subject=f"{life.stream_name}.b")
    _take_all(life, 6)
    _take_late(life, 1, 6)


def new_ones_stay(life: Life) -> None:
    _begin(life, "abc", deliver_policy="new")
    life.publish_all("a")
    _take_all(life, 4)
    _take_late(life, 1, 4)


def those_from_a_sequence_on_stay(life: Life) -> None:
    name = life.stream_name
    _begin(life, "abcabc", deliver_policy="by_start_sequence", opt_start_seq=3)
    life.consumer(
        "b", deliver_policy="by_start_sequence", opt_start_seq=4, filter_subject=f"{name}.b"
    )
    _take_all(life, 6)
    _take_late(life, 4, 6)
    life.pull(1, "b")
    life.take()
    life.ack(10)
    life.state()


def those_from_a_time_on_stay(life: Life) -> None:
    _begin(life, "abc", deliver_policy="by_start_time", opt_start_time="2001-01-01T00:00:00Z")
    life.consumer("future", deliver_policy="by_start_time", opt_start_time="2101-01-01T00:00:00Z")
    _take_all(life, 3)
    _take_late(life, 3, 3)


def a_work_queue_takes_nobody_who_skips(life: Life) -> None:
    life.stream(retention="workqueue")
    life.publish_all(*"abc")
    name = life.stream_name
    last = {"deliver_policy": "last_per_subject", "filter_subject": f"{name}.*"}
    life.consumer("each", **last)
    life.consumer("pushed", deliver_subject="to.late", **last)
    life.consumer("last", deliver_policy="last")
    life.consumer("new", deliver_policy="new")
    life.consumer("third", deliver_policy="by_start_sequence", opt_start_seq=3)
    life.consumer("b", filter_subject=f"{name}.b")
    life.pull(1, "b")
    life.take()
    life.ack(0)
    life.state()


STORIES = stories_in(__name__)
