"""What the store's tests share: stores of every kind, and comparisons that say what differs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.store_kinds import KINDS, StoreHouse

pytest.register_assert_rewrite("tests.support.stores")


@pytest.fixture(params=KINDS)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHouse]:
    """A place for stores, once for each kind."""
    kept = StoreHouse(request.param, tmp_path)
    yield kept
    kept.close()


@pytest.fixture(params=[kind for kind in KINDS if kind != "memory"])
def lasting_house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHouse]:
    """A place for stores that outlive being stopped."""
    kept = StoreHouse(request.param, tmp_path)
    yield kept
    kept.close()


@pytest.fixture
def simulated_house(tmp_path: Path) -> Iterator[StoreHouse]:
    """A place for stores whose commits happen only when they are asked for."""
    kept = StoreHouse("simulated disk", tmp_path)
    yield kept
    kept.close()
