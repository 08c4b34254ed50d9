"""Stories for both servers: messages that come again, and when they no longer do."""

from __future__ import annotations

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in


def naks_out_of_order(life: Life) -> None:
    life.filled(*"abcde")
    life.pull(4)
    life.take(4)
    for place in (2, 0, 1):
        life.ack(place, b"-NAK")
    life.info()
    life.pull(5)
    life.take(4)
    life.info()


def what_comes_again_goes_first(life: Life) -> None:
    life.filled(*"abcdef")
    life.pull(2)
    life.take(2)
    life.ack(1, b"-NAK")
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK")
    life.pull(2)
    life.take(2)
    life.info()


def what_comes_again_passes_the_limit(life: Life) -> None:
    life.filled(*"abcd", max_ack_pending=2)
    life.pull(2)
    life.take(2)
    life.pull(5)
    life.ack(1, b"-NAK")
    life.take()
    life.ack(0, b"-NAK")
    life.take()
    life.info()


def a_waiting_client_gets_what_comes_again(life: Life) -> None:
    life.filled("a")
    life.listen("in1")
    life.listen("in2")
    life.pull(1, to="in1")
    life.take()
    life.pull(1, to="in2")
    life.until_waiting(1)
    life.say(0, b"-NAK")
    life.take()
    life.info()


def comes_again_with_its_headers(life: Life) -> None:
    life.stream()
    life.publish_all("a", headers=b"NATS/1.0\r\nX: y\r\n\r\n")
    life.consumer()
    life.pull(1)
    life.take()
    life.ack(0, b"-NAK")
    life.pull(1)
    life.take()


def comes_again_with_its_head_only(life: Life) -> None:
    life.stream()
    life.publish_all("a", headers=b"NATS/1.0\r\nX: y\r\n\r\n", payload=b"12345")
    life.consumer(headers_only=True)
    for _ in range(3):
        life.pull(1)
        life.take()
        life.ack(-1, b"-NAK")
    life.info()


def comes_again_by_bytes(life: Life) -> None:
    life.stream()
    life.publish_all(*"abc", payload=b"x" * 100)
    life.consumer()
    life.pull(3)
    life.take(3)
    life.ack(0, b"-NAK")
    life.ack(2, b"-NAK")
    life.pull({"batch": 5, "max_bytes": 250, "expires": 5 * SECOND})
    life.take(2)
    life.info()


def is_given_up_at_the_first_nak(life: Life) -> None:
    life.filled("a", "b", max_deliver=1)
    life.advised("MAX_DELIVERIES")
    life.pull(3)
    life.take(2)
    life.say(0, b"-NAK")
    life.take()
    life.info()
    life.ack(0)
    life.info()


def is_given_up_after_a_delay(life: Life) -> None:
    life.filled("a", max_deliver=2, ack_wait=60 * SECOND)
    life.advised("MAX_DELIVERIES")
    life.pull(5)
    life.take()
    life.ack(0, b"-NAK 50ms")
    life.take()
    life.ack(1, b"-NAK 50ms")
    life.take()
    life.info()


def what_was_given_up_does_not_hold_up(life: Life) -> None:
    life.filled(*"abcd", max_deliver=1, ack_wait=200 * MS, max_ack_pending=1)
    life.advised("MAX_DELIVERIES")
    life.pull(5)
    life.take(8)
    life.info()


def more_deliveries_are_allowed(life: Life) -> None:
    life.filled("a", max_deliver=1, ack_wait=200 * MS)
    life.advised("MAX_DELIVERIES")
    life.pull(1)
    life.take(2)
    life.info()
    life.consumer(max_deliver=5, ack_wait=200 * MS)
    life.info()
    life.publish_all("b")
    life.pull(1)
    life.take()
    life.ack(1)
    life.info()


def fewer_deliveries_are_allowed(life: Life) -> None:
    life.filled("a", "b")
    life.advised("MAX_DELIVERIES")
    life.pull(2)
    life.take(2)
    for _ in range(2):
        life.ack(0, b"-NAK")
        life.pull(1)
        life.take()
    life.consumer(max_deliver=2)
    life.say(0, b"-NAK")
    life.pull(1)
    life.take()
    life.info("C", "num_waiting")


def waits_change_under_way(life: Life) -> None:
    life.filled("a", "b", ack_wait=60 * SECOND)
    life.pull(2)
    life.take(2)
    life.consumer(ack_wait=300 * MS)
    life.pull(2)
    life.take(2)
    life.info("C", "num_redelivered")


def backs_off_without_end(life: Life) -> None:
    life.filled("a", backoff=[50 * MS, 80 * MS])
    life.pull(5)
    life.take(5)
    life.info()


def backs_off_each_on_its_own(life: Life) -> None:
    life.filled("a", "b", max_deliver=3, backoff=[SECOND, 60 * SECOND])
    life.pull(2)
    life.take(2)
    life.ack(1)
    life.pull(3)
    life.take()
    life.info()
    life.ack(0)
    life.info()


def backs_off_from_a_nak(life: Life) -> None:
    life.filled("a", max_deliver=4, backoff=[60 * SECOND, 100 * MS, 60 * SECOND])
    life.pull(5)
    life.take()
    life.ack(0, b"-NAK")
    life.take()
    life.take()
    life.ack(2, b"-NAK 50ms")
    life.take()
    life.info()


def another_backoff_is_given(life: Life) -> None:
    life.filled("a", backoff=[60 * SECOND, 60 * SECOND], max_deliver=5)
    life.pull(1)
    life.take()
    life.consumer(backoff=[100 * MS, 60 * SECOND], max_deliver=5)
    life.ack(0, b"-NAK")
    life.pull(1)
    life.take()
    life.info()


def counts_deliveries_over_changes(life: Life) -> None:
    life.filled("a")
    life.pull(1)
    life.take()
    for number in range(3):
        life.ack(-1, b"-NAK")
        life.consumer(description=f"{number}")
        life.pull(1)
        life.take()
    life.info()


def a_removed_message_does_not_come_again(life: Life) -> None:
    life.filled(*"abc")
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK")
    life.advised("MSG_TERMINATED")
    life.publish(f"$JS.API.STREAM.MSG.DELETE.{life.stream_name}", b'{"seq":1}', reply="_IN.removed")
    life.take_unordered(2)
    life.info()
    life.pull(2)
    life.take()
    life.info()


def a_purged_message_does_not_come_again(life: Life) -> None:
    life.filled(*"abcd")
    life.pull(3)
    life.take(3)
    life.ack(0, b"-NAK")
    life.ack(2, b"-NAK 100ms")
    life.purge(seq=3)
    life.info()
    life.pull(3)
    life.take(2)
    life.info()


def the_rest_comes_again_after_a_rest(life: Life) -> None:
    life.filled(*"abc", ack_wait=300 * MS)
    life.pull(2)
    life.take(2)
    life.pause()
    life.pull({"batch": 5, "expires": 600 * MS})
    life.take()
    life.resume()
    life.pull(3)
    life.take(3)
    life.info("C", "num_redelivered")


def one_at_a_time_and_again(life: Life) -> None:
    life.filled(*"ab", max_ack_pending=1, ack_wait=200 * MS, max_deliver=2)
    life.advised("MAX_DELIVERIES")
    life.pull(10)
    life.take(6)
    life.info()


def others_come_while_one_waits(life: Life) -> None:
    life.filled(*"abc", ack_wait=60 * SECOND)
    life.pull(1)
    life.take()
    life.ack(0, b"-NAK 1s")
    life.pull(3)
    life.take(3)
    life.info()


def what_is_filtered_out_comes_again_all_the_same(life: Life) -> None:
    life.stream()
    life.publish_all(*"abab")
    life.consumer(filter_subject=f"{life.stream_name}.a")
    life.pull(1)
    life.take()
    life.consumer(filter_subject=f"{life.stream_name}.b")
    life.info()
    life.ack(0, b"-NAK")
    life.pull(5)
    life.take(3)
    life.info()


def waits_beyond_all_bounds(life: Life) -> None:
    life.filled("a", "b", ack_wait=2**63 - 1, inactive_threshold=2**62)
    life.pull(2)
    life.take(2)
    life.ack(0, b"-NAK")
    life.pull(1)
    life.take()
    life.ack(1, b"+WPI")
    life.info()


def backs_off_beyond_all_bounds(life: Life) -> None:
    life.filled("a", max_deliver=5, backoff=[100 * MS, 2**63 - 1])
    life.pull(3)
    life.take(2)
    life.ack(1, b"-NAK")
    life.take()
    life.info()


STORIES: list[Story] = stories_in(__name__)
