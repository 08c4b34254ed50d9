"""What a message of the active block and what a subject costs in memory.

In fresh processes, by the resident memory of the system and by what the structures
themselves say they hold.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import (
    Row,
    Sizes,
    at_most,
    block_bytes,
    folder_in,
    in_own_process,
    median_of,
    si,
)

MB = 1e6


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    return [*_active(sizes, folder), *_subjects(sizes, folder)]


def _active(sizes: Sizes, folder: Path) -> list[Row]:
    with folder_in(folder, "active") as place:
        measured = in_own_process("fill-active", str(place), sizes.active)
    count = f"{measured['index_messages'] / 1e6:.3g} M messages"
    return [
        Row(
            "memory",
            "memory per message in the active block, by resident memory",
            measured["grown_bytes"] / measured["messages"],
            "B",
            at_most(40),
            f"{si(measured['grown_bytes'], 'B')} for {si(measured['messages'], 'messages')} more",
        ),
        Row(
            "memory",
            "memory per message in the active block, allocated",
            measured["index_bytes"] / measured["index_messages"],
            "B",
            at_most(40),
            f"{si(measured['index_bytes'], 'B')} for {count}",
        ),
    ]


def _subjects(sizes: Sizes, folder: Path) -> list[Row]:
    with folder_in(folder, "subjects") as place:
        path = str(place)
        in_own_process("build", path, sizes.distinct_subjects, sizes.distinct_subjects)
        imports = [in_own_process("imports") for _ in range(sizes.rounds)]
        runs = [in_own_process("open", path) for _ in range(sizes.rounds)]
        stored = block_bytes(place)
    assert runs[0]["subjects"] == sizes.distinct_subjects, runs[0]
    what = f"{sizes.distinct_subjects:,} distinct subjects"
    bare = median_of(imports, "resident_bytes")
    resident = median_of(runs, "resident_bytes")
    return [
        Row(
            "memory",
            f"{what}: resident memory above the bare import",
            (resident - bare) / MB,
            "MB",
            at_most(150),
            f"{resident / MB:.1f} MB in all; the table by its own count"
            f" {median_of(runs, 'table_bytes') / MB:.1f} MB;"
            f" peak {median_of(runs, 'peak_bytes') / MB:.1f} MB",
            {"resident_bytes": [run["resident_bytes"] for run in runs]},
        ),
        Row(
            "memory",
            f"{what}: time to open",
            median_of(runs, "seconds"),
            "s",
            None,
            f"{si(median_of(runs, 'read_bytes'), 'B')} read, the blocks are {si(stored, 'B')}",
            {"seconds": [run["seconds"] for run in runs]},
        ),
    ]
