"""Published messages get the same answers, and are stored the same, as with the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.servers import reference_server
from tests.stream.hosts import StreamHouse
from tests.stream.published import Case, ask_ours, ask_reference
from tests.stream.publishing_corpus import CASES
from tests.stream.publishing_fuzz import random_case
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def store_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reference")


@pytest.fixture(scope="module")
def reference(store_dir: Path) -> Iterator[NatsClient]:
    with reference_server(store_dir=store_dir) as server, NatsClient(server.port) as client:
        yield client


@pytest.mark.parametrize("asked", CASES, ids=str)
def test_publishers_are_answered_and_messages_stored_as_by_the_real_server(
    reference: NatsClient, store_dir: Path, tmp_path: Path, asked: Case
) -> None:
    theirs = ask_reference(reference, asked, store_dir)
    with StreamHouse(tmp_path) as house:
        ours = ask_ours(house, asked)

    assert ours.answers == theirs.answers
    assert ours.stored == theirs.stored
    assert ours.state == theirs.state


@pytest.mark.parametrize("start", range(0, 200, 20))
def test_random_messages_fare_as_with_the_real_server(
    reference: NatsClient, store_dir: Path, tmp_path: Path, start: int
) -> None:
    for seed in range(start, start + 20):
        asked = random_case(seed)
        theirs = ask_reference(reference, asked, store_dir)
        with StreamHouse(tmp_path / str(seed)) as house:
            ours = ask_ours(house, asked)

        assert ours == theirs, asked
