"""What consumers deliver, and when: the same stories with the real server and with ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.servers import PENSTOCK, REFERENCE, server_process
from tests.consumer import delivery_stories, serving_stories
from tests.consumer.delivered import Story, lived

pytestmark = pytest.mark.oracle

STORIES = [*delivery_stories.STORIES, *serving_stories.STORIES]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        server_process(REFERENCE, store_dir=folder / "real") as real,
        server_process(PENSTOCK, store_dir=folder / "ours") as ours,
    ):
        yield real.port, ours.port


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_each_story_goes_as_with_the_real_server(ports: tuple[int, int], story: Story) -> None:
    real, ours = ports

    assert lived(ours, story) == lived(real, story)
