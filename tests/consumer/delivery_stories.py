"""Stories for both servers: pulls, pushes, acknowledgements, what they set off."""

from __future__ import annotations

from typing import Any

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in

# Pulling


def pulls_one_after_another(life: Life) -> None:
    life.filled()
    for _ in range(3):
        life.pull()
        life.take()
        life.ack()
    life.info()


def pulls_a_batch(life: Life) -> None:
    life.filled()
    life.pull(4)
    life.take(4)
    life.info()
    for place in (3, 1, 0):
        life.ack(place)
        life.info()
    life.pull(b'{"batch":5,"expires":300000000}')
    life.take(2)
    life.info()


def pulls_without_acknowledging(life: Life) -> None:
    life.filled(ack_policy="none")
    life.pull(3)
    life.take(3)
    life.info()
    life.say(0)
    life.say(0, b"-NAK")
    life.info()


def pulls_with_odd_bodies(life: Life) -> None:
    life.filled()
    for body in (b"", b"0", b"-3", b"  2 ", b"x", b"1x", b'{"batch":0}', b'{"batch":-1}'):
        life.publish_all("a", "a")
        life.pull(body)
        life.take(2 if b"2" in body else 1)
    for body in (
        b"{",
        b'{"batch":"1"}',
        b'{"batch":1.5}',
        b'{"expires":"1s"}',
        b'{"batch":99999999999999999999}',
        b'{"batch":1,"idle_heartbeat":1000000000}',
        b'{"batch":1,"idle_heartbeat":600000000,"expires":1000000000}',
        b'{"batch":1,"min_pending":3}',
        b'{"batch":1,"id":"x"}',
        b'{"batch":1,"priority":10}',
        b'{"batch":1,"priority":-1}',
    ):
        life.pull(body)
        life.take()
    life.pull(b'{"batch":1,"bogus":true}')
    life.take()
    life.info()


def pulls_without_waiting(life: Life) -> None:
    life.filled()
    life.pull({"batch": 3, "no_wait": True})
    life.take(3)
    life.pull({"batch": 10, "no_wait": True})
    life.take(3)
    life.pull({"batch": 10, "no_wait": True})
    life.take()
    life.pull({"batch": 10, "no_wait": True, "expires": 200 * MS})
    life.take()
    life.info()


def pulls_one_shot_that_waits(life: Life) -> None:
    life.filled("a")
    life.pull({"batch": 10, "no_wait": True, "expires": 5 * SECOND})
    life.take(2)
    life.pull({"batch": 10, "no_wait": True, "expires": 5 * SECOND})
    life.publish(f"{life.stream_name}.later", b"x")
    life.take(2)
    life.info()


def pulls_time_out(life: Life) -> None:
    life.filled("a")
    life.pull({"batch": 5, "expires": 150 * MS})
    life.take(2)
    life.pull({"batch": 7, "max_bytes": 1000, "expires": 100 * MS})
    life.take()
    life.info()


def pulls_with_heartbeats(life: Life) -> None:
    life.filled("a")
    life.pull({"batch": 5, "expires": 550 * MS, "idle_heartbeat": 200 * MS})
    life.take_until("408")
    life.info()


def pulls_by_bytes(life: Life) -> None:
    life.stream()
    life.publish_all("a", "b", "c", payload=b"x" * 100)
    life.publish_all("d", payload=b"x" * 1000)
    life.consumer()
    life.pull({"batch": 10, "max_bytes": 400, "expires": 5 * SECOND})
    life.take(3)
    life.pull({"batch": 1, "max_bytes": 1000, "expires": 5 * SECOND})
    life.take(2)
    life.pull({"batch": 10, "max_bytes": 10, "expires": 5 * SECOND})
    life.take(1)
    life.pull({"batch": 10, "max_bytes": 2000, "expires": 200 * MS})
    life.take(2)
    life.info()


def pulls_beyond_limits(life: Life) -> None:
    life.filled(max_batch=5, max_expires=SECOND, max_bytes=1000)
    life.pull(6)
    life.take()
    life.pull({"batch": 1, "expires": 2 * SECOND})
    life.take()
    life.pull({"batch": 1, "max_bytes": 1001})
    life.take()
    life.pull({"batch": 5, "expires": SECOND, "max_bytes": 1000})
    life.take(5)
    life.take(1)


def more_pulls_than_may_wait(life: Life) -> None:
    life.stream()
    life.consumer(max_waiting=2)
    life.pull()
    life.pull()
    life.until_waiting(2)
    life.pull()
    life.take()
    life.pull({"batch": 1, "expires": SECOND, "idle_heartbeat": 400 * MS})
    life.pull({"batch": 1, "no_wait": True})
    life.take()
    life.info()
    life.publish(f"{life.stream_name}.a", b"x")
    life.publish(f"{life.stream_name}.a", b"y")
    life.take(2)


def pulls_take_turns(life: Life) -> None:
    life.stream()
    life.consumer()
    for place in (1, 2, 3):
        life.listen(f"in{place}")
    for place in (1, 2, 3):
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{life.stream_name}.C"
        life.publish(subject, b"%d" % (place + 1), reply=f"in{place}")
    life.until_waiting(3)
    life.info()
    for token in "abcdefghi":
        life.publish(f"{life.stream_name}.{token}", token.encode())
    life.take(9)
    life.info()


def pulls_that_nobody_waits_for(life: Life) -> None:
    life.stream()
    life.consumer()
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{life.stream_name}.C"
    life.publish(subject, b"5", reply="nobody.there")
    life.pull(2)
    life.publish(f"{life.stream_name}.a", b"x")
    life.take()
    life.info()


def pulls_of_a_consumer_that_goes(life: Life) -> None:
    life.stream()
    life.consumer()
    life.pull({"batch": 3, "max_bytes": 300, "expires": 60 * SECOND})
    life.publish(f"$JS.API.CONSUMER.DELETE.{life.stream_name}.C", reply="_IN.deleted")
    one, two = life.next_delivery(), life.next_delivery()
    for found in sorted((one, two), key=lambda each: each.subject):
        life.note(f"{found.subject} {found.headers!r} {found.payload!r}")
    life.pull()
    life.take()
    life.info()


def pulls_of_a_push_consumer(life: Life) -> None:
    life.stream()
    life.consumer(deliver_subject="to.nobody")
    life.pull()
    life.take()


# Acknowledging


def acknowledges_in_every_form(life: Life) -> None:
    life.filled(*"abcdefgh")
    life.pull(8)
    life.take(8)
    for place, body in enumerate(
        (b"", b"+ACK", b"+OK", b"+ACKX", b"bogus", b"+TERM", b"+TERM why ")
    ):
        life.ack(place, body)
        life.info()
    life.ack(0)
    life.ack(1)
    life.info()


def asks_for_more_with_an_acknowledgement(life: Life) -> None:
    life.filled(*"abcdef")
    life.pull()
    life.take()
    life.publish(life.replies[0], b"+NXT", reply="_IN.n1")
    life.take()
    life.publish(life.replies[1], b"+NXT 2", reply="_IN.n2")
    life.take(2)
    life.publish(life.replies[2], b'+NXT {"batch": 1, "no_wait": true}', reply="_IN.n3")
    life.take()
    life.info()


def naks(life: Life) -> None:
    life.filled(*"abc")
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK")
    life.info()
    life.pull(3)
    life.take(2)
    life.info()
    life.ack(2)
    life.ack(2, b"-NAK")
    life.info()


def naks_with_delays(life: Life) -> None:
    life.filled(*"ab", ack_wait=60 * SECOND)
    life.pull(2)
    life.take(2)
    life.pull(3)
    life.ack(1, b"-NAK 50ms")
    life.take()
    life.ack(0, b'-NAK {"delay": 60000000}')
    life.take()
    life.say(0, b"-NAK soon")
    life.take()
    life.info()


def acknowledges_too_late(life: Life) -> None:
    life.filled("a", ack_wait=100 * MS)
    life.pull(2)
    life.take(2)
    life.ack(0)
    life.info()


def delivers_again_in_order(life: Life) -> None:
    life.filled(*"abcde", ack_wait=SECOND)
    life.pull(5)
    life.take(5)
    life.ack(1)
    life.pull(10)
    life.take(4)
    life.info()
    life.ack(5)
    life.take(3)
    life.info()


def works_on(life: Life) -> None:
    life.filled("a", "b", ack_wait=SECOND)
    life.pull(2)
    life.take(2)
    life.pull(2)
    life.ack(1, b"+WPI")
    life.take(2)
    life.info()


def backs_off(life: Life) -> None:
    life.filled("a", max_deliver=4, backoff=[50 * MS, 100 * MS, 150 * MS])
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    life.pull(10)
    life.take(5)
    life.info()


def gives_up(life: Life) -> None:
    life.filled("a", "b", max_deliver=2, ack_wait=SECOND)
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    life.pull(10)
    life.take(2)
    life.ack(1)
    life.take(2)
    life.info()
    life.ack(0)
    life.info()


def gives_up_after_one(life: Life) -> None:
    life.filled("a", "b", max_deliver=1, ack_wait=100 * MS)
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    life.pull(10)
    life.take(2)
    life.take_unordered(2)
    life.info()


def gives_up_on_naks(life: Life) -> None:
    life.filled("a", "b", max_deliver=2)
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    life.pull(10)
    life.take(2)
    life.say(0, b"-NAK")
    life.take()
    life.say(0, b"-NAK")
    life.take()
    life.info()


def tells_of_naks_and_ends(life: Life) -> None:
    life.filled(*"abc")
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.>")
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    life.pull(2)
    life.take(2)
    life.say(0, b"-NAK")
    life.take()
    life.say(1, b"+TERM no good")
    life.take()
    life.say(0, b"+TERM")
    life.take()
    life.info()


def samples(life: Life) -> None:
    life.filled(*"abcd", sample_freq="100%")
    life.listen("$JS.EVENT.METRIC.CONSUMER.ACK.>")
    life.pull(2)
    life.take(2)
    life.say(0)
    life.take()
    life.say(1, b"+TERM")
    life.say(0)
    life.info()


def acknowledges_all(life: Life) -> None:
    life.filled(*"abcdef", ack_policy="all")
    life.pull(4)
    life.take(4)
    life.ack(2)
    life.info()
    life.ack(1)
    life.info()
    life.pull(2)
    life.take(2)
    life.ack(5)
    life.info()


def acknowledges_what_was_never_delivered(life: Life) -> None:
    life.filled(*"abc")
    life.pull(1)
    life.take()
    name = life.stream_name
    for subject in (
        f"$JS.ACK.{name}.C.1.2.2.1.1",
        f"$JS.ACK.{name}.C.1.99.2.1.1",
        f"$JS.ACK.{name}.C.1.0.0.1.1",
        f"$JS.ACK._.szMpdrwD.{name}.C.1.9.9.1.1",
    ):
        life.publish(subject, b"+ACK")
        life.publish(subject, b"-NAK")
        life.publish(subject, b"+TERM")
    life.info()
    life.publish(f"$JS.ACK._.szMpdrwD.{name}.C.1.1.1.1.1.more", b"+ACK", reply="_IN.long")
    life.take()
    life.info()


def holds_as_many_as_it_may(life: Life) -> None:
    life.filled(*"abcde", max_ack_pending=2)
    life.pull(10)
    life.take(2)
    life.info()
    life.say(0)
    life.take()
    life.say(2)
    life.take()
    life.say(1)
    life.take()
    life.info()


# What is delivered


def starts_where_it_is_told(life: Life) -> None:
    life.stream()
    life.publish_all("a", "b", "a", "c", "b")
    policies: dict[str, dict[str, Any]] = {
        "last": {"deliver_policy": "last"},
        "new": {"deliver_policy": "new"},
        "third": {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        "later": {"deliver_policy": "by_start_sequence", "opt_start_seq": 7},
        "each": {"deliver_policy": "last_per_subject", "filter_subject": f"{life.stream_name}.>"},
        "long-ago": {
            "deliver_policy": "by_start_time",
            "opt_start_time": "2001-01-01T00:00:00Z",
        },
    }
    for name, policy in policies.items():
        life.consumer(name, **policy)
        life.info(name)
    life.publish_all("a", "d")
    for name, count in (("last", 3), ("new", 2), ("third", 5), ("each", 5)):
        life.pull(10, name)
        life.take(count)
        life.info(name, "num_waiting")
    life.pull(10, "long-ago")
    life.take(7)


def filters(life: Life) -> None:
    life.stream()
    life.publish_all("a.1", "b.1", "a.2", "c", "b.2", "a.1")
    name = life.stream_name
    life.consumer("one", filter_subject=f"{name}.a.*")
    life.consumer("two", filter_subjects=[f"{name}.b.>", f"{name}.c"])
    life.consumer("none", filter_subject=f"{name}.x")
    for consumer, count in (("one", 3), ("two", 3)):
        life.info(consumer)
        life.pull(2, consumer)
        life.take(2)
        life.info(consumer)
        life.pull({"batch": 5, "no_wait": True}, consumer)
        life.take(count - 1)
        life.info(consumer)
    life.pull({"batch": 5, "no_wait": True}, "none")
    life.take()
    life.ack(0)
    life.ack(2)
    life.info("one")


def delivers_headers(life: Life) -> None:
    life.stream()
    life.publish_all("a", headers=b"NATS/1.0\r\nX: y\r\n\r\n")
    life.publish_all("b", payload=b"")
    life.publish_all("c", payload=b"12345")
    life.consumer("whole")
    life.consumer("head", headers_only=True)
    for name in ("whole", "head"):
        life.pull(3, name)
        life.take(3)


def looks_again_when_messages_are_purged(life: Life) -> None:
    life.filled(*"abcdef")
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    life.pull(2)
    life.take(2)
    life.ack(0)
    life.ask(f"STREAM.PURGE.{life.stream_name}", seq=5)
    life.info()
    life.pull(5)
    life.take(2)
    life.info()


def keeps_its_place_when_all_is_purged(life: Life) -> None:
    life.filled(*"abc")
    life.ask(f"STREAM.PURGE.{life.stream_name}")
    life.info()
    life.publish_all("d")
    life.pull(5)
    life.take()
    life.info()


def rests(life: Life) -> None:
    life.filled(*"ab")
    name = life.stream_name
    life.ask(f"CONSUMER.PAUSE.{name}.C", pause_until="2101-01-01T00:00:00Z")
    life.info()
    life.pull({"batch": 2, "expires": 100 * MS})
    life.take()
    life.ask(f"CONSUMER.PAUSE.{name}.C")
    life.pull(2)
    life.take(2)
    life.info()


STORIES: list[Story] = stories_in(__name__)
