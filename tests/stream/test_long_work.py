"""A stream with much to remove: others have their turns of the event loop meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.limits import WORK_TURN_NS
from penstock.subjects import SubjectFilter
from penstock.testing.clock import FakeClock
from tests.stream.hosts import StreamHouse

MESSAGES = 40
SLICES_PER_TURN = 4


class WorkingClock(FakeClock):
    """A clock on which each look takes a part of a turn: as long as a slice of the work."""

    is_working = False

    def monotonic_ns(self) -> int:
        if self.is_working:
            self.advance_ns(WORK_TURN_NS // SLICES_PER_TURN)
        return super().monotonic_ns()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WorkingClock:
    for module in ("store.upkeep.limits", "store.upkeep.removal", "stream.stream"):
        monkeypatch.setattr(f"penstock.{module}.REMOVED_AT_ONCE", 1)
    monkeypatch.setattr("penstock.stream.stream.MARKERS_AT_ONCE", 1)
    return WorkingClock()


def filled(house: StreamHouse, **fields: Any) -> Any:
    stream = house.create(name="S", subjects=["s.>"], **fields)
    for place in range(MESSAGES):
        house.publish(f"s.{place % 2}")
    house.settle()
    return stream


def turns_of(house: StreamHouse, clock: WorkingClock, work: Coroutine[Any, Any, Any]) -> int:
    """Return how many turns others had while some work was done."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def both() -> None:
        beside = asyncio.ensure_future(others())
        clock.is_working = True
        await work
        clock.is_working = False
        beside.cancel()

    house.loop.run_until_complete(both())
    return turns


TURNS_MIN = MESSAGES // 2 // SLICES_PER_TURN - 1


def test_a_purge_by_a_filter_leaves_turns_to_others(tmp_path: Path, clock: WorkingClock) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = filled(house)
        assert turns_of(house, clock, stream.purge(SubjectFilter([b"s.1"]))) >= TURNS_MIN
        assert stream.store.state().messages == MESSAGES // 2


@pytest.mark.parametrize("limits", [{"max_msgs": 1}, {"max_msgs_per_subject": 1}])
def test_limits_that_are_lowered_leave_turns_to_others(
    tmp_path: Path, clock: WorkingClock, limits: dict[str, int]
) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = filled(house)
        work = house.updating(stream, subjects=["s.>"], **limits)
        assert turns_of(house, clock, work) >= TURNS_MIN
        assert stream.store.state().messages <= 2


@pytest.mark.parametrize(
    "fields", [{}, {"allow_msg_ttl": True, "subject_delete_marker_ttl": 10**9}]
)
def test_very_many_messages_that_expire_leave_turns_to_others(
    tmp_path: Path, clock: WorkingClock, fields: dict[str, Any]
) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = filled(house, max_age=10**9, duplicate_window=10**9, **fields)
        clock.advance_ns(10**9)

        async def until_gone() -> None:
            for _ in range(100 * MESSAGES):
                if stream.store.state().first_seq > MESSAGES:
                    return
                await asyncio.sleep(0)
            raise AssertionError("messages do not expire")

        assert turns_of(house, clock, until_gone()) >= TURNS_MIN
