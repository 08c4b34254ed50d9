"""Streams and services between accounts: what each client sees, on the real server and on ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.conformance.companies import Company, assert_same, plain
from tests.conformance.conftest import PairWith

pytestmark = pytest.mark.oracle

CONFIG = """
jetstream: enabled
accounts {
  A {
    jetstream: enabled
    users: [ { user: a, password: p } ]
    mappings { mapped: elsewhere }
    exports: [
      { stream: "orders.>" }, { stream: "pair.*.*" }, { stream: "own", accounts: [C] }
      { stream: "push.>" }
      { service: help }, { service: "calc.*.*" }, { service: mapped }, { service: "orders.ask" }
      { service: many, response: stream }
      { service: "$JS.API.>", response: stream }, { service: "$JS.ACK.>" }, { service: "in.*" }
    ]
  }
  B {
    users: [ { user: b, password: p }, { user: few, password: p, permissions: {
      publish: { deny: [ "help" ] }, subscribe: { allow: [ ">" ], deny: [ "from_a.secret" ] } } } ]
    imports: [
      { stream: { account: A, subject: "orders.>" }, to: "from_a.>" }
      { stream: { account: A, subject: "orders.eu.>" }, prefix: before }
      { stream: { account: A, subject: "pair.*.*" }, to: "turned.$2.{{wildcard(1)}}" }
      { stream: { account: A, subject: "push.>" } }
      { service: { account: A, subject: help } }
      { service: { account: A, subject: "calc.*.*" }, to: "sums.$2.$1" }
      { service: { account: A, subject: mapped } }
      { service: { account: A, subject: "orders.ask" } }
      { service: { account: A, subject: many }, to: several }
      { service: { account: A, subject: "$JS.API.>" }, to: "far.>" }
      { service: { account: A, subject: "$JS.ACK.>" } }
      { service: { account: A, subject: "in.*" } }
    ]
    exports: [ { stream: "from_a.>" }, { service: help } ]
  }
  C {
    users: [ { user: c, password: p } ]
    imports: [
      { stream: { account: A, subject: own } }
      { stream: { account: B, subject: "from_a.>" }, to: "third.>" }
      { service: { account: B, subject: help }, to: "help.through" }
      { service: { account: A, subject: help }, to: "help.shared", share: true }
    ]
  }
  OUTSIDE { users: [ { user: outside, password: p } ] }
}
"""

_TIMES = re.compile(rb'"(created|ts|time|first_ts|last_ts|last_active)":"[^"]*"')


class Sharers(Company):
    """One client of each account."""

    def heard(self, *members: str) -> list[list[bytes]]:
        """Return what some clients received, without times."""
        return [[_timeless(frame) for frame in self.frames(member)] for member in members]

    def reply(self, member: str) -> str:
        """Return the reply subject of the one message that a client received."""
        (frame,) = self.frames(member)
        return frame.split(b"\r\n")[0].split(b" ")[3].decode()


def _timeless(frame: bytes) -> bytes:
    return _TIMES.sub(b"<time>", plain(frame))


Story = Callable[[Sharers], object]


def streams_come_under_their_name(all_: Sharers) -> object:
    all_.say("b", "SUB from_a.> 1", "SUB *.eu.x 2", "SUB > 3", "SUB before.orders.eu.* 4")
    all_.say("b", "SUB from_a.us 5", "SUB orders.> 6", "SUB turned.*.left 7", "SUB from_a 8")
    for subject in ("orders.us", "orders.eu.x", "orders.eu.x.y", "orders", "pair.left.right"):
        all_.say("a", f"PUB {subject} back 2", "hi")
    all_.say("a", "PUB pair.right.left 1", "x", "PUB from_a.us 1", "y", "PUB own 1", "z")
    all_.say("b", "PUB orders.us 1", "n", "PUB from_a.us 1", "l")
    return all_.heard("a", "b", "c")


def streams_end_with_their_subscription(all_: Sharers) -> object:
    all_.say("b", "SUB from_a.x 1", "SUB from_a.* 2")
    all_.say("a", "SUB back 9", "PUB orders.x 1", "1")
    all_.say("b", "UNSUB 1")
    all_.say("a", "PUB orders.x 1", "2")
    all_.say("b", "UNSUB 2")
    all_.say("a", "PUB orders.x back 1", "3")
    return all_.heard("a", "b")


def members_of_a_queue_take_turns_across_accounts(all_: Sharers) -> object:
    all_.say("b", "SUB from_a.q workers 1", "SUB from_a.q workers 2")
    all_.say("a", *["PUB orders.q 1", "x"] * 20)
    return [len(frames) for frames in all_.heard("b")]


def what_may_not_be_subscribed_to_does_not_come(all_: Sharers) -> object:
    all_.say("few", "SUB from_a.secret 1", "SUB from_a.* 2")
    all_.say("a", "PUB orders.secret 1", "s", "PUB orders.known 1", "k")
    all_.say("few", "PUB help 1", "x")
    return all_.heard("few", "a")


def an_export_for_some_is_for_them(all_: Sharers) -> object:
    for user in ("b", "c", "outside"):
        all_.say(user, "SUB own 1", "SUB orders.> 2")
    all_.say("a", "PUB own 1", "o", "PUB orders.x 1", "x")
    return all_.heard("b", "c", "outside")


def streams_go_on_through_an_account(all_: Sharers) -> object:
    all_.say("c", "SUB third.x.* 1", "SUB third.> 2")
    all_.say("a", "PUB orders.x.y 1", "1", "PUB orders.z 1", "2")
    return all_.heard("b", "c")


def a_request_gets_one_answer(all_: Sharers) -> object:
    all_.say("a", "SUB help 1")
    all_.say("b", "SUB in.box 1", "PUB help in.box 2", "me")
    reply = all_.reply("a")
    all_.say("a", f"PUB {reply} 3", "yes", f"PUB {reply} back 3", "no!")
    return reply.startswith("_R_."), all_.heard("a", "b", "outside")


def an_answer_may_be_answered(all_: Sharers) -> object:
    all_.say("a", "SUB help 1", "SUB back 2")
    all_.say("b", "SUB my.box 1", "PUB help my.box 2", "me")
    all_.say("a", f"PUB {all_.reply('a')} back 3", "who")
    all_.say("b", f"PUB {all_.reply('b')} 1", "b")
    return all_.heard("a", "b")


def several_answers_end_with_an_empty_one(all_: Sharers) -> object:
    all_.say("a", "SUB many 1")
    all_.say("b", "SUB my.box 1", "PUB several my.box 2", "me")
    reply = all_.reply("a")
    all_.say(
        "a", f"PUB {reply} 1", "1", f"PUB {reply} 1", "2", f"HPUB {reply} 12 12", "NATS/1.0\r\n"
    )
    all_.say("a", f"PUB {reply} 0", "", f"PUB {reply} back 1", "3")
    return all_.heard("a", "b")


def nobody_answers(all_: Sharers) -> object:
    all_.say("b", "SUB my.box 1", "PUB help my.box 1", "x", "PUB sums.1.2 my.box 1", "y")
    all_.say("c", "SUB my.box 1", "PUB help.through my.box 1", "x")
    return all_.heard("b", "c")


def requests_come_under_the_name_there(all_: Sharers) -> object:
    all_.say("a", "SUB calc.> 1", "SUB elsewhere 2", "SUB mapped 3", "SUB help 4", "SUB in.* 5")
    all_.say("b", "PUB sums.1.2 1", "x", "PUB mapped back 1", "y", "PUB in.1 1", "z")
    headers = "NATS/1.0\r\nKey: v\r\nNats-Request-Info: forged\r\n\r\n"
    all_.say("b", f"HPUB help {len(headers)} {len(headers) + 1}", f"{headers}h")
    all_.say("c", "PUB help.shared 1", "s", "PUB help.through 1", "t")
    return all_.heard("a", "b")


def one_of_a_group_answers(all_: Sharers) -> object:
    all_.say("a", "SUB help group 1", "SUB help group 1")
    all_.say("b", "SUB help 2", "PUB help 1", "x")
    return all_.heard("a", "b")


def a_request_is_no_message_of_a_stream(all_: Sharers) -> object:
    all_.say("b", "SUB from_a.> 1", "PUB orders.ask 1", "x")
    all_.say("a", "SUB orders.> 1")
    all_.say("b", "PUB orders.ask 1", "y")
    return all_.heard("a", "b")


def messages_are_pulled_from_another_account(all_: Sharers) -> object:
    all_.say("b", "SUB my.box 1")
    stream = json.dumps({"name": "S", "subjects": ["in.*"], "storage": "memory"})
    all_.say("b", f"PUB far.STREAM.CREATE.S my.box {len(stream)}", stream)
    _until(all_, "b", b"stream_create_response")
    consumer = {"durable_name": "c", "ack_policy": "explicit"}
    body = json.dumps({"stream_name": "S", "config": consumer})
    all_.say("b", f"PUB far.CONSUMER.CREATE.S.c my.box {len(body)}", body)
    _until(all_, "b", b"consumer_create_response")
    all_.say("b", "PUB in.1 my.box 3", "one")
    acknowledged = _until(all_, "b", b'"seq":1')
    # Acknowledged too, so that a pull that does not wait finds it.
    all_.say("b", "PUB in.2 my.box 3", "two")
    _until(all_, "b", b'"seq":2')
    asked = json.dumps({"batch": 3, "no_wait": True})
    all_.say("b", f"PUB far.CONSUMER.MSG.NEXT.S.c my.box {len(asked)}", asked)
    pulled = _until(all_, "b", b"404 No Messages", b"408 Requests Pending")
    acks = [frame.split(b" ")[3].decode() for frame in pulled if b"$JS.ACK" in frame]
    all_.say("b", f"PUB {acks[0]} my.box 4", "+ACK", f"PUB {acks[1]} 4", "+ACK")
    confirmed = _until(all_, "b", b"MSG my.box")
    all_.say("b", "PUB far.STREAM.DELETE.S my.box 0", "")
    _until(all_, "b", b"stream_delete_response")
    shown = [re.sub(rb"\$JS\.ACK\S+", b"<ack>", _timeless(frame)) for frame in pulled]
    return acknowledged, shown, confirmed


def messages_are_pushed_to_another_account(all_: Sharers) -> object:
    all_.say("a", "SUB my.box 1")
    stream = json.dumps({"name": "P", "subjects": ["in.*"], "storage": "memory"})
    all_.say("a", f"PUB $JS.API.STREAM.CREATE.P my.box {len(stream)}", stream)
    _until(all_, "a", b"stream_create_response")
    all_.say("a", "PUB in.1 my.box 3", "one")
    _until(all_, "a", b'"seq":1')
    consumer = {"durable_name": "p", "deliver_subject": "push.here", "ack_policy": "none"}
    body = json.dumps({"stream_name": "P", "config": consumer})
    all_.say("a", f"PUB $JS.API.CONSUMER.CREATE.P.p my.box {len(body)}", body)
    _until(all_, "a", b"consumer_create_response")
    all_.say("b", "SUB push.here 5")
    pushed = _until(all_, "b", b"one")
    all_.say("a", "PUB $JS.API.STREAM.DELETE.P my.box 0", "")
    _until(all_, "a", b"stream_delete_response")
    return [re.sub(rb"\$JS\.ACK\S+", b"<ack>", frame) for frame in pushed]


def _until(all_: Sharers, user: str, *marks: bytes) -> list[bytes]:
    found: list[bytes] = []
    while not any(mark in frame for mark in marks for frame in found):
        found += all_.frames(user)
        assert not any(frame.startswith(b"-ERR") for frame in found), found
    return found


STORIES: list[Story] = [
    streams_come_under_their_name,
    streams_end_with_their_subscription,
    members_of_a_queue_take_turns_across_accounts,
    what_may_not_be_subscribed_to_does_not_come,
    an_export_for_some_is_for_them,
    streams_go_on_through_an_account,
    a_request_gets_one_answer,
    an_answer_may_be_answered,
    several_answers_end_with_an_empty_one,
    nobody_answers,
    requests_come_under_the_name_there,
    one_of_a_group_answers,
    a_request_is_no_message_of_a_stream,
    messages_are_pulled_from_another_account,
    messages_are_pushed_to_another_account,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_accounts_share_as_with_the_real_server(pair_with: PairWith, story: Story) -> None:
    assert_same(pair_with(CONFIG), Sharers, story)
