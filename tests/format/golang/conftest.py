"""Store directories written by the real nats-server, made once per run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.format.golang.written_by_go import WrittenStore, write_streams

Stores = Callable[[str | None, bool], WrittenStore]


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Return the store for (cipher, killed), writing it when first asked for."""

    @cache
    def written(cipher: str | None, killed: bool) -> WrittenStore:
        return write_streams(tmp_path_factory.mktemp("go"), cipher=cipher, killed=killed)

    return written


@pytest.fixture(scope="session")
def stopped(stores: Stores) -> WrittenStore:
    """Return the plain store of a server that was stopped."""
    return stores(None, False)


@pytest.fixture(scope="session")
def killed(stores: Stores) -> WrittenStore:
    """Return the plain store of a server that was killed."""
    return stores(None, True)
