"""What becomes of published messages as time passes, servers restart and configurations change."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.protocol.headers import value_of
from penstock.subjects import SubjectFilter
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultPlan, FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem
from tests.stream.hosts import Answer, StreamHouse
from tests.stream.published import block, our_messages, our_numbers, outcome_of
from tests.stream.publishing_fuzz import random_case

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS


def acked(seq: int) -> bytes:
    return b'{"stream":"S","seq":%d}' % seq


def duplicate(seq: int) -> bytes:
    return b'{"stream":"S","seq":%d,"duplicate": true}' % seq


def error_of(answer: Answer) -> int:
    code: int = json.loads(answer.body)["error"]["err_code"]
    return code


def publish_with_id(house: StreamHouse, message_id: str) -> bytes:
    house.publish("s.a", headers=block({"Nats-Msg-Id": message_id}), reply="_IN.r")
    (answer,) = house.answers()
    return answer.body


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_an_id_is_known_for_as_long_as_the_window(tmp_path: Path, storage: str) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        house.create(name="S", subjects=["s.>"], duplicate_window=MINUTE_NS, storage=storage)
        publish_with_id(house, "1")
        clock.advance_ns(MINUTE_NS - 1)
        within = publish_with_id(house, "1")
        clock.advance_ns(1)

        assert within == duplicate(1)
        assert publish_with_id(house, "1") == acked(2)


def test_ids_leave_the_memory_when_nobody_publishes_any_more(tmp_path: Path) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], duplicate_window=MINUTE_NS)
        publish_with_id(house, "1")
        before = len(stream.publishing.message_ids)
        clock.advance_ns(MINUTE_NS)
        house.settle()

        assert before == 1
        assert len(stream.publishing.message_ids) == 0


def test_an_id_is_known_after_a_restart_within_the_window(tmp_path: Path) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], duplicate_window=MINUTE_NS)
        publish_with_id(house, "old")
        clock.advance_ns(MINUTE_NS // 2)
        publish_with_id(house, "new")
        house.reopen(stream)
        clock.advance_ns(MINUTE_NS // 2)

        assert publish_with_id(house, "new") == duplicate(2)
        assert publish_with_id(house, "old") == acked(3)


def test_ids_are_looked_for_when_one_is_needed(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        publish_with_id(house, "1")
        stream = house.reopen(stream)
        house.publish("s.a", headers=block({"Nats-Expected-Stream": "S"}))
        before = stream.publishing.message_ids.is_ready
        publish_with_id(house, "2")

        assert not before
        assert stream.publishing.message_ids.is_ready
        assert len(stream.publishing.message_ids) == 2


def test_the_last_id_is_known_after_a_restart(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        publish_with_id(house, "1")
        house.reopen(stream)
        house.publish("s.a", headers=block({"Nats-Expected-Last-Msg-Id": "1"}), reply="_IN.r")

        assert [answer.body for answer in house.answers()] == [acked(2)]


def test_an_id_is_known_although_its_message_was_purged(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        publish_with_id(house, "1")
        house.purge(stream)

        assert publish_with_id(house, "1") == duplicate(1)


def test_answers_come_in_the_order_of_the_messages(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.create(name="S", subjects=["s.>"])
        for number, headers in enumerate(
            ({}, {"Nats-Msg-Id": "1"}, {"Nats-Expected-Stream": "T"}, {"Nats-Msg-Id": "1"}, {})
        ):
            house.publish("s.a", headers=block(headers), reply=f"_IN.{number}")

        assert [answer.subject for answer in house.answers()] == [f"_IN.{n}" for n in range(5)]


def test_nobody_is_answered_by_a_stream_without_acknowledgements(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"], no_ack=True, max_msg_size=100)
        for headers in ({}, {"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "1"}, {"Nats-Rollup": "all"}):
            house.publish("s.a", headers=block(headers), reply="_IN.r")
        house.publish("s.a", b"x" * 200, reply="_IN.r")

        assert house.answers() == []
        assert stream.store.state().messages == 2


def test_a_sealed_stream_takes_nothing(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        house.update(stream, subjects=["s.>"], sealed=True)
        house.publish("s.a", reply="_IN.r")

        assert [error_of(answer) for answer in house.answers()] == [10109]
        assert stream.store.state().messages == 0


def test_acknowledgements_name_the_domain(tmp_path: Path) -> None:
    with StreamHouse(tmp_path, domain="hub") as house:
        house.create(name="S", subjects=["s.>"])
        house.publish("s.a", reply="_IN.r")
        house.publish("s.a", headers=block({"Nats-Expected-Stream": "S"}), reply="_IN.r")

        bodies = [answer.body for answer in house.answers()]
        assert bodies == [b'{"stream":"S","domain":"hub","seq":%d}' % seq for seq in (1, 2)]


def test_a_stored_message_is_published_again_when_it_is_durable(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000_123_000_000)
    with StreamHouse(tmp_path, clock) as house:
        house.listen("r.>")
        house.create(name="S", subjects=["s.>"], republish={"src": "s.*", "dest": "r.$1"})
        house.publish("s.a", b"one")
        house.publish("s.a", b"two", headers=block({"A": "b"}), reply="_IN.r")
        house.publish("s.a.b", b"three")

        first, second, ack = house.answers()
        told = "Nats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: {}\r\n"
        told += "Nats-Time-Stamp: 2023-11-14T22:13:20.123Z\r\nNats-Last-Sequence: {}\r\n\r\n"
        assert first == ("r.a", f"NATS/1.0\r\n{told.format(1, 0)}".encode(), b"one")
        assert second == ("r.a", f"NATS/1.0\r\nA: b\r\n{told.format(2, 1)}".encode(), b"two")
        assert ack.body == acked(2)


def test_a_message_is_published_again_without_its_body(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.listen("r.>")
        republish = {"src": ">", "dest": "r.>", "headers_only": True}
        house.create(name="S", subjects=["s.>"], republish=republish)
        house.publish("s.a", b"four")

        (copy,) = house.answers()
        assert copy.body == b""
        assert value_of(copy.headers, b"Nats-Msg-Size") == b"4"


def test_members_of_a_batch_tell_of_each_other_when_published_again(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.listen("r.>")
        house.create(
            name="S", subjects=["s.>"], allow_atomic=True, republish={"src": ">", "dest": "r.>"}
        )
        for number in ("1", "2", "3"):
            headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": number}
            if number == "3":
                headers["Nats-Batch-Commit"] = "1"
            house.publish("s.a", headers=block(headers))

        told = [value_of(copy.headers, b"Nats-Last-Sequence") for copy in house.answers()]
        assert told == [b"0", b"1", b"2"]


def test_a_message_is_gone_when_its_time_has_come(tmp_path: Path, storage: str) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_msg_ttl=True, storage=storage)
        house.publish("s.a", headers=block({"Nats-TTL": "5s"}))
        house.publish("s.b")
        house.settle()
        clock.advance_seconds(4)
        house.settle()
        before = stream.store.state().messages
        clock.advance_seconds(2)
        house.settle()

        assert before == 2
        assert [subject for _, subject, _, _ in our_messages(stream)] == ["s.b"]


def test_a_short_life_ends_before_a_long_one_that_was_there_first(tmp_path: Path) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_msg_ttl=True)
        house.publish("s.long", headers=block({"Nats-TTL": "1h"}))
        house.publish("s.short", headers=block({"Nats-TTL": "5s"}))
        house.settle()
        clock.advance_seconds(6)
        house.settle()

        assert [subject for _, subject, _, _ in our_messages(stream)] == ["s.long"]


def test_what_never_expires_outlives_the_streams_age(tmp_path: Path) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(
            name="S", subjects=["s.>"], allow_msg_ttl=True, max_age=10 * SECOND_NS
        )
        for number in range(6):
            headers = block({"Nats-TTL": "never"}) if number in (0, 1, 3) else b""
            house.publish(f"s.{number}", headers=headers)
        house.settle()
        stream = house.reopen(stream)
        clock.advance_seconds(11)
        house.settle()

        assert [subject for _, subject, _, _ in our_messages(stream)] == ["s.0", "s.1", "s.3"]


def test_a_marker_takes_the_place_of_a_subjects_last_message(tmp_path: Path, storage: str) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(
            name="S",
            subjects=["s.>"],
            max_age=10 * SECOND_NS,
            subject_delete_marker_ttl=90 * SECOND_NS,
            allow_msg_ttl=True,
            storage=storage,
        )
        for subject in ("s.a", "s.a", "s.b"):
            house.publish(subject, b"x")
        house.settle()
        clock.advance_seconds(11)
        house.settle()

        marker = block({"Nats-Marker-Reason": "MaxAge", "Nats-TTL": "1m30s", "Nats-Rollup": "sub"})
        assert our_messages(stream) == [(4, "s.a", marker, b""), (5, "s.b", marker, b"")]


def test_a_marker_leaves_no_marker(tmp_path: Path) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(
            name="S",
            subjects=["s.>"],
            max_age=60 * SECOND_NS,
            subject_delete_marker_ttl=SECOND_NS,
            allow_msg_ttl=True,
        )
        house.publish("s.a", b"x")
        house.settle()
        stream = house.reopen(stream)
        clock.advance_seconds(61)
        house.settle()
        before = stream.store.state().messages
        clock.advance_seconds(3)
        house.settle()

        assert before == 1
        assert stream.store.state().messages == 0


def test_what_expires_in_a_full_stream_goes_without_a_marker(tmp_path: Path) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(
            name="S",
            subjects=["s.>"],
            max_age=10 * SECOND_NS,
            subject_delete_marker_ttl=SECOND_NS,
            allow_msg_ttl=True,
            max_msgs=1,
            discard="new",
        )
        house.publish("s.a", b"x")
        house.settle()
        clock.advance_seconds(11)
        house.settle()

        assert stream.store.state().messages == 0


def test_a_rollup_leaves_one_message_of_its_subject_after_a_restart(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_rollup_hdrs=True)
        for subject in ("s.a", "s.b", "s.a"):
            house.publish(subject, b"x")
        house.publish("s.a", b"y", headers=block({"Nats-Rollup": "sub"}))
        stream = house.reopen(stream)

        assert stream.store.subjects_totals(SubjectFilter([b">"])) == {b"s.a": 1, b"s.b": 1}


def test_a_changed_configuration_is_obeyed_at_once(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        house.publish("s.a", b"x")
        house.update(stream, subjects=["s.>"], subject_transform={"src": "s.*", "dest": "t.$1"})
        house.publish("s.a", b"y")

        assert [subject for _, subject, _, _ in our_messages(stream)] == ["s.a", "t.a"]


@pytest.mark.parametrize("seed", range(100))
def test_the_quick_way_in_gives_what_the_careful_way_gives(tmp_path: Path, seed: int) -> None:
    asked = random_case(seed)
    outcomes = []
    for is_careful in (False, True):
        with StreamHouse(tmp_path / str(is_careful)) as house:
            house.listen("r.>")
            stream = house.create(**asked.config)
            stream.ingest.careful = is_careful or stream.ingest.careful
            outcomes.append(outcome_of(house, stream, asked))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("seed", range(30))
def test_a_restart_changes_nothing(tmp_path: Path, seed: int) -> None:
    asked = random_case(seed)
    with StreamHouse(tmp_path) as house:
        stream = house.create(**asked.config | {"storage": "file"})
        before = outcome_of(house, stream, asked)
        stream = house.reopen(stream)

        assert our_messages(stream) == before.stored
        assert our_numbers(stream) == before.state


def test_a_full_disk_is_told_of() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    with StreamHouse(Path("/"), FakeClock(), files=files) as house:
        house.create(name="S", subjects=["s.>"])
        files.plan = FaultPlan(1, {Operation.WRITE}, error=errno.ENOSPC, forever=True)
        house.publish("s.a", b"x", reply="_IN.1")
        with pytest.raises((StoreError, OSError)):
            house.settle()
        files.plan = None
        house.publish("s.a", b"x", reply="_IN.2")

        assert house.full == ["S"]
