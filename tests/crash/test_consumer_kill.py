"""A server that is killed under a load of publishing, fetching and acknowledging.

In each round publishers and workers go on until the server is killed, at a random moment, and it is
started again on the same folder. Whatever was acknowledged to a publisher is delivered to every
consumer that wants it; whatever acknowledgement was confirmed to a worker is never undone; and what
all are done with is gone from a stream that keeps only what is of interest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from penstock.client.client import Client
from penstock.testing.servers import ServerProcess, server_process
from tests.crash.publishers import Kind, Publisher, call
from tests.crash.workers import Worker
from tests.support.figures import Record

LIMITS = Kind("LIMITS")
QUEUE = Kind("QUEUE", {"retention": "workqueue"})
INTEREST = Kind("INTEREST", {"retention": "interest"})
CONFIRMED_MAX = 300
"""The most acknowledgements that are confirmed to one worker before the server is killed."""

AHEAD_MAX = 2_000
"""A publisher waits when the slowest worker is so many messages behind."""

WAIT_S = 120


class Story:
    """What publishers and workers know over all rounds."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.workers = [
            Worker(LIMITS, "plain", self.changed),
            Worker(LIMITS, "filtered", self.changed, {"filter_subject": "limits.7"}),
            Worker(QUEUE, "queue", self.changed),
            Worker(INTEREST, "first", self.changed),
            Worker(INTEREST, "second", self.changed, {"max_ack_pending": 40}),
        ]
        self.next_numbers = dict.fromkeys((LIMITS.name, QUEUE.name, INTEREST.name), 1)
        self.stored: dict[str, set[int]] = {name: set() for name in self.next_numbers}

    def create(self, client: Client) -> None:
        for kind in (LIMITS, QUEUE, INTEREST):
            kind.create(client)
        for worker in self.workers:
            worker.create(client)

    def publish(self, client: Client, kind: Kind) -> None:
        """Publish until the server ends, not too far ahead of the workers."""
        publisher = Publisher(client, kind, self.next_numbers[kind.name])
        workers = [each for each in self.workers if each.kind is kind and each.wants_all]
        try:
            while True:
                seen_count = min(len(worker.seen) for worker in workers)
                if len(self.stored[kind.name]) + len(publisher.acked) < seen_count + AHEAD_MAX:
                    publisher.fill()
                    publisher.take_ack()
                else:
                    self._wait_for_workers(client)
        except ConnectionError:
            publisher.take_the_rest()
        self.next_numbers[kind.name] = publisher.next_number
        self.stored[kind.name].update(publisher.acked)

    def _wait_for_workers(self, client: Client) -> None:
        with self.changed:
            self.changed.wait(WAIT_S)
        # Raises where the server is gone.
        client.flush()

    @contextmanager
    def at_work(self, server: ServerProcess, *kinds: Kind) -> Iterator[None]:
        """Have all workers at work, and publishers to streams; in the end the server is killed."""
        tasks: list[Callable[[Client], None]] = [worker.work for worker in self.workers]
        tasks += [partial(self.publish, kind=kind) for kind in kinds]
        clients = [Client.connect(server.url) for _ in tasks]
        threads = [
            threading.Thread(target=task, args=(client,))
            for client, task in zip(clients, tasks, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            server.kill()
            with self.changed:
                self.changed.notify_all()
            for thread in threads:
                thread.join(WAIT_S)
            for client in clients:
                client.close()
        assert not any(thread.is_alive() for thread in threads)
        assert [worker.wrong for worker in self.workers if worker.wrong] == []

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(is_so, WAIT_S)

    def expect_the_rest(self) -> None:
        """Note what was stored for each worker, and he has not seen."""
        for worker in self.workers:
            stored = self.stored[worker.kind.name]
            worker.awaited = {each for each in stored if worker.wants(each)} - worker.seen


def kill_under_load(server: ServerProcess, story: Story, seed: int) -> None:
    worker = story.workers[seed % len(story.workers)]
    # A filter lets one in fifty pass.
    count = Random(seed).randint(1, CONFIRMED_MAX) if worker.wants_all else 1
    wanted = len(worker.confirmed) + count
    with story.at_work(server, LIMITS, QUEUE, INTEREST):
        story.wait_for(lambda: len(worker.confirmed) >= wanted)


def drain(server: ServerProcess, story: Story) -> None:
    """Fetch all that is left: nothing was skipped, and nothing is left over."""
    story.expect_the_rest()
    with story.at_work(server), Client.connect(server.url) as client:
        story.wait_for(lambda: not any(worker.awaited for worker in story.workers))
        for kind in (QUEUE, INTEREST):
            while call(client, f"STREAM.INFO.{kind.name}")["state"]["messages"]:
                # What came last is still to be acknowledged.
                pass


def survive_kills(folder: Path, kills: int) -> int:
    """Kill a server again and again; return how many acknowledgements it had confirmed."""
    story = Story()
    server = server_process(store_dir=folder)
    with Client.connect(server.url) as client:
        story.create(client)
    for seed in range(kills):
        kill_under_load(server, story, seed)
        server = server_process(store_dir=folder)
    drain(server, story)
    return sum(len(worker.confirmed) for worker in story.workers)


@pytest.mark.slow
def test_consumers_of_a_server_killed_five_times_skip_and_forget_nothing(tmp_path: Path) -> None:
    survive_kills(tmp_path, 5)


@pytest.mark.soak
def test_consumers_of_a_server_killed_a_hundred_times_skip_and_forget_nothing(
    tmp_path: Path, record_property: Record
) -> None:
    record_property("acknowledgements confirmed", survive_kills(tmp_path, 100))
