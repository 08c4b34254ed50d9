"""The meter of the event loop's turns: what counts as a turn, and what is told of it."""

from __future__ import annotations

import asyncio

import uvloop

from penstock.limits import TURN_LONG_NS, TURN_TOLD_NS
from penstock.net.turns import TurnMeter


def test_a_turn_is_what_the_loop_did_between_two_waits() -> None:
    meter = TurnMeter(lambda turn_ns: None)
    meter.note(1_000, 400)
    meter.note(1_700, 900)
    assert (meter.turns, meter.longest_ns) == (1, 200)
    meter.note(2_000, 900)
    assert (meter.turns, meter.longest_ns) == (2, 300)
    meter.note(9_000, 7_900)
    assert (meter.turns, meter.longest_ns, meter.long_turns) == (3, 300, 0)


def test_long_turns_are_counted_and_far_too_long_ones_are_told() -> None:
    told: list[int] = []
    meter = TurnMeter(told.append)
    meter.note(1, 0)
    now_ns = 1
    for turn_ns in (TURN_LONG_NS, TURN_LONG_NS + 1, TURN_TOLD_NS, TURN_TOLD_NS + 1):
        now_ns += turn_ns
        meter.note(now_ns, 0)
    assert meter.long_turns == 3
    assert told == [TURN_TOLD_NS + 1]


async def turns_of(meter: TurnMeter) -> tuple[int, int]:
    """Return how many turns were counted while a loop is watched, and afterwards."""
    meter.watch(asyncio.get_running_loop())
    for _ in range(10):
        await asyncio.sleep(0)
    watched = meter.turns
    meter.leave()
    for _ in range(10):
        await asyncio.sleep(0)
    return watched, meter.turns - watched


def test_turns_count_while_the_loop_is_watched() -> None:
    meter = TurnMeter(lambda turn_ns: None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        watched, later = runner.run(turns_of(meter))
    assert watched >= 8
    assert later == 0
    assert meter.longest_ns > 0


def test_another_kind_of_loop_is_not_measured() -> None:
    assert asyncio.run(turns_of(TurnMeter(lambda turn_ns: None))) == (0, 0)


def test_a_meter_that_was_never_left_does_not_outlive_its_loop() -> None:
    async def scenario() -> None:
        TurnMeter(lambda turn_ns: None).watch(asyncio.get_running_loop())
        await asyncio.sleep(0)

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    runner.run(scenario())
    for _ in range(3):
        runner.run(asyncio.sleep(0))
