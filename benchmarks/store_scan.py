"""Reading everything in order, each record verified, beside hashing the same files.

All files are in the page cache and all sides read them with system calls, in one thread. Verified
are: `StreamReader.verify`, which also compares each block with its index, once the reader has
read the directory; a bare walk, which is what rebuilds an index; and
`StreamReader.batches`, which makes columns.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.baselines import hash_files
from benchmarks.measure import (
    PAYLOAD_BYTES,
    Row,
    Sizes,
    at_least,
    block_bytes,
    block_files,
    folder_in,
    in_own_process,
    ratio,
    si,
    take_turns,
    timed,
)
from penstock.format.block import HEADER_BYTES, decode_block_header
from penstock.format.block_walker import BlockWalker
from penstock.format.index.block_index import BlockIndex
from penstock.format.reader import Selection, StreamReader
from penstock.format.subject_table import SubjectTable


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with folder_in(folder, "scan") as place:
        count = int(in_own_process("build", str(place), sizes.scanned, 100)["messages"])
        size = block_bytes(place)
        files = block_files(place)
        hashed, verified, walked, keys, columns = (
            [size / seconds for seconds in taken]
            for taken in take_turns(
                sizes.rounds,
                lambda: hash_files(files),
                lambda: timed(_verify, StreamReader(str(place)), count),
                lambda: timed(_walk, files, count),
                lambda: timed(_columns, place, count, Selection(payloads=False)),
                lambda: timed(_columns, place, count, Selection()),
            )
        )
    what = f"scan with checksums, {PAYLOAD_BYTES} B messages"
    rate = count / size
    xxhash_rate = si(statistics.median(hashed), "B/s")

    def row(name: str, ours: list[float], *, goal: bool) -> Row:
        median = statistics.median(ours)
        return Row(
            "scan",
            f"{what}: {name}, of xxhash over the files",
            ratio(ours, hashed),
            "x",
            at_least(0.4) if goal else None,
            f"{si(median, 'B/s')}, {si(median * rate, 'msg/s')}; xxhash {xxhash_rate}",
            {"penstock": ours, "xxhash": hashed},
        )

    return [
        row("StreamReader.verify", verified, goal=True),
        row("BlockWalker.index_into", walked, goal=False),
        row("columns without payloads", keys, goal=False),
        row("columns", columns, goal=False),
    ]


def _verify(reader: StreamReader, count: int) -> None:
    found = 0
    for check in reader.verify():
        assert not check.damage, check
        found += check.messages
    assert found == count, found


def _walk(files: list[Path], count: int) -> None:
    found = 0
    for path in files:
        data = path.read_bytes()
        header = decode_block_header(data[:HEADER_BYTES], str(path))
        walker = BlockWalker(data, block=header.number, seed=header.seed, base_seq=header.base_seq)
        index = BlockIndex(header.number, 0, header.base_seq, data[:HEADER_BYTES], SubjectTable())
        walker.index_into(index)
        found += index.count
    assert found == count, found


def _columns(path: Path, count: int, wanted: Selection) -> None:
    found = sum(len(batch) for batch in StreamReader(str(path)).batches(wanted))
    assert found == count, found
