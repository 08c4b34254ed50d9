"""Power cuts in a simulated machine: any call, any survival of what was not synced, any seed."""

from __future__ import annotations

import pytest

from tests.crash.power_cuts import survive

QUICK_SEEDS = 150
SOAK_SEEDS = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, QUICK_SEEDS, 25))
def test_what_was_durable_survives_a_power_cut_at_any_call(start: int) -> None:
    for seed in range(start, start + 25):
        survive(seed)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(QUICK_SEEDS, SOAK_SEEDS, 500))
def test_what_was_durable_survives_thousands_of_power_cuts(start: int) -> None:
    for seed in range(start, min(start + 500, SOAK_SEEDS)):
        survive(seed)
