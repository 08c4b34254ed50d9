"""Stories for both servers: messages that stay as long as a consumer needs them."""

from __future__ import annotations

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in

# Interest


def nobody_is_interested(life: Life) -> None:
    life.stream(retention="interest")
    life.publish_all(*"abc")
    life.state()
    life.consumer(filter_subject=f"{life.stream_name}.x")
    life.publish_all("a", "x", "b")
    life.state()
    life.info()


def the_last_interested_one_goes(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer()
    life.publish_all(*"abc")
    life.state()
    life.forget()
    life.state()


def one_of_two_interested_goes(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("one")
    life.consumer("two", filter_subject=f"{life.stream_name}.b")
    life.publish_all(*"abc")
    life.forget("one")
    life.state()
    life.pull(1, "two")
    life.take()
    life.ack(0)
    life.state()


def one_comes_late(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("one")
    life.publish_all(*"abc")
    life.consumer("late")
    life.pull(3, "one")
    life.take(3)
    life.ack(0)
    life.ack(1)
    life.state()
    life.pull(3, "late")
    life.take(3)
    life.ack(3)
    life.state()


def one_that_wants_only_new_ones(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("one")
    life.publish_all(*"ab")
    life.consumer("new", deliver_policy="new")
    life.pull(2, "one")
    life.take(2)
    life.ack(0)
    life.ack(1)
    life.state()
    life.publish_all("c")
    life.pull(1, "new")
    life.take()
    life.ack(2)
    life.state()


def ends_and_naks_of_interest(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer()
    life.publish_all(*"abcd")
    life.pull(3)
    life.take(3)
    life.ack(0, b"+TERM")
    life.state()
    life.ack(1, b"-NAK")
    life.state()
    life.ack(1)
    life.state()
    life.ack(2, b"+WPI")
    life.state()
    life.info()


def all_up_to_one_of_interest(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer(ack_policy="all")
    life.publish_all(*"abcde")
    life.pull(4)
    life.take(4)
    life.ack(2)
    life.state()
    life.info()
    life.purge()
    life.state()
    life.info()


def given_up_but_of_interest(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("one", max_deliver=1, ack_wait=200 * MS)
    life.consumer("two")
    life.advised("MAX_DELIVERIES")
    life.publish_all("a")
    life.pull(1, "one")
    life.take(2)
    life.state()
    life.pull(1, "two")
    life.take()
    life.ack(-1)
    life.state()
    life.info("one")


def what_is_wanted_changes(life: Life) -> None:
    life.stream(retention="interest")
    name = life.stream_name
    life.consumer(filter_subject=f"{name}.a")
    life.publish_all("a", "b", "a")
    life.state()
    life.consumer(filter_subject=f"{name}.b")
    life.publish_all("a", "b")
    life.state()
    life.info()
    life.pull(1)
    life.take()
    life.ack(0)
    life.state()


def interest_within_limits(life: Life) -> None:
    life.stream(retention="interest", max_msgs=3)
    life.consumer()
    life.publish_all(*"abcde")
    life.state()
    life.pull(3)
    life.take(3)
    life.ack(1)
    life.state()
    life.info()


def interest_of_one_that_rests(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer()
    life.pause()
    life.publish_all(*"ab")
    life.state()
    life.resume()
    life.pull(2)
    life.take(2)
    life.ack(0)
    life.state()


def interest_in_a_removed_message(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("one")
    life.consumer("two")
    life.publish_all(*"abc")
    life.pull(3, "one")
    life.take(3)
    life.remove(2)
    life.state()
    life.ack(1)
    life.ack(0)
    life.state()
    life.pull(3, "two")
    life.take(2)
    life.ack(3)
    life.state()


def interest_of_pushed_ones(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer(deliver_subject="to.interest")
    life.listen("to.interest")
    life.publish(f"{life.stream_name}.a")
    life.publish(f"{life.stream_name}.b")
    life.take(2)
    life.state()
    life.ack(1)
    life.state()
    life.ack(0)
    life.state()


def interest_ends_with_silence(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("stays")
    life.advised("DELETED")
    life.consumer("goes", inactive_threshold=500 * MS)
    life.publish_all("a")
    life.pull(1, "stays")
    life.take()
    life.ack(0)
    life.take()
    life.until_left(0)
    life.state()


def interest_after_a_new_start(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("one")
    life.consumer("two")
    life.publish_all(*"abc")
    life.pull(3, "one")
    life.take(3)
    life.ack(0)
    life.ack(1)
    life.ask(f"CONSUMER.RESET.{life.stream_name}.one", seq=1)
    life.info("one")
    life.pull(3, "two")
    life.take(3)
    life.ack(3)
    life.state()


# Work queues


def a_queue_is_handed_on(life: Life) -> None:
    life.stream(retention="workqueue")
    life.publish_all(*"abc")
    life.consumer()
    life.pull(2)
    life.take(2)
    life.ack(0)
    life.forget()
    life.state()
    life.consumer("heir")
    life.info("heir")
    life.pull(5, "heir")
    life.take(2)
    life.ack(2)
    life.state()


def a_queue_for_one_only(life: Life) -> None:
    life.stream(retention="workqueue")
    name = life.stream_name
    life.consumer("one", filter_subject=f"{name}.a")
    life.consumer("all")
    life.consumer("same", filter_subject=f"{name}.a")
    life.consumer("wide", filter_subject=f"{name}.*")
    life.consumer("other", filter_subject=f"{name}.b")
    life.consumer("new", filter_subject=f"{name}.c", deliver_policy="new")
    life.consumer("none", filter_subject=f"{name}.c", ack_policy="none")
    life.consumer("other", filter_subject=f"{name}.a")
    life.consumer("other", filter_subject=f"{name}.d")
    life.info("other")


def a_queue_that_is_full(life: Life) -> None:
    life.stream(retention="workqueue", max_msgs=2, discard="new")
    life.publish_all(*"ab")
    life.publish(f"{life.stream_name}.c", reply="_IN.refused")
    life.take()
    life.consumer()
    life.pull(1)
    life.take()
    life.ack(0)
    life.publish_all("d")
    life.state()


def a_queue_is_purged(life: Life) -> None:
    life.stream(retention="workqueue")
    life.publish_all(*"abcd")
    life.consumer()
    life.pull(2)
    life.take(2)
    life.purge()
    life.state()
    life.info()
    life.ack(0)
    life.publish_all("e")
    life.pull(1)
    life.take()
    life.ack(2)
    life.state()
    life.info()


def a_queue_by_parts(life: Life) -> None:
    life.stream(retention="workqueue")
    name = life.stream_name
    life.publish_all(*"ababc")
    life.consumer("one", filter_subject=f"{name}.a")
    life.consumer("two", filter_subjects=[f"{name}.b", f"{name}.x"])
    life.pull(2, "one")
    life.take(2)
    life.pull(2, "two")
    life.take(2)
    life.ack(3)
    life.state()
    life.ack(0)
    life.state()
    life.forget("one")
    life.state()
    life.consumer("again", filter_subject=f"{name}.a")
    life.pull(2, "again")
    life.take()
    life.ack(4)
    life.ack(2)
    life.state()


def a_queue_forgets_what_is_refused(life: Life) -> None:
    life.stream(retention="workqueue")
    life.publish_all(*"ab")
    life.consumer(max_deliver=2)
    life.advised("MAX_DELIVERIES", "MSG_TERMINATED")
    life.pull(5)
    life.take(2)
    life.say(0, b"-NAK")
    life.take()
    life.say(0, b"-NAK")
    life.take()
    life.state()
    life.say(0, b"+TERM")
    life.take()
    life.state()
    life.info()


def a_queue_with_late_words(life: Life) -> None:
    life.stream(retention="workqueue")
    life.publish_all("a")
    life.consumer(ack_wait=300 * MS)
    life.pull(2)
    life.take(2)
    life.ack(0)
    life.state()
    life.ack(1)
    life.state()
    life.info()


def a_queue_whose_messages_age(life: Life) -> None:
    life.stream(retention="workqueue", max_age=SECOND, duplicate_window=SECOND)
    life.publish_all("a")
    life.consumer()
    life.pull({"batch": 1, "expires": 60 * SECOND})
    life.take()
    life.until_left(0)
    life.state()
    life.pull({"batch": 1, "no_wait": True})
    life.take()
    life.ack(0)


STORIES: list[Story] = stories_in(__name__)
