"""Consumers and power cuts: at every call to the disk, every change that was answered is there.

A disk in memory remembers what a power cut would leave after each call, with what clients had been
told by then and what they waited for. From each of these the consumers are brought back.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from penstock.consumer.config.config import AckPolicy, ConsumerConfig
from penstock.consumer.folders import ConsumerFolders
from penstock.consumer.journal import ConsumerJournal
from penstock.consumer.registry import StreamConsumers
from penstock.consumer.state_writer import StateWriter
from penstock.limits import CONSUMER_FOLDERS_S, CONSUMER_JOURNAL_REST_S
from penstock.routing.interest import InterestWatch
from penstock.store.vfs import FileSystem
from penstock.stream.changes import Change
from penstock.stream.stream import Stream
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultPlan, FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem
from tests.stream.hosts import StreamHouse

Told = dict[str, str | None]
"""What each consumer is, by its description; None of one that was removed."""

SEEDS = 3


class Survivor(NamedTuple):
    """What a power cut leaves, and what it may and must be."""

    files: MemoryFileSystem
    told: Told
    asked: Told


class WatchedFiles(MemoryFileSystem):
    """A disk that remembers what power cuts would leave after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.survivors: list[Survivor] = []
        self.told: Told = {}
        self.asked: Told = {}
        self.is_watched = False

    def check_power(self, path: str) -> None:
        super().check_power(path)
        if self.is_watched:
            self.survivors += [
                Survivor(self.survivor(Random(seed)), dict(self.told), dict(self.asked))
                for seed in range(SEEDS)
            ]


class House:
    """A stream and its consumers on a disk."""

    def __init__(self, files: FileSystem) -> None:
        self.clock = FakeClock()
        self._host = StreamHouse(Path("/store"), self.clock, files=files)
        self.stream: Stream = self._host.create(name="S", subjects=["s"])
        self.keeper = StateWriter(lambda: self._host.loop, self._host.log)
        self._journal = ConsumerJournal(self._host, "/store")
        self.folders = ConsumerFolders(self._host, self._journal, self.keeper)
        self.consumers = StreamConsumers(
            self.stream,
            self.keeper,
            InterestWatch(self._host.sublist),
            account_name="A",
            long_name="_.hash",
            sends_long=False,
            unique_id=lambda: "id",
            streams={},
            folders=self.folders,
        )
        recovered = self._journal.recover()
        self.consumers.recover(recovered.get(("S", self.stream.created.time_ns), {}))

    @property
    def found(self) -> Told:
        """What there is; nothing is offline."""
        assert self.consumers.offline == {}
        return {name: each.config.description for name, each in self.consumers.consumers.items()}

    def put(self, name: str, description: str | None) -> Change:
        """Create, change or remove a consumer."""
        if description is None:
            change = self.consumers.delete(name)
        elif name in self.consumers.consumers:
            consumer = self.consumers.consumers[name]
            change = self.consumers.change(consumer, config_of(name, description))
        else:
            _, change = self.consumers.create(name, config_of(name, description))
        assert change is not None
        return change

    def publish(self, count: int) -> None:
        for _ in range(count):
            self._host.publish("s", b"body")
        self._host.settle()

    def wait(self, change: Change) -> None:
        self._host.loop.run_until_complete(asyncio.wait_for(change.wait(), None))

    def let_pass(self, seconds: float) -> None:
        """Let time pass, and do all that is due then."""
        self.clock.advance_ns(int(seconds * 1e9))
        for _ in range(20):
            self._host.loop.run_until_complete(asyncio.sleep(0))
            self.keeper.drain()

    def close(self) -> None:
        self.folders.stop()
        self.stream.stop()
        self.keeper.stop()
        self._host.loop.run_until_complete(asyncio.sleep(0))
        self._host.loop.close()


def config_of(name: str, description: str) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=name, name=name, description=description, ack_policy=AckPolicy.EXPLICIT
    )


@pytest.fixture
def house() -> Iterator[House]:
    files = WatchedFiles()
    files.make_dirs("/store")
    found = House(files)
    files.sync_dir("/")
    files.sync_dir("/store")
    yield found
    files.is_watched = False
    found.close()


def files_of(house: House) -> WatchedFiles:
    files = house.stream.host.files
    assert isinstance(files, WatchedFiles)
    return files


STEPS: list[Told | float] = [
    {"a": "1", "b": "1"},
    {"a": "2"},
    CONSUMER_FOLDERS_S,
    {"b": None, "c": "1"},
    {"b": "3"},
    {"c": None},
    CONSUMER_FOLDERS_S,
    CONSUMER_JOURNAL_REST_S,
    {"a": None},
    {"a": "4"},
    {"b": "5"},
    CONSUMER_FOLDERS_S,
    CONSUMER_JOURNAL_REST_S,
]
"""What is changed together, or seconds that pass."""


def live_through(house: House, steps: list[Told | float]) -> None:
    files = files_of(house)
    files.is_watched = True
    for step in steps:
        if not isinstance(step, dict):
            house.let_pass(step)
            continue
        files.asked = step
        for change in [house.put(*each) for each in step.items()]:
            house.wait(change)
        files.told |= step
        files.asked = {}
    files.is_watched = False


def test_every_answered_change_outlives_a_power_cut_at_any_call(house: House) -> None:
    live_through(house, STEPS)
    survivors = files_of(house).survivors

    assert len(survivors) > 100
    for survivor in survivors:
        after = House(survivor.files)
        found = after.found
        for name in {*survivor.told, *survivor.asked}:
            allowed = {survivor.told.get(name)}
            if name in survivor.asked:
                allowed.add(survivor.asked[name])
            assert found.get(name) in allowed, (name, survivor.told, survivor.asked)
        after.close()


def test_when_nothing_changes_the_journal_is_gone_and_the_folders_have_it_all(
    house: House,
) -> None:
    live_through(house, STEPS)
    files = files_of(house)

    assert [name for name in files.list_names("/store") if name.endswith("journal")] == []
    assert files.list_names("/store/S/consumers") == ["a", "b"]
    after = House(files.survivor(None))
    assert after.found == {"a": "4", "b": "5"}
    after.close()


def test_a_consumer_that_is_created_again_has_nothing_of_the_earlier_one(house: House) -> None:
    files = files_of(house)
    house.wait(house.put("a", "1"))
    first = house.consumers.consumers["a"]
    first.progress.pending.start_at(7)
    change = house.keeper.save(first)
    assert change is not None
    house.wait(change)
    assert files.list_names("/store/S/consumers/a") == ["consumer.json", "state"]
    assert files.is_dir("/store/S/consumers/a")

    house.clock.advance_ns(1)
    changes = [house.put("a", None), house.put("a", "2")]
    for each in changes:
        house.wait(each)

    after = House(files.survivor(None))
    assert after.found == {"a": "2"}
    assert after.consumers.consumers["a"].progress.pending.floor_stream_seq == 0
    after.close()


def test_what_was_reset_is_reset_after_a_power_cut(house: House) -> None:
    house.publish(9)
    house.wait(house.put("a", "1"))
    consumer = house.consumers.consumers["a"]
    for seq in (8, 3):
        consumer.reset(seq)
        change = house.keeper.save(consumer)
        assert change is not None
        house.wait(change)

        after = House(files_of(house).survivor(None))
        assert after.consumers.consumers["a"].progress.position.cursor == seq
        after.close()


@pytest.mark.parametrize("operation", [Operation.OPEN, Operation.WRITE, Operation.SYNC])
def test_a_change_that_cannot_be_written_is_undone_and_the_next_one_works(
    operation: Operation,
) -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    files.make_dirs("/store")
    house = House(files)
    house.wait(house.put("a", "1"))
    house.folders.journal.cut()

    files.plan = FaultPlan(1, [operation], error=errno.ENOSPC)
    changes = [house.put("a", "2"), house.put("b", "2")]
    for change in changes:
        with pytest.raises(OSError, match="No space"):
            house.wait(change)
    files.plan = None

    assert house.found == {"a": "1"}
    house.wait(house.put("b", "3"))
    assert house.found == {"a": "1", "b": "3"}
    house.close()
