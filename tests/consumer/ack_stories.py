"""Stories for both servers: all that a client may say of a message, and forge."""

from __future__ import annotations

from tests.consumer.delivered import SECOND, Life, Story, stories_in

# Twice, late, out of order


def says_it_twice(life: Life) -> None:
    life.filled(*"abc")
    life.pull(3)
    life.take(3)
    for body in (b"+ACK", b"+ACK", b"-NAK", b"+TERM", b"+WPI"):
        life.ack(0, body)
        life.info()


def ends_it_twice(life: Life) -> None:
    life.filled(*"ab")
    life.advised("MSG_TERMINATED")
    life.pull(2)
    life.take(2)
    life.say(0, b"+TERM")
    life.take()
    life.say(0, b"+TERM again")
    life.take()
    life.say(0)
    life.info()


def ends_what_was_acknowledged(life: Life) -> None:
    life.filled(*"ab")
    life.advised("MSG_TERMINATED", "MSG_NAKED")
    life.pull(2)
    life.take(2)
    life.ack(0)
    life.say(0, b"-NAK")
    life.say(0, b"+TERM late")
    life.take()
    life.info()


def acknowledges_backwards(life: Life) -> None:
    life.filled(*"abcde")
    life.pull(5)
    life.take(5)
    for place in (4, 2, 3, 0, 1):
        life.ack(place)
        life.info()


def acknowledges_an_earlier_delivery(life: Life) -> None:
    life.filled(*"ab")
    life.pull(1)
    life.take()
    life.ack(0, b"-NAK")
    life.pull(1)
    life.take()
    life.ack(0)
    life.info()
    life.ack(1)
    life.info()


def acknowledges_what_waits_to_come_again(life: Life) -> None:
    life.filled(*"abc")
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK")
    life.ack(1, b"-NAK")
    life.ack(0)
    life.info()
    life.pull(5)
    life.take(2)
    life.info()


def ends_what_waits_to_come_again(life: Life) -> None:
    life.filled(*"abc")
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK")
    life.ack(0, b"+TERM")
    life.info()
    life.pull(1)
    life.take()
    life.info()


def works_on_what_waits_to_come_again(life: Life) -> None:
    life.filled(*"abc", ack_wait=60 * SECOND)
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK")
    life.ack(0, b"+WPI")
    life.info()
    life.pull(2)
    life.take(2)
    life.info()


def acknowledges_before_it_would_come_again(life: Life) -> None:
    life.filled(*"ab", ack_wait=60 * SECOND)
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK 50ms")
    life.ack(0)
    life.ack(1, b"-NAK 150ms")
    life.pull(2)
    life.take()
    life.info()


def naks_of_one_delivery_twice(life: Life) -> None:
    life.filled(*"ab")
    life.advised("MSG_NAKED")
    life.pull(1)
    life.take()
    life.say(0, b"-NAK")
    life.take()
    life.say(0, b"-NAK")
    life.take()
    life.pull(3)
    life.take(2)
    life.info()


# All up to one


def acknowledges_all_with_gaps(life: Life) -> None:
    life.stream()
    life.publish_all(*"abababab")
    life.consumer(ack_policy="all", filter_subject=f"{life.stream_name}.b")
    life.pull(4)
    life.take(4)
    life.ack(1)
    life.info()
    life.ack(0)
    life.info()
    life.ack(3)
    life.info()


def acknowledges_all_with_holes_in_the_stream(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcdefgh")
    for seq in (2, 3, 6):
        life.remove(seq)
    life.consumer(ack_policy="all")
    life.pull(5)
    life.take(5)
    life.ack(2)
    life.info()
    life.ack(4)
    life.info()


def naks_where_all_are_acknowledged(life: Life) -> None:
    life.filled(*"abcd", ack_policy="all")
    life.pull(3)
    life.take(3)
    life.ack(1, b"-NAK")
    life.info()
    life.pull(1)
    life.take()
    life.info()
    life.ack(3)
    life.info()


def ends_where_all_are_acknowledged(life: Life) -> None:
    life.filled(*"abcd", ack_policy="all")
    life.advised("MSG_TERMINATED")
    life.pull(3)
    life.take(3)
    life.say(1, b"+TERM why")
    life.take()
    life.info()


def goes_on_where_all_are_acknowledged(life: Life) -> None:
    life.filled(*"abcd", ack_policy="all")
    life.pull(2)
    life.take(2)
    life.publish(life.replies[1], b"+NXT 2", reply="_IN.more")
    life.take(2)
    life.info()


def delivers_again_what_all_did_not_reach(life: Life) -> None:
    life.filled(*"abcd", ack_policy="all", ack_wait=SECOND)
    life.pull(4)
    life.take(4)
    life.ack(1)
    life.pull(4)
    life.take(2)
    life.ack(5)
    life.info()


# Where nothing is awaited


def says_much_where_nothing_is_awaited(life: Life) -> None:
    life.filled(*"abc", ack_policy="none")
    life.advised("MSG_TERMINATED", "MSG_NAKED")
    life.pull(2)
    life.take(2)
    life.say(0, b"-NAK")
    life.say(0, b"+WPI")
    life.say(0, b"+ACK")
    life.publish(life.replies[1], b"+NXT", reply="_IN.more")
    life.take()
    life.info()


# Asking for more


def asks_for_more_in_odd_ways(life: Life) -> None:
    life.filled(*"abcdefgh")
    life.pull(1)
    life.take()
    for body in (b"+NXT", b"+NXT x", b"+NXT -4", b'+NXT {"batch":-5}', b"+NXT2", b"+NXT  1 "):
        life.publish(life.replies[-1], body, reply="_IN.more")
        life.take(2 if body == b"+NXT2" else 1)
    life.publish(life.replies[-1], b"+NXT {", reply="_IN.more")
    life.take()
    life.info()


def asks_for_more_without_saying_where(life: Life) -> None:
    life.filled(*"abc")
    life.pull(1)
    life.take()
    life.say(0, b"+NXT")
    life.info()


def asks_for_more_of_what_is_done(life: Life) -> None:
    life.filled(*"abc")
    life.pull(1)
    life.take()
    life.ack(0)
    life.publish(life.replies[0], b"+NXT", reply="_IN.more")
    life.take()
    life.info()


# How long to wait


def naks_with_odd_delays(life: Life) -> None:
    life.filled("a", ack_wait=60 * SECOND)
    life.pull(20)
    life.take()
    for body in (
        b"-NAK x",
        b"-NAK 5",
        b"-NAK -5s",
        b"-NAK {",
        b'-NAK {"delay":-1}',
        b'-NAK {"delay":"1s"}',
        b'-NAK {"delay":0}',
        b"-NAK {}",
        b"-NAK 1ns",
        b"-NAK  10ms ",
        b'-NAK{"delay":1000000}',
        b"-NAKX",
        b"-NAK 0.01s",
        b"-NAK 1e2ms",
    ):
        life.say(-1, body)
        life.take()
    life.info()


def puts_it_off_for_very_long(life: Life) -> None:
    life.filled("a", "b")
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK 1000000h")
    life.ack(1, b'-NAK {"delay":9223372036854775807}')
    life.info()
    life.ack(0)
    life.info()


def headers_of_an_acknowledgement_mean_nothing(life: Life) -> None:
    life.filled(*"ab")
    life.pull(2)
    life.take(2)
    headers = b"NATS/1.0\r\nX: y\r\n\r\n"
    life.publish(life.replies[0], b"+ACK", headers=headers, reply="_IN.acked")
    life.take()
    life.publish(life.replies[1], b"-NAK", headers=headers, reply="_IN.acked")
    life.take()
    life.info()


def says_what_nobody_understands(life: Life) -> None:
    life.filled(*"abcdefgh")
    life.pull(8)
    life.take(8)
    for place, body in enumerate(
        (b"+ack", b" +ACK", b"+ACK ", b"-nak", b"\x00", b"x" * 5000, b"+WPIx", b"+TERMINATE")
    ):
        life.ack(place, body)
    life.info()


def tells_why_at_length(life: Life) -> None:
    life.filled(*"abc")
    life.advised("MSG_TERMINATED")
    life.pull(3)
    life.take(3)
    for place, reason in enumerate((b'"quoted" \\ <b>&', "größer ☃".encode(), b" a\r\nb\t\x01 ")):
        life.say(place, b"+TERM " + reason)
        life.take()
    life.info()


# Forged


def forges_the_numbers(life: Life) -> None:
    life.filled(*"abcd")
    life.pull(2)
    life.take(2)
    start = f"$JS.ACK.{life.stream_name}.C"
    for numbers in (
        "1.1.9.1.1",
        "9.1.1.1.1",
        "0.1.1.0.0",
        "1.-1.1.1.1",
        "1.x.1.1.1",
        "1.18446744073709551615.1.1.1",
        "1.18446744073709551616.1.1.1",
        "1.9223372036854775808.1.1.1",
        "1.99999999999999999999999999999999999.1.1.1",
        "1.3.3.1.1",
        "1.1.1.1",
        "1.1.1.1.1.1",
        "1",
    ):
        for body in (b"-NAK", b"+WPI"):
            life.publish(f"{start}.{numbers}", body)
    life.heard()
    life.info()
    for numbers in ("1.1.9.1.1", "1.007.2.1.1", "9.2.2.1.1"):
        life.publish(f"{start}.{numbers}", b"+ACK")
    life.heard()
    life.info()


def forges_ends(life: Life) -> None:
    life.filled(*"abcd")
    life.pull(2)
    life.take(2)
    start = f"$JS.ACK.{life.stream_name}.C"
    for numbers in ("1.9.9.1.1", "1.3.3.1.1", "1.0.1.1.1", "1.1.0.1.1"):
        life.publish(f"{start}.{numbers}", b"+TERM")
    life.heard()
    life.info()


def forges_where_all_are_acknowledged(life: Life) -> None:
    life.filled(*"abcdef", ack_policy="all")
    life.pull(3)
    life.take(3)
    start = f"$JS.ACK.{life.stream_name}.C"
    for numbers in ("1.9.9.1.1", "1.4.4.1.1", "1.0.0.1.1", "1.2.1.1.1", "1.1.2.1.1"):
        life.publish(f"{start}.{numbers}", b"+ACK")
        life.heard()
        life.info()


def says_it_to_the_wrong_ones(life: Life) -> None:
    life.filled(*"abcd")
    life.consumer("other")
    life.pull(2)
    life.take(2)
    name = life.stream_name
    for subject in (
        f"$JS.ACK.{name}.nobody.1.1.1.1.1",
        f"$JS.ACK.{name}x.C.1.1.1.1.1",
        f"$JS.ACK.{name}.other.1.1.1.1.1",
        f"$JS.ACK.{name}.C",
        "$JS.ACK",
        f"$JS.ACK._.wrong.{name}.C.1.1.1.1.1",
        f"$JS.ACK.hub.szMpdrwD.{name}.C.1.1.1.1.1",
    ):
        life.publish(subject, b"+ACK")
    life.heard()
    life.heard("other")
    life.info()
    life.info("other")
    life.publish(f"$JS.ACK._.szMpdrwD.{name}.C.1.1.1.1.1", b"+ACK", reply="_IN.acked")
    life.take()
    life.info()


def replays_what_was_said_before_a_new_start(life: Life) -> None:
    life.filled(*"abcd")
    life.pull(3)
    life.take(3)
    life.ask(f"CONSUMER.RESET.{life.stream_name}.C", seq=1)
    life.say(1)
    life.heard()
    life.info()
    life.pull(2)
    life.take(2)
    life.ack(0)
    life.info()
    life.say(2, b"-NAK")
    life.say(2, b"+TERM")
    life.heard()
    life.info()


# Samples


def samples_what_came_again(life: Life) -> None:
    life.filled(*"ab", sample_freq="100")
    life.listen(f"$JS.EVENT.METRIC.CONSUMER.ACK.{life.stream_name}.>")
    life.pull(1)
    life.take()
    life.ack(0, b"-NAK")
    life.pull(1)
    life.take()
    life.say(1)
    life.take()
    life.info()


def samples_where_all_are_acknowledged(life: Life) -> None:
    life.filled(*"abcd", ack_policy="all", sample_freq="100%")
    life.listen(f"$JS.EVENT.METRIC.CONSUMER.ACK.{life.stream_name}.>")
    life.pull(3)
    life.take(3)
    life.say(2)
    life.info()


def samples_nothing_where_it_shall_not(life: Life) -> None:
    life.filled(*"abcd", sample_freq="0%")
    life.listen(f"$JS.EVENT.METRIC.CONSUMER.ACK.{life.stream_name}.>")
    life.pull(2)
    life.take(2)
    life.ack(0)
    life.ack(1, b"+TERM")
    life.info()


def works_on_and_on(life: Life) -> None:
    life.filled("a", ack_wait=SECOND, max_deliver=2)
    life.advised("MAX_DELIVERIES")
    life.pull(5)
    life.take()
    for _ in range(3):
        life.ack(0, b"+WPI")
    life.take()
    life.ack(1, b"-NAK 100ms")
    life.take()
    life.info()


STORIES: list[Story] = stories_in(__name__)
