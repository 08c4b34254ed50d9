"""Stories for both servers over restarts: each `yield` is a stop and a start."""

from __future__ import annotations

from collections.abc import Iterator

from tests.consumer.delivered import MS, SECOND, Life, LongStory, stories_in


def what_is_out_stays_out(life: Life) -> Iterator[None]:
    life.filled(*"abcde", ack_wait=3600 * SECOND)
    life.pull(3)
    life.take(3)
    life.ack(1)
    life.info()
    yield
    life.info()
    life.pull(1)
    life.take()
    life.ack(0)
    life.info()
    life.ack(2)
    life.info()


def what_was_not_acknowledged_comes_again(life: Life) -> Iterator[None]:
    life.filled(*"abc", ack_wait=SECOND)
    life.pull(3)
    life.take(3)
    life.ack(1)
    yield
    life.pull(2)
    life.take(2)
    life.ack(3)
    life.ack(4)
    life.info()


def deliveries_are_counted_on(life: Life) -> Iterator[None]:
    life.filled("a", ack_wait=3600 * SECOND)
    for _ in range(2):
        life.pull(1)
        life.take()
        life.ack(-1, b"-NAK")
    life.pull(1)
    life.take()
    yield
    life.info()
    life.ack(-1, b"-NAK")
    life.pull(1)
    life.take()
    life.info()


def a_delay_lasts(life: Life) -> Iterator[None]:
    life.filled("a", "b", ack_wait=3600 * SECOND)
    life.pull(1)
    life.take()
    life.ack(0, b"-NAK 3600s")
    yield
    life.info()
    life.pull(2)
    life.take()
    life.info()


def what_waited_to_come_again_still_comes(life: Life) -> Iterator[None]:
    life.filled("a", ack_wait=SECOND)
    life.pull(1)
    life.take()
    life.ack(0, b"-NAK")
    yield
    life.pull(1)
    life.take()
    life.ack(1)
    life.info()


def what_was_given_up_does_not_come_back(life: Life) -> Iterator[None]:
    life.filled("a", "b", max_deliver=1, ack_wait=200 * MS)
    life.advised("MAX_DELIVERIES")
    life.pull(1)
    life.take(2)
    life.info()
    yield
    life.info()
    life.pull({"batch": 5, "no_wait": True})
    life.take(2)


def backing_off_goes_on(life: Life) -> Iterator[None]:
    life.filled("a", max_deliver=4, backoff=[100 * MS, 3600 * SECOND, 3600 * SECOND])
    life.pull(2)
    life.take(2)
    yield
    life.info()
    life.ack(1, b"-NAK")
    life.pull(1)
    life.take()
    life.info()


def all_up_to_one_stays_acknowledged(life: Life) -> Iterator[None]:
    life.filled(*"abcde", ack_policy="all", ack_wait=3600 * SECOND)
    life.pull(4)
    life.take(4)
    life.ack(1)
    yield
    life.info()
    life.ack(3)
    life.pull(1)
    life.take()
    life.info()


def all_up_to_one_by_its_second_delivery(life: Life) -> Iterator[None]:
    life.filled(*"abc", ack_policy="all", ack_wait=3600 * SECOND)
    life.pull(3)
    life.take(3)
    life.ack(0, b"-NAK")
    life.pull(1)
    life.take()
    life.ack(3)
    life.info()
    yield
    life.info("C", "ack_floor")


def the_place_is_kept_without_acknowledgements(life: Life) -> Iterator[None]:
    life.filled(*"abcde", ack_policy="none")
    life.pull(2)
    life.take(2)
    yield
    life.info()
    life.pull(2)
    life.take(2)
    life.info()


def filters_are_kept(life: Life) -> Iterator[None]:
    life.stream()
    life.publish_all(*"abcabc")
    name = life.stream_name
    life.consumer(filter_subjects=[f"{name}.a", f"{name}.c"])
    life.pull(1)
    life.take()
    life.consumer(filter_subject=f"{name}.b")
    yield
    life.info()
    life.pull(5)
    life.take(2)
    life.info()


def the_last_of_each_was_not_begun(life: Life) -> Iterator[None]:
    life.stream()
    life.publish_all(*"abcabc")
    life.consumer(deliver_policy="last_per_subject", filter_subject=f"{life.stream_name}.*")
    life.info()
    yield
    life.info()
    life.pull({"batch": 9, "no_wait": True})
    life.take(4)
    life.info()


def the_last_of_each_was_half_done(life: Life) -> Iterator[None]:
    life.stream()
    life.publish_all(*"abcdabcd")
    life.consumer(deliver_policy="last_per_subject", filter_subject=f"{life.stream_name}.*")
    life.pull(2)
    life.take(2)
    life.info()
    yield
    life.info()
    life.pull({"batch": 9, "no_wait": True})
    life.take(3)


def only_new_ones_are_wanted(life: Life) -> Iterator[None]:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_policy="new")
    life.publish_all("c")
    yield
    life.info()
    life.publish_all("d")
    life.pull(5)
    life.take(2)
    life.info()


def the_last_one_is_wanted(life: Life) -> Iterator[None]:
    life.filled(*"abc", deliver_policy="last")
    yield
    life.info()
    life.pull(5)
    life.take()
    life.publish(f"{life.stream_name}.d")
    life.take()


def a_rest_lasts(life: Life) -> Iterator[None]:
    life.filled("a")
    life.pause()
    yield
    life.info()
    life.pull({"batch": 1, "expires": 100 * MS})
    life.take()
    life.resume()
    life.pull(1)
    life.take()


def a_queue_is_worked_off(life: Life) -> Iterator[None]:
    life.stream(retention="workqueue")
    life.publish_all(*"abcd")
    life.consumer(ack_wait=3600 * SECOND)
    life.pull(3)
    life.take(3)
    life.ack(1)
    life.state()
    yield
    life.state()
    life.info()
    life.ack(0)
    life.ack(2)
    life.state()
    life.pull(2)
    life.take()


def interest_lasts(life: Life) -> Iterator[None]:
    life.stream(retention="interest")
    life.consumer("one", ack_wait=3600 * SECOND)
    life.consumer("two", filter_subject=f"{life.stream_name}.b", ack_wait=3600 * SECOND)
    life.publish_all(*"abc")
    life.pull(3, "one")
    life.take(3)
    life.ack(1)
    yield
    life.state()
    life.ack(0)
    life.state()
    life.pull(1, "two")
    life.take()
    life.ack(3)
    life.state()


def one_in_memory_is_gone(life: Life) -> Iterator[None]:
    life.filled("a", mem_storage=True)
    life.pull(1)
    life.take()
    yield
    life.info()
    life.pull(1)
    life.take()


def a_stream_in_memory_is_gone(life: Life) -> Iterator[None]:
    life.stream(storage="memory")
    life.publish_all("a")
    life.consumer()
    yield
    life.info()
    life.ask(f"STREAM.INFO.{life.stream_name}")


def a_passing_one_is_still_there(life: Life) -> Iterator[None]:
    life.stream()
    life.publish_all(*"ab")
    name = life.stream_name
    config = {"name": "E", "ack_policy": "explicit", "inactive_threshold": 3600 * SECOND}
    life.ask(f"CONSUMER.CREATE.{name}.E", stream_name=name, config=config)
    life.pull(1, "E")
    life.take()
    life.ack(0)
    yield
    life.info("E")
    life.pull(1, "E")
    life.take()


def it_pushes_on(life: Life) -> Iterator[None]:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_subject="to.lasting", ack_wait=3600 * SECOND)
    life.listen_again("to.lasting")
    life.take(2)
    life.ack(1)
    yield
    life.info()
    life.publish_all("c")
    life.listen_again("to.lasting")
    life.take()
    life.info()


def nobody_is_pinned_any_more(life: Life) -> Iterator[None]:
    life.filled(
        *"abc",
        priority_policy="pinned_client",
        priority_groups=["G"],
        priority_timeout=3600 * SECOND,
        ack_wait=3600 * SECOND,
    )
    life.pull({"batch": 1, "group": "G"})
    life.take()
    yield
    life.info()
    life.pull({"batch": 1, "group": "G"})
    life.take()
    life.info("C", "priority_groups")


def what_was_purged_stays_purged(life: Life) -> Iterator[None]:
    life.filled(*"abcdef", ack_wait=3600 * SECOND)
    life.pull(3)
    life.take(3)
    life.purge(seq=3)
    life.remove(5)
    yield
    life.info()
    life.pull(5)
    life.take(2)
    life.info()


def a_new_start_is_kept(life: Life) -> Iterator[None]:
    life.filled(*"abc", ack_wait=3600 * SECOND)
    life.pull(3)
    life.take(3)
    life.ask(f"CONSUMER.RESET.{life.stream_name}.C", seq=2)
    yield
    life.info()
    life.pull(5)
    life.take(2)
    life.info()


def one_that_was_removed_stays_removed(life: Life) -> Iterator[None]:
    life.filled("a")
    life.pull(1)
    life.take()
    life.forget()
    yield
    life.info()
    life.consumer()
    life.info()


def over_two_restarts(life: Life) -> Iterator[None]:
    life.filled(*"abcdef", ack_wait=3600 * SECOND)
    life.pull(2)
    life.take(2)
    life.ack(0)
    yield
    life.pull(2)
    life.take(2)
    life.ack(3)
    yield
    life.info()
    life.pull(5)
    life.take(2)
    for place in (1, 2, 4, 5):
        life.ack(place)
    life.info()


STORIES: list[LongStory] = stories_in(__name__)
