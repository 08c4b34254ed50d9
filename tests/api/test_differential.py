"""The API of the real server and ours: the same requests, the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.servers import PENSTOCK, REFERENCE, server_process
from tests.api.compared import Listener, Teller, ask, create, differences
from tests.api.stories import CONFIGURED, TELLERS

pytestmark = pytest.mark.oracle

Pair = tuple[Listener, Listener]

PAIRS_MIN = 300


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        server_process(REFERENCE, store_dir=folder / "real") as real,
        server_process(PENSTOCK, store_dir=folder / "ours") as ours,
        Listener(real.port) as one,
        Listener(ours.port) as other,
    ):
        yield one, other


@pytest.mark.parametrize("tell", TELLERS, ids=lambda tell: tell.__name__)
def test_each_request_has_the_real_servers_answer(pair: Pair, tell: Teller) -> None:
    assert differences(*pair, tell(tell.__name__)) == []


@pytest.mark.parametrize("place", range(len(CONFIGURED)))
def test_each_configuration_has_the_real_servers_answers(pair: Pair, place: int) -> None:
    assert differences(*pair, CONFIGURED[place](f"configured-{place}")) == []


def test_there_are_enough_requests() -> None:
    asked = sum(len(tell("s")) for tell in [*TELLERS, *CONFIGURED])

    assert asked >= PAIRS_MIN


def test_lists_are_cut_into_the_real_servers_pages(tmp_path: Path) -> None:
    names = [f"n{place:04}" for place in range(300)]
    story = [create(name, storage="memory") for name in reversed(names)]
    story += [ask("STREAM.NAMES"), ask("STREAM.LIST"), ask("INFO")]
    story += [ask("STREAM.NAMES", {"offset": each}) for each in (-1, 0, 7, 299, 300, 301)]
    story += [ask("STREAM.LIST", {"offset": each}) for each in (-1, 7, 290, 300, 301)]
    story += [
        ask("STREAM.NAMES", {"subject": each}) for each in ("n0007.>", "n0007.a", ">", "*", "x")
    ]
    story += [ask("STREAM.LIST", {"subject": each}) for each in ("n0007.>", "n0007.a", "x")]
    story += [ask("STREAM.NAMES", b"{"), ask("STREAM.LIST", b'{"bogus":1}'), ask("INFO")]

    with (
        server_process(REFERENCE, store_dir=tmp_path / "real") as real,
        server_process(PENSTOCK, store_dir=tmp_path / "ours") as ours,
        Listener(real.port) as one,
        Listener(ours.port) as other,
    ):
        assert differences(one, other, story) == []
