"""Atomic batches: when they are abandoned, and that a crash leaves all of a batch or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from typing_extensions import override

from penstock.store.vfs import File, Mode
from penstock.stream.publish.batches import BatchQuota
from penstock.testing.clock import FakeClock
from penstock.testing.filesystem import MemoryFileSystem
from penstock.testing.simulated_calls import new_descriptor
from tests.stream.hosts import StreamHouse
from tests.stream.published import block, our_messages

ABANDONED = "ADVISORY.STREAM.BATCH_ABANDONED.S"


def member(house: StreamHouse, batch_id: str, number: int, *, commit: bool = False) -> None:
    headers = {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}
    if commit:
        headers["Nats-Batch-Commit"] = "1"
    house.publish(f"s.{number}", b"x" * 100, headers=block(headers), reply=f"_IN.{number}")


def error_codes(house: StreamHouse) -> list[int]:
    bodies = [json.loads(answer.body) for answer in house.answers() if answer.body]
    return [body["error"]["err_code"] for body in bodies if "error" in body]


def test_a_batch_that_waits_too_long_is_abandoned(tmp_path: Path) -> None:
    clock = FakeClock()
    with StreamHouse(tmp_path, clock) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        member(house, "b", 1)
        clock.advance_seconds(9)
        member(house, "b", 2)
        house.settle()
        clock.advance_seconds(9)
        house.settle()
        before = list(house.advisories)
        clock.advance_seconds(1)
        house.settle()
        member(house, "b", 3, commit=True)

        abandoned = {"stream": "S", "batch": "b", "reason": "timeout"}
        assert before == []
        assert house.advisories == [
            (ABANDONED, abandoned | {"type": "advisory.v1.stream_batch_abandoned"})
        ]
        assert error_codes(house) == [10176]
        assert stream.store.state().messages == 0


def test_a_batch_with_a_gap_is_told_of(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.create(name="S", subjects=["s.>"], allow_atomic=True)
        member(house, "b", 1)
        member(house, "b", 3)

        assert error_codes(house) == [10176]
        assert [fields["reason"] for _, fields in house.advisories] == ["incomplete"]


def test_a_stream_has_a_bounded_number_of_batches(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.create(name="S", subjects=["s.>"], allow_atomic=True)
        for number in range(51):
            member(house, f"b{number}", 1)
        refused = error_codes(house)
        member(house, "b0", 2, commit=True)
        member(house, "another", 1)

        assert refused == [10210]
        assert error_codes(house) == []
        assert house.batch_quota.total == 50


def test_a_server_has_a_bounded_number_of_batches(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.batch_quota = BatchQuota(total_max=2)
        house.create(name="S", subjects=["s.>"], allow_atomic=True)
        for number in range(3):
            member(house, f"b{number}", 1)

        assert error_codes(house) == [10210]


def test_batches_hold_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.batch_quota = BatchQuota(bytes_max=400)
        house.create(name="S", subjects=["s.>"], allow_atomic=True)
        member(house, "b", 1)
        member(house, "b", 2)
        member(house, "c", 1)

        assert error_codes(house) == [10023]
        assert [fields["batch"] for _, fields in house.advisories] == ["c"]
        member(house, "b", 3, commit=True)
        assert house.batch_quota.bytes == 0


def test_a_stopped_stream_gives_its_room_back(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        member(house, "b", 1)
        stream.stop()

        assert (house.batch_quota.total, house.batch_quota.bytes) == (0, 0)


class WatchedDisk(MemoryFileSystem):
    """A disk that notes, before each sync, what a power cut would leave."""

    def __init__(self) -> None:
        super().__init__()
        self.survivors: list[MemoryFileSystem] = []
        self.is_watched = False

    @override
    def open(self, path: str, mode: Mode) -> File:
        return _WatchedFile(super().open(path, mode), self)

    def watch(self) -> None:
        if self.is_watched:
            seeds = range(len(self.survivors), len(self.survivors) + 40)
            self.survivors += [self.survivor(Random(seed)) for seed in seeds]


class _WatchedFile:
    def __init__(self, file: File, disk: WatchedDisk) -> None:
        self._file = file
        self._disk = disk
        self._fd = new_descriptor(self)

    def call_fd(self) -> int:
        return self._fd

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync_data(self) -> None:
        self._disk.watch()
        self._file.sync_data()

    def call_sync(self) -> None:
        self.sync_data()


def test_a_power_cut_leaves_all_of_a_batch_or_nothing() -> None:
    disk = WatchedDisk()
    with StreamHouse(Path("/"), FakeClock(), files=disk) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        house.publish("s.before", b"x")
        house.settle()
        disk.is_watched = True
        for number in range(1, 21):
            member(house, "b", number, commit=number == 20)
        house.settle()
        disk.is_watched = False

    lengths = set()
    for survivor in disk.survivors:
        with StreamHouse(Path("/"), FakeClock(), files=survivor) as house:
            stream = house.open(stream.config)
            found = [subject for _, subject, _, _ in our_messages(stream)]
            lengths.add((len(found), bool(house.log_lines)))
            assert found in (["s.before"], ["s.before", *(f"s.{n}" for n in range(1, 21))])

    # Some cuts left parts to be removed, some all of the batch, some nothing of it.
    assert lengths == {(1, False), (1, True), (21, False)}


def test_a_batch_whose_end_was_deleted_is_whole(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"], allow_atomic=True)
        member(house, "b", 1)
        member(house, "b", 2, commit=True)
        stream.store.remove(2)
        stream = house.reopen(stream)

        assert stream.store.state().messages == 1
