"""Pairs of servers, one for each configuration, kept for the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.servers import Pair

PairWith = Callable[[str], Pair]


@pytest.fixture(scope="session")
def pair_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairWith]:
    """Return the pair that runs with a configuration."""
    pairs: dict[str, Pair] = {}

    def start(config: str) -> Pair:
        if config not in pairs:
            pairs[config] = Pair(tmp_path_factory.mktemp("pair"), config)
        return pairs[config]

    yield start
    for pair in pairs.values():
        with pair:
            pass


@pytest.fixture(scope="session")
def pair(pair_with: PairWith) -> Pair:
    """Return the pair that runs without a configuration."""
    return pair_with("")
