"""Stories for both servers: requests for messages, plain, odd and too many."""

from __future__ import annotations

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in

# Who is served, and when


def two_pulls_share_what_comes(life: Life) -> None:
    life.stream()
    life.consumer()
    life.listen("in1")
    life.listen("in2")
    life.pull(4, to="in1")
    life.until_waiting(1)
    life.pull(2, to="in2")
    life.until_waiting(2)
    for token in "abcdef":
        life.publish(f"{life.stream_name}.{token}", token.encode())
    life.take(6)
    life.info()


def a_pull_is_served_bit_by_bit(life: Life) -> None:
    life.filled("a", "b")
    life.pull(6)
    life.take(2)
    life.until_waiting(1)
    life.publish(f"{life.stream_name}.c")
    life.take()
    life.publish(f"{life.stream_name}.d")
    life.publish(f"{life.stream_name}.e")
    life.take(2)
    life.until_waiting(1)
    life.info()


def pulls_with_the_same_reply(life: Life) -> None:
    life.filled(*"abcde")
    for _ in range(3):
        life.pull(1, to="_IN.same")
    life.take(3)
    life.info()


def a_pull_without_a_reply_is_nothing(life: Life) -> None:
    life.filled("a")
    life.publish(f"$JS.API.CONSUMER.MSG.NEXT.{life.stream_name}.C", b"1")
    life.info()
    life.pull()
    life.take()


def a_client_that_left_is_passed_over(life: Life) -> None:
    life.stream()
    life.consumer()
    life.listen("in1")
    life.pull(5, to="in1")
    life.until_waiting(1)
    life.leave("in1")
    life.pull(5)
    life.publish(f"{life.stream_name}.a")
    life.take()
    life.info()


def a_pull_that_ended_makes_room(life: Life) -> None:
    life.stream()
    life.consumer(max_waiting=1)
    life.pull({"batch": 1, "expires": 100 * MS})
    life.take()
    life.pull({"batch": 1, "expires": 60 * SECOND})
    life.until_waiting(1)
    life.pull({"batch": 1, "expires": 60 * SECOND})
    life.take()
    life.publish(f"{life.stream_name}.a")
    life.take()


# Without waiting


def a_pull_that_would_wait_behind_others(life: Life) -> None:
    life.filled(*"abc", max_ack_pending=1)
    life.pull(1)
    life.take()
    life.pull({"batch": 5, "expires": 60 * SECOND})
    life.until_waiting(1)
    life.pull({"batch": 1, "no_wait": True})
    life.take()
    life.info()


def a_pull_without_waiting_at_the_limit(life: Life) -> None:
    life.filled(*"abc", max_ack_pending=1)
    life.pull(1)
    life.take()
    life.pull({"batch": 1, "no_wait": True, "expires": 200 * MS})
    life.take()
    life.ack(0)
    life.pull({"batch": 1, "no_wait": True})
    life.take()


def a_pull_without_waiting_takes_what_comes_again(life: Life) -> None:
    life.filled("a")
    life.pull(1)
    life.take()
    life.ack(0, b"-NAK")
    life.pull({"batch": 5, "no_wait": True})
    life.take(2)
    life.pull({"batch": 5, "no_wait": True})
    life.take()


def one_without_waiting_when_nothing_matches(life: Life) -> None:
    life.stream()
    life.publish_all(*"aaa")
    life.consumer(filter_subject=f"{life.stream_name}.b")
    life.pull({"batch": 5, "no_wait": True})
    life.take()
    life.publish_all("b")
    life.pull({"batch": 1, "expires": 60 * SECOND})
    life.take()
    life.info()


# By bytes


def bytes_that_are_just_enough(life: Life) -> None:
    life.stream()
    life.publish_all(*"abc", payload=b"x" * 100)
    life.consumer()
    life.pull(1)
    life.take()
    size = len(f"{life.stream_name}.b") + len(life.replies[0]) + 100
    life.pull({"batch": 5, "max_bytes": size, "expires": 5 * SECOND})
    life.take()
    life.pull({"batch": 5, "max_bytes": size - 1, "expires": 5 * SECOND})
    life.take()
    life.info()


def bytes_without_a_number(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcd", payload=b"x" * 50)
    life.consumer()
    life.pull({"max_bytes": 10_000})
    life.take(2)
    life.pull({"batch": 2, "max_bytes": 10_000})
    life.take(3)
    life.info()


def bytes_and_headers_count_together(life: Life) -> None:
    life.stream()
    life.publish_all(
        *"abc", payload=b"x" * 10, headers=b"NATS/1.0\r\nX: " + b"y" * 200 + b"\r\n\r\n"
    )
    life.consumer()
    life.pull({"batch": 3, "max_bytes": 400, "expires": 5 * SECOND})
    life.take(2)
    life.info()


def bytes_that_run_out_over_time(life: Life) -> None:
    life.stream()
    life.consumer()
    life.pull({"batch": 10, "max_bytes": 500, "expires": 60 * SECOND})
    life.until_waiting(1)
    for token in "ab":
        life.publish(f"{life.stream_name}.{token}", b"x" * 150)
        life.take()
    life.publish(f"{life.stream_name}.c", b"x" * 150)
    life.take()
    life.info()


# Over time


def a_heartbeat_comes_at_the_limit(life: Life) -> None:
    life.filled("a", "b", max_ack_pending=1)
    life.pull({"batch": 5, "expires": 700 * MS, "idle_heartbeat": 300 * MS})
    life.take_until("408")


def a_heartbeat_comes_while_it_rests(life: Life) -> None:
    life.filled("a")
    life.pause()
    life.pull({"batch": 5, "expires": 500 * MS, "idle_heartbeat": 200 * MS})
    life.take_until("408")


def a_pull_waits_through_a_rest(life: Life) -> None:
    life.filled("a", "b")
    life.pause()
    life.pull(2)
    life.pull({"batch": 1, "no_wait": True, "expires": 100 * MS})
    life.take()
    life.resume()
    life.pull(1)
    life.take(2)
    life.info()


def a_pull_without_waiting_while_it_rests(life: Life) -> None:
    life.filled("a", "b")
    life.pause()
    life.pull({"batch": 1, "no_wait": True})
    life.take()
    life.info()
    life.resume()
    life.pull({"batch": 1, "no_wait": True})
    life.take()


def a_rest_ends_by_itself(life: Life) -> None:
    life.stream()
    life.publish_all("a")
    life.consumer(pause_until="2001-01-01T00:00:00Z")
    life.pull(1)
    life.take()
    life.info()


# Odd and absurd


def absurd_numbers_of_messages(life: Life) -> None:
    for_each = (
        b"2147483648",
        b"9223372036854775807",
        b"9223372036854775808",
        b"1" * 40,
        b"-9223372036854775808",
        b"+2",
        b"0x10",
        b"1e3",
        b" ",
        b"\x00",
        b"\xff\xfe",
    )
    life.stream()
    life.consumer()
    for place, body in enumerate(for_each):
        life.publish_all("a")
        life.listen(f"in{place}")
        life.pull(body, to=f"in{place}")
        life.take()
        life.leave(f"in{place}")
    life.info()


def absurd_times(life: Life) -> None:
    life.filled("a", "b", "c", "d")
    life.pull(b'{"batch":1,"expires":-1}')
    life.take()
    life.pull(b'{"batch":1,"expires":1}')
    life.take()
    life.info()
    for body in (
        b'{"batch":1,"expires":9223372036854775807}',
        b'{"batch":1,"expires":9223372036854775808}',
        b'{"batch":1,"expires":1e9}',
        b'{"batch":1,"expires":-9223372036854775808}',
        b'{"batch":1,"expires":null}',
        b'{"batch":1,"expires":5000000000,"idle_heartbeat":-1}',
    ):
        life.pull(body)
        life.take()
    life.info()


def absurd_sizes(life: Life) -> None:
    life.filled(*"abcdef")
    for body in (
        b'{"batch":1,"max_bytes":9223372036854775807}',
        b'{"batch":1,"max_bytes":-5}',
        b'{"batch":9223372036854775807,"max_bytes":1,"expires":5000000000}',
        b'{"batch":1,"max_bytes":9223372036854775808}',
        b'{"batch":-2147483648}',
        b'{"batch":null,"max_bytes":null}',
    ):
        life.pull(body)
        life.take(2 if b"807}" in body else 1)
    life.info()


def bodies_that_are_no_requests(life: Life) -> None:
    life.filled(*"abcdefgh")
    for body in (
        b"[]",
        b'"x"',
        b"null",
        b"true",
        b"{}",
        b'{"batch":[1]}',
        b'{"batch":{}}',
        b'{"no_wait":1}',
        b'{"no_wait":"yes"}',
        b'{"group":5}',
        b'{"id":true}',
        b'{"batch":1}}',
        b'{"batch":1} x',
        b'{"batch":1,}',
        b'{"BATCH":1,"No_Wait":true}',
        b'{"batch":1,"batch":1}',
    ):
        life.pull(body)
        life.take()
    life.info()


def asks_for_a_later_server(life: Life) -> None:
    life.filled("a", "b")
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{life.stream_name}.C"
    for level in (b"99", b"x", b"0", b""):
        headers = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n" % level
        life.publish(subject, b"1", headers=headers, reply="_IN.level")
        life.take()
    life.info()


# Of whom there is nothing to have


def pulls_of_an_unknown_consumer(life: Life) -> None:
    life.filled("a")
    life.pull(1, "nobody")
    life.take()
    life.publish("$JS.API.CONSUMER.MSG.NEXT.nowhere.C", b"1", reply="_IN.nowhere")
    life.take()
    life.publish(f"$JS.API.CONSUMER.MSG.NEXT.{life.stream_name}", b"1", reply="_IN.short")
    life.take()
    life.publish(f"$JS.API.CONSUMER.MSG.NEXT.{life.stream_name}.C.D", b"1", reply="_IN.long")
    life.take()


def pulls_of_a_stream_that_goes(life: Life) -> None:
    life.stream()
    life.consumer()
    life.pull({"batch": 3, "expires": 60 * SECOND})
    life.pull({"batch": 2, "expires": 60 * SECOND})
    life.until_waiting(2)
    life.publish(f"$JS.API.STREAM.DELETE.{life.stream_name}", reply="_IN.deleted")
    life.take_unordered(3)
    life.pull()
    life.take()


def pulls_of_a_consumer_made_anew(life: Life) -> None:
    life.filled("a", "b")
    life.pull(1)
    life.take()
    life.forget()
    life.consumer()
    life.pull(5)
    life.take(2)
    life.info()
    life.ack(0)
    life.info()


STORIES: list[Story] = stories_in(__name__)
