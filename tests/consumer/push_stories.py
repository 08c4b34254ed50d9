"""Stories for both servers: consumers that send by themselves."""

from __future__ import annotations

import json

from tests.consumer.delivered import MS, SECOND, Life, Story, stories_in


def pushes_as_many_as_may_be_out(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcde")
    life.consumer(deliver_subject="to.limited", max_ack_pending=2)
    life.subscribe("to.limited")
    life.take(2)
    life.info()
    life.say(0)
    life.take()
    life.say(1)
    life.say(2)
    life.take(2)
    life.info()


def pushes_again_what_is_refused(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_subject="to.refuser", max_deliver=2)
    life.advised("MAX_DELIVERIES", "MSG_TERMINATED")
    life.listen_again("to.refuser")
    life.take(2)
    life.say(0, b"-NAK")
    life.take()
    life.say(0, b"-NAK")
    life.take()
    life.say(1, b"+TERM enough")
    life.take()
    life.info()


def asks_a_push_consumer_for_more(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_subject="to.more")
    life.listen_again("to.more")
    life.take(2)
    life.publish(life.replies[0], b"+NXT", reply="_IN.more")
    life.take()
    life.info()


def pushes_only_to_its_group(life: Life) -> None:
    life.stream()
    life.publish_all("a")
    life.consumer(deliver_subject="to.members", deliver_group="workers")
    life.listen("to.members")
    life.info()
    life._send(b"SUB to.members others 51\r\n")
    life.sync()
    life.info()
    life._send(b"SUB to.members workers 52\r\n")
    life.take_unordered(3)
    life.info()


def pushes_and_rests(life: Life) -> None:
    life.stream()
    life.consumer(deliver_subject="to.rest")
    life.listen("to.rest")
    life.pause()
    life.publish_all(*"ab")
    life.info()
    life.publish(f"$JS.API.CONSUMER.PAUSE.{life.stream_name}.C", reply="_IN.resumed")
    life.publish(f"{life.stream_name}.c")
    life.take_unordered(4)
    life.info()


def pushes_elsewhere_when_nobody_listens(life: Life) -> None:
    life.stream()
    life.publish_all("a")
    life.consumer(deliver_subject="to.here")
    life.listen_again("to.here")
    life.take()
    life.consumer(deliver_subject="to.there")
    life.leave("to.here")
    life.consumer(deliver_subject="to.there")
    life.publish_all("b")
    life.listen_again("to.there")
    life.take(2)
    life.info()


def a_push_consumer_goes_when_nobody_listens(life: Life) -> None:
    life.stream()
    life.advised("DELETED")
    life.consumer(deliver_subject="to.gone", inactive_threshold=300 * MS)
    life.listen("to.gone")
    life.info()
    life.leave("to.gone")
    life.take()
    life.info()


def a_passing_push_consumer_goes(life: Life) -> None:
    life.stream()
    life.advised("DELETED")
    name = life.stream_name
    config = {"name": "E", "deliver_subject": "to.passing", "inactive_threshold": 200 * MS}
    life.ask(f"CONSUMER.CREATE.{name}.E", stream_name=name, config=config)
    life.take()
    life.info("E")


def pushes_at_the_pace_of_old(life: Life) -> None:
    life.stream()
    life.publish_all(*"abc")
    life.consumer(deliver_subject="to.old", replay_policy="original", ack_policy="none")
    life.listen_again("to.old")
    life.take(3)
    life.publish(f"{life.stream_name}.d")
    life.take()
    life.info()


def pushes_within_a_rate(life: Life) -> None:
    life.stream()
    life.publish_all(*"abc", payload=b"x" * 1000)
    life.consumer(deliver_subject="to.rate", rate_limit_bps=100_000, ack_policy="none")
    life.listen_again("to.rate")
    life.take(3)
    life.info()


def stalls_until_it_is_answered(life: Life) -> None:
    life.stream()
    life.publish_all(*("a" for _ in range(8)), payload=b"x" * 700_000)
    life.consumer(
        deliver_subject="to.stall", idle_heartbeat=400 * MS, flow_control=True, ack_policy="none"
    )
    life.listen_again("to.stall")
    life.take(5)
    life.leave("to.stall")


def goes_on_when_it_is_answered(life: Life) -> None:
    life.stream()
    life.publish_all(*("a" for _ in range(8)), payload=b"x" * 700_000)
    life.consumer(
        deliver_subject="to.flow", idle_heartbeat=30 * SECOND, flow_control=True, ack_policy="none"
    )
    life.listen_again("to.flow")
    life.take(4)
    life.answer_flow()
    life.take(6)
    life.info()


def a_wrong_answer_about_the_flow(life: Life) -> None:
    life.stream()
    life.publish_all(*("a" for _ in range(8)), payload=b"x" * 700_000)
    life.consumer(
        deliver_subject="to.wrong", idle_heartbeat=30 * SECOND, flow_control=True, ack_policy="none"
    )
    life.listen_again("to.wrong")
    life.take(4)
    life.publish(f"$JS.FC.{life.stream_name}.C.XXXX")
    life.publish(f"$JS.FC.{life.stream_name}.C")
    life.info("C", "num_pending")


def what_is_confirmed_about_the_flow_is_acknowledged(life: Life) -> None:
    life.stream()
    life.publish_all(*"abc")
    life.consumer(
        deliver_subject="to.confirm",
        idle_heartbeat=300 * MS,
        flow_control=True,
        ack_policy="flow_control",
        max_ack_pending=100,
    )
    life.listen_again("to.confirm")
    life.take(3)
    life.take_until("FlowControl")
    life.info("C", "num_pending")
    headers = b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    life.publish(life.flow, headers=headers)
    life.leave("to.confirm")
    life.until_unbound()
    life.info()


def a_group_shares_what_comes(life: Life) -> None:
    life.stream()
    life.consumer(deliver_subject="to.shared", deliver_group="workers", ack_policy="none")
    life._send(b"SUB to.shared workers 51\r\nSUB to.shared workers 52\r\n")
    life.sync()
    life.info()
    for _ in range(20):
        life.publish(f"{life.stream_name}.a")
    found = [life.next_delivery() for _ in range(20)]
    life.note(str([each.reply.split(".")[4:7] for each in found]))
    life.info()


def an_ordered_consumer(life: Life) -> None:
    life.stream()
    life.publish_all(*"abcab")
    name = life.stream_name
    config = {
        "name": "O",
        "deliver_subject": "to.ordered",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 2,
        "ack_policy": "none",
        "max_deliver": 1,
        "ack_wait": 22 * 3600 * SECOND,
        "idle_heartbeat": 5 * SECOND,
        "flow_control": True,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 300 * SECOND,
    }
    life.listen("to.ordered")
    body = json.dumps({"stream_name": name, "config": config}).encode()
    life.publish(f"$JS.API.CONSUMER.CREATE.{name}.O", body, reply="_IN.created")
    found = sorted((life.next_delivery() for _ in range(5)), key=lambda each: each.subject)
    life.note(" ".join(each.subject for each in found))
    life.info("O", "push_bound")


def pushes_what_is_new(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_subject="to.new", deliver_policy="new")
    life.listen("to.new")
    life.publish(f"{life.stream_name}.c")
    life.take()
    life.info()


def pushes_the_last_one(life: Life) -> None:
    life.stream()
    life.publish_all(*"abc")
    life.consumer(deliver_subject="to.last", deliver_policy="last")
    life.listen_again("to.last")
    life.take()
    life.publish(f"{life.stream_name}.d")
    life.take()
    life.info()


def a_push_consumer_is_removed(life: Life) -> None:
    life.stream()
    life.publish_all("a")
    life.consumer(deliver_subject="to.removed", idle_heartbeat=SECOND)
    life.listen_again("to.removed")
    life.take()
    life.forget()
    life.ack(0)


def pushes_again_to_who_comes_back(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer(deliver_subject="to.back", ack_wait=60 * SECOND)
    life.listen_again("to.back")
    life.take(2)
    life.leave("to.back")
    life.say(0, b"-NAK")
    life.say(1)
    life.heard()
    life.info()
    life.listen_again("to.back")
    life.take()
    life.info()


def two_push_to_the_same_place(life: Life) -> None:
    life.stream()
    life.publish_all(*"ab")
    life.consumer("one", deliver_subject="to.same", filter_subject=f"{life.stream_name}.a")
    life.consumer("two", deliver_subject="to.same", filter_subject=f"{life.stream_name}.b")
    life.listen_again("to.same")
    life.take_unordered(2)
    life.info("one")
    life.info("two")


def pushes_with_many_filters(life: Life) -> None:
    life.stream()
    life.publish_all("a.1", "b", "c", "a.2", "b")
    name = life.stream_name
    life.consumer(deliver_subject="to.many", filter_subjects=[f"{name}.a.*", f"{name}.c"])
    life.listen_again("to.many")
    life.take(3)
    life.publish(f"{name}.b")
    life.publish(f"{name}.c")
    life.take()
    life.info()


STORIES: list[Story] = stories_in(__name__)
