"""Wall clocks that are set while consumers wait: nothing comes early, nothing comes late.

All time here is a clock's that is moved by hand: `pass_ns` lets time pass, `jump_ns` sets the wall
clock, which is no time at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.api.consumer_json import consumer_json
from penstock.consumer.config.config import AckPolicy, ConsumerConfig, PriorityPolicy
from penstock.consumer.folders import ConsumerFolders
from penstock.consumer.info import ConsumerInfo
from penstock.consumer.journal import ConsumerJournal
from penstock.consumer.registry import StreamConsumers
from penstock.consumer.state_writer import StateWriter
from penstock.routing.interest import InterestWatch
from penstock.testing.clock import FakeClock
from penstock.text.json.codec import decode, encode
from penstock.text.json.write import Encoded
from penstock.text.times import Instant
from tests.stream.hosts import StreamHouse

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
JUMPS = [DAY, -DAY, 1000 * DAY, -1000 * DAY, 2 * SECOND, -2 * SECOND]


class House:
    """A stream with one message and its consumers, and the clock that they live by."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self._host = StreamHouse(path, self.clock)
        self._stream = self._host.create(name="S", subjects=["s"])
        self._keeper = StateWriter(lambda: self._host.loop, self._host.log)
        journal = ConsumerJournal(self._host, str(path))
        self._folders = ConsumerFolders(self._host, journal, self._keeper)
        self.consumers = self._give_consumers()
        self._host.publish("s", b"body")

    def _give_consumers(self) -> StreamConsumers:
        return StreamConsumers(
            self._stream,
            self._keeper,
            InterestWatch(self._host.sublist),
            account_name="A",
            long_name="_.hash",
            sends_long=False,
            unique_id=lambda: "id",
            streams={},
            folders=self._folders,
        )

    def consumer(self, **more: Any) -> None:
        usual: dict[str, Any] = {
            "ack_policy": AckPolicy.EXPLICIT,
            "ack_wait": 10 * SECOND,
            "max_waiting": 5,
        }
        self.consumers.create("C", ConsumerConfig(durable_name="C", **(usual | more)))

    def pull(self, body: bytes = b"1") -> None:
        self._host.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, reply="_IN.pull")

    def came(self) -> list[str]:
        """Take what was sent: the status, or the subject of a message."""
        return [
            each.headers.decode().split("\r\n")[0].removeprefix("NATS/1.0 ") or each.subject
            for each in self._host.answers()
        ]

    def pass_ns(self, time_ns: int) -> None:
        self.clock.advance_ns(time_ns)
        self._host.settle()

    def jump_ns(self, by_ns: int) -> None:
        self.clock.jump_ns(by_ns)
        self._host.settle()

    def restart(self, *, jump_ns: int = 0) -> None:
        """Stop all, set the wall clock, and go on with what is on disk."""
        self._folders.stop()
        self._stream.stop()
        self.clock.jump_ns(jump_ns)
        self._stream = self._host.open(self._stream.config)
        self.consumers = self._give_consumers()
        self.consumers.recover({})

    def close(self) -> None:
        self._folders.stop()
        self._host.__exit__(None, None, None)
        self._keeper.stop()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("jump_ns", JUMPS)
def test_what_was_not_acknowledged_comes_again_when_its_time_has_passed(
    house: House, jump_ns: int
) -> None:
    house.consumer()
    house.pull(b"2")
    assert house.came() == ["s"]

    house.pass_ns(4 * SECOND)
    house.jump_ns(jump_ns)
    house.pass_ns(5 * SECOND)
    assert house.came() == []
    house.pass_ns(SECOND)
    assert house.came() == ["s"]


@pytest.mark.parametrize("jump_ns", JUMPS)
def test_a_request_ends_when_its_time_has_passed(house: House, jump_ns: int) -> None:
    house.consumer()
    house.pull(b'{"batch":2,"expires":10000000000,"idle_heartbeat":4000000000}')
    assert house.came() == ["s"]

    house.pass_ns(3 * SECOND)
    house.jump_ns(jump_ns)
    assert house.came() == []
    house.pass_ns(SECOND)
    assert house.came() == ["100 Idle Heartbeat"]
    house.pass_ns(4 * SECOND)
    assert house.came() == ["100 Idle Heartbeat"]
    house.pass_ns(2 * SECOND)
    assert house.came()[-1] == "408 Request Timeout"


@pytest.mark.parametrize("jump_ns", JUMPS)
def test_a_consumer_goes_when_nobody_was_there_for_so_long(house: House, jump_ns: int) -> None:
    house.consumer(inactive_threshold=10 * SECOND)

    house.pass_ns(9 * SECOND)
    house.jump_ns(jump_ns)
    assert house.consumers.find("C") is not None
    house.pass_ns(SECOND)
    assert house.consumers.find("C") is None


@pytest.mark.parametrize("jump_ns", JUMPS)
def test_a_pin_is_lost_when_its_time_has_passed(house: House, jump_ns: int) -> None:
    house.consumer(
        priority_policy=PriorityPolicy.PINNED_CLIENT,
        priority_groups=("G",),
        priority_timeout=10 * SECOND,
        ack_wait=DAY,
    )
    house.pull(b'{"batch":1,"group":"G"}')
    house.pull(b'{"batch":1,"group":"G"}')
    assert len(house.came()) == 1

    house.pass_ns(9 * SECOND)
    house.jump_ns(jump_ns)
    assert _pin(house) == "id"
    house.pass_ns(SECOND)
    assert _pin(house) == ""


def _told(house: House) -> ConsumerInfo:
    consumer = house.consumers.find("C")
    assert consumer is not None
    told = consumer_json(consumer, house.clock.now_ns(), Encoded(encode(consumer.config)))
    return decode(ConsumerInfo, told.text)


def _pin(house: House) -> str:
    (group,) = _told(house).priority_groups
    return group.pinned_client_id


def test_a_rest_ends_by_the_wall_clock(house: House) -> None:
    house.consumer(pause_until=Instant(house.clock.now_ns() + 3600 * SECOND))
    house.pull(b'{"batch":1,"expires":60000000000}')
    assert house.came() == []

    house.jump_ns(-DAY)
    house.pass_ns(3600 * SECOND)
    assert house.came() == ["408 Request Timeout"]
    house.jump_ns(DAY)
    house.pull()
    assert house.came() == ["s"]


@pytest.mark.parametrize("is_set_while_running", [True, False])
@pytest.mark.parametrize("jump_ns", [-DAY, -1000 * DAY])
def test_a_clock_that_was_set_back_delays_nothing_after_a_restart(
    house: House, jump_ns: int, is_set_while_running: bool
) -> None:
    house.consumer()
    house.pull()
    assert house.came() == ["s"]

    if is_set_while_running:
        house.jump_ns(jump_ns)
        house.restart()
    else:
        house.restart(jump_ns=jump_ns)
    house.pull()
    house.pass_ns(10 * SECOND)
    assert house.came() == ["s"]


def test_what_is_told_of_the_past_is_told_by_the_wall_clock(house: House) -> None:
    house.consumer()
    house.pull()
    assert house.came() == ["s"]
    house.jump_ns(DAY)

    assert _told(house).delivered.last_active == Instant(house.clock.now_ns())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 4 * SECOND), st.integers(-DAY, DAY)), min_size=1, max_size=12
    )
)
def test_no_row_of_jumps_makes_a_message_come_early_or_late(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    house = House(tmp_path_factory.mktemp("house"))
    try:
        house.consumer()
        house.pull(b"100")
        assert house.came() == ["s"]
        since_ns = 0
        for passed_ns, jump_ns in steps:
            house.pass_ns(passed_ns)
            since_ns += passed_ns
            # It is delivered again when it is seen to be due, and due again from then on.
            expected = ["s"] if since_ns >= 10 * SECOND else []
            assert house.came() == expected
            if expected:
                since_ns = 0
            house.jump_ns(jump_ns)
            assert house.came() == []
    finally:
        house.close()
