"""Stories for both servers: where consumers begin, what they want, how they end."""

from __future__ import annotations

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in

# Where


def begins_in_an_empty_stream(life: Life) -> None:
    life.stream()
    name = life.stream_name
    life.consumer("all")
    life.consumer("last", deliver_policy="last")
    life.consumer("new", deliver_policy="new")
    life.consumer("seq", deliver_policy="by_start_sequence", opt_start_seq=3)
    life.consumer("zero", deliver_policy="by_start_sequence", opt_start_seq=0)
    life.consumer("time", deliver_policy="by_start_time", opt_start_time="2001-01-01T00:00:00Z")
    life.consumer("each", deliver_policy="last_per_subject", filter_subject=f"{name}.>")
    consumers = ("all", "last", "new", "seq", "time", "each")
    for consumer in consumers:
        life.info(consumer)
    life.publish_all(*"abca")
    for consumer, count in zip(consumers, (4, 4, 4, 2, 4, 4), strict=True):
        life.pull(count, consumer)
        life.take(count)
        life.info(consumer, "num_waiting")


def begins_behind_what_was_purged(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcd")
    life.purge()
    name = life.stream_name
    life.consumer("all")
    life.consumer("last", deliver_policy="last")
    life.consumer("seq", deliver_policy="by_start_sequence", opt_start_seq=2)
    life.consumer("time", deliver_policy="by_start_time", opt_start_time="2001-01-01T00:00:00Z")
    life.consumer("each", deliver_policy="last_per_subject", filter_subject=f"{name}.>")
    for consumer in ("all", "last", "seq", "time", "each"):
        life.info(consumer)


def begins_at_the_last_of_its_own(life: Life) -> None:
    life.stream()
    life.publish_all(*"aabbc")
    name = life.stream_name
    life.consumer("a", deliver_policy="last", filter_subject=f"{name}.a")
    life.consumer("x", deliver_policy="last", filter_subject=f"{name}.x")
    life.consumer("ab", deliver_policy="last", filter_subjects=[f"{name}.a", f"{name}.b"])
    for consumer in ("a", "x", "ab"):
        life.info(consumer)
        life.pull({"batch": 5, "no_wait": True}, consumer)
        life.take(1 if consumer == "x" else 2)
    life.publish_all(*"xab")
    for consumer, count in (("a", 1), ("x", 1), ("ab", 2)):
        life.pull(count, consumer)
        life.take(count)


def begins_with_the_last_of_each(life: Life) -> None:
    life.stream()
    life.publish_all("a.1", "a.2", "b.1", "a.1", "b.2", "c")
    name = life.stream_name
    life.consumer("a", deliver_policy="last_per_subject", filter_subject=f"{name}.a.*")
    life.consumer(
        "ab", deliver_policy="last_per_subject", filter_subjects=[f"{name}.a.1", f"{name}.b.>"]
    )
    life.consumer("x", deliver_policy="last_per_subject", filter_subject=f"{name}.x")
    life.consumer("none", deliver_policy="last_per_subject")
    life.publish_all("a.2", "c")
    for consumer, count in (("a", 3), ("ab", 3)):
        life.info(consumer)
        life.pull({"batch": 9, "no_wait": True}, consumer)
        life.take(count + 1)
        life.info(consumer)
    life.info("x")


def the_last_of_each_in_small_bites(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcabc")
    life.consumer(deliver_policy="last_per_subject", filter_subject=f"{life.stream_name}.*")
    life.pull(1)
    life.take()
    life.info()
    life.ack(0, b"-NAK")
    life.pull(2)
    life.take(2)
    life.info()
    life.pull(1)
    life.take()
    for place in (1, 2, 3):
        life.ack(place)
    life.info()


def the_last_of_each_where_they_lie_together_and_apart(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcdefgabcc", headers=b"NATS/1.0\r\nX: y\r\n\r\n")
    life.publish_all("h", "i", payload=b"12345")
    subjects = f"{life.stream_name}.*"
    life.consumer("each", deliver_policy="last_per_subject", filter_subject=subjects)
    life.consumer(
        "heads", deliver_policy="last_per_subject", filter_subject=subjects, headers_only=True
    )
    life.consumer(
        "slow", deliver_policy="last_per_subject", filter_subject=subjects, max_ack_pending=2
    )
    life.publish_all("d")
    for consumer in ("each", "heads"):
        life.pull({"batch": 2, "no_wait": True}, consumer)
        life.take(2)
        life.info(consumer)
        life.pull({"batch": 20, "no_wait": True}, consumer)
        life.take(9)
        life.info(consumer)
    life.pull(5, "slow")
    life.take(2)
    life.info("slow", "num_waiting")


def begins_between_times(life: Life) -> None:
    life.stream()
    life.publish_all("a")
    early = life.ask(f"STREAM.MSG.GET.{life.stream_name}", seq=1)["message"]["time"]
    life.publish_all("b", "c")
    late = life.ask(f"STREAM.MSG.GET.{life.stream_name}", seq=3)["message"]["time"]
    life.consumer("first", deliver_policy="by_start_time", opt_start_time=early)
    life.consumer("third", deliver_policy="by_start_time", opt_start_time=late)
    life.consumer("never", deliver_policy="by_start_time", opt_start_time="2101-01-01T00:00:00Z")
    for consumer in ("first", "third", "never"):
        life.info(consumer)
    life.pull(3, "first")
    life.take(3)
    life.pull(1, "third")
    life.take()
    life.publish_all("d")
    life.pull(1, "never")
    life.take()


def begins_at_a_hole(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcdef")
    life.remove(1)
    life.remove(3)
    life.remove(6)
    life.consumer("all")
    life.consumer("hole", deliver_policy="by_start_sequence", opt_start_seq=3)
    life.consumer("end", deliver_policy="by_start_sequence", opt_start_seq=6)
    life.consumer("last", deliver_policy="last")
    for consumer, count in (("all", 3), ("hole", 2), ("end", 0), ("last", 0)):
        life.info(consumer)
        life.pull({"batch": 9, "no_wait": True}, consumer)
        life.take(count + 1)
        life.info(consumer)


def begins_far_ahead(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_policy="by_start_sequence", opt_start_seq=5)
    life.info()
    life.pull(1)
    life.publish_all(*"cd")
    life.until_waiting(1)
    life.publish(f"{life.stream_name}.e")
    life.take()
    life.info()


# What


def other_filters_under_way(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcabc")
    name = life.stream_name
    life.consumer(filter_subject=f"{name}.a")
    life.pull(1)
    life.take()
    life.consumer(filter_subjects=[f"{name}.b", f"{name}.c"])
    life.info()
    life.pull(2)
    life.take(2)
    life.consumer()
    life.info()
    life.ack(0)
    life.ack(1)
    life.ack(2)
    life.info()
    life.pull(5)
    life.take(3)


def filters_that_are_no_good(life: Life) -> None:
    life.stream()
    name = life.stream_name
    life.consumer("both", filter_subject=f"{name}.a", filter_subjects=[f"{name}.b"])
    life.consumer("overlap", filter_subjects=[f"{name}.a", f"{name}.*"])
    life.consumer("empty", filter_subjects=[""])
    life.consumer("twice", filter_subjects=[f"{name}.a", f"{name}.a"])
    life.consumer("bad", filter_subject="..")
    life.consumer("elsewhere", filter_subject="elsewhere")
    life.consumer("wide", filter_subject=">")
    life.publish_all("a")
    life.pull(1, "wide")
    life.take()


def one_of_many_filters_matches_little(life: Life) -> None:
    life.stream()
    name = life.stream_name
    life.publish_all(*(f"many.{number}" for number in range(30)), "few", "many.30")
    life.consumer(filter_subjects=[f"{name}.few", f"{name}.none.*"])
    life.info()
    life.pull({"batch": 5, "no_wait": True})
    life.take(2)
    life.info()
    life.ack(0)
    life.info()


def starts_over_where_it_may(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcdef")
    name = life.stream_name
    life.consumer("last", deliver_policy="last")
    life.consumer("each", deliver_policy="last_per_subject", filter_subject=f"{name}.*")
    life.consumer("time", deliver_policy="by_start_time", opt_start_time="2001-01-01T00:00:00Z")
    for consumer in ("last", "each", "time"):
        life.note(str(life.ask(f"CONSUMER.RESET.{name}.{consumer}").get("reset_seq")))
        life.note(str(life.ask(f"CONSUMER.RESET.{name}.{consumer}", seq=4).get("reset_seq")))
        life.note(str(life.ask(f"CONSUMER.RESET.{name}.{consumer}", seq=99).get("reset_seq")))
        life.info(consumer)


def starts_over_while_a_client_waits(life: Life) -> None:
    life.filled(*"ab")
    life.pull(5)
    life.take(2)
    life.publish(f"$JS.API.CONSUMER.RESET.{life.stream_name}.C", b'{"seq":1}', reply="_IN.reset")
    found = sorted(life.next_delivery().subject for _ in range(3))
    life.note(" ".join(found))
    life.info()


def starts_over_with_some_to_come_again(life: Life) -> None:
    life.filled(*"abc")
    life.pull(3)
    life.take(3)
    life.ack(0, b"-NAK")
    life.ack(1)
    life.ask(f"CONSUMER.RESET.{life.stream_name}.C")
    life.info()
    life.pull(3)
    life.take(3)
    life.info()


# How it ends


def one_that_nobody_asks_goes(life: Life) -> None:
    life.stream()
    life.advised("DELETED")
    life.consumer(inactive_threshold=300 * MS)
    life.take()
    life.info()
    life.pull()
    life.take()


def one_that_is_asked_stays(life: Life) -> None:
    life.stream()
    life.consumer(inactive_threshold=SECOND)
    life.pull({"batch": 1, "expires": 2 * SECOND})
    life.take()
    life.info()


def a_passing_one_goes(life: Life) -> None:
    life.stream()
    life.publish_all("a")
    life.advised("DELETED")
    name = life.stream_name
    waits = {"ack_wait": 200 * MS, "inactive_threshold": 300 * MS}
    config = {"name": "E", "ack_policy": "explicit", **waits}
    life.ask(f"CONSUMER.CREATE.{name}.E", stream_name=name, config=config)
    life.pull(1, "E")
    life.take()
    life.take()
    life.ack(0)


def it_may_stay_for_longer(life: Life) -> None:
    life.stream()
    life.advised("DELETED")
    life.consumer(inactive_threshold=60 * SECOND)
    life.consumer(inactive_threshold=300 * MS)
    life.take()


# What is told


def tells_of_coming_and_going(life: Life) -> None:
    life.stream()
    life.advised("CREATED", "DELETED", "PAUSE")
    name = life.stream_name
    for endpoint, body in (
        ("CREATE", b'{"stream_name":"%b","config":{"durable_name":"C"}}' % name.encode()),
        ("PAUSE", b'{"pause_until":"2101-01-01T00:00:00Z"}'),
        ("PAUSE", b"{}"),
        ("DELETE", b""),
    ):
        life.publish(f"$JS.API.CONSUMER.{endpoint}.{name}.C", body, reply="_IN.done")
        found = sorted((life.next_delivery() for _ in range(2)), key=lambda each: each.subject)
        life.note(f"{found[0].subject} {found[0].payload.decode()}")
        life.note(found[1].subject)


def tells_of_a_rest_that_ends(life: Life) -> None:
    life.stream()
    life.publish_all("a")
    life.consumer()
    life.advised("PAUSE")
    for time in (b"2101-01-01T00:00:00Z", b"2001-01-01T00:00:00Z"):
        body = b'{"pause_until":"%b"}' % time
        life.publish(f"$JS.API.CONSUMER.PAUSE.{life.stream_name}.C", body, reply="_IN.paused")
        life.take_unordered(2)
        life.info()
    life.pull(1)
    life.take()


def rests_in_odd_ways(life: Life) -> None:
    life.filled("a")
    name = life.stream_name
    for body in (b"x", b'{"pause_until":5}', b'{"pause_until":"soon"}', b'{"pause_until":null}'):
        life.publish(f"$JS.API.CONSUMER.PAUSE.{name}.C", body, reply="_IN.paused")
        life.take()
    life.ask(f"CONSUMER.PAUSE.{name}.nobody", pause_until="2101-01-01T00:00:00Z")
    life.ask("CONSUMER.PAUSE.nowhere.C", pause_until="2101-01-01T00:00:00Z")
    life.pull(1)
    life.take()


def keeps_resting_over_a_change(life: Life) -> None:
    life.filled("a", "b")
    life.pause()
    life.consumer(description="changed")
    life.info()
    life.pull({"batch": 1, "expires": 100 * MS})
    life.take()
    life.consumer(pause_until="2001-01-01T00:00:00Z")
    life.info()


STORIES: list[Story] = stories_in(__name__)
