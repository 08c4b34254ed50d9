"""The API of consumers, of the real server and ours: the same requests, the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.servers import PENSTOCK, REFERENCE, server_process
from tests.api.compared import Listener, Teller, ask, create, differences, shown
from tests.api.consumer_stories import TELLERS, consumer, durable
from tests.api.stories import FAR_AHEAD, LONG_AGO
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle

Pair = tuple[Listener, Listener]
Ports = tuple[int, int]

REQUESTS_MIN = 300
EVENT_COUNT = 10


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        server_process(REFERENCE, store_dir=folder / "real") as real,
        server_process(PENSTOCK, store_dir=folder / "ours") as ours,
    ):
        yield real.port, ours.port


@pytest.fixture
def pair(ports: Ports) -> Iterator[Pair]:
    with Listener(ports[0]) as real, Listener(ports[1]) as ours:
        yield real, ours


@pytest.mark.parametrize("tell", TELLERS, ids=lambda tell: tell.__name__)
def test_each_request_has_the_real_servers_answer(pair: Pair, tell: Teller) -> None:
    assert differences(*pair, tell(tell.__name__)) == []


def test_there_are_enough_requests() -> None:
    assert sum(len(tell("s")) for tell in TELLERS) >= REQUESTS_MIN


def test_lists_are_cut_into_the_real_servers_pages(pair: Pair) -> None:
    names = [f"n{place:04}" for place in range(300)]
    story = [create("pages", storage="memory"), *(durable("pages", each) for each in names)]
    offsets = (0, 7, 43, 44, 45, 290, 299, 300, 301)
    story += [ask("CONSUMER.NAMES.pages", {"offset": each}) for each in offsets]
    story += [ask("CONSUMER.LIST.pages", {"offset": each}) for each in offsets]

    assert differences(*pair, story) == []


def test_an_account_counts_consumers_and_requests_as_the_real_server_does(tmp_path: Path) -> None:
    story = [create("s"), durable("s", "a"), durable("s", "b"), ask("INFO")]
    story += [consumer("s", "c", deliver_subject="to", direct=True), ask("INFO")]
    story += [ask("CONSUMER.RESET.s.a"), ask("CONSUMER.RESET.s.a", b"x"), ask("INFO")]
    story += [ask("CONSUMER.DELETE.s.a"), ask("CONSUMER.DELETE.s.a"), ask("INFO")]

    with (
        server_process(REFERENCE, store_dir=tmp_path / "real") as real,
        server_process(PENSTOCK, store_dir=tmp_path / "ours") as ours,
        Listener(real.port) as one,
        Listener(ours.port) as other,
    ):
        assert differences(one, other, story) == []


def test_what_becomes_of_consumers_is_told_as_by_the_real_server(ports: Ports) -> None:
    # The real server publishes a pause a moment after the answer: compare each consumer's order.
    real, ours = (sorted(events_of(port), key=consumer_of) for port in ports)

    assert ours == real
    assert len(ours) == EVENT_COUNT


def consumer_of(event: tuple[str, bytes]) -> str:
    return event[0].rpartition(".")[2]


def events_of(port: int) -> Iterator[tuple[str, bytes]]:
    """Create, change and remove some consumers; return subjects and bodies of their events."""
    story = [
        create("told"),
        durable("told", "D"),
        consumer("told", "P", pause_until=FAR_AHEAD),
        durable("told", "D", description="changed"),
        ask("CONSUMER.PAUSE.told.D", {"pause_until": FAR_AHEAD}),
        ask("CONSUMER.PAUSE.told.D"),
        ask("CONSUMER.PAUSE.told.D"),
        ask("CONSUMER.PAUSE.told.D", {"pause_until": LONG_AGO}),
        consumer("told", "G", priority_policy="pinned_client", priority_groups=["jobs"]),
        ask("CONSUMER.UNPIN.told.G", {"group": "jobs"}),
        ask("CONSUMER.DELETE.told.D"),
        ask("CONSUMER.DELETE.told.P"),
    ]
    with NatsClient(port) as watcher:
        watcher.subscribe("$JS.EVENT.ADVISORY.CONSUMER.*.told.*")
        # Answered, so the subscription is in force.
        watcher.api("INFO")
        with Listener(port) as asking:
            asking.tell(story)
        found = 0
        while found < EVENT_COUNT:
            event = watcher.next_delivery()
            if event.subject.startswith("$JS.EVENT."):
                found += 1
                yield event.subject, shown(event.payload)
