"""A rate: a burst goes at once, and then so many bytes a second."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.consumer.demand import RateLimit, rate_limit_of
from penstock.testing.servers import BOTH, PENSTOCK, REFERENCE, server_process
from tests.support.nats_client import NatsClient

SECOND_NS = 1_000_000_000


@given(
    rate=st.integers(8, 10**6),
    burst=st.integers(1, 10_000),
    sizes=st.lists(st.integers(1, 12_000), min_size=1, max_size=50),
    pauses_ns=st.lists(st.integers(0, SECOND_NS), min_size=50, max_size=50),
)
def test_no_more_goes_than_the_burst_and_what_the_time_is_worth(
    rate: int, burst: int, sizes: list[int], pauses_ns: list[int]
) -> None:
    limit = RateLimit(rate, burst)
    start_ns = now_ns = 10**18
    sent = 0
    for size, pause_ns in zip(sizes, pauses_ns, strict=False):
        now_ns += pause_ns
        now_ns += limit.wait_ns(size, now_ns)
        assert limit.wait_ns(size, now_ns) == 0
        limit.spend(size)
        sent += size
        worth = rate // 8 * (now_ns - start_ns) / SECOND_NS
        assert sent <= burst + worth + max(0, size - burst) + 1


@given(size=st.integers(1, 1_000), count=st.integers(1, 20))
def test_one_after_another_goes_at_the_rate(size: int, count: int) -> None:
    limit = RateLimit(8_000, 1_000)
    now_ns = 10**18
    limit.spend(1_000)
    limit.wait_ns(1, now_ns)
    emptied_ns = now_ns
    for _ in range(count):
        now_ns += limit.wait_ns(size, now_ns)
        limit.spend(size)

    assert abs(now_ns - emptied_ns - size * count * SECOND_NS // 1_000) <= SECOND_NS


def test_a_clock_that_is_set_back_gives_nothing_and_takes_nothing() -> None:
    limit = RateLimit(8_000, 1_000)
    limit.wait_ns(1, 10**18)
    limit.spend(1_000)

    assert limit.wait_ns(500, 10**17) == SECOND_NS // 2
    assert limit.wait_ns(500, 10**17 + SECOND_NS // 2) == 0


def test_a_limit_keeps_its_level_for_as_long_as_its_rate_stays() -> None:
    limit = rate_limit_of(None, 8_000, burst_bytes=1_000)

    assert limit is not None
    assert rate_limit_of(limit, 8_000, burst_bytes=1_000) is limit
    assert rate_limit_of(limit, 16_000, burst_bytes=1_000) is not limit
    assert rate_limit_of(limit, 0, burst_bytes=1_000) is None


def burst_of(port: int, **stream: int) -> list[str]:
    """Return what a consumer that may hardly send anything sends at once."""
    with NatsClient(port) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], **stream})
        for _ in range(30):
            client.request("s", b"x" * 90)
        config = {"durable_name": "C", "deliver_subject": "to", "rate_limit_bps": 8}
        client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
        client.subscribe("to")
        found: list[str] = []
        while len(found) < 8:
            message = client.next_delivery()
            if message.reply.startswith("$JS.ACK"):
                found.append(message.reply.split(".")[5])
        # The next one would come after a minute and more.
        client.publish("_IN.end")
        while (message := client.next_delivery()).subject != "_IN.end":
            found.append(message.subject)
        return found


@pytest.mark.oracle
def test_the_same_burst_goes_first_as_with_the_real_server(tmp_path: Path) -> None:
    found = {}
    for kind in BOTH:
        with server_process(kind, store_dir=tmp_path / kind) as server:
            found[kind] = burst_of(server.port, max_msg_size=1_100)

    assert found[PENSTOCK] == found[REFERENCE] == [f"{number}" for number in range(1, 9)]
