"""Requests for messages: how they are read, and the order in which they are served."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.pull_requests import PullQueue, PullRequest, check_request, read_request
from penstock.errors import RequestRefused

NOW_NS = 10**18


@given(body=st.binary(max_size=60))
def test_any_body_is_a_request_or_is_refused(body: bytes) -> None:
    with contextlib.suppress(RequestRefused):
        request = read_request(b"r", body, NOW_NS)

        assert request.reply == b"r"
        assert -(2**63) <= request.left < 2**63


@given(
    batch=st.integers(-(2**63), 2**63 - 1),
    expires=st.integers(-(2**63), 2**63 - 1),
    max_bytes=st.integers(-(2**63), 2**63 - 1),
)
def test_absurd_numbers_do_no_harm(batch: int, expires: int, max_bytes: int) -> None:
    document = {"batch": batch, "expires": expires, "max_bytes": max_bytes}

    request = read_request(b"r", json.dumps(document).encode(), NOW_NS)

    assert request.left == batch
    assert request.bytes_left == max(max_bytes, 0)


def test_a_heartbeat_must_come_twice_before_the_end() -> None:
    with pytest.raises(RequestRefused) as refused:
        read_request(b"r", b'{"batch":1,"expires":100,"idle_heartbeat":51}', NOW_NS)

    assert refused.value.reason == "Bad Request - heartbeat value too large"


def test_limits_of_the_consumer_refuse_a_request() -> None:
    config = ConsumerConfig(max_batch=5)

    with pytest.raises(RequestRefused) as refused:
        check_request(PullRequest(b"r", 6), config, NOW_NS, pin_id="")

    assert (refused.value.status, refused.value.reason) == (409, "Exceeded MaxRequestBatch of 5")


def test_requests_are_served_in_turn() -> None:
    queue = PullQueue(by_priority=False)
    for name, left in ((b"a", 2), (b"b", 1), (b"c", 3)):
        queue.add(PullRequest(name, left))

    served = []
    while len(queue):
        served.append(queue.serve(1, 10).reply)

    assert served == [b"a", b"b", b"c", b"a", b"c", b"c"]


def test_a_request_is_done_when_its_bytes_are() -> None:
    queue = PullQueue(by_priority=False)
    queue.add(PullRequest(b"a", 9, bytes_left=100))

    queue.serve(1, 60)
    request = queue.serve(1, 40)

    assert len(queue) == 0
    assert request.left == 0


@given(
    lefts=st.lists(st.integers(1, 5), min_size=2, max_size=6),
    sharing=st.integers(2, 6),
    data=st.data(),
)
def test_served_in_turn_at_once_is_as_served_one_by_one(
    lefts: list[int], sharing: int, data: st.DataObject
) -> None:
    at_once, one_by_one = (PullQueue(by_priority=False) for _ in range(2))
    for place, left in enumerate(lefts):
        for queue in (at_once, one_by_one):
            queue.add(PullRequest(b"%d" % place, left))
    sharing = min(sharing, len(lefts))
    rounds = min(lefts) if sharing == len(lefts) else 1
    count = data.draw(st.integers(1, rounds * sharing))

    served = at_once.serve_in_turn(sharing, count)
    expected = [one_by_one.serve(1, 10).reply for _ in range(count)]

    assert [(each.reply, each.left, each.delivered) for each in at_once] == [
        (each.reply, each.left, each.delivered) for each in one_by_one
    ]
    assert {each.reply for each in served} == set(expected)


def test_those_that_count_bytes_or_are_late_end_the_row_of_those_that_share() -> None:
    queue = PullQueue(by_priority=False)
    for request in (
        PullRequest(b"a", 5),
        PullRequest(b"b", 5, expires_ns=NOW_NS + 1),
        PullRequest(b"c", 5, expires_ns=NOW_NS),
        PullRequest(b"d", 5),
    ):
        queue.add(request)

    assert [each.reply for each in queue.plain_ones(9, NOW_NS)] == [b"a", b"b"]
    assert [each.reply for each in queue.plain_ones(1, NOW_NS)] == [b"a"]
    queue.add(PullRequest(b"e", 5, bytes_left=10))
    assert [each.reply for each in queue.plain_ones(9, NOW_NS - 1)] == [b"a", b"b", b"c", b"d"]
