"""Messages that are published later: when, as what, and after which restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocol.headers import value_of
from penstock.testing.clock import FakeClock
from penstock.text.times import timestamp
from tests.stream.hosts import StreamHouse
from tests.stream.published import block, our_messages

SECOND_NS = 1_000_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_700_000_000_000_000_000)


def schedule(house: StreamHouse, pattern: str, **more: str) -> None:
    named = {f"Nats-Schedule-{name.replace('_', '-')}": value for name, value in more.items()}
    headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": "s.target", "Own": "kept"} | named
    house.publish("s.schedule", b"body", headers=block(headers), reply="_IN.r")
    (answer,) = house.answers()
    assert b"error" not in answer.body


def test_a_message_is_published_at_its_time_and_its_schedule_is_gone(
    tmp_path: Path, clock: FakeClock
) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_msg_schedules=True)
        schedule(house, f"@at {timestamp(clock.now_ns() + 30 * SECOND_NS)}")
        clock.advance_seconds(29)
        house.settle()
        before = stream.store.state().last_seq
        clock.advance_seconds(1)
        house.settle()

        headers = {"Own": "kept", "Nats-Scheduler": "s.schedule", "Nats-Schedule-Next": "purge"}
        assert before == 1
        assert our_messages(stream) == [(2, "s.target", block(headers), b"body")]


def test_a_repeated_message_says_when_it_comes_next(tmp_path: Path, clock: FakeClock) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_msg_schedules=True)
        start_ns = clock.now_ns()
        schedule(house, "@every 10s")
        for _ in range(3):
            clock.advance_seconds(10)
            house.settle()

        _, *copies = our_messages(stream)
        assert [seq for seq, _, _, _ in copies] == [2, 3, 4]
        assert [value_of(headers, b"Nats-Schedule-Next") for _, _, headers, _ in copies] == [
            timestamp(start_ns + after_s * SECOND_NS).encode() for after_s in (20, 30, 40)
        ]


def test_what_was_due_while_the_server_was_down_comes_once(
    tmp_path: Path, clock: FakeClock
) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_msg_schedules=True)
        schedule(house, f"@at {timestamp(clock.now_ns() + 30 * SECOND_NS)}")
        stream.stop()
        clock.advance_seconds(100)
        stream = house.open(stream.config)
        house.settle()

        assert [subject for _, subject, _, _ in our_messages(stream)] == ["s.target"]


def test_a_schedule_that_repeats_goes_on_after_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_msg_schedules=True)
        schedule(house, "@every 10s")
        clock.advance_seconds(95)
        stream = house.reopen(stream)
        clock.advance_seconds(10)
        house.settle()

        assert [subject for _, subject, _, _ in our_messages(stream)] == ["s.schedule", "s.target"]


def test_a_schedule_takes_the_last_message_of_another_subject(
    tmp_path: Path, clock: FakeClock
) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(
            name="S", subjects=["s.>"], allow_msg_schedules=True, allow_msg_ttl=True
        )
        house.publish("s.source", b"old")
        house.publish("s.source", b"new", headers=block({"Nats-Msg-Id": "1", "Its": "own"}))
        schedule(house, "@every 10s", Source="s.source", TTL="1h", Rollup="sub")
        for _ in range(2):
            clock.advance_seconds(10)
            house.settle()

        *_, (_, subject, headers, body) = our_messages(stream)
        assert (subject, body) == ("s.target", b"new")
        assert value_of(headers, b"Its") == b"own"
        assert value_of(headers, b"Nats-Msg-Id") is None
        assert value_of(headers, b"Nats-TTL") == b"1h"
        assert stream.store.state().messages == 4


def test_an_ordinary_message_ends_the_schedule_of_its_subject(
    tmp_path: Path, clock: FakeClock
) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_msg_schedules=True)
        schedule(house, "@every 10s")
        house.publish("s.schedule", b"no more")
        house.settle()
        clock.advance_seconds(20)
        house.settle()

        assert stream.store.state().last_seq == 2


def test_a_removed_schedule_publishes_nothing(tmp_path: Path, clock: FakeClock) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_msg_schedules=True)
        schedule(house, "@every 10s")
        house.purge(stream)
        clock.advance_seconds(20)
        house.settle()

        assert stream.store.state().last_seq == 1


def test_a_schedule_that_is_written_again_and_again_costs_no_memory(
    tmp_path: Path, clock: FakeClock
) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(
            name="S", subjects=["s.>"], allow_msg_schedules=True, storage="memory"
        )
        for _ in range(300):
            schedule(house, "@every 10s")

        assert len(stream.publishing.schedules) == 1
        assert stream.publishing.schedules.queue_length < 100


def test_schedules_are_found_when_they_are_allowed_again(tmp_path: Path, clock: FakeClock) -> None:
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_rollup_hdrs=True)
        headers = {"Nats-Schedule": "@every 10s", "Nats-Schedule-Target": "s.target"}
        # An imported stream may have this.
        stream.store.store(b"s.schedule", block(headers), b"body")
        house.update(stream, subjects=["s.>"], allow_rollup_hdrs=True, allow_msg_schedules=True)
        clock.advance_seconds(10)
        house.settle()

        assert [subject for _, subject, _, _ in our_messages(stream)] == ["s.schedule", "s.target"]
