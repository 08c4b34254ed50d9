"""Traces of messages: what each server reports of a message's way, and what is not delivered."""

from __future__ import annotations

import json
import re

import pytest

from tests.conformance.companies import assert_same
from tests.conformance.conftest import PairWith
from tests.conformance.traces import CONFIG, Story, Traced, is_trace, shown

pytestmark = pytest.mark.oracle

_SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def subscribers_are_told_of(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB plain 1")
    all_.say("other", "SUB plain 1", "SUB * 2")
    all_.trace("a", "plain", Key="value", Other="1")
    all_.trace("a", "plain", reply="back")
    return all_.traced(), all_.heard("other")


def one_of_a_group_is_told_of(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9")
    all_.say("other", "SUB plain group 1", "SUB plain.* group 1", "SUB plain.x others 2")
    all_.trace("a", "plain")
    all_.trace("a", "plain.x")
    all_.try_out("a", "plain.x")
    return all_.traced(), all_.heard("other")


def nobody_listens(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB back 1")
    all_.trace("a", "plain", reply="back")
    all_.try_out("a", "plain", reply="back")
    return all_.traced()


def what_is_only_traced_is_not_delivered(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB back 1")
    all_.say("other", "SUB plain 1", "UNSUB 1 2")
    for value in ("true", "1", "On", "TRUE", "0", "yes", "false"):
        all_.trace("a", "plain", reply="back", Nats_Trace_Only=value)
    return all_.traced(), all_.heard("other")


def headers_are_read_as_they_are(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB plain 1")
    blocks = [
        "Nats-Trace-Dest:traces.a\r\nTwice: 1\r\nTwice: 2\r\ntwice:  3  \r\nEmpty:\r\n",
        "nats-trace-dest: traces.a\r\n",
        "Nats-Trace-Dest: \r\nNats-Trace-Only: true\r\n",
        'Nats-Trace-Dest: traces.a \t\r\nQuoted: <a&b>"\\ü\r\n',
        "Nats-Trace-Dest: trace disabled\r\nNats-Trace-Only: true\r\n",
        "Nats-Trace-Dest: traces.a\r\nNats-Trace-Dest: traces.b\r\nNats-Trace-Hop: 1.2\r\n",
        "Nats-Trace-Dest: traces.a\r\nNats-Trace-Origin-Account: A\r\n",
        "Nats-Trace-Dest: traces.a\r\nNats-Trace-Origin-Account: A\r\nNats-Trace-Only: 1\r\n",
        "No colon\r\nNats-Trace-Dest: traces.a\r\n",
        "A: b\r\nNats-Trace-Dest: traces.a",
        "X-Nats-Trace-Dest: traces.a\r\n",
        "Nats-Trace-Dest : traces.a\r\n",
        "A: Nats-Trace-Dest: traces.a\r\n",
    ]
    for block in blocks:
        text = f"NATS/1.0\r\n{block}\r\n"
        size = len(text.encode())
        all_.say("a", f"HPUB plain {size} {size + 2}", f"{text}hi")
    text = "NATS/1.0 200 Fine\r\nNats-Trace-Dest: traces.a\r\n\r\n"
    all_.say("a", f"HPUB plain {len(text)} 0{len(text)}", text)
    return all_.traced()


def a_destination_must_be_allowed(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB * 1", "SUB a.> 2", "SUB hidden.* 3")
    for only in ("false", "true"):
        for destination in ("hidden.x", "a..b", "a.*", ">", "with space", "_GR_.x.y", "$NRG.x"):
            all_.publish("few", "plain", Nats_Trace_Dest=destination, Nats_Trace_Only=only)
        all_.publish("few", "secret", Nats_Trace_Dest="hidden.y", Nats_Trace_Only=only)
    told = all_.heard("few")
    return told, all_.traced()


def who_may_not_publish_is_told_of(all_: Traced) -> object:
    all_.say("few", "SUB traces.few 9", "SUB * 1")
    all_.trace("few", "secret")
    all_.try_out("few", "secret")
    all_.trace("few", "plain", reply="_R_.x")
    all_.trace("few", "$NRG.x")
    return all_.traced("few")


def what_is_too_large_is_told_of(all_: Traced) -> object:
    all_.say("other", "SUB traces.a 9")
    block = "NATS/1.0\r\nNats-Trace-Dest: traces.a\r\nKey: value\r\n\r\n"
    all_.say("a", f"HPUB plain {len(block)} 5000\r\n{block}" + "x" * 100)
    frames: list[bytes] = []
    while not frames:
        frames = all_.frames("other")
    closed = all_.peer("a").closed
    return [shown(frame) for frame in frames], closed, all_.heard("a")


def a_subject_is_mapped(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB elsewhere 1", "SUB to.x 2", "SUB mapped 3")
    all_.trace("a", "mapped")
    all_.trace("a", "turned.x")
    all_.try_out("a", "turned.x")
    all_.trace("few", "mapped")
    return all_.traced()


def who_does_not_get_it_is_told_of(all_: Traced) -> object:
    all_.peer("silent", user="a", echo=False)
    all_.say("silent", "SUB traces.silent 9", "SUB wide.* 1", "SUB wide.> group 2")
    all_.say("few", "SUB wide.* 1", "SUB wide.denied 2")
    all_.trace("silent", "wide.denied")
    all_.try_out("silent", "wide.denied")
    all_.trace("silent", "wide.other")
    return all_.traced("silent"), all_.heard("few")


def subscriptions_end_by_themselves(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9")
    all_.say("other", "SUB plain 1", "UNSUB 1 2")
    for _ in range(3):
        all_.trace("a", "plain")
    return all_.traced(), all_.heard("other")


def a_stream_of_another_account(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9")
    all_.say("b", "SUB from_a.> 1", "SUB before.> 2", "SUB chain.x group 3", "SUB > 4")
    for subject in ("orders.x", "open.x", "chain.x"):
        all_.trace("a", subject)
        all_.try_out("a", subject)
    return all_.traced(), all_.heard("b")


def a_stream_through_a_group(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    all_.say("b", "SUB from_a.x group 1", "SUB before.open.x group 2")
    for subject in ("orders.x", "open.x"):
        all_.trace("a", subject, reply="back")
        all_.try_out("a", subject, reply="back")
    return all_.traced(), all_.heard("b")


def a_service_of_another_account(all_: Traced) -> object:
    all_.say("b", "SUB traces.b 9", "SUB back 8")
    all_.say("a", "SUB help 1", "SUB calc.> 2", "SUB elsewhere 3")
    for subject in ("help", "sums.1.2", "mapped"):
        all_.trace("b", subject)
        all_.try_out("b", subject)
        all_.trace("b", subject, reply="back")
        all_.try_out("b", subject, reply="back")
    return all_.traced("b"), all_.heard("a")


def a_service_that_nobody_serves(all_: Traced) -> object:
    all_.say("b", "SUB traces.b 9", "SUB back 8")
    for subject in ("help", "sums.1.2"):
        all_.trace("b", subject, reply="back")
        all_.try_out("b", subject, reply="back")
    return all_.traced("b")


def a_service_behind_another(all_: Traced) -> object:
    all_.say("c", "SUB traces.c 9", "SUB back 8")
    all_.say("a", "SUB help 1", "SUB calc.> 2")
    all_.say("b", "SUB help 1", "SUB sums.> group 2")
    for subject in ("help.through", "far.1.2"):
        all_.trace("c", subject)
        all_.try_out("c", subject)
        all_.trace("c", subject, reply="back")
    return all_.traced("c"), all_.heard("a", "b")


def an_answer_is_traced(all_: Traced) -> object:
    all_.say("other", "SUB help 1", "SUB calc.> 2")
    all_.say("a", "SUB traces.a 9")
    all_.say("b", "SUB back 8")
    for subject in ("help", "sums.1.2"):
        for only in (False, True):
            all_.say("b", f"PUB {subject} back 1", "x")
            (frame,) = all_.frames("other")
            reply = frame.split(b"\r\n")[0].split(b" ")[3].decode()
            (all_.try_out if only else all_.trace)("a", reply)
    traces = json.dumps(all_.traced()[0], default=lambda frame: frame.decode())
    return re.sub(r"_R_\.[\w.]+", "<reply>", traces), all_.heard("b")


def a_request_is_no_message_of_a_stream(all_: Traced) -> object:
    all_.say("b", "SUB traces.b 9", "SUB from_a.> 1")
    all_.trace("b", "orders.ask")
    return all_.traced("b")


def a_trace_goes_to_another_account(all_: Traced) -> object:
    all_.say("b", "SUB traces.b 9", "SUB back 8")
    all_.say("a", "SUB in.traces 1", "SUB plain 2")
    all_.publish("b", "plain", Nats_Trace_Dest="in.traces")
    frames: list[bytes] = []
    while not frames:
        frames = all_.frames("a")
    # The real server names itself as the requester; ours does not.
    trace = json.loads(frames[0].split(b"\r\n")[-2])
    return frames[0].split(b" ")[1], list(trace), trace["request"]


def parents_are_sampled(all_: Traced) -> object:
    all_.say("b", "SUB traces.b 9", "SUB plain 1")
    values = [
        _SAMPLED, _SAMPLED[:-2] + "00", _SAMPLED[:-2] + "03", _SAMPLED[:-1], "01", _SAMPLED + "-x",
        _SAMPLED[:-2] + "ff", _SAMPLED[:-2] + "zz", _SAMPLED[:-2] + "+1",
    ]  # fmt: skip
    for value in values:
        all_.publish("b", "plain", traceparent=value)
    all_.publish("b", "plain", TraceParent=_SAMPLED, Nats_Trace_Only="true")
    all_.publish("b", "plain", TRACEPARENT=_SAMPLED, Nats_Trace_Dest="traces.b", Key="v")
    all_.publish("b", "sums.1.2", traceparent=_SAMPLED)
    return all_.traced("b")


def parents_need_a_destination(all_: Traced) -> object:
    all_.say("a", "SUB > 1")
    all_.publish("a", "plain", traceparent=_SAMPLED)
    return all_.heard("a")


def traces_are_compressed(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9")
    found = []
    for encoding in ("gzip", "Snappy", "s2", "br"):
        all_.trace("a", "plain", Accept_Encoding=encoding)
        frames: list[bytes] = []
        while not frames:
            frames = all_.frames("a")
        head, _, rest = frames[0].partition(b"\r\n")
        headers, _, body = rest.partition(b"\r\n\r\n")
        found.append((head.split(b" ")[0], headers, body[:4] if encoding != "br" else b""))
    return found


def the_server_answers(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    for subject in ("$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.STATZ", "$JS.API.INFO"):
        all_.trace("a", subject)
        all_.try_out("a", subject)
        all_.try_out("a", subject, reply="back")
    all_.trace("a", "$JS.API.NONE")
    all_.trace("a", "$JS.API.CONSUMER.MSG.NEXT.S.C")
    all_.trace("a", "$JS.API.DIRECT.GET.S")
    return all_.traced()


def a_verbose_client_is_answered(all_: Traced) -> object:
    all_.peer("loud", user="few", verbose=True)
    all_.say("a", "SUB traces.loud 9")
    for destination in ("traces.loud", "hidden.x", "not valid"):
        for only in ("true", "false"):
            all_.publish("loud", "plain", Nats_Trace_Dest=destination, Nats_Trace_Only=only)
    all_.publish("loud", "secret", Nats_Trace_Dest="traces.loud")
    return all_.heard("loud")


def what_happens_is_told_in_its_order(all_: Traced) -> object:
    all_.say("a", "SUB elsewhere 1", "SUB calc.> 2", "SUB traces.a 9")
    all_.say("b", "SUB chain.x 1", "SUB traces.b 9")
    for user, subject in (("a", "mapped"), ("a", "chain.x"), ("b", "mapped"), ("b", "sums.1.2")):
        all_.trace(user, subject)
    found: list[bytes] = []
    for user in ("a", "b"):
        heard: list[bytes] = []
        while len(heard) < 2:
            heard += filter(is_trace, all_.frames(user))
        found += heard
    traces = [json.loads(frame.split(b"\r\n")[1]) for frame in found]
    return [[event["type"] for event in trace["events"]] for trace in traces]


STORIES: list[Story] = [
    a_verbose_client_is_answered,
    what_happens_is_told_in_its_order,
    subscribers_are_told_of,
    one_of_a_group_is_told_of,
    nobody_listens,
    what_is_only_traced_is_not_delivered,
    headers_are_read_as_they_are,
    a_destination_must_be_allowed,
    who_may_not_publish_is_told_of,
    what_is_too_large_is_told_of,
    a_subject_is_mapped,
    who_does_not_get_it_is_told_of,
    subscriptions_end_by_themselves,
    a_stream_of_another_account,
    a_stream_through_a_group,
    a_service_of_another_account,
    a_service_that_nobody_serves,
    a_service_behind_another,
    an_answer_is_traced,
    a_request_is_no_message_of_a_stream,
    a_trace_goes_to_another_account,
    parents_are_sampled,
    parents_need_a_destination,
    traces_are_compressed,
    the_server_answers,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_messages_are_traced_as_by_the_real_server(pair_with: PairWith, story: Story) -> None:
    assert_same(pair_with(CONFIG), Traced, story)
