"""Stories for both servers: retention, pushing, priorities, starting over."""

from __future__ import annotations

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in

# Retention


def works_off_a_queue(life: Life) -> None:
    life.stream(retention="workqueue")
    life.publish_all(*"abcd")
    life.consumer()
    life.pull(3)
    life.take(3)
    life.state()
    life.ack(1)
    life.state()
    life.ack(0)
    life.ack(2, b"+TERM")
    life.state()
    life.info()


def keeps_what_is_of_interest(life: Life) -> None:
    life.stream(retention="interest")
    life.publish_all("nobody")
    life.state()
    name = life.stream_name
    life.consumer("all")
    life.consumer("some", filter_subject=f"{name}.b")
    life.publish_all(*"abc")
    life.state()
    life.pull(3, "all")
    life.take(3)
    life.ack(0)
    life.ack(1)
    life.state()
    life.pull(1, "some")
    life.take()
    life.ack(3)
    life.state()
    life.ask(f"CONSUMER.DELETE.{name}.all")
    life.state()


def keeps_what_was_given_up(life: Life) -> None:
    life.stream(retention="workqueue")
    life.publish_all(*"ab")
    life.consumer(max_deliver=1, ack_wait=SECOND)
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    life.pull(5)
    life.take(2)
    life.ack(1)
    life.take()
    life.state()
    life.info()
    life.ack(0)
    life.state()


# Pushing


def pushes(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_subject="to.me")
    life.info()
    life.subscribe("to.me")
    life.take(2)
    life.publish(f"{life.stream_name}.c", b"body")
    life.take()
    life.ack(0)
    life.ack(1)
    life.info()


def pushes_with_heartbeats(life: Life) -> None:
    life.stream()
    life.publish_all("a")
    life.consumer(deliver_subject="to.hb", idle_heartbeat=150 * MS, ack_policy="none")
    life.listen_again("to.hb")
    life.take(3)
    life.leave("to.hb")


def pushes_with_flow_control(life: Life) -> None:
    life.stream()
    life.publish_all(*("a" for _ in range(5)), payload=b"x" * 500_000)
    life.consumer(
        deliver_subject="to.fc", idle_heartbeat=30 * SECOND, flow_control=True, ack_policy="none"
    )
    life.subscribe("to.fc")
    life.take(6)
    life.answer_flow()
    life.info("C", "num_pending")


def pushes_to_a_group(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_subject="to.group", deliver_group="workers")
    life._send(b"SUB to.group workers 50\r\n")
    life.take(2)
    life.info()


def pushes_again(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_subject="to.again", ack_wait=SECOND)
    life.subscribe("to.again")
    life.take(2)
    life.ack(0)
    life.take(1)
    life.ack(2)
    life.info()


def pushes_while_the_subject_has_subscribers(life: Life) -> None:
    life.stream()
    life.consumer(deliver_subject="to.some", ack_policy="none")
    life.listen("to.some")
    life.publish(f"{life.stream_name}.a", b"one")
    life.take()
    life.leave("to.some")
    life.publish_all("b")
    life.info()
    life.listen_again("to.some")
    life.take()
    life.info()


def pushes_the_last_of_each(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcab")
    life.consumer(
        deliver_subject="to.each",
        deliver_policy="last_per_subject",
        filter_subject=f"{life.stream_name}.>",
    )
    life.subscribe("to.each")
    life.take(3)
    life.publish(f"{life.stream_name}.c", b"new")
    life.take()
    life.info()


def pushes_only_the_heads(life: Life) -> None:
    life.stream()
    life.publish_all("a", headers=b"NATS/1.0\r\nX: y\r\n\r\n", payload=b"123")
    life.consumer(deliver_subject="to.heads", headers_only=True, ack_policy="none")
    life.subscribe("to.heads")
    life.take()


# Who is served first


def serves_by_priority(life: Life) -> None:
    life.stream()
    life.consumer(priority_policy="prioritized", priority_groups=["G"])
    for place in (1, 2, 3):
        life.listen(f"by{place}")
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{life.stream_name}.C"
    for place, priority in ((1, 5), (2, 0), (3, 5)):
        body = b'{"batch":2,"group":"G","priority":%d}' % priority
        life.publish(subject, body, reply=f"by{place}")
    life.until_waiting(3)
    for token in "abcdef":
        life.publish(f"{life.stream_name}.{token}", token.encode())
    life.take(6)


def serves_groups_rightly_asked_for(life: Life) -> None:
    life.filled(priority_policy="overflow", priority_groups=["G"])
    for request in (
        {"batch": 1, "no_wait": True},
        {"batch": 1, "group": "H"},
        {"batch": 1, "group": "G", "id": "x"},
        {"batch": 1, "group": "G", "priority": 11},
    ):
        life.pull(request)
        life.take()
    life.pull({"batch": 1, "group": "G"})
    life.take()
    life.pull(1)
    life.take()
    life.info()


def serves_an_overflow(life: Life) -> None:
    life.filled("a", "b", priority_policy="overflow", priority_groups=["G"])
    life.pull({"batch": 5, "group": "G", "min_pending": 4, "expires": 60 * SECOND})
    life.until_waiting(1)
    life.publish(f"{life.stream_name}.c", b"x")
    life.publish(f"{life.stream_name}.d", b"x")
    life.take()
    life.info()
    life.pull({"batch": 5, "group": "G", "min_ack_pending": 1, "no_wait": True})
    life.take()
    life.pull({"batch": 3, "group": "G", "min_ack_pending": 1})
    life.take(3)
    life.info()


def serves_the_client_with_the_pin(life: Life) -> None:
    life.filled(
        *"abcd",
        priority_policy="pinned_client",
        priority_groups=["G"],
        priority_timeout=60 * SECOND,
    )
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.*.>")
    life.pull({"batch": 1, "group": "G", "expires": 60 * SECOND})
    life.take_unordered(2)
    pin = life.pin()
    life.pull({"batch": 1, "group": "G", "id": "wrong", "expires": 60 * SECOND})
    life.take()
    life.pull({"batch": 1, "group": "G", "id": pin, "expires": 60 * SECOND})
    life.take()
    life.info("C", "priority_groups")
    life.ask(f"CONSUMER.UNPIN.{life.stream_name}.C", group="H")
    life.pull({"batch": 1, "group": "G", "expires": 60 * SECOND})
    life.publish(
        f"$JS.API.CONSUMER.UNPIN.{life.stream_name}.C", b'{"group":"G"}', reply="_IN.unpinned"
    )
    life.take_unordered(4)
    life.pull({"batch": 1, "group": "G", "id": pin, "expires": 60 * SECOND})
    life.take()


# Starting over


def starts_over(life: Life) -> None:
    life.filled(*"abcd")
    life.pull(3)
    life.take(3)
    life.ack(0)
    name = life.stream_name
    life.note(str(life.ask(f"CONSUMER.RESET.{name}.C").get("reset_seq")))
    life.info()
    life.pull(2)
    life.take(2)
    life.note(str(life.ask(f"CONSUMER.RESET.{name}.C", seq=1).get("reset_seq")))
    life.info()
    life.pull(1)
    life.take()
    life.consumer("new", deliver_policy="new")
    life.ask(f"CONSUMER.RESET.{name}.new", seq=1)
    life.ask(f"CONSUMER.RESET.{name}.new")
    life.consumer("third", deliver_policy="by_start_sequence", opt_start_seq=3)
    life.ask(f"CONSUMER.RESET.{name}.third", seq=2)
    life.ask(f"CONSUMER.RESET.{name}.third", seq=4)
    life.info("third")


def changes_while_it_delivers(life: Life) -> None:
    life.filled(*"abcd", max_ack_pending=1)
    life.pull(1)
    life.take()
    life.consumer(max_ack_pending=5)
    life.pull(2)
    life.take(2)
    life.consumer(max_ack_pending=5, filter_subject=f"{life.stream_name}.x")
    life.info()
    life.publish_all("x")
    life.pull(1)
    life.take()
    life.info()


def loses_what_is_deleted(life: Life) -> None:
    life.filled(*"abc")
    life.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    life.pull(2)
    life.take(2)
    life.publish(f"$JS.API.STREAM.MSG.DELETE.{life.stream_name}", b'{"seq":1}', reply="_IN.deleted")
    life.take_unordered(2)
    life.info()


def keeps_up_with_limits(life: Life) -> None:
    life.stream(max_msgs=3)
    life.publish_all(*"ab")
    life.consumer()
    life.pull(1)
    life.take()
    life.publish_all(*"cdef")
    life.pull(10)
    life.take(3)
    life.info("C", "num_ack_pending", "ack_floor")


def is_asked_by_many(life: Life) -> None:
    life.stream(retention="workqueue")
    name = life.stream_name
    life.consumer("one", filter_subject=f"{name}.a")
    life.consumer("two", filter_subject=f"{name}.b")
    life.publish_all(*"abab")
    life.pull(2, "one")
    life.take(2)
    # Of a message that is not its own a consumer can say nothing.
    life.publish(f"$JS.ACK.{name}.one.1.2.2.1.1", b"+ACK")
    life.ack(0)
    life.state()
    life.ack(1)
    life.state()
    life.info("one")
    life.info("two")


def keeps_for_those_who_ask_for_nothing(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("none", ack_policy="none")
    life.publish_all(*"abc")
    life.state()
    life.pull(2, "none")
    life.take(2)
    life.info("none")


def keeps_until_all_are_done(life: Life) -> None:
    life.stream(retention="interest")
    life.consumer("one", ack_policy="all")
    life.consumer("two")
    life.publish_all(*"abcd")
    life.pull(4, "one")
    life.take(4)
    life.pull(4, "two")
    life.take(4)
    life.ack(2)
    life.state()
    life.ack(5)
    life.state()
    life.ack(4)
    life.state()
    life.ask(f"CONSUMER.DELETE.{life.stream_name}.two")
    life.state()


STORIES: list[Story] = stories_in(__name__)
