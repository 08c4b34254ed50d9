"""All that answers show, of streams and consumers that have it all: the real server's bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.servers import PENSTOCK, REFERENCE, server_process
from tests.api.compared import (
    Listener,
    Story,
    Teller,
    ask,
    create,
    differences,
    get,
    info,
    publish,
)
from tests.api.consumer_stories import consumer
from tests.api.shown_stories import TELLERS

pytestmark = pytest.mark.oracle

Pair = tuple[Listener, Listener]


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
def test_everything_is_shown_as_the_real_server_shows_it(pair: Pair, tell: Teller) -> None:
    assert differences(*pair, tell(tell.__name__)) == []


def test_lists_of_consumers_are_cut_into_the_real_servers_pages(pair: Pair) -> None:
    s = "paged"
    story: Story = [create(s, storage="memory")]
    story += [consumer(s, f"c{place:04}", mem_storage=True) for place in reversed(range(300))]
    story += [ask(f"CONSUMER.NAMES.{s}"), ask(f"CONSUMER.LIST.{s}"), ask(f"STREAM.INFO.{s}")]
    story += [ask(f"CONSUMER.NAMES.{s}", {"offset": each}) for each in (-1, 7, 299, 300, 301)]
    story += [ask(f"CONSUMER.LIST.{s}", {"offset": each}) for each in (-1, 7, 290, 300, 301)]
    story += [ask(f"CONSUMER.DELETE.{s}.c0007"), ask(f"STREAM.INFO.{s}")]

    assert differences(*pair, story) == []


def test_subjects_that_are_no_text_are_shown_as_the_real_server_shows_them(pair: Pair) -> None:
    s = "bytes"
    names = (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"b\xf0\x9f", b"\xe2\x80\xa9\x80")
    subjects = [f"{s}.{name.decode('utf-8', 'surrogateescape')}" for name in names]
    story: Story = [create(s), *map(publish, subjects)]
    story += [info(s, subjects_filter=">"), *(get(s, seq=seq) for seq in range(1, 6))]

    assert differences(*pair, story) == []
