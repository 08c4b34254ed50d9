"""Every field of every configuration: the real server's answers and ours are the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.consumer.config.config import ConsumerConfig
from penstock.stream.config.config import StreamConfigRequest
from penstock.testing.servers import PENSTOCK, REFERENCE, server_process
from tests.api.compared import Listener, Teller, differences
from tests.api.field_stories import CONSUMER_FIELDS, STREAM_FIELDS, TELLERS

pytestmark = pytest.mark.oracle

PAIRS_MIN = 2_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Listener, Listener]]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        server_process(REFERENCE, store_dir=folder / "real") as real,
        server_process(PENSTOCK, store_dir=folder / "ours") as ours,
        Listener(real.port) as one,
        Listener(ours.port) as other,
    ):
        yield one, other


@pytest.mark.slow
@pytest.mark.parametrize("tell", TELLERS, ids=lambda tell: tell.__name__)
def test_a_field_has_the_real_servers_answers(
    pair: tuple[Listener, Listener], tell: Teller
) -> None:
    assert differences(*pair, tell(tell.__name__)) == []


def test_no_field_is_left_out() -> None:
    assert set(STREAM_FIELDS) == set(StreamConfigRequest.__struct_fields__)
    assert set(CONSUMER_FIELDS) == set(ConsumerConfig.__struct_fields__)


def test_there_are_enough_requests() -> None:
    assert sum(len(tell("s")) for tell in TELLERS) >= PAIRS_MIN
