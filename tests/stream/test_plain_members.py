"""Members of atomic batches that ask for no answer: added by compiled code, judged all the same."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stream.publish.batches import BatchQuota
from penstock.stream.stream import Stream
from penstock.testing.clock import FakeClock
from tests.stream.hosts import StreamHouse
from tests.stream.published import block, our_messages

ID, NUMBER, COMMIT = "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"


def plain(house: StreamHouse, number: int, body: bytes = b"x") -> None:
    house.publish(f"s.{number}", body, headers=block({ID: "b", NUMBER: str(number)}))


def commit(house: StreamHouse, number: int) -> int:
    """Commit; return the code of the refusal, 0 for none."""
    words = {ID: "b", NUMBER: str(number), COMMIT: "1"}
    house.publish("s.end", b"end", headers=block(words), reply="_IN.end")
    answer = json.loads(house.answers()[-1].body)
    return int(answer["error"]["err_code"]) if "error" in answer else 0


def kept(stream: Stream) -> int:
    """Return how many members the compiled path has added."""
    members = stream.ingest.open_batches.get(b"b")
    return 0 if members is None else sum(isinstance(each, tuple) for each in members.entries)


def test_they_are_kept_without_a_closer_look_and_stored_in_order(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        for number in range(1, 1000):
            plain(house, number, b"%d" % number)

        assert kept(stream) == 998
        assert commit(house, 1000) == 0
        found = our_messages(stream)
        assert [subject for _, subject, _, _ in found] == [
            *(f"s.{number}" for number in range(1, 1000)),
            "s.end",
        ]
        assert (house.batch_quota.total, house.batch_quota.bytes) == (0, 0)
        assert stream.ingest.open_batches == {}


entries = st.lists(
    st.tuples(
        st.sampled_from(["s.1", "s.2", "s.3"]),
        st.sampled_from([{}, {}, {"A": "b"}, {"Nats-Orig-Stream": "T"}, {"Nats-Msg-Id": "i"}]),
        st.booleans(),
        st.sampled_from([0, 0, 0, 0, 1]),
    ),
    min_size=1,
    max_size=8,
)
ends = st.sampled_from(
    [
        {},
        {"Nats-Expected-Last-Subject-Sequence": "0"},
        {"Nats-Expected-Last-Subject-Sequence": "1"},
        {
            "Nats-Expected-Last-Subject-Sequence": "0",
            "Nats-Expected-Last-Subject-Sequence-Subject": "s.2",
        },
        {"Nats-Rollup": "sub"},
        {"Nats-TTL": "1h"},
        {"Nats-Msg-Id": "j"},
        {"Nats-Batch-Commit": "eob"},
    ]
)


@settings(max_examples=40, deadline=None)
@given(entries, ends, st.sampled_from([{}, {"discard": "new", "max_msgs": 5}]))
def test_whether_a_member_asks_for_an_answer_changes_nothing_but_that(
    members: list[tuple[str, dict[str, str], bool, int]],
    end: dict[str, str],
    more: dict[str, object],
) -> None:
    outcomes = []
    for asks_always in (True, False):
        with TemporaryDirectory() as folder, StreamHouse(Path(folder), FakeClock()) as house:
            stream = house.create(
                name="S",
                subjects=["s.>"],
                allow_atomic=True,
                allow_rollup_hdrs=True,
                allow_msg_ttl=True,
                **more,
            )
            number = 0
            for subject, headers, asks, gap in members:
                number += 1 + gap
                words = {ID: "b", NUMBER: str(number)} | headers
                reply = "_IN.member" if asks_always or asks else ""
                house.publish(subject, b"x", headers=block(words), reply=reply)
            words = {ID: "b", NUMBER: str(number + 1), COMMIT: "1"} | end
            house.publish("s.9", b"end", headers=block(words), reply="_IN.end")
            house.settle()
            answer = [each.body for each in house.answers() if each.subject == "_IN.end"]
            stored = [message[1:] for message in our_messages(stream)]
            outcomes.append((answer, stored, house.batch_quota.total, house.batch_quota.bytes))

    assert outcomes[0] == outcomes[1]


def test_they_keep_a_batch_from_being_abandoned(tmp_path: Path) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        plain(house, 1)
        for number in range(2, 5):
            clock.advance_seconds(9)
            plain(house, number)
            house.settle()

        assert kept(stream) == 3
        assert commit(house, 5) == 0


@pytest.mark.parametrize(
    ("numbers", "refusal"), [([1, 3], 10176), ([2], 10176), ([1, 2, 2], 10176), ([1, 2], 0)]
)
def test_one_that_is_missing_ends_the_batch(
    tmp_path: Path, numbers: list[int], refusal: int
) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        for number in numbers:
            plain(house, number)

        assert commit(house, numbers[-1] + 1) == refusal
        assert bool(stream.store.state().messages) is not bool(refusal)


def test_what_is_expected_of_their_subjects_is_refused(tmp_path: Path) -> None:
    expected = {
        "Nats-Expected-Last-Subject-Sequence": "0",
        "Nats-Expected-Last-Subject-Sequence-Subject": "s.2",
    }
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        for number in range(1, 4):
            plain(house, number)
        words = {ID: "b", NUMBER: "4", COMMIT: "1"} | expected
        house.publish("s.end", b"end", headers=block(words), reply="_IN.end")

        assert json.loads(house.answers()[-1].body)["error"]["err_code"] == 10164
        assert stream.store.state().messages == 0


def test_they_take_room_and_are_bounded(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.batch_quota = BatchQuota(bytes_max=1000, messages_max=20)
        house.create(name="S", subjects=["s.>"], allow_atomic=True)
        for number in range(1, 4):
            plain(house, number, b"x" * 200)
        assert 600 < house.batch_quota.bytes <= 1000
        plain(house, 4, b"x" * 400)
        assert (house.batch_quota.total, house.batch_quota.bytes) == (0, 0)

        for number in range(1, 22):
            plain(house, number, b"")
        assert house.batch_quota.total == 0


def test_a_stream_that_wants_a_closer_look_meanwhile_has_it(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        house.listen("copied.>")
        for number in range(1, 4):
            plain(house, number)
        assert kept(stream) == 2
        copying = {"src": "s.>", "dest": "copied.>"}
        house.update(stream, subjects=["s.>"], allow_atomic=True, republish=copying)
        words = {ID: "b", NUMBER: "4", COMMIT: "1"}
        house.publish("s.end", b"end", headers=block(words), reply="_IN.end")

        told = [each.subject for each in house.answers()]
        assert told == [
            "copied.1",
            "copied.2",
            "copied.3",
            "copied.end",
            "_IN.end",
        ]
