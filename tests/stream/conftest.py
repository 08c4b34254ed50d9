"""Both servers, for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stream.fed import Side, sides


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Return the real server and ours."""
    with sides(tmp_path_factory.mktemp("both")) as pair:
        yield pair
