"""Requests for messages: how they are read, and the order in which they are served."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.consumer.config import ConsumerConfig
from penstock.consumer.pull import Waiting, WaitingQueue, check_request, read_request
from penstock.errors import RequestRefused

NOW_NS = 10**18


@given(body=st.binary(max_size=60))
def test_any_body_is_a_request_or_is_refused(body: bytes) -> None:
    left = 1
    with contextlib.suppress(RequestRefused):
        left = read_request(b"r", body, NOW_NS).left

    assert left >= 1


@given(
    batch=st.integers(-(2**63), 2**63 - 1),
    expires=st.integers(-(2**63), 2**63 - 1),
    max_bytes=st.integers(-(2**63), 2**63 - 1),
)
def test_absurd_numbers_do_no_harm(batch: int, expires: int, max_bytes: int) -> None:
    document = {"batch": batch, "expires": expires, "max_bytes": max_bytes}

    request = read_request(b"r", json.dumps(document).encode(), NOW_NS)

    assert request.left == max(batch, 1)
    assert request.bytes_left == max(max_bytes, 0)


def test_a_heartbeat_must_come_twice_before_the_end() -> None:
    with pytest.raises(RequestRefused) as refused:
        read_request(b"r", b'{"batch":1,"expires":100,"idle_heartbeat":51}', NOW_NS)

    assert refused.value.reason == "Bad Request - heartbeat value too large"


def test_limits_of_the_consumer_refuse_a_request() -> None:
    config = ConsumerConfig(max_batch=5)

    with pytest.raises(RequestRefused) as refused:
        check_request(Waiting(b"r", 6), config, NOW_NS, pin_id="")

    assert (refused.value.status, refused.value.reason) == (409, "Exceeded MaxRequestBatch of 5")


def test_requests_are_served_in_turn() -> None:
    queue = WaitingQueue(by_priority=False)
    for name, left in ((b"a", 2), (b"b", 1), (b"c", 3)):
        queue.add(Waiting(name, left))

    served = []
    while len(queue):
        served.append(queue.serve(1, 10).reply)

    assert served == [b"a", b"b", b"c", b"a", b"c", b"c"]


def test_a_request_is_done_when_its_bytes_are() -> None:
    queue = WaitingQueue(by_priority=False)
    queue.add(Waiting(b"a", 9, bytes_left=100))

    queue.serve(1, 60)
    request = queue.serve(1, 40)

    assert len(queue) == 0
    assert request.left == 0
