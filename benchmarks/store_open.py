"""Opening a large store after a clean stop, and rebuilding all that is derived in it.

Each open happens in a fresh process, with the files in the page cache. The stores that are compared
have a last block that is half full, since it is scanned at every open.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.measure import (
    Row,
    Sizes,
    at_most,
    block_bytes,
    folder_in,
    in_own_process,
    median_of,
    ratio,
    si,
)

Runs = list[dict[str, float]]
MB = 1e6
OPENS_A_ROUND = 3


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with folder_in(folder, "open") as place:
        small, large = str(place / "small"), str(place / "large")
        in_own_process("build", small, sizes.opened_small, 100)
        in_own_process("build", large, sizes.opened_large, 100)
        # What is still on its way to the disk must not run beside what is measured.
        os.sync()
        imports: Runs = []
        of_small: Runs = []
        of_large: Runs = []
        # An open takes some milliseconds, so one that is disturbed must not count for much.
        for _ in range(OPENS_A_ROUND * sizes.rounds):
            imports.append(in_own_process("imports"))
            of_small.append(in_own_process("open", small))
            of_large.append(in_own_process("open", large))
        assert not any(run["rebuilt"] for run in of_large)
        return [
            *_opening(imports, of_small, of_large),
            *_rebuilding(place / "large", block_bytes(place / "large"), sizes.rounds),
        ]


def _opening(imports: Runs, small: Runs, large: Runs) -> list[Row]:
    count = f"{large[0]['messages'] / 1e6:.3g} M messages"
    few = f"{small[0]['messages'] / 1e6:.3g} M"
    seconds = [run["seconds"] for run in large]
    resident = [run["resident_bytes"] for run in large]
    seconds_small = [run["seconds"] for run in small]
    resident_small = [run["resident_bytes"] for run in small]
    bare = median_of(imports, "resident_bytes")
    # The goal is for the open alone; a user waits for import and open.
    importing = median_of(imports, "seconds")
    whole = [run["seconds"] + importing for run in large]
    whole_small = [run["seconds"] + importing for run in small]
    return [
        Row(
            "open",
            f"open {count}, clean stop: time",
            median_of(large, "seconds"),
            "s",
            at_most(1),
            f"importing the package takes {median_of(imports, 'seconds'):.2f} s more;"
            f" {si(median_of(large, 'read_bytes'), 'B')} read",
            {"seconds": seconds},
        ),
        Row(
            "open",
            f"open {count}, clean stop: resident memory",
            median_of(large, "resident_bytes") / MB,
            "MB",
            at_most(150),
            f"of which {bare / MB:.1f} MB is Python and the package;"
            f" peak {median_of(large, 'peak_bytes') / MB:.1f} MB",
            {"resident_bytes": resident},
        ),
        Row(
            "open",
            f"open: time of the process, {count} over {few}",
            ratio(whole, whole_small),
            "x",
            None,
            f"with the import of {importing * 1e3:.0f} ms",
            {"large": whole, "small": whole_small},
        ),
        Row(
            "open",
            f"open: time of FileStore.open alone, {count} over {few}",
            ratio(seconds, seconds_small),
            "x",
            at_most(1.2),
            f"{median_of(small, 'seconds') * 1e3:.1f} ms and"
            f" {median_of(large, 'seconds') * 1e3:.1f} ms",
            {"large": seconds, "small": seconds_small},
        ),
        Row(
            "open",
            f"open: resident memory, {count} over {few}",
            ratio(resident, resident_small),
            "x",
            at_most(1.2),
            f"{(median_of(small, 'resident_bytes') - bare) / MB:.1f} MB and"
            f" {(median_of(large, 'resident_bytes') - bare) / MB:.1f} MB above the bare import",
            {"large": resident, "small": resident_small},
        ),
    ]


def _rebuilding(path: Path, size: int, rounds: int) -> list[Row]:
    runs: Runs = []
    for _ in range(min(rounds, 3)):
        for file in [*path.glob("*.idx"), *path.glob("stream.state")]:
            file.unlink()
        runs.append(in_own_process("open", str(path)))
    assert all(run["rebuilt"] for run in runs) or size < 16 * 1024 * 1024
    speeds = [size / run["seconds"] for run in runs]
    cores = [run["processor_seconds"] / run["seconds"] for run in runs]
    return [
        Row(
            "open",
            "rebuild of every index of that store",
            sorted(speeds)[len(speeds) // 2] / MB,
            "MB/s",
            None,
            f"{si(size, 'B')} in {median_of(runs, 'seconds'):.2f} s;"
            f" peak {median_of(runs, 'peak_bytes') / MB:.0f} MB resident",
            {"bytes_per_second": speeds},
        ),
        Row(
            "open",
            "rebuild: cores in use (processor time over time)",
            sorted(cores)[len(cores) // 2],
            "cores",
            None,
            f"{median_of(runs, 'processor_seconds'):.2f} s of processor time",
            {"cores": cores},
        ),
    ]
