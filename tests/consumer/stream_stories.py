"""Stories for both servers: a stream that changes under its consumers."""

from __future__ import annotations

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in

# Purged


def purged_by_subject(life: Life) -> None:
    life.filled(*"ababab")
    life.pull(3)
    life.take(3)
    life.purge(filter=f"{life.stream_name}.a")
    life.info("C", "ack_floor")
    life.pull(5)
    life.take(2)
    life.ack(1)
    life.info("C", "ack_floor")


def purged_but_for_the_last(life: Life) -> None:
    life.filled(*"abcdef")
    life.pull(2)
    life.take(2)
    life.purge(keep=2)
    life.info()
    life.pull(5)
    life.take(2)
    life.ack(2)
    life.ack(3)
    life.info()


def purged_while_a_client_waits(life: Life) -> None:
    life.filled("a")
    life.pull(5)
    life.take()
    life.purge()
    life.info("C", "num_waiting")
    life.publish(f"{life.stream_name}.b")
    life.take()
    life.info("C", "num_waiting")


def purged_behind_the_consumer(life: Life) -> None:
    life.filled(*"abcdef")
    life.pull(4)
    life.take(4)
    life.ack(0)
    life.purge(seq=2)
    life.info()
    life.ack(3)
    life.info()
    life.purge(seq=4)
    life.info()
    life.ack(2)
    life.info()


def purged_twice(life: Life) -> None:
    life.filled(*"abc")
    life.purge()
    life.purge()
    life.info()
    life.publish_all("d")
    life.purge()
    life.info()
    life.pull({"batch": 1, "no_wait": True})
    life.take()


def purged_under_a_filter(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcabc")
    life.consumer(filter_subject=f"{life.stream_name}.b")
    life.pull(1)
    life.take()
    life.purge(filter=f"{life.stream_name}.c")
    life.info()
    life.purge(filter=f"{life.stream_name}.b")
    life.info()
    life.publish_all("b")
    life.pull(1)
    life.take()
    life.info()


def purged_where_all_are_acknowledged(life: Life) -> None:
    life.filled(*"abcdef", ack_policy="all")
    life.pull(4)
    life.take(4)
    life.purge(seq=3)
    life.info()
    life.ack(2)
    life.info()
    life.ack(3)
    life.info()


def purged_to_the_end_and_beyond(life: Life) -> None:
    life.filled(*"abc")
    life.pull(1)
    life.take()
    life.purge(seq=100)
    life.state()
    life.info()
    life.publish_all("d")
    life.state()
    life.pull({"batch": 1, "expires": 5 * SECOND})
    life.take()
    life.info()


# Removed


def removed_before_it_was_delivered(life: Life) -> None:
    life.filled(*"abcd")
    life.remove(2)
    life.info()
    life.pull(5)
    life.take(3)
    life.ack(1)
    life.info()
    life.ack(0)
    life.info()


def removed_at_the_end(life: Life) -> None:
    life.filled(*"abc")
    life.remove(3)
    life.info()
    life.pull({"batch": 5, "no_wait": True})
    life.take(3)
    life.info()


def removed_after_it_was_acknowledged(life: Life) -> None:
    life.filled(*"abc")
    life.advised("MSG_TERMINATED")
    life.pull(3)
    life.take(3)
    life.ack(1)
    life.remove(2)
    life.info()
    life.ack(0)
    life.info()


def removed_without_a_trace(life: Life) -> None:
    life.filled(*"abc")
    life.advised("MSG_TERMINATED")
    life.pull(1)
    life.take()
    name = life.stream_name
    life.publish(
        f"$JS.API.STREAM.MSG.DELETE.{name}", b'{"seq":1,"no_erase":true}', reply="_IN.gone"
    )
    life.take_unordered(2)
    life.remove(1)
    life.remove(99)
    life.info()


def removed_and_then_acknowledged(life: Life) -> None:
    life.filled(*"abc")
    life.pull(2)
    life.take(2)
    life.remove(1)
    life.ack(0)
    life.info()
    life.ack(1)
    life.info()


def removed_while_it_is_chosen(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcab")
    life.consumer(deliver_policy="last_per_subject", filter_subject=f"{life.stream_name}.*")
    life.info()
    life.remove(4)
    life.pull(1)
    life.take()
    life.info()


# Limits


def pushed_out_by_new_ones(life: Life) -> None:
    life.stream(max_msgs=2)
    life.publish_all(*"ab")
    life.consumer(ack_wait=60 * SECOND)
    life.pull(2)
    life.take(2)
    life.publish_all(*"cd")
    life.ack(0)
    life.ack(1)
    life.info()


def pushed_out_before_it_was_delivered(life: Life) -> None:
    life.stream(max_msgs=2)
    life.publish_all("a")
    life.consumer()
    life.publish_all(*"bcde")
    life.info()
    life.pull(5)
    life.take(2)
    life.info("C", "num_waiting")


def pushed_out_of_its_subject(life: Life) -> None:
    life.stream(max_msgs_per_subject=1)
    life.publish_all(*"ab")
    life.consumer()
    life.pull(1)
    life.take()
    life.publish_all(*"ab")
    life.info("C", "num_ack_pending", "ack_floor")
    life.pull(5)
    life.take(2)


def pushed_out_while_it_waits_to_come_again(life: Life) -> None:
    life.stream(max_msgs=2)
    life.publish_all(*"ab")
    life.consumer()
    life.advised("MSG_TERMINATED")
    life.pull(1)
    life.take()
    life.ack(0, b"-NAK")
    life.publish(f"{life.stream_name}.c")
    life.publish(f"{life.stream_name}.d")
    life.take()
    life.pull(2)
    life.take(2)
    life.info()


def grown_too_old(life: Life) -> None:
    life.stream(max_age=SECOND, duplicate_window=SECOND)
    life.publish_all(*"ab")
    life.consumer()
    life.pull(1)
    life.take()
    life.until_left(0)
    life.info("C", "num_ack_pending", "ack_floor", "delivered")
    life.publish_all("c")
    life.pull(1)
    life.take()


def rolled_up(life: Life) -> None:
    life.stream(allow_rollup_hdrs=True)
    life.publish_all(*"abab")
    life.consumer()
    life.pull(1)
    life.take()
    life.publish_all("a", headers=b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")
    life.info()
    life.pull(5)
    life.take(3)
    life.publish_all("b", headers=b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")
    life.take()
    life.info("C", "num_waiting")


def its_limits_become_tighter(life: Life) -> None:
    life.filled(*"abcdef")
    life.pull(2)
    life.take(2)
    name = life.stream_name
    life.ask(f"STREAM.UPDATE.{name}", name=name, subjects=[f"{name}.>"], max_msgs=2)
    life.state()
    life.info("C", "num_ack_pending", "ack_floor")
    life.pull(5)
    life.take(2)


def its_subjects_change(life: Life) -> None:
    life.filled(*"ab")
    name = life.stream_name
    life.ask(f"STREAM.UPDATE.{name}", name=name, subjects=[f"{name}.c"])
    life.pull(5)
    life.take(2)
    life.publish(f"{name}.c")
    life.take()
    life.info()


def it_is_sealed(life: Life) -> None:
    life.filled(*"ab")
    name = life.stream_name
    life.ask(f"STREAM.UPDATE.{name}", name=name, subjects=[f"{name}.>"], sealed=True)
    life.pull(5)
    life.take(2)
    life.ack(0)
    life.info()


# What a stream allows its consumers


def it_bounds_its_consumers(life: Life) -> None:
    limits = {"inactive_threshold": 10 * SECOND, "max_ack_pending": 5}
    life.stream(consumer_limits=limits)
    life.consumer("plain")
    life.info("plain")
    life.consumer("more", max_ack_pending=6)
    life.consumer("longer", inactive_threshold=11 * SECOND)
    life.consumer("within", max_ack_pending=2, inactive_threshold=SECOND)
    life.publish_all(*"abcdefgh")
    life.pull(10, "plain")
    life.take(5)
    life.info("plain")
    life.say(0)
    life.take()


def it_bounds_how_many_there_are(life: Life) -> None:
    life.stream(max_consumers=2)
    life.consumer("one")
    life.consumer("two")
    life.consumer("three")
    life.consumer("two", description="changed")
    life.forget("one")
    life.consumer("three")


def it_is_kept_in_memory(life: Life) -> None:
    life.stream(storage="memory")
    life.publish_all(*"abc")
    life.consumer()
    life.consumer("kept", mem_storage=True)
    for name in ("C", "kept"):
        life.pull(2, name)
        life.take(2)
        life.ack()
        life.info(name)
    life.ack(0, b"-NAK")
    life.pull(2)
    life.take(2)


def its_consumer_is_kept_in_memory(life: Life) -> None:
    life.filled(*"abc", mem_storage=True)
    life.pull(3)
    life.take(3)
    life.ack(0)
    life.ack(1, b"-NAK")
    life.pull(1)
    life.take()
    life.info()


def messages_with_a_time_to_live(life: Life) -> None:
    life.stream(allow_msg_ttl=True)
    life.publish_all("a", headers=b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n")
    life.publish_all("b")
    life.consumer()
    life.pull(1)
    life.take()
    life.until_left(1)
    life.pull(1)
    life.take()
    life.ack(0)
    life.ack(1)
    life.info("C", "ack_floor", "num_ack_pending")


def a_short_age_of_what_nobody_pulled(life: Life) -> None:
    life.stream(max_age=500 * MS, duplicate_window=200 * MS)
    life.publish_all(*"abc")
    life.consumer()
    life.until_left(0)
    life.info("C", "delivered", "ack_floor")
    life.pull({"batch": 1, "no_wait": True})
    life.take()


STORIES: list[Story] = stories_in(__name__)
